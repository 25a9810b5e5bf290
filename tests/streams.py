"""Manual injection of a whole stream: text in, text out."""

from __future__ import annotations

from typing import Any, NamedTuple

from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.stream import inject_into
from netinit.questions.injection_advice import advise


class Injected(NamedTuple):
    """The stream after injection, the notices for the user, and how many workloads changed."""

    text: str
    notices: tuple[str, ...]
    changed: int


def inject_stream(text: str, config: InjectionConfig, **more: Any) -> Injected:
    """The stream with every workload injected that is to be."""
    parts: list[str] = []
    notices, changed = inject_into(parts.append, text, config, advise=advise, **more)
    return Injected("".join(parts), notices, changed)
