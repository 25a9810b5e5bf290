"""A finding with its code and location."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.cli.findings.codes import CODES

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding about `subject` (an option or a container), with `severity` ERROR, WARNING or NOTE.

    `pod` and `file` are empty if only options were checked. `accepted` is the reason for ignoring it, or empty.
    """

    kind: str
    severity: str
    subject: str
    message: str
    pod: str = ""
    file: str = ""
    accepted: str = ""

    @property
    def code(self) -> str:
        """The stable code."""
        return CODES[self.kind]

    @property
    def text(self) -> str:
        """The subject and the message."""
        return ": ".join([part for part in (self.subject, self.message) if part])
