"""Accepted findings: by --ignore, by a file, or by the pod's own annotation with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import click

from netinit.base.errors import OptionError
from netinit.cli.config import load_file
from netinit.cli.findings.codes import Issue, read_code
from netinit.cli.flags import add_value
from netinit.options.kinds import quote_value

LABEL, FILE = "--ignore", "--ignore-file"
BY_FLAG = "ignored by --ignore"


def read_ignored(codes: Iterable[str] = (), file: str = "") -> dict[str, str]:
    """The codes of --ignore and --ignore-file with their reasons. Raises OptionError."""
    found = {read_code(text, LABEL): BY_FLAG for text in codes}
    if not file:
        return found
    tree = load_file(file, FILE)
    if not isinstance(tree, dict):
        raise OptionError(f"{FILE}: {quote_value(file)} is no mapping; write `CODE: reason`, a line each")
    for code, reason in tree.items():
        if not isinstance(reason, str) or not reason.strip():
            raise OptionError(f"{FILE}: {quote_value(str(code))} has no reason; write `{code}: reason`")
        found[read_code(str(code), FILE)] = reason.strip()
    return found


def without_ignored(issues: Iterable[Issue], ignored: Mapping[str, str], of_pod: Mapping[str, str]) -> list[Issue]:
    """Attach the reason to accepted issues; `of_pod` holds the codes of the pod's annotation."""
    reasons = {**of_pod, **ignored}
    return [replace(one, accepted=reasons.get(one.code, "")) for one in issues]


ignore_options = add_value(
    "accepted", read_ignored,
    click.option(LABEL, "codes", multiple=True, metavar="CODE", help="Leave out findings of this code (NI012); repeatable."),
    click.option(FILE, "file", default="", metavar="FILE", help="Leave out those of a file: `CODE: reason` in YAML."),
)  # fmt: skip
