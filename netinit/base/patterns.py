"""Regular expressions that are compiled when they are first used.

Compiling takes Python a tenth to two milliseconds each; a command that runs once uses few of the many that its modules
define, and should not wait for the others.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_METHODS = ("finditer", "fullmatch", "match", "search", "sub")


class _Waiting:
    """Stands for the pattern; its methods become the compiled pattern's own when one of them is asked for."""

    __slots__ = ("_flags", "_text", *_METHODS)

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # for slots without a value: until the first use
        if name not in _METHODS:
            raise AttributeError(f"a pattern has no {name}; it has {', '.join(_METHODS)}")
        compiled = re.compile(self._text, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """What finds the expression; an error in it shows at the first use. The methods are those named above."""
    return _Waiting(text, flags)  # type: ignore[return-value] # it does what a Pattern does
