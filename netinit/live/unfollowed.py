"""What of a snapshot is not simulated, and may decide about packets: everything that is not on a list of things understood.

The lists name what the simulation follows (families, hooks and types of chains) or what leaves the rules' decision as it is (kinds of
devices). A newer kernel's addition is on none of them, so that it is reported and not overlooked.
"""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import Network
from netinit.base.sanitize import escape
from netinit.base.snapshot import (
    ARP,
    BRIDGE,
    DORMANT,
    FAMILY_NAMES,
    INET,
    IP,
    IP6,
    NETDEV,
    AttachedProgram,
    NftChain,
    Snapshot,
)
from netinit.rules.model import BUILTIN_CHAINS, PREROUTING
from netinit.simulate.hooks import POSTROUTING, TABLES_OF_THE_KERNEL

CHOOSES_SOCKETS = "it chooses the socket of inbound connections, also of captured ones"
MAY_REWRITE = "it may redirect or rewrite packets"
BEFORE_IP = "its rules see packets before and after those of IP, and may redirect or rewrite them"
MEETS_TWICE = "packets pass the hooks once more as those of the VRF"
HOOKS = {  # of nf_tables by family and NF_*_* number, as hooks of the simulation: ingress precedes PREROUTING, egress is last
    INET: (*BUILTIN_CHAINS, PREROUTING), IP: BUILTIN_CHAINS, IP6: BUILTIN_CHAINS, NETDEV: (PREROUTING, POSTROUTING),
}  # fmt: skip
CHAIN_TYPES = ("filter", "nat", "route")
BRIDGE_KIND, VRF_KIND = "bridge", "vrf"
DEVICE_KINDS = frozenset((  # what they receive meets the hooks of IP once, as their packet
    "", "amneziawg", "bareudp", "bond", "bridge", "can", "dummy", "erspan", "geneve", "gre", "gretap", "gtp", "ifb", "ip6erspan",
    "ip6gre", "ip6gretap", "ip6tnl", "ipip", "ipoib", "ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "netkit", "nlmon", "ovpn",
    "ovpn-dco", "ppp", "sit", "team", "tun", "vcan", "veth", "vlan", "vsockmon", "vti", "vti6", "vxcan", "vxlan", "wireguard", "xfrm",
))  # fmt: skip
ENCAPSULATIONS = {  # LWTUNNEL_ENCAP_* of linux/lwtunnel.h: none is followed
    1: "mpls", 2: "ip", 3: "ila", 4: "ip6", 5: "seg6", 6: "bpf", 7: "seg6local", 8: "rpl", 9: "ioam6", 10: "xfrm",
}  # fmt: skip

Unfollowed = tuple[str, str, str]
"""The kind of a thing, its name, and what it may do."""


def hook_of(chain: NftChain) -> str:
    """Return the hook where the simulation follows a base chain; empty if it does not."""
    hooks = HOOKS.get(chain.family, ())
    return hooks[chain.hook] if 0 <= chain.hook < len(hooks) and chain.kind in CHAIN_TYPES else ""


def find_unfollowed(snapshot: Snapshot) -> Iterator[Unfollowed]:
    """Yield what may affect packets and is not simulated; `warn_of_hidden` has what may not exist at all."""
    for program in snapshot.programs:
        if not program.is_of_node:
            yield "BPF", str(program), CHOOSES_SOCKETS if program.where.startswith("sk_lookup") else MAY_REWRITE
    for index in sorted({one.index for one in snapshot.traffic_control if one.what == "filter"}):
        yield "tc", f"filters on {snapshot.name_of(index)}", MAY_REWRITE
    yield from _find_chains(snapshot)
    for table in snapshot.legacy:
        if table.name not in TABLES_OF_THE_KERNEL:
            yield "iptables", escape(f"the legacy table {table.name} of IPv{table.version}"), MAY_REWRITE
    for link in snapshot.links:
        if link.kind not in DEVICE_KINDS:
            yield "devices", escape(f"{link.name}, of kind {link.kind}"), MEETS_TWICE if link.kind == VRF_KIND else MAY_REWRITE
    yield from _find_routes(snapshot)
    if snapshot.transforms:
        yield "IPsec", f"{snapshot.transforms} policies (ip xfrm policy)", "they may drop packets, or send them elsewhere"
    for one in snapshot.unknown:
        if not one.is_forbidden:
            yield "kernel", one.place, f"it is not read: {one.reason}"


def _find_chains(snapshot: Snapshot) -> Iterator[Unfollowed]:
    """Yield base chains that IP packets may meet, and that decide something. Those of `arp` see ARP alone, `bridge` needs a bridge."""
    awake = {(table.family, table.name): table for table in snapshot.tables if not table.flags & DORMANT}
    has_rules = {(rule.family, rule.table, rule.chain) for rule in snapshot.rules}
    has_bridge = any(link.kind == BRIDGE_KIND for link in snapshot.links)
    for chain in snapshot.chains:
        table = awake.get((chain.family, chain.table))
        is_met = chain.is_base and table and chain.family != ARP and (chain.family != BRIDGE or has_bridge)
        decides = chain.policy != 1 or (chain.family, chain.table, chain.name) in has_rules
        if is_met and decides and not hook_of(chain):
            family = FAMILY_NAMES.get(chain.family, f"family {chain.family}")
            hook = "" if chain.family == BRIDGE else f" (type {chain.kind} hook {chain.hook})"
            what = escape(f"chain {chain.name} of table {family} {chain.table}{hook}")
            yield "nft", what, BEFORE_IP if chain.family == BRIDGE else MAY_REWRITE


def _find_routes(snapshot: Snapshot) -> Iterator[Unfollowed]:
    """Yield routes in use that encapsulate packets or hand them to a program, and policy rules with an unknown property."""
    asked = {(rule.family, rule.table) for rule in snapshot.routing_rules}
    for route in snapshot.routes:
        if route.encapsulations and (route.family, route.table) in asked:
            kinds = ", ".join([ENCAPSULATIONS.get(one, f"number {one}") for one in dict.fromkeys(route.encapsulations)])
            network = Network((4 if route.family == IP else 6, *route.destination))
            yield "routing", f"the route {network} of table {route.table} with encapsulation {kinds}", MAY_REWRITE
    for rule in snapshot.routing_rules:
        if rule.unnamed:
            numbers = ", ".join(map(str, rule.unnamed))
            version = "IPv4" if rule.family == IP else "IPv6"
            yield "routing", f"the policy rule of priority {rule.priority} of {version}", f"its attribute {numbers} is not known"


def describe_node_program(program: AttachedProgram) -> str:
    """The warning about a BPF program of the node, such as Cilium's for services."""
    return f"BPF {program} acts on every process of the node: it may redirect connections before any rule sees them"


def list_hidden(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what may not be read here and may capture packets."""
    return tuple([one.place for one in snapshot.unknown if one.may_capture])


def warn_of_hidden(snapshot: Snapshot) -> Iterator[str]:
    """Yield warnings about BPF programs of the node, and about what may not be read here."""
    yield from [describe_node_program(one) for one in snapshot.programs if one.is_of_node]
    for one in snapshot.unknown:
        if one.is_forbidden:
            yield f"{one.place} may not be read here ({one.reason}): whether one redirects packets is not known"
