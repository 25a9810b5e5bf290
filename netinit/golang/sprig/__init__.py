"""The functions of the sprig library that charts and injection templates use: all whose result depends on nothing else.

Arguments stand in sprig's order (the subject last, for pipelines), and every count of characters that sprig does on
bytes is done on bytes here. What a function may build is limited. Those that are random or read the clock, the
environment or the network fail when they are called (`refused`); set, unset and merge change maps of the template alone.
"""

from __future__ import annotations

from typing import Final

from netinit.golang.sprig import (
    dates,
    defaults,
    encodings,
    lists,
    mappings,
    numbers,
    paths,
    reflection,
    refused,
    regexes,
    text,
    urls,
    versions,
    words,
)
from netinit.golang.template.values import Function

__all__ = ["FUNCTIONS"]

_MODULES: Final = (
    text, words, defaults, numbers, lists, mappings, reflection, encodings, regexes, versions, dates, paths, urls, refused,
)  # fmt: skip

FUNCTIONS: Final = {name: Function.of(call) for module in _MODULES for name, call in module.FUNCTIONS.items()}
"""sprig's functions by name."""
