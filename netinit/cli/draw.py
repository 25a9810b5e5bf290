"""`netinit draw`: draws the chains."""

from __future__ import annotations

import sys

import click

from netinit.base.errors import NetinitError
from netinit.base.net import IPV4, IPV6
from netinit.base.output import show_artefact
from netinit.cli.console import answer as show_answer
from netinit.cli.console import color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.rule_options import ask_about_a_connection, rule_source_options
from netinit.cli.values import OneOf
from netinit.library.rule_reading import RuleChoice, find_rule_source
from netinit.options import Options
from netinit.questions.connections import Question
from netinit.questions.picture import EVERY_TABLE, draw_rules
from netinit.rules.model import TABLES
from netinit.simulate.draw import Picture, render_dot, render_mermaid, render_text

if sys.platform == "linux":
    from netinit.kernel import run
else:
    from netinit.kernel import portable_run as run

PICTURE_FORMATS = ("text", "mermaid", "dot", "svg")
FAMILY_NAMES = {"ipv4": IPV4, "ipv6": IPV6}


@click.command("draw", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.option("--format", "form", type=OneOf(PICTURE_FORMATS), default="text", show_default=True, help="The format.")
@click.option(
    "--family", type=OneOf(tuple(FAMILY_NAMES)), help="The address family (default: that of --to or --from, else ipv4)."
)
@click.option(
    "--table", "tables", type=OneOf((*TABLES, EVERY_TABLE)), multiple=True,
    help="Draw this table; may be repeated (default: nat, and what else captures or decides).",
)  # fmt: skip
@color_option
@ask_about_a_connection
@rule_source_options
def command(
    options: Options, question: Question, choice: RuleChoice, *, form: str, family: str | None, tables: tuple[str, ...]
) -> int:  # fmt: skip
    """Draw the path of packets through the chains: of the options, of --pod, or live (--pid, --netns, --live).

    With --to or --from, the path of that connection is highlighted. The format svg needs Graphviz (`dot`); GitHub shows mermaid
    as a picture.
    """
    rule_source = find_rule_source(options, choice)
    picture, warnings = draw_rules(rule_source, question, FAMILY_NAMES[family] if family else None, tables)
    note(rule_source.notes)
    warn(warnings)
    if form == "text":
        show_answer(render_text(picture))
    else:
        show_artefact({"mermaid": render_mermaid, "dot": render_dot, "svg": render_svg}[form](picture))
    return 0


def render_svg(picture: Picture) -> str:
    """Lay out the drawing with Graphviz. Raises NetinitError if it is missing or fails."""
    dot = run.find("dot")
    if not dot:
        raise NetinitError(
            "--format svg: Graphviz is not installed: there is no program 'dot'; install it (the package graphviz), or"
            " print the text for it with --format dot and draw that elsewhere (dot -Tsvg), or use --format mermaid"
        )
    drawn = run.finish(run.start(dot, ["-Tsvg"], stdin=render_dot(picture)))
    if drawn.status:
        raise NetinitError(f"--format svg: {dot} -Tsvg failed: {drawn.errors or f'status {drawn.status}'}")
    return drawn.output
