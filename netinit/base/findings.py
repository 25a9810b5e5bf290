"""Kinds of findings. Each is declared once, beside its check, with the only copy of its code and of what it means.

`netinit help`, the page of findings, --ignore and SARIF's rules follow from the declarations (netinit/questions/finding_codes.py).
A finding itself is an object that names its kind, and its sentence is an f-string where it is found.
"""

from __future__ import annotations

from netinit.base.records import Record

# A group's title, and the number of its first code. A code's number says its group.
GROUPS = {"Options": 1, "Pods": 101, "Traffic": 201, "Listeners": 301, "Causes": 310}
PREFIX = "NI"


class FindingKind(Record):
    """What a finding is: a `code` that never changes, such as NI012; `name`, for machines; what it means and what to do."""

    code: str
    name: str
    meaning: str

    def __init__(self, code: str, name: str, meaning: str) -> None:
        super().__init__(code=code, name=name, meaning=meaning)

    @property
    def group(self) -> str:
        """The title of its group."""
        number = int(self.code.removeprefix(PREFIX))
        return [title for title, first in GROUPS.items() if first <= number][-1]

    def __str__(self) -> str:
        return self.name
