"""`netinit demo`: watch interception work."""

from __future__ import annotations

import click

from netinit.base.output import answers_a_terminal, can_show, show_painted
from netinit.cli.console import color_option, wants_colour
from netinit.cli.demo import play
from netinit.cli.flags import HELP_NAMES

FAILED = 1
MARKS = {play.GOOD: "✔", play.BAD: "✘"}
PLAIN_MARKS = {play.GOOD: "ok", play.BAD: "NO"}  # for encodings without either symbol
STYLES = {play.TITLE: "1;36", play.CHAIN: "1", play.COMMENT: "2", play.GOOD: "32", play.BAD: "1;31", play.TEXT: ""}


@click.command("demo", context_settings=HELP_NAMES)
@click.option(
    "--backend", type=click.Choice(play.CHOICES), default=play.CHOICES[0], show_default=True,
    help="The backend that programs the kernel.",
)  # fmt: skip
@color_option
def command(backend: str) -> int:
    """Create a pod of network namespaces and watch interception work.

    Prints the plan, programs it, opens real connections over IPv4 and IPv6, shows where each one arrived, verifies and removes
    the rules. Nothing outside of its own namespaces changes. Needs root.

    Exit code 1 if anything is not as it must be.
    """
    colour = wants_colour(answers_a_terminal())
    marks = MARKS if can_show("".join(MARKS.values())) else PLAIN_MARKS
    kinds = []
    for line in play.play(backend):
        show_line(line, colour=colour, marks=marks)
        kinds.append(line.kind)
    show_line(summarise(kinds), colour=colour, marks=marks)
    return FAILED if play.BAD in kinds else 0


def summarise(kinds: list[str]) -> play.Line:
    """The last line: how many checks passed."""
    wrong, right = kinds.count(play.BAD), kinds.count(play.GOOD)
    if wrong:
        return play.Line(play.TITLE, f"{wrong} of {wrong + right} things are not as they must be")
    return play.Line(play.TITLE, f"All {right} things are as they must be")


def show_line(line: play.Line, *, colour: bool, marks: dict[str, str]) -> None:
    """Print a line; titles follow a blank line."""
    style = STYLES[line.kind] if colour else ""
    if line.kind == play.TITLE:
        show_painted([])
        show_painted([(line.text, style)])
    elif line.kind in marks:
        show_painted([("  ", ""), (marks[line.kind], style), (f" {line.text}", "")])
    else:
        show_painted([("  ", ""), (line.text, style)])
