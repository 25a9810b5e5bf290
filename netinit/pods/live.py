"""The live rules of a namespace and what else decides about packets there, for the simulator. Changes nothing.

Which options made the rules is read from the rules themselves; options that are given beside are compared with those.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path

from netinit import backends
from netinit.backends import ipset
from netinit.backends.iptables import XtablesBackend, notice_size
from netinit.backends.machine import HERE
from netinit.backends.nftables import NftablesBackend
from netinit.base.errors import BackendUnavailableError, ParseError
from netinit.base.net import FULL_MASK, IPV4, IPV6, Family, Network, number_of
from netinit.base.shown import shorten
from netinit.kernel import detect, netlink, read_text, tcp_sockets, trace_table
from netinit.kernel.netlink import INET, IPV4_TABLES, IPV6_TABLES
from netinit.kernel.situation import advise
from netinit.options import AUTO, Interception, Options, Settled
from netinit.rules.iptables.sets import Contents, use_sets
from netinit.rules.iptables.write import ListedTable, Listing
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import INPUT, OUTPUT, PREROUTING, Plan
from netinit.rules.nft.reading import Tables
from netinit.rules.packet import LOOPBACK_DEVICE, LocalMarks, Surroundings
from netinit.rules.recover import Recovered, from_listings, from_tables
from netinit.simulate.hooks import FORWARD, POSTROUTING, TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import Ruleset, load_listing, load_tables, resolve_sets, split_counter

_NET = Path("/proc/thread-self/net")
MOST_BYTES = 1 << 25  # of routes, some 250,000
_LOCAL_ROUTE = 1 << 31  # RTF_LOCAL of linux/ipv6_route.h
# linux/netfilter.h and netfilter_netdev.h: where packets meet the rules of a table, by the number of the hook
_HOOKS = {0: PREROUTING, 1: INPUT, 2: FORWARD, 3: OUTPUT, 4: POSTROUTING, 5: PREROUTING}  # the last before all of them
_HOOKS_OF_DEVICES = {0: PREROUTING, 1: POSTROUTING}
_NETDEV = 5
MOST_NAMED = 3
_NUMBERS = {IPV4: IPV4_TABLES, IPV6: IPV6_TABLES}
_FAMILIES = {INET: "inet", IPV4_TABLES: "ip", IPV6_TABLES: "ip6", _NETDEV: "netdev"}


@dataclass(frozen=True, slots=True)
class LiveRules:
    """What was read: each backend whose part of the kernel can hold rules (iptables-nft and so on), its rules by family.

    `options` are those that each backend's rules were made by, as far as they show it; `given` those that the caller named,
    settled for this namespace. `listening` are the TCP ports that programs listen on, each with its user; None where the
    kernel does not tell.
    """

    rulesets: dict[str, dict[Family, Ruleset]]
    surroundings: dict[Family, Surroundings]
    options: dict[str, Recovered] = field(default_factory=dict)
    given: Interception | None = None
    warnings: tuple[str, ...] = ()
    listening: frozenset[tuple[int, int]] | None = None


def read_live(options: Options, *, given: bool = False) -> LiveRules:
    """The rules, addresses and routes of the namespace that the options name (default: this process's).

    With `given` the options are also those that the rules should be made by. NamespaceError, BackendUnavailableError,
    ParseError.
    """
    return HERE.inside(options, lambda meant, warning: _read_here(meant, warning, given=given))


def _read_here(options: Options, warning: str, *, given: bool) -> LiveRules:
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        raise BackendUnavailableError(f"the rules cannot be read: NET_ADMIN is missing: {advise('NET_ADMIN', reading=True)}")
    places, settled = settle_beside(options)
    families = settled.kernel_families
    wanted = plan_for(settled.options) if given else None
    warnings = [
        *([warning] if warning else []),
        *(settled.warnings if given else ()),
        *(wanted.warnings if wanted else ()),
    ]
    marks = {family: _local_marks(family) for family in families}
    rulesets: dict[str, dict[Family, Ruleset]] = {}
    found: dict[str, Recovered] = {}
    for name in places:
        if variant := backends.BACKENDS[name].variant:
            listings, contents = _read_listings(name, settled), ipset.read_contents()
            warnings += [notice for family in families for notice in notice_size(listings[family], family)]
            found[name] = from_listings(_uncounted(listings), _routing(families), contents)
            plans = _with_sets(_plans(wanted, found[name]), variant, contents)
            rulesets[name] = _load_listings(listings, contents, plans, marks)
        else:
            tables = _read_tables()
            found[name] = from_tables(tables, _routing(families), families)
            rulesets[name] = _load_tables(tables, _plans(wanted, found[name]), marks)
    for family in families:
        if any(one[family].tracks for one in rulesets.values() if family in one):
            for one in rulesets.values():
                one[family] = replace(one[family], tracked=True)
    if not rulesets:
        rulesets[backends.IPTABLES_NFT] = {family: Ruleset(family, {}, *marks[family]) for family in families}
        warnings.append("there are no rules at all in this namespace")
    unread = {family: _find_unread(family) for family in families}
    rulesets = {
        name: {family: replace(rules, unread=unread[family]) for family, rules in one.items()} for name, one in rulesets.items()
    }
    around = {family: read_surroundings(family) for family in families}
    given_here = settled.options if given else None
    return LiveRules(rulesets, around, found, given_here, (*warnings, *_warn_of(unread)), _read_listening())


def _read_listening() -> frozenset[tuple[int, int]] | None:
    try:
        return frozenset((one.local[1], one.uid) for one in tcp_sockets.list_tcp() if one.state == tcp_sockets.LISTEN)
    except OSError:
        return None


def settle_beside(options: Options) -> tuple[tuple[str, ...], Settled]:
    """The backends whose tables may hold rules here, and the options settled for the one that holds ours."""
    places, settled = backends.populated(options), HERE.settle(options)
    native = options.wanted_backend == AUTO and backends.NFTABLES in places
    return places, settled.on(backends.NFTABLES) if native else settled


def _plans(wanted: Plan | None, found: Recovered) -> list[Plan]:
    """The plans that know the purpose of live rules: of the options given, and of those that the rules show."""
    return [*([wanted] if wanted else []), *([plan_for(found.options)] if found.options else [])]


def _with_sets(plans: list[Plan], variant: str, contents: Contents) -> list[Plan]:
    """The same as this backend programs them: what is a set here is one in the plan."""
    owner = backends.owner_of_sets(variant)
    sizes = [len(elements) for known, elements in contents.items() if known.startswith(owner)]
    return [use_sets(plan, owner, min(sizes) - 1)[0] for plan in plans] + plans if sizes else plans


def _load_listings(
    listings: dict[Family, Listing],
    contents: Contents,
    plans: list[Plan],
    marks: dict[Family, tuple[LocalMarks, int]],
) -> dict[Family, Ruleset]:
    return {
        family: resolve_sets(
            load_listing(listing, family, plans=plans, local_marks=marks[family][0], routing_table=marks[family][1]),
            contents,
        )
        for family, listing in listings.items()
    }


def _load_tables(
    tables: Tables, plans: list[Plan], marks: dict[Family, tuple[LocalMarks, int]]
) -> dict[Family, Ruleset]:
    return {
        family: load_tables(tables, family, plans=plans, local_marks=local, routing_table=table)
        for family, (local, table) in marks.items()
    }


def _read_listings(name: str, settled: Settled) -> dict[Family, Listing]:
    """The rules with their counters, read as every other command reads them."""
    refusals = []
    for reader in backends.readers(name):  # iptables-legacy, then libiptc, which sees the same without a program
        try:
            return _look(reader, settled)
        except BackendUnavailableError as error:
            refusals.append(error)
    raise refusals[0]


def _look(name: str, settled: Settled) -> dict[Family, Listing]:
    backend = backends.load(name, settled.options, settled.kernel_families)
    if not isinstance(backend, XtablesBackend):
        raise TypeError(f"{name} lists no rules in iptables' dialect")
    return backend.look(settled.kernel_families, counted=backend.counts)[1]


def _uncounted(listings: dict[Family, Listing]) -> dict[Family, Listing]:
    """The listings without counters."""
    return {
        family: {
            name: ListedTable(
                policies=table.policies,
                rules={chain: [split_counter(spec)[1] for spec in specs] for chain, specs in table.rules.items()},
            )
            for name, table in listing.items()
        }
        for family, listing in listings.items()
    }


def _read_tables() -> Tables:
    return NftablesBackend().read()


def _find_unread(family: Family) -> dict[str, tuple[str, ...]]:
    """The nft tables that are neither ours nor iptables', by the hook at which packets of a family meet their rules.

    A chain without a rule whose policy is to accept decides nothing.
    """
    found: dict[str, dict[str, None]] = {}
    for chain in detect.nft_chains() or ():
        own = _is_known(chain.table) if chain.family == INET else chain.table in TABLES_OF_THE_KERNEL
        hook = _HOOKS_OF_DEVICES if chain.family == _NETDEV else _HOOKS if chain.family in (INET, _NUMBERS[family]) else {}
        if chain.hook in hook and (chain.uses or not chain.accepts) and (not own or chain.family == _NETDEV):
            found.setdefault(hook[chain.hook], {})[f"nft table {_FAMILIES[chain.family]} {chain.table}"] = None
    return {hook: tuple(tables) for hook, tables in found.items()}


def _is_known(table: str) -> bool:
    """Whether an inet table is one that is read, or that of a trace, which decides nothing."""
    return table.startswith(backends.NATIVE_TABLES) or (table == trace_table.TABLE and trace_table.is_harmless())


def _warn_of(unread: dict[Family, dict[str, tuple[str, ...]]]) -> tuple[str, ...]:
    tables = dict.fromkeys([table for hooks in unread.values() for named in hooks.values() for table in named])
    named = ", ".join([shorten(table) for table in list(tables)[:MOST_NAMED]]) + (" and more" if len(tables) > MOST_NAMED else "")
    return (f"foreign rules that netinit cannot read are here, and may decide otherwise: {named}",) if tables else ()


def _routing(families: tuple[Family, ...]) -> dict[int, int]:
    """The routing table of each mark that a policy rule names."""
    rules = [rule for family in families for rule in netlink.list_mark_rules(family.number)]
    return {rule.mark: rule.table for rule in rules if rule.plain and rule.mask == FULL_MASK}


def _local_marks(family: Family) -> tuple[LocalMarks, int]:
    """The marks that policy rules route to this host, and the table of one of them."""
    tables = {route.table for route in netlink.list_local_routes(family.number)}
    rules = [
        rule
        for rule in netlink.list_mark_rules(family.number)
        if rule.plain and rule.table in tables
    ]
    return frozenset((rule.mark, rule.mask) for rule in rules), rules[0].table if rules else 0


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
