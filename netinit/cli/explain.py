"""`netinit explain`: what happens to a connection, and which option causes it."""

from __future__ import annotations

import click

from netinit.base.output import show_object
from netinit.cli.console import answer, color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand, json_option
from netinit.cli.rule_options import ask_about_a_connection, rule_source_options
from netinit.library.rule_reading import RuleChoice, find_rule_sources
from netinit.options import Options
from netinit.questions.answers import explain_connection
from netinit.questions.connections import Question


@click.command("explain", cls=FlagCommand, shows=ANY_NAMESPACE)
@ask_about_a_connection
@rule_source_options
@json_option("explain")
@color_option
@click.option("--all", "everything", is_flag=True, help="Also show the rules that were checked and do not match.")
def command(options: Options, question: Question, choice: RuleChoice, *, as_json: bool, everything: bool) -> int:
    """Show what happens to a connection, and why.

    The rules are those of the options or of --pod; with --pid, --netns or --live the live ones, compared with those of
    --pod if given. The path is simulated: nothing is sent or changed. The answer says why something cannot be known.
    Exit codes: 0 answered, whatever the verdict, also unknown; 1 the rules cannot be read; 2 wrong options.
    """
    found = explain_connection(find_rule_sources(options, choice), question, everything=everything)
    if as_json:
        show_object(found.to_object())
        return 0
    said: set[str] = set()
    for pod, text in zip(found.pods, found.texts, strict=True):
        note(pod.source.notes)
        warn([one for one in pod.warnings if one not in said])
        said |= {*pod.warnings}
        answer(text)
    return 0
