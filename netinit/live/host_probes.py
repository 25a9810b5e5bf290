"""Judge whether a node's rules let the kubelet's probes reach the pods of an ambient mesh. Pure.

Rules in such a pod exempt one source address. On the node, the mesh's agent gives that address to connections from
the node's own processes to the pods in a set: by iptables (chain ISTIO_POSTRT) or nft (table inet istio-ambient-nat); see
Istio's cni/pkg/iptables and cni/pkg/nftables. Otherwise the pod captures the probes, the mesh refuses them under STRICT
mTLS, and the kubelet restarts the pod.

Rules of iptables take every socket of the node (`--socket-exists`), those of nft the kubelet's user.

AWS's CNI plugin sends pods with security groups of their own through the VPC (branch ENI): policy rules for the pod's device look
up a table with the pod's route. The exempt source address is lost there, so the mesh's agent adds two policy rules: one
sends probes through the device, one delivers their answers to the node (Istio's cni/pkg/nodeagent/brancheni_linux.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, number_of, text_of
from netinit.base.records import Record
from netinit.base.sanitize import escape
from netinit.base.snapshot import RoutingRule, Snapshot
from netinit.live.host import DEFAULT, LOCAL, LOOK_UP, MAIN, UNICAST, find_devices, surroundings_of
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_LEGACY, IPTABLES_NFT, NFTABLES
from netinit.options.interception import BROKEN, EXEMPT, UNKNOWN
from netinit.rules.decoding.packet import list_users
from netinit.rules.foreign_targets import SourceNat
from netinit.rules.model import NAT
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate import trace
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import Ruleset

PROBE_SETS = {IPV4: "istio-inpod-probes-v4", IPV6: "istio-inpod-probes-v6"}
AMBIENT_NAT = "istio-ambient-nat"
POSTROUTING_CHAIN = "ISTIO_POSTRT"
ADDRESSES = "hash:ip"  # the type of the agent's sets of ipset
_PORT = 8080  # of a probe: the mesh's rules match none
_TO_POD_PRIORITY = 512  # of the agent's policy rule for probes, as of the AWS plugin's for other pods
_BY_AGENT = (
    "the mesh's agent adds it for AWS security groups for pods (Istio 1.31 or later, AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE) "
    "and deletes it with the pod; netinit does not, because the address's next pod would be cut off"
)


class ProbeFinding(Record):
    """Whether probes of a pod's address are exempt, and why not. `is_routing`: because of routes, which a repair leaves alone."""

    address: str
    state: str
    detail: str = ""
    is_routing: bool = False


def judge_probes(
    snapshot: Snapshot, addresses: tuple[str, ...], sources: Mapping[Family, str], sender: int | None
) -> tuple[ProbeFinding, ...]:
    """Judge a probe of each address.

    `sources`: the exempt addresses; `sender`: the kubelet's uid, None if it is not known.
    """
    live = load_snapshot(snapshot)
    if live.unreadable:
        return tuple([ProbeFinding(address=one, state=UNKNOWN, detail="; ".join(live.unreadable)) for one in addresses])
    members = dict(_list_members(snapshot))
    found = []
    for family in FAMILIES:
        ruleset = live.join(family, IPTABLES_NFT)
        own = [one for one in addresses if (":" in one) == (family is IPV6)]
        found += [_judge(snapshot, ruleset, one, (sources[family], sender), members.get(family)) for one in own]
    return tuple(found)


def list_senders(snapshot: Snapshot, sources: Mapping[Family, str]) -> frozenset[int]:
    """Return the users to whose probes the rules of the mesh's agent give these sources; empty if they take every user's."""
    live = load_snapshot(snapshot)
    given = [loaded.rule for family in FAMILIES for chain in live.join(family, IPTABLES_NFT).list_chains() for loaded in chain.rules]
    rules = [one for one in given if isinstance(one.target, SourceNat) and one.target.address in sources.values()]
    return frozenset([user for rule in rules for user in list_users(rule.matches)])


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


