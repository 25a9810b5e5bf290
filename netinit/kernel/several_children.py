"""Several jobs at once, each in a child process of its own."""

from __future__ import annotations

from netinit.base.errors import NetinitError
from netinit.kernel import children
from netinit.kernel.children import ChildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from netinit.kernel.children import Answer

    Result = TypeVar("Result")
    Key = TypeVar("Key")


def ask_all(
    jobs: Mapping[Key, Callable[[Answer], Result]], *, seconds: float, what: str
) -> dict[Key, Result | NetinitError | ChildError | OSError]:
    """Run all jobs at once, each in a child with all descriptors and groups; return each result or error."""
    started = {}
    found: dict[Key, Result | NetinitError | ChildError | OSError] = {}
    try:
        for key, job in jobs.items():
            started[key] = children.start(job, seconds=seconds, what=what, kept=None)
        for key, child in started.items():
            try:
                found[key] = child.receive()
            except (NetinitError, ChildError, OSError) as error:
                found[key] = error
    finally:
        for child in started.values():
            child.end()
    return found
