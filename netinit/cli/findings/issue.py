"""A finding with its code, and where it is."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.cli.findings.codes import CODES

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Issue:
    """One finding: its kind, `severity` (ERROR, WARNING or NOTE), the `subject` (an option or container) and the message.

    `pod` and `file` are empty where options alone were looked at. `accepted` is why it does not count, empty where it does.
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
        """The code, which never changes."""
        return CODES[self.kind]

    @property
    def text(self) -> str:
        """The subject and the message."""
        return ": ".join([part for part in (self.subject, self.message) if part])
