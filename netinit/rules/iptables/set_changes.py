"""What a plan's address sets differ in from the kernel's, and the steps that make them equal, or as they were before."""

from __future__ import annotations

from _struct import pack

from netinit.rules.iptables.sets import (
    DESTROY,
    FILL,
    NEW,
    SET_INFO,
    SET_REVISION,
    SWAP,
    Contents,
    PlannedSet,
    SetStep,
    Steps,
    format_question,
    is_unread,
)
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import EXTRA, MISSING, Difference
from netinit.rules.structs import pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.iptables.write import WrittenRule


def find_preparation(wanted: tuple[PlannedSet, ...], live: Contents, *, force: bool = False) -> Steps:
    """Return the steps that create or fill the plan's sets; all are filled before the first swap."""
    changed = {made.name: made.elements for made in wanted if force or live.get(made.name) != made.elements}
    return _find_steps(changed, {name: frozenset() if name.endswith(NEW) else elements for name, elements in live.items()})


def find_return(before: Contents, now: Contents) -> Steps:
    """Return the steps that restore the previous sets; newer ones stay, because rules may use them."""
    changed = {name: elements for name, elements in before.items() if now.get(name) != elements and not is_unread(elements)}
    return _find_steps(changed, now)


def _find_steps(changed: Contents, live: Contents) -> Steps:
    """Create or replace sets; a set with the suffix `NEW` and the right content is swapped in."""
    fills, swaps = [], []
    for name, elements in changed.items():
        new = name + NEW if name in live else name
        if new not in live or live[new] != elements:
            fills += [SetStep(kind=DESTROY, name=new)] if new in live else []  # left by a killed run
            fills.append(SetStep(kind=FILL, name=new, elements=elements))
        swaps += [SetStep(kind=SWAP, name=name, other=new)] if name in live else []
    return tuple(fills + swaps)


def surplus(wanted: tuple[PlannedSet, ...], live: Contents) -> tuple[str, ...]:
    """Return our sets that the plan does not need."""
    names = {made.name for made in wanted}
    return tuple([name for name in live if name not in names])


def compare_sets(wanted: tuple[PlannedSet, ...], live: Contents) -> tuple[Difference, ...]:
    """Return missing and extra elements and sets."""
    found: list[Difference] = []
    for made in wanted:
        elements = live.get(made.name)
        if elements is None:
            found.append(_difference(MISSING, made, "the whole set"))
        elif elements != made.elements:
            found += [_difference(MISSING, made, element) for element in sorted(made.elements - elements)]
            found += [_difference(EXTRA, made, element) for element in sorted(elements - made.elements)]
    found += [Difference(kind=EXTRA, where="ipset", chain=name, rule="the whole set") for name in surplus(wanted, live)]
    return tuple(found)


def _difference(kind: str, made: PlannedSet, text: str) -> Difference:
    return Difference(
        kind=kind, where="ipset", chain=made.name, rule=text, purpose=made.rule.comment, origin=made.rule.origin_label
    )


def number_sets(rule: WrittenRule, numbers: dict[str, int]) -> WrittenRule:
    """Return the rule with the structs that look up sets by the kernel's numbers of them; a set without one keeps no struct."""
    matches = list(rule.matches)
    for place, match in enumerate(matches):
        for name, number in numbers.items() if isinstance(match, UnknownMatch) else ():
            if number >= 0 and match.xt() == format_question(name):
                matches[place] = match.replace(kept=pad("set", SET_REVISION, pack(SET_INFO, number, 1, 0)))
    return rule.replace(matches=tuple(matches)) if any(isinstance(one, UnknownMatch) for one in matches) else rule
