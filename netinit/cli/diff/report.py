"""Formats what two sets of rules treat differently, as text and JSON."""

from __future__ import annotations

from typing import Any

from netinit.base.sanitize import Lines, lines
from netinit.cli.console import count
from netinit.cli.diff.sides import Compared
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
