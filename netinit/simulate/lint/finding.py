"""What lint finds: one thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"  # traffic is lost or loops; something has no effect or another one than it seems
NO_EFFECT, SHADOWED, REDUNDANT, CONTRADICTION = "no-effect", "shadowed", "redundant", "contradiction"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its kind, the option that it is about, and what is wrong with it and the remedy."""

    severity: str
    kind: str
    option: str
    message: str

    def __str__(self) -> str:
        return ": ".join([part for part in (self.severity, self.option, self.message) if part])


def idle(option: str, message: str) -> Finding:
    """An option without effect."""
    return Finding(WARNING, NO_EFFECT, option, message)
