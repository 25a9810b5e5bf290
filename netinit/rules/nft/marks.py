"""Bits of marks in nft's JSON: compared (`meta mark & 0xfff`) and changed (`ct mark set ct mark & … | …`)."""

from __future__ import annotations

from netinit.base.net import FULL_MASK
from netinit.rules.targets import SetMark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK: Any = {"meta": {"key": "mark"}}
CONNECTION_MARK: Any = {"ct": {"key": "mark"}}


def read_masked(left: Any) -> tuple[Any, int] | None:
    """What is compared and the bits of it that count, for `{"&": [{"meta": …}, 4095]}`; None for anything else."""
    if not isinstance(left, dict) or set(left) != {"&"}:
        return None
    inner, mask = left["&"]
    return (inner, mask) if inner in (MARK, CONNECTION_MARK) and _is_number(mask) else None


def read_change(key: Any, value: Any) -> SetMark | None:
    """The change of a mark's bits that an assignment of it to itself means; None for anything else.

    The kernel keeps two numbers, what is kept and what is xored in; nft lists `&` and `|`, or `^`, as fits these.
    """
    if key not in (MARK, CONNECTION_MARK) or not isinstance(value, dict) or len(value) != 1:
        return None
    ((operator, operands),) = value.items()
    if operator not in ("&", "|", "^") or not isinstance(operands, list):
        return None
    kept, changed = operands
    if not _is_number(changed):
        return None
    connection = key == CONNECTION_MARK
    if operator == "&":
        return SetMark(value=0, mask=FULL_MASK & ~changed, connection=connection) if kept == key else None
    masked = read_masked(kept)
    if kept != key and (masked is None or masked[0] != key):
        return None
    left = FULL_MASK if masked is None else masked[1]
    cleared = FULL_MASK & ~(left & ~changed if operator == "|" else left)
    return SetMark(value=changed, mask=cleared, connection=connection)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= FULL_MASK
