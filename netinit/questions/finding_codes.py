"""All codes of findings, as the checks declare them: what may be accepted, and what `netinit help` and the page of findings list.

There is no list to keep: importing the rooms whose checks report codes finds the declarations.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

from netinit import live, questions
from netinit.base.errors import OptionError
from netinit.base.findings import GROUPS, FindingKind
from netinit.inject import deciding
from netinit.options.kinds import quote_value

ROOMS: tuple[ModuleType, ...] = (deciding, live, questions)


@functools.cache
def all_kinds() -> Mapping[str, FindingKind]:
    """Return every kind of finding by its code, in the order of the codes. ValueError if two kinds have the same code."""
    found: dict[str, FindingKind] = {}
    for kind in _declared():
        if found.setdefault(kind.code, kind) != kind:
            raise ValueError(f"{kind.code} is the code of {found[kind.code]} and of {kind}: give one of them the next free number")
    return dict(sorted(found.items()))


def _declared() -> Iterator[FindingKind]:
    for room in ROOMS:
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                kind = getattr(value, "finding", value)  # a kind of traffic has one
                if isinstance(kind, FindingKind):
                    yield kind


def grouped() -> dict[str, list[FindingKind]]:
    """Return the kinds of each group, by its title."""
    return {title: [kind for kind in all_kinds().values() if kind.group == title] for title in GROUPS}


def read_code(text: str, label: str) -> str:
    """Validate a code. Raises OptionError naming `label`."""
    code = text.strip().upper()
    if code not in all_kinds():
        raise OptionError(f"{label}: {quote_value(text)} is not a finding's code, such as NI012; `netinit help codes` lists them")
    return code


def read_accepted_codes(reasons: Mapping[str, object], label: str) -> dict[str, str]:
    """Validate accepted codes and their reasons. Raises OptionError naming `label`."""
    found = {}
    for code, reason in reasons.items():
        if not isinstance(reason, str) or not reason.strip():
            raise OptionError(f"{label}: {quote_value(str(code))} has no reason; write `{code}: reason`")
        found[read_code(str(code), label)] = reason.strip()
    return found
