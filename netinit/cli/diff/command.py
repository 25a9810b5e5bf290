"""`netinit diff`: packets that two sets of rules treat differently."""

from __future__ import annotations

import click

from netinit.base.errors import DriftError, OptionError
from netinit.base.output import show_artefact, to_json, with_version
from netinit.cli.console import answer, color_option, note, warn
from netinit.cli.diff.report import EQUAL, render_text, to_object
from netinit.cli.diff.sides import Compared, read_git, read_live_pair, read_manifests, read_sides
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand, json_option
from netinit.options import Options

BOTH = 2


@click.command("diff", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.argument("sides", nargs=-1, metavar="[A B]")
@click.option("--pod", "pods", multiple=True, metavar="FILE|-", help="Pods; twice: before and after; once: beside the live rules.")
@click.option("--select", default="", metavar="NAME", help="Which pod of --pod: NAME, NAMESPACE/NAME or KIND/NAME.")
@click.option("--live", is_flag=True, help="Compare with the live rules of this namespace; implied by --pid and --netns.")
@click.option("--git", "for_git", is_flag=True, help="Be an external diff driver of git: A B are the seven words that it gives.")
@click.option("--full", is_flag=True, help="Show every kind of packet that is treated differently.")
@json_option("diff")
@color_option
def command(  # noqa: PLR0917
    options: Options, sides: tuple[str, ...], pods: tuple[str, ...], select: str, live: bool, for_git: bool, full: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Show which packets two sets of rules treat differently.

    All packets are compared, not a sample: a rule that moves without an effect is no difference. A and B are option sets
    ('apply -b 8080'), manifests of pods, rules as iptables-save prints them (a file or -), or `live` for the live rules. With
    --pid, --netns or --live alone, the live rules are compared with the plan of the options, of --pod, or of the options
    inferred from the rules.

    Exit codes: 0 no packet is treated differently, which is a proof; 3 some are, or it is unknown. With --git always 0.
    """
    pairs = _find_pairs(options, sides, pods, select, live, for_git)
    objects = [to_object(pair) for pair in pairs]
    if as_json:
        show_artefact(to_json(with_version({"compared": objects})))
    else:
        for pair in pairs:
            note(pair.notes)
            warn(pair.warnings)
        answer(render_text(objects, full=full))
    equal = all(one["result"] == EQUAL for one in objects)
    return 0 if for_git or equal else DriftError.exit_code


def _find_pairs(  # noqa: PLR0917
    options: Options, sides: tuple[str, ...], pods: tuple[str, ...], select: str, live: bool, for_git: bool
) -> list[Compared]:  # fmt: skip
    if for_git:
        return read_git(sides)
    inside = live or bool(options.pid or options.netns)
    if sides:
        if pods or len(sides) != BOTH:
            raise OptionError("diff: give two things to compare, A and B, or --pod twice, or --pid; see netinit diff --help")
        return read_sides(options, sides[0], sides[1])
    if len(pods) == BOTH and not inside:
        return read_manifests(pods[0], pods[1], select)
    if inside and len(pods) < BOTH:
        return read_live_pair(options, pods, select)
    raise OptionError("diff: nothing to compare: give A and B, or --pod twice, or --pid; see netinit diff --help")
