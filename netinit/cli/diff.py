"""`netinit diff`: packets that two sets of rules treat differently.

What it compares: option sets, pods in manifests, listings of iptables-save, live rules.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from netinit.base.errors import DriftError, OptionError
from netinit.base.output import show_object
from netinit.cli.console import answer, color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand, environment, json_option, pass_given
from netinit.cli.rule_options import check_outlook, outlook_options, rules_option
from netinit.cli.values import takes
from netinit.library.diff import BOTH, pair_manifests, read_dump_pair, read_live_pair, read_sides
from netinit.library.rule_reading import Outlook, PodChoice
from netinit.options import Options
from netinit.questions.comparison import Compared, compare_all
from netinit.questions.rule_sources import RULES

GIT = ("PATH", "OLD-FILE", "OLD-HEX", "OLD-MODE", "NEW-FILE", "NEW-HEX", "NEW-MODE")


def read_git(words: tuple[str, ...], choice: PodChoice) -> list[Compared]:
    """The pods of two revisions of a file, from git's arguments to an external diff driver (git(1), GIT_EXTERNAL_DIFF)."""
    if len(words) not in (1, len(GIT), len(GIT) + 2):  # one argument: unmerged; two more: renamed
        raise OptionError(f"--git: git calls it with {' '.join(GIT)}; {len(words)} words were given")
    return pair_manifests(words[1], words[4], choice) if len(words) > 1 else []


@click.command("diff", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.argument("sides", nargs=-1, **takes("[A B]", is_file=True))
@click.option("--pod", "pods", multiple=True, **takes("FILE|-"), help="Pods; twice: before and after; once: against the live rules.")
@click.option("--select", default="", **takes("NAME"), help="Which pod of --pod: NAME, NAMESPACE/NAME or KIND/NAME.")
@click.option("--live", is_flag=True, help="Compare with the live rules of this namespace; implied by --pid and --netns.")
@rules_option
@click.option("--git", "for_git", is_flag=True, help="Be an external diff driver of git: A B are the seven words that it gives.")
@click.option("--full", is_flag=True, help="Show every kind of packet that is treated differently.")
@json_option("diff")
@color_option
@pass_given
@outlook_options
def command(  # noqa: PLR0917
    options: Options, sides: tuple[str, ...], pods: tuple[str, ...], select: str, live: bool, rules: tuple[str, ...],
    for_git: bool, full: bool, as_json: bool, given: Mapping[str, str], outlook: Outlook,
) -> int:  # fmt: skip
    """Show which packets two sets of rules treat differently.

    All packets are compared, not a sample: a rule that moves without an effect is not a difference. A and B are option sets
    ('apply -b 8080'), manifests of pods, rules as iptables-save, iptables -S or nft print them (a file or -), or `live` for
    the live rules. With --pid, --netns, --live or --rules alone, the rules are compared with the plan of the options, of
    --pod, or of the options inferred from the rules.

    Exit codes: 0 no packet is treated differently, which is a proof; 3 some are, or it is unknown. With --git always 0.
    """
    inside = live or bool(options.pid or options.netns)
    choice = PodChoice(pods, select, given=given, outlook=check_outlook(outlook, has_manifests=bool(pods or sides)))
    if for_git:
        pairs = read_git(sides, choice)
    elif rules:
        if sides or len(pods) > 1:
            raise OptionError(f"{RULES}: is compared with options or one --pod; leave A and B out")
        pairs = read_dump_pair(options, choice, rules, live=live)
    elif sides:
        if pods or len(sides) != BOTH:
            raise OptionError("diff: give two things to compare, A and B, or --pod twice, or --pid; see netinit diff --help")
        pairs = read_sides(options, sides[0], sides[1], environment(), choice)
    elif len(pods) == BOTH and not inside:
        pairs = pair_manifests(pods[0], pods[1], choice)
    elif inside and len(pods) < BOTH:
        pairs = read_live_pair(options, choice)
    else:
        raise OptionError("diff: nothing to compare: give A and B, or --pod twice, or --pid; see netinit diff --help")
    found = compare_all(pairs, full=full)
    if as_json:
        show_object(found.to_object())
    else:
        for pair in found.pairs:
            note(pair.notes)
            warn(pair.warnings)
        answer(found.text)
    return 0 if for_git or found.equal else DriftError.exit_code
