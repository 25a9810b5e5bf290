"""The live rules of a namespace and what else decides about packets there, for the simulator. Changes nothing."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from netinit import backends
from netinit.backends import ipset
from netinit.backends.iptables import XtablesBackend, notice_size
from netinit.base.errors import BackendUnavailableError, ParseError
from netinit.base.net import FAMILIES, FULL_MASK, IPV4, Family, Network, number_of
from netinit.kernel import detect, netlink, read_text
from netinit.kernel.pods import inside
from netinit.options import Options
from netinit.pods.verify import verify
from netinit.rules.iptables.sets import use_sets
from netinit.rules.iptables.write import Listing
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import Plan
from netinit.rules.packet import LOOPBACK_DEVICE, Surroundings
from netinit.simulate.ruleset import Ruleset, load_listing, load_plan, resolve_sets

_NET = Path("/proc/thread-self/net")
MOST_BYTES = 1 << 25  # of routes, some 250,000
_LOCAL_ROUTE = 1 << 31  # RTF_LOCAL of linux/ipv6_route.h


@dataclass(frozen=True, slots=True)
class LiveRules:
    """What was read: each backend whose part of the kernel can hold rules (iptables-nft and so on), its rules by family."""

    rulesets: dict[str, dict[Family, Ruleset]]
    surroundings: dict[Family, Surroundings]
    plan: Plan
    warnings: tuple[str, ...] = ()


def read_live(options: Options) -> LiveRules:
    """The rules, addresses and routes of the namespace that the options name (default: this process's).

    Rules that the plan of these options has are known by their purpose. NamespaceError, BackendUnavailableError.
    """
    return inside(options, _read_here)


def _read_here(options: Options, warning: str) -> LiveRules:
    settled = detect.settle(options)
    plan = plan_for(settled.options)
    marks = {family: _local_marks(family) for family in settled.kernel_families}
    rulesets: dict[str, dict[Family, Ruleset]] = {}
    warnings = [*([warning] if warning else []), *settled.warnings, *plan.warnings]
    for name in backends.populated(settled.options):
        variant = backends.BACKENDS[name].variant
        if variant:
            contents = ipset.read_contents()
            owner, threshold = backends.owner_of_sets(variant), settled.options.ipset_threshold
            known = use_sets(plan, owner, threshold)[0] if contents and threshold else plan
            listings = _read_listings(name, settled)
            warnings += [notice for family in settled.kernel_families for notice in notice_size(listings[family], family)]
            rulesets[name] = {
                family: resolve_sets(
                    load_listing(listings[family], family, plan=known, local_marks=marks[family][0], routing_table=marks[family][1]),
                    contents,
                )
                for family in settled.kernel_families
            }
        else:
            rulesets[name] = _native_rulesets(settled.options, plan)
            warnings.append(f"{name}: its rules are as planned; counters are not shown")
    for family in settled.kernel_families:
        if any(found[family].tracks for found in rulesets.values() if family in found):
            for found in rulesets.values():
                found[family] = replace(found[family], tracked=True)
    if not rulesets:
        rulesets[backends.IPTABLES_NFT] = {family: Ruleset(family, {}, *marks[family]) for family in settled.kernel_families}
        warnings.append("there are no rules at all in this namespace")
    around = {family: read_surroundings(family) for family in settled.kernel_families}
    return LiveRules(rulesets, around, plan, tuple(warnings))


def _read_listings(name: str, settled: detect.Settled) -> dict[Family, Listing]:
    """The rules with their counters, read as every other command reads them."""
    backend = backends.load(name, settled.options, settled.kernel_families)
    if not isinstance(backend, XtablesBackend):
        raise TypeError(f"{name} lists no rules in iptables' dialect")
    return backend.look(settled.kernel_families, counted=True)[1]


def _native_rulesets(options: Options, plan: Plan) -> dict[Family, Ruleset]:
    """The rules of nft tables: the plan's, once they were compared; BackendUnavailableError where they differ."""
    report = verify(options.replace(netns="", pid=0))
    if report.differences:
        found = "; ".join([difference.describe() for difference in report.differences[:3]])
        raise BackendUnavailableError(
            f"nft tables that differ from the plan cannot be explained ({found}); give the options that made them, or repair them"
        )
    return {family: load_plan(plan, family) for family in FAMILIES}


def _local_marks(family: Family) -> tuple[frozenset[int], int]:
    """The marks that policy rules route to this host, and the table of one of them."""
    tables = {route.table for route in netlink.list_local_routes(family.number)}
    rules = [
        rule
        for rule in netlink.list_mark_rules(family.number)
        if rule.plain and rule.mask == FULL_MASK and rule.table in tables
    ]
    return frozenset(rule.mark for rule in rules), rules[0].table if rules else 0


def read_surroundings(family: Family) -> Surroundings:
    """The addresses, routes and forwarding of this namespace."""
    names = dict(socket.if_nameindex())
    addresses = [
        (names.get(found.index, ""), number_of(found.address))
        for found in netlink.list_addresses()
        if found.family == family.number
    ]
    routes = tuple(_routes(family))
    default = next((name for network, name in routes if network.length == 0), "")
    first = next((name for name, _ in addresses if name != LOOPBACK_DEVICE), "eth0")
    setting = "ipv4/ip_forward" if family is IPV4 else "ipv6/conf/all/forwarding"
    return Surroundings(
        family=family, addresses=tuple(addresses), routes=routes, default_interface=default or first,
        forwards=(read_text(f"/proc/sys/net/{setting}") or "0").strip() == "1",
        picks_up=(read_text("/proc/sys/net/netfilter/nf_conntrack_tcp_loose") or "1").strip() != "0",
    )  # fmt: skip


def _routes(family: Family) -> list[tuple[Network, str]]:
    """The routes through interfaces (proc(5), /proc/net/route and ipv6_route), the host's own addresses left out."""
    found = []
    if family is IPV4:
        for line in _read_lines(_NET / "route")[1:]:
            words = line.split("\t")
            first, mask = (int.from_bytes(bytes.fromhex(words[column]), "little") for column in (1, 7))
            found.append((Network((4, first, mask.bit_count())), words[0]))
        return found
    for line in _read_lines(_NET / "ipv6_route"):
        words = [word for word in line.split(" ") if word]
        if not int(words[8], 16) & _LOCAL_ROUTE and words[9] != LOOPBACK_DEVICE and words[0][:2] != "ff":
            found.append((Network((6, int(words[0], 16), int(words[1], 16))), words[9]))
    return found


def _read_lines(path: Path) -> list[str]:
    """The lines of a table of the kernel; none where it has no such table. ParseError where it is too long.

    Whoever made the interfaces chose their names: any bytes but white space, colons and slashes, among them what Python
    takes for the end of a line or of a word.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    if len(data) > MOST_BYTES:
        raise ParseError(f"{path.name}: the routes are longer than {MOST_BYTES >> 20} MB; remove those that nobody needs")
    return data.decode("utf-8", "surrogateescape").split("\n")[:-1]
