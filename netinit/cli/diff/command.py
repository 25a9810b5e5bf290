"""`netinit diff`: packets that two sets of rules treat differently."""

from __future__ import annotations

from typing import Any

import click

from netinit.base.errors import DriftError, OptionError
from netinit.base.output import show_artefact, to_json, with_version
from netinit.base.sanitize import Lines, lines
from netinit.cli.console import answer, color_option, count, note, warn
from netinit.cli.diff.sides import Compared, read_git, read_live_pair, read_manifests, read_sides
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand, json_option
from netinit.options import Options
from netinit.simulate.audit.changes import FateChange, find_changes_of_fate
from netinit.simulate.audit.subject import example_of
from netinit.simulate.endpoints import format_example

EQUAL, DIFFERENT, UNKNOWN, ONLY_BEFORE, ONLY_AFTER = "equal", "different", "unknown", "only before", "only after"
MAX_SHOWN = 8  # kinds of packets
PROVED = "no packet is treated differently: proved for all packets"


def to_object(pair: Compared) -> dict[str, Any]:
    """A pair in the form of netinit/data/diff.schema.json. Raises TooManyPartsError."""
    found: dict[str, Any] = {"name": pair.name, "notes": list(pair.notes), "warnings": list(pair.warnings), "families": []}
    if pair.before is None or pair.after is None:
        return found | {"result": ONLY_BEFORE if pair.after is None else ONLY_AFTER, "differences": []}
    changes = find_changes_of_fate(pair.before, pair.after)
    result = DIFFERENT if any(one.known for one in changes) else UNKNOWN if changes or pair.routing else EQUAL
    families = [family.name for family in pair.after.surroundings]
    return found | {
        "result": result, "families": families, "routing": list(pair.routing), "differences": [_change(one) for one in changes],
    }  # fmt: skip


def _change(one: FateChange) -> dict[str, Any]:
    return {
        "direction": one.direction, "known": one.known, "who": list(one.who), "before": one.before, "after": one.after,
        "because_before": one.why[0], "because_after": one.why[1],
        "packets": str(sum(region.size for region in one.regions)),
        "example": format_example(*example_of(one.regions[0])),
    }  # fmt: skip


def render_text(pairs: list[dict[str, Any]], *, full: bool) -> Lines:
    """Format the pairs, abbreviated unless `full`, with a summary line for each if there are several."""
    printed: list[str] = []
    for pair in pairs:
        shown = pair["differences"] if full else pair["differences"][:MAX_SHOWN]
        left = len(pair["differences"]) - len(shown)
        printed += [_sum_up(pair), *[f"  {text}" for text in pair.get("routing", ())]]
        printed += [line for one in shown for line in _describe_change(one)]
        printed += [f"  and {count(left, 'kind')} more, of packets that are less ordinary (--full shows all)"] * bool(left)
    if len(pairs) > 1:
        equal = sum(pair["result"] == EQUAL for pair in pairs)
        printed.append(f"{count(len(pairs), 'pod')}: {equal} equal, {len(pairs) - equal} not")
    return lines(printed)


def _sum_up(pair: dict[str, Any]) -> str:
    name, number = pair["name"], len(pair["differences"])
    if pair["result"] == EQUAL:
        return f"= {name}: {PROVED} of {' and '.join(pair['families'])}, in and out"
    if pair["result"] == UNKNOWN and not number:
        return f"? {name}: the rules treat no packet differently, but routing differs from what the plan expects"
    if pair["result"] == UNKNOWN:
        return f"? {name}: it is unknown whether {count(number, 'kind')} of packets are treated differently; no other is"
    if pair["result"] == DIFFERENT:
        return f"≠ {name}: {count(number, 'kind')} of packets {'is' if number == 1 else 'are'} treated differently"
    return f"{'-' if pair['result'] == ONLY_BEFORE else '+'} {name}: {pair['result']}"


def _describe_change(one: dict[str, Any]) -> list[str]:
    printed = [f"  {who}" for who in one["who"]]
    for when in ("before", "after"):
        because = f", because {one[f'because_{when}']}" if one[f"because_{when}"] else ""
        printed.append(f"    {when + ':':<8}{one[when]}{because}")
    return [*printed, f"    example: {one['example']}"]


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
