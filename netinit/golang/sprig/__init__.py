"""The functions of the sprig library (https://masterminds.github.io/sprig/), under its names and with its arguments.

The size of what a function builds is limited (`template.limits`). Random functions, and those that read the clock, the
environment or the network, fail when they are called (`refused`). set, unset and merge only modify maps that the
template itself made.
"""

from __future__ import annotations

from typing import Final

from netinit.golang.sprig import (
    dates,
    encodings,
    lists,
    mappings,
    numbers,
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

_MODULES: Final = (text, words, numbers, lists, mappings, reflection, encodings, regexes, versions, dates, urls, refused)

FUNCTIONS: Final = {name: Function.of(call) for module in _MODULES for name, call in module.FUNCTIONS.items()}
"""sprig's functions by name."""
