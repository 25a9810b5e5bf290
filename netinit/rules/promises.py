"""The promises that the rules beyond Istio's keep, and the plan of a kernel that cannot keep all of them.

Where a kernel lacks what such rules need, and only these rules need it, the promises that need it give way, each alone and
each family by itself. The plan then has Istio's rules and all others; a chain of its own for each promise that is not kept
records it in the kernel, so that a second run and `verify` expect the same rules. Nothing jumps to these chains.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family
from netinit.options import SettledOptions
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import (
    ANSWERS,
    FORWARDED,
    HANDSHAKES,
    LOOPBACK,
    NAT,
    OPEN_CHAINS,
    OTHER,
    OWN_ADDRESSES,
    PASSTHROUGH,
    PROMISES,
    REUSE,
    SEGMENTS,
    SHARED,
    Chain,
    Origin,
    Plan,
    Rule,
)
from netinit.rules.targets import Jump, Return

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Left = Mapping[Family, frozenset[str]]  # the promises that are not kept, by family
    Unsupported = Mapping[Family, Mapping[Rule, str]]  # rules that the kernel does not take, and what they need

KEPT = {
    REUSE: "captured connections on an old conntrack entry go to the proxy or are reset",
    SEGMENTS: "segments of connections that the proxy did not see do not reach the pod",
    HANDSHAKES: "segments with SYN and FIN do not pass for a handshake",
    OWN_ADDRESSES: "over lo, the application uses the pod's own addresses only",
    LOOPBACK: "loopback addresses are reached over lo only",
    PASSTHROUGH: "only the proxy sends from ::6",
    FORWARDED: "what a VM behind the pod sends is forwarded as nat redirects it, or not at all",
    ANSWERS: "in TPROXY mode, only answers to the pod's own connections skip the proxy",
    OTHER: "all other rules beyond Istio's",
}
OPEN = {
    REUSE: "a captured connection that falls on an old conntrack entry bypasses the proxy",
    SEGMENTS: "a server can send into a connection that the proxy did not see, or in another server's name",
    HANDSHAKES: "a segment with SYN and FIN can pass for a handshake",
    OWN_ADDRESSES: "an application can open the way for an outside server's answers over lo",
    LOOPBACK: "an application can reach loopback services of the node or a neighbour that has route_localnet",
    PASSTHROUGH: "an outsider can send from ::6, the proxy's own address",
    FORWARDED: "a connection of a VM behind the pod that falls on an old conntrack entry bypasses the proxy",
    ANSWERS: "in TPROXY mode, an inbound connection on the entry of an ended one bypasses the proxy",
    OTHER: "what the other rules beyond Istio's close (see --istio-exact)",
}


class NeededError(Exception):
    """A rule that the kernel does not take is Istio's, or an option asks for it: no promise can give way for it."""


def judge_promises(plan: Plan, unsupported: Unsupported) -> dict[Family, dict[str, str]]:
    """Return what the kernel lacks for each promise of the plan, by family; empty: it keeps it. Key "": for all other rules."""
    found: dict[Family, dict[str, str]] = {}
    for family in plan.families:
        rules = [(table, chain, rule) for table, chain, rule in plan.walk() if family in rule.families]
        promises = ["", *[rule.promise for *_, rule in rules if rule.promise != SHARED]]
        lacking: dict[str, dict[str, None]] = {promise: {} for promise in promises}
        for table, chain, rule in rules:
            need = unsupported.get(family, {}).get(rule, "")
            concerned = {rule.promise}
            if need and rule.promise == SHARED:  # without it, the chain would decide about more packets
                concerned = {one.promise for at, _, one in rules if at == table and one.target.calls == chain}
            for promise in concerned if need else ():
                lacking[promise].update(dict.fromkeys(need.split(", ")))
        found[family] = {promise: ", ".join(needs) for promise, needs in lacking.items()}
    return found


def find_broken(plan: Plan, unsupported: Unsupported) -> Left:
    """Return the promises that the kernel cannot keep. Raises NeededError if more than these depend on what it lacks."""
    judged = judge_promises(plan, unsupported)
    if needed := ", ".join([lacking[""] for lacking in judged.values() if lacking[""]]):
        raise NeededError(needed)
    found = {family: frozenset([promise for promise, needs in lacking.items() if needs]) for family, lacking in judged.items()}
    return {family: promises for family, promises in found.items() if promises}