def _list_members(snapshot: Snapshot) -> Iterator[tuple[Family, frozenset[int]]]:
    """Yield the addresses of each family's set, if it exists; nft's set before ipset's."""
    for family, name in PROBE_SETS.items():
        for held in snapshot.foreign_sets:
            if held.name == name and held.kind == ADDRESSES and held.is_complete:
                yield family, frozenset(int.from_bytes(element.address, "big") for element in held.elements)
        for one in snapshot.sets:
            if (one.table, one.name) == (AMBIENT_NAT, name):
                yield family, frozenset(int.from_bytes(element.key, "big") for element in one.elements)


def _judge(
    snapshot: Snapshot, ruleset: Ruleset, address: str, wanted: tuple[str, int | None], members: frozenset[int] | None
) -> ProbeFinding:
    source, sender = wanted
    around = surroundings_of(snapshot, ruleset.family)
    probe = make_outbound(around, address, _PORT, uid=sender, gid=None)
    if branch := _find_branch(snapshot, ruleset.family, probe.destination):
        state, detail = _judge_routes(snapshot, probe, around, branch)
        if state != EXEMPT:
            return ProbeFinding(address=address, state=state, detail=detail, is_routing=True)
        own = Network((ruleset.family.version, number_of(address), ruleset.family.bits))
        around = around.replace(routes=((own, branch.in_interface), *around.routes))
    state, detail = _judge_rules(probe, ruleset, around, source, members)
    return ProbeFinding(address=address, state=state, detail=detail)


def _judge_rules(
    probe: Packet, ruleset: Ruleset, around: Surroundings, source: str, members: frozenset[int] | None
) -> tuple[str, str]:
    found = simulate(probe, replace(ruleset, tracked=True), around)
    if found.fate == trace.SENT and found.last.source == number_of(source):
        return EXEMPT, ""
    if members is not None and probe.destination not in members:
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


def _find_branch(snapshot: Snapshot, family: Family, address: int | None) -> RoutingRule | None:
    """Return the policy rule of the AWS plugin for a pod's device: it looks up a table that has the pod's own route."""
    for rule in snapshot.routing_rules:
        if rule.family != family.number or rule.action != LOOK_UP or rule.is_inverted or rule.table in (DEFAULT, MAIN, LOCAL):
            continue
        own = [one for one in snapshot.routes if (one.family, one.table, one.kind) == (family.number, rule.table, UNICAST)]
        hops = [hop for one in own if one.destination == (address, family.bits) for hop in one.hops]
        if rule.in_interface and rule.in_interface in map(snapshot.name_of, hops):
            return rule
    return None


def _judge_routes(snapshot: Snapshot, probe: Packet, around: Surroundings, branch: RoutingRule) -> tuple[str, str]:
    """Judge whether probes of a pod behind a branch ENI leave through its device, and answers from there are delivered here."""
    device, address = branch.in_interface, text_of(probe.destination or 0, probe.family)
    source = probe.source or next((own for name, own in around.addresses if name != LOOPBACK_DEVICE), None)
    answer = Packet(
        family=probe.family, protocol="tcp", source=probe.destination, destination=source, source_port=_PORT, in_interface=device
    )  # fmt: skip
    to_pod = f"to {address} lookup {branch.table} priority {_TO_POD_PRIORITY}"
    to_node = f"iif {escape(device)} lookup local priority {max(branch.priority - 1, 0)}"
    for packet, wanted, rule, what in (
        (probe, device, to_pod, f"probes of it do not leave through its device {escape(device)}"),
        (answer, LOOPBACK_DEVICE, to_node, "answers to its probes are not delivered to the node"),
    ):
        ways = find_devices(snapshot, packet)
        if wanted not in ways:
            return BROKEN, f"{what}: the policy rule `{rule}` is missing; {_BY_AGENT}"
        if len(ways) > 1:
            return UNKNOWN, f"which of its policy rules and routes the node takes to {address}, and for the answers, is not known"
    return EXEMPT, ""
