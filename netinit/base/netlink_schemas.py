"""Which netlink attributes are known, by nesting level, so that one of a newer kernel is noticed and not dropped.

A reader that takes the attributes it looks for and ignores the others reads `device prefix "e"` as `device "e"`.
"""

from __future__ import annotations

from netinit.base.netlink_attributes import MalformedError, split_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[int, "Schema | None"]
"""The known attributes of a list by number, each with the schema of the list inside it; None: a plain value."""


def values(*numbers: int) -> Schema:
    """Return the schema of a list of plain values."""
    return dict.fromkeys(numbers)


def find_unnamed(data: bytes, schema: Mapping[int, Schema | None], offset: int = 0) -> str:
    """Return the path of the first attribute that the schema does not name, such as 4.4.2, or "". Raises MalformedError."""
    for kind, value in split_attributes(data, offset):
        if kind not in schema:
            return str(kind)
        inner = schema[kind]
        if inner is not None and (below := find_unnamed(value, inner)):
            return f"{kind}.{below}"
    return ""


def check_named(data: bytes, schema: Mapping[int, Schema | None]) -> None:
    """Raise MalformedError if there is an attribute that the schema does not name."""
    if unnamed := find_unnamed(data, schema):
        raise MalformedError(f"attribute {unnamed} is not known")