def leave_out(plan: Plan, left: Left, missing: str = "") -> Plan:
    """Return the plan without the rules of these promises, with their record and a warning; the plan itself if there are none.

    `missing`: what the kernel lacks, if that is known.
    """
    kept = {family: {rule.promise for *_, rule in plan.walk() if family in rule.families} for family in plan.families}
    left = {family: names for family in plan.families if (names := left.get(family, frozenset()) & kept[family])}
    if not left:
        return plan
    options = plan.made_from
    if not isinstance(options, SettledOptions):
        raise TypeError("the plan was not made from options")
    exact = {(table.name, chain.name): chain for table in plan_for(options.replace(istio_exact=True)).tables for chain in table.chains}
    tables = []
    for table in plan.tables:
        chains = tuple([_limit(chain, exact.get((table.name, chain.name), Chain(name=chain.name)), left) for chain in table.chains])
        chains = _without_unreached(chains)
        if table.name == NAT:
            chains += tuple(_record(left))
        if any(chain.all_rules for chain in chains):
            tables.append(table.replace(chains=chains))
    return plan.replace(tables=tuple(tables), warnings=(*plan.warnings, describe_open(left, missing)))


def _limit(chain: Chain, exact: Chain, left: Left) -> Chain:
    """Return a chain without the rules of promises that are not kept.

    Of a family in which none of the chain's promises is kept, it is Istio's chain: there its rules are others, not fewer.
    """
    promises = {rule.promise for rule in chain.all_rules} - {"", SHARED}
    replaced = tuple([family for family, names in left.items() if promises and promises <= names])

    def rules_of(own: tuple[Rule, ...], others: tuple[Rule, ...]) -> tuple[Rule, ...]:
        kept = [
            _within(rule, [one for one in rule.families if one not in replaced and rule.promise not in left.get(one, ())])
            for rule in own
        ]
        kept += [_within(rule, [one for one in rule.families if one in replaced]) for rule in others]
        return tuple([rule for rule in kept if rule.families])

    return chain.replace(rules=rules_of(chain.rules, exact.rules), inserted=rules_of(chain.inserted, exact.inserted))


def _within(rule: Rule, families: list[Family]) -> Rule:
    return rule.replace(families=tuple(families))


def _without_unreached(chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
    """Return the chains without those of promises alone to which no rule leads any more, by family."""
    while True:
        reaching: dict[str, set[Family]] = {chain.name: set(FAMILIES) if chain.builtin else set() for chain in chains}
        for rule in [rule for chain in chains for rule in chain.all_rules if isinstance(rule.target, Jump)]:
            reaching[rule.target.calls].update(rule.families)
        kept = []
        for chain in chains:
            reached = reaching[chain.name]
            rules = [_within(rule, [one for one in rule.families if one in reached or not rule.promise]) for rule in chain.rules]
            kept.append(chain.replace(rules=tuple([rule for rule in rules if rule.families])))
        left = tuple([chain for chain in kept if chain.all_rules or reaching[chain.name]])
        if left == chains:
            return chains
        chains = left


def _record(left: Left) -> Iterable[Chain]:
    for name, promise in OPEN_CHAINS.items():
        families = tuple([family for family in FAMILIES if promise in left.get(family, ())])
        if families:
            origin = Origin(option="istio_exact", label="this kernel")
            rule = Rule(target=Return(), comment=f"not kept: {KEPT[promise]}", origin=origin, families=families)
            yield Chain(name=name, rules=(rule,))


def read_record(chains: Mapping[Family, Iterable[str]]) -> Left:
    """Return the promises that the live rules record as not kept, by the names of each family's chains."""
    found = {family: frozenset([OPEN_CHAINS[name] for name in names if name in OPEN_CHAINS]) for family, names in chains.items()}
    return {family: promises for family, promises in found.items() if promises}


def describe_open(left: Left, lacking: str = "") -> str:
    """Return a sentence that says what is open where these promises are not kept."""
    families = [family for family, names in left.items() if names]
    alike = len({left[family] for family in families}) == 1
    parts = []
    for family in families[:1] if alike else families:
        words = "; ".join([OPEN[name] for name in PROMISES if name in left[family]])
        parts.append(words if alike and len(families) > 1 else f"{family.name}: {words}")
    why = f"this kernel has no {lacking}: " if lacking else ""
    return f"{why}rules beyond Istio's that the kernel does not take are left out, and this is open: {'; '.join(parts)}"


def name_missing(unsupported: Unsupported) -> str:
    """Return what the kernel lacks, as a list."""
    return ", ".join(dict.fromkeys([name for rules in unsupported.values() for need in rules.values() for name in need.split(", ")]))
