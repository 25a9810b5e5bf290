"""Judge whether a node's rules let the kubelet's probes reach the pods of an ambient mesh. Pure.

Rules in such a pod exempt one source address. On the node, the mesh's agent gives that address to connections from
the node's own processes to the pods in a set: by iptables (chain ISTIO_POSTRT) or nft (table inet istio-ambient-nat); see
Istio's cni/pkg/iptables and cni/pkg/nftables. Otherwise the pod captures the probes, the mesh refuses them under STRICT
mTLS, and the kubelet restarts the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, number_of
from netinit.base.records import Record
from netinit.base.snapshot import Snapshot
from netinit.live.host import surroundings_of
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_LEGACY, IPTABLES_NFT, NFTABLES
from netinit.options.interception import BROKEN, EXEMPT, UNKNOWN
from netinit.rules.foreign_targets import SourceNat
from netinit.rules.iptables.sets import UNREAD, Contents
from netinit.rules.model import NAT
from netinit.rules.targets import Jump
from netinit.simulate import trace
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.hooks import POSTROUTING
from netinit.simulate.ruleset import Ruleset, resolve_sets

PROBE_SETS = {IPV4: "istio-inpod-probes-v4", IPV6: "istio-inpod-probes-v6"}
AMBIENT_NAT = "istio-ambient-nat"
POSTROUTING_CHAIN = "ISTIO_POSTRT"
_PORT = 8080  # of a probe: the mesh's rules match none
_KUBELET = 0  # its user


class ProbeFinding(Record):
    """Whether probes of a pod's address are exempt, and why not."""

    address: str
    state: str
    detail: str = ""


def judge_probes(
    snapshot: Snapshot, contents: Contents, addresses: tuple[str, ...], sources: Mapping[Family, str]
) -> tuple[ProbeFinding, ...]:
    """Judge a probe of each address; `contents` are the address sets that could be read, `sources` the exempt addresses."""
    live = load_snapshot(snapshot)
    if live.unreadable:
        return tuple([ProbeFinding(address=one, state=UNKNOWN, detail="; ".join(live.unreadable)) for one in addresses])
    members = dict(_list_members(snapshot, contents))
    found = []
    for family in FAMILIES:
        ruleset = resolve_sets(live.join(family, IPTABLES_NFT), contents)
        for address in [one for one in addresses if (":" in one) == (family is IPV6)]:
            state, detail = _judge(snapshot, ruleset, address, sources[family], members.get(family))
            found.append(ProbeFinding(address=address, state=state, detail=detail))
    return tuple(found)


def find_holder(snapshot: Snapshot) -> str:
    """Return the backend whose part of the kernel has the set or chain of the mesh's agent; empty if nothing is left of them."""
    if any((one.table, one.name) == (AMBIENT_NAT, PROBE_SETS[IPV4]) for one in snapshot.sets):
        return NFTABLES
    live = load_snapshot(snapshot).rulesets
    tables = {source: [rules.tables.get(NAT) for rules in live.get(source, {}).values()] for source in (IPTABLES_NFT, IPTABLES_LEGACY)}
    for source, found in tables.items():
        if any(POSTROUTING_CHAIN in (chains or ()) for chains in found):
            return source
    is_left = PROBE_SETS[IPV4] in dict(snapshot.address_sets).values()
    return next((source for source, found in tables.items() if any(found)), IPTABLES_NFT) if is_left else ""


def count_jumps(snapshot: Snapshot, family: Family, holder: str) -> int:
    """Count the jumps to the agent's chain among the rules of this backend."""
    rules = load_snapshot(snapshot).rulesets.get(holder, {}).get(family)
    chain = rules.tables.get(NAT, {}).get(POSTROUTING) if rules else None
    jump = Jump(chain=POSTROUTING_CHAIN)
    return sum(not one.rule.matches and one.rule.target == jump for one in chain.rules) if chain else 0


def _list_members(snapshot: Snapshot, contents: Contents) -> Iterator[tuple[Family, frozenset[int]]]:
    """Yield the addresses of each family's set, if it exists; nft's set before ipset's."""
    for family, name in PROBE_SETS.items():
        if name in contents and not any(element.startswith(UNREAD) for element in contents[name]):
            yield family, frozenset(map(number_of, contents[name]))
        for one in snapshot.sets:
            if (one.table, one.name) == (AMBIENT_NAT, name):
                yield family, frozenset(int.from_bytes(element.key, "big") for element in one.elements)


def _judge(
    snapshot: Snapshot, ruleset: Ruleset, address: str, source: str, members: frozenset[int] | None
) -> tuple[str, str]:
    around = surroundings_of(snapshot, ruleset.family)
    probe = make_outbound(around, address, _PORT, uid=_KUBELET, gid=_KUBELET)
    found = simulate(probe, replace(ruleset, tracked=True), around)
    if found.fate == trace.SENT and found.last.source == number_of(source):
        return EXEMPT, ""
    if members is not None and number_of(address) not in members:
        return BROKEN, f"it is missing in the set {PROBE_SETS[ruleset.family]}"
    if found.fate == trace.UNKNOWN:
        return UNKNOWN, found.reason
    if members is None and ruleset.family is IPV6:
        return UNKNOWN, f"there is no set {PROBE_SETS[IPV6]}: the mesh may have IPv6 off"
    if found.fate != trace.SENT:
        return BROKEN, f"a probe of it is {found.fate}: {found.reason}"
    other = next((step for step in found.hits if isinstance(step.matched.target, SourceNat)), None)
    if other is None or other.rule is None:
        return BROKEN, f"no rule gives probes a source: they keep the node's address instead of {source}"
    return BROKEN, f"{other.rule.quotation} ({other.table} {other.chain}) gives probes another source instead of {source}"
