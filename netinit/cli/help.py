"""`netinit help`: explains a finding's code, or shows a command's help, without a network or a checkout."""

from __future__ import annotations

import click

from netinit.base.errors import OptionError
from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.base.version import __version__
from netinit.cli.commands import COMMANDS
from netinit.cli.values import takes
from netinit.options.kinds import quote_value, suggest
from netinit.questions.finding_codes import all_kinds, grouped
from netinit.questions.findings import link

ALL = "codes"  # the topic that lists them
LIVE = "Listeners"  # the group of what lint and audit do not find


@click.command("help")
@click.argument("topic", default=ALL, **takes("TOPIC"))
def command(topic: str) -> None:
    """Explain a finding's code, such as NI106, list all codes (codes), or show a command's help.

    An explanation says what is wrong and what to do. `netinit lint --ignore CODE` accepts a finding.
    """
    code = topic.upper()
    if kind := all_kinds().get(code):
        accept = [f"to accept it: --ignore {code}, or the pod's annotation netinit.io/accepted-findings"]
        show(lines([f"{code} ({kind})", "", kind.meaning, "", *(accept if kind.group != LIVE else ()), f"page: {link(code)}"]))
        return
    if topic != ALL:
        near = suggest(topic, [*COMMANDS, *all_kinds(), ALL]) or "`netinit help codes` lists them"
        raise OptionError(f"help: {quote_value(topic)} is neither a command nor a finding's code; {near}")
    show(lines([f"codes of netinit {__version__}; `netinit help CODE` explains one"]))
    for title, kinds in grouped().items():
        show(lines(["", f"{title}:", *[f"  {one.code}  {one}" for one in kinds]]))
