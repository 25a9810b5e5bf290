"""The functions of the sprig library that charts and injection templates use: all whose result depends on nothing else.

Arguments stand in sprig's order (the subject last, for pipelines), and every count of characters that sprig does on
bytes is done on bytes here. What a function may build is limited. Those that are random or read the clock, the
environment or the network fail when they are called (`refused`); set, unset and merge change maps of the template alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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

__all__ = ["FAMILIES", "FUNCTIONS"]

FAMILIES: Final[Mapping[str, Mapping[str, Callable[..., Any] | Function]]] = {
    "Text": text.FUNCTIONS,
    "Words": words.FUNCTIONS,
    "Defaults and conditions": defaults.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Lists": lists.FUNCTIONS,
    "Maps": mappings.FUNCTIONS,
    "Types": reflection.FUNCTIONS,
    "JSON, base64 and checksums": encodings.FUNCTIONS,
    "Regular expressions": regexes.FUNCTIONS,
    "Versions": versions.FUNCTIONS,
    "Dates": dates.FUNCTIONS,
    "Paths": paths.FUNCTIONS,
    "URLs": urls.FUNCTIONS,
    "Refused when called": refused.FUNCTIONS,
}
"""sprig's functions by family and name."""

FUNCTIONS: Final = {name: Function.of(call) for family in FAMILIES.values() for name, call in family.items()}
"""sprig's functions by name."""
