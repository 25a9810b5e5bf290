"""What keeps the answers to connections from coming back: foreign rules, and policy routing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from netinit.base.net import IPV4, Family, number_of
from netinit.base.snapshot import Snapshot
from netinit.live import host
from netinit.live.reverse_path import warn_of_refused
from netinit.options import SettledOptions
from netinit.rules.model import Plan
from netinit.rules.packet_inputs import Packet
from netinit.simulate.answers import UserAndGroup
from netinit.simulate.ruleset import RuleHit, Ruleset, load_plan

if TYPE_CHECKING:
    from netinit.simulate.symbolic.partition import Part
    from netinit.simulate.symbolic.regions import Region


def find_proxy(options: object) -> UserAndGroup | None:
    """The user and group that the proxy's answers are sent by, of which options name one or more; None without options."""
    return (options.proxy_uids[0], options.proxy_gids[0]) if isinstance(options, SettledOptions) else None


class LostAnswers:
    """Finds answers that do not come back, for `in_force.find_deviations`; the node's agent does not ask for them."""

    def by_rules(
        self, plan: Plan, live: Ruleset, parts: Iterable[Part], others: Region, is_foreign: Callable[[RuleHit], bool]
    ) -> Iterator[tuple[RuleHit, str, Region]]:
        """Yield foreign rules that keep answers from coming back, what they do, and the packets that are answered.

        `parts`: captured packets by what the live rules do to them; `others`: those that the plan does not capture.
        """
        from netinit.simulate.symbolic.answer_walk import find_lost
        from netinit.simulate.symbolic.hook_walk import divide

        planned = load_plan(plan, others.space.family)
        parts = (*parts, *divide(others.space, live, others, marks_matter=False).parts)
        for hit, effect, region, _ in find_lost(planned, live, parts, find_proxy(plan.made_from), is_foreign):
            yield hit, effect, region

    def by_routes(self, snapshot: Snapshot, family: Family) -> Iterator[str]:
        """Describe what is dropped for its source, and answers that policy rules send through another device than the default one."""
        yield from warn_of_refused(snapshot) if family is IPV4 else ()
        if host.is_simple(snapshot, family):
            return
        around = host.surroundings_of(snapshot, family)
        device = around.default_interface
        own = around.primary_address(device)
        if own is None:
            return
        samples = [number_of(one) for one in host.SAMPLES[family.version]]
        packets = [Packet(family=family, protocol="tcp", source=own, destination=one) for one in samples]
        ways = {way for packet in packets for way in host.find_devices(snapshot, packet)}
        if device not in ways:
            named = ", ".join([one or "no device" for one in sorted(ways)])
            yield (
                f"{family.name}: policy rules send the answers to connections that come in through {device} elsewhere: through {named}"
            )
