"""Connections whose answers foreign rules keep from coming back. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.live.lost_answers import find_proxy
from netinit.questions.pod_rules import PodRules
from netinit.rules.layouts import plan
from netinit.rules.model import OWNED_CHAINS
from netinit.simulate.endpoints import format_example
from netinit.simulate.examples import example_of
from netinit.simulate.ruleset import RuleHit, is_ours, load_plan
from netinit.simulate.symbolic.answer_walk import Lost, find_lost
from netinit.simulate.symbolic.partition import Partition
from netinit.simulate.symbolic.regions import Region, nothing


def find_unanswered(subject: PodRules, partition: Partition) -> tuple[Lost, ...]:
    """The foreign rules that lose answers; empty if the options of the others are not known.

    Raises TooManyPartsError.
    """
    family, options = partition.space.family, subject.made_by
    live = subject.join(family)
    rules = [loaded for backend in live.backends for chain in backend.chains if chain.policy for loaded in chain.rules]
    if options is None or not (live.foreign or any(not is_ours(one) for one in rules)):
        return ()
    planned = load_plan(plan(options), family)
    return tuple(find_lost(planned, live, partition.parts, find_proxy(options), _is_foreign))


def describe_unanswered(subject: PodRules) -> Iterator[str]:
    """Yield a warning for each such rule and what it does, with an example. Raises TooManyPartsError."""
    for partition in subject.partitions:
        found: dict[tuple[str, str], Region] = {}
        for hit, effect, region, _ in find_unanswered(subject, partition):
            found[str(hit), effect] = found.get((str(hit), effect), nothing(region.space)) | region
        for (rule, effect), region in found.items():
            yield f"{region.space.family.name}: {rule}, {effect}, for example {format_example(*example_of(region))}"


def _is_foreign(hit: RuleHit) -> bool:
    rule = hit.rules[0]
    return not (rule.origin or rule.purpose or is_ours(rule) or hit.chain in OWNED_CHAINS)
