"""A problem found by lint."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"  # error: traffic is lost or loops; warning: no effect, or a surprising one
NO_EFFECT, SHADOWED, REDUNDANT, CONTRADICTION = "no-effect", "shadowed", "redundant", "contradiction"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: severity, kind, the option concerned, and a message with the remedy."""

    severity: str
    kind: str
    option: str
    message: str

    def __str__(self) -> str:
        return ": ".join([part for part in (self.severity, self.option, self.message) if part])


def without_effect(option: str, message: str) -> Finding:
    """The warning about an option without effect."""
    return Finding(WARNING, NO_EFFECT, option, message)
