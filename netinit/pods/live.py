"""The live rules of a namespace and what else decides about packets there, for the simulator. Changes nothing.

Which options made the rules is read from the rules themselves; options that are given beside are compared with those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from netinit import backends
from netinit.backends import ipset
from netinit.backends.iptables import XtablesBackend, notice_size
from netinit.backends.machine import HERE
from netinit.base.errors import BackendUnavailableError, ParseError
from netinit.base.net import FULL_MASK, Family
from netinit.base.snapshot import IFF_UP, Snapshot
from netinit.kernel import detect, netlink, tcp_sockets
from netinit.kernel.situation import advise
from netinit.kernel.snapshot.reading import read_host, read_snapshot
from netinit.options import AUTO, Interception, Options, Settled
from netinit.rules.iptables.sets import Contents, use_sets
from netinit.rules.iptables.write import ListedTable, Listing
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import OUTPUT, PREROUTING, Plan
from netinit.rules.packet import LOOPBACK_DEVICE, LocalMarks, Surroundings
from netinit.rules.recover import Recovered, from_chains, from_listings
from netinit.simulate.host import is_simple, surroundings_of
from netinit.simulate.places import SOURCES, load_snapshot, merge
from netinit.simulate.ruleset import Ruleset, chains_of, load_listing, resolve_sets, split_counter

MANY_WAYS = (
    "policy rules, or several ways to one destination, decide by more than the destination where packets leave: every interface"
    " counts as possible"
)
MOST_NAMED = 3


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
    routes_known: bool = True  # the destination alone says which interface a packet leaves through


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
    snapshot = _read_snapshot()
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
            rulesets[name] = _load_own_tables(snapshot, marks)
            found[name] = from_chains(chains_of(rulesets[name]), _routing(families))
    for family in families:
        if any(one[family].tracks for one in rulesets.values() if family in one):
            for one in rulesets.values():
                one[family] = replace(one[family], tracked=True)
    if not rulesets:
        rulesets[backends.IPTABLES_NFT] = {family: Ruleset(family, {}, *marks[family]) for family in families}
        warnings.append("there are no rules at all in this namespace")
    held_by = load_snapshot(snapshot, [plan for one in found.values() for plan in _plans(wanted, one)])
    for name, by_family in rulesets.items():
        held = held_by.rulesets.get(SOURCES[name], {})
        rulesets[name] = {
            family: merge(rules, held.get(family)) if name != backends.NFTABLES else replace(rules, tables=held[family].tables)
            for family, rules in by_family.items()
        }
    unread = _find_unread(snapshot)
    rulesets = {
        name: {family: replace(rules, unread=unread, foreign=held_by.foreign[family]) for family, rules in one.items()}
        for name, one in rulesets.items()
    }
    around = {family: surroundings_of(snapshot, family) for family in families}
    simple = all(is_simple(snapshot, family) for family in families)
    warnings += [f"{place} cannot be read, and may decide otherwise" for place in dict.fromkeys(sum(unread.values(), ()))]
    warnings += [] if simple else [MANY_WAYS]
    given_here = settled.options if given else None
    return LiveRules(rulesets, around, found, given_here, tuple(warnings), _read_listening(), routes_known=simple)


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


def _load_own_tables(snapshot: Snapshot, marks: dict[Family, tuple[LocalMarks, int]]) -> dict[Family, Ruleset]:
    """The rules of our nft tables. ParseError."""
    held = load_snapshot(snapshot)
    if held.unreadable:
        raise ParseError("; ".join(held.unreadable))
    own = held.rulesets[backends.NFTABLES]
    return {family: replace(own[family], local_marks=local, routing_table=table) for family, (local, table) in marks.items()}


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


def _find_unread(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """What decides about packets, by hook, and is not followed: a false lo, tables that could not be read, programs."""
    found = [one.place for one in snapshot.unknown]
    if any(link.index != netlink.LOOPBACK_INDEX and link.name == LOOPBACK_DEVICE for link in snapshot.links):
        found.append("the device called lo, which is not the loopback,")
    found += [f"BPF program {one.number} ({one.where})" for one in snapshot.programs]
    found += [f"a filter of tc on {snapshot.name_of(one.index)}" for one in snapshot.traffic_control if one.what == "filter"]
    found += ["a policy of IPsec"] * bool(snapshot.transforms)
    found += ["the loopback device, which is down,"] * any(
        one.index == netlink.LOOPBACK_INDEX and not one.flags & IFF_UP for one in snapshot.links
    )
    return {hook: tuple(found) for hook in (PREROUTING, OUTPUT)} if found else {}


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
    """The addresses, routes and forwarding of this namespace. ParseError."""
    try:
        return surroundings_of(read_host(), family)
    except OSError as error:
        raise _unread(error) from None


def _read_snapshot() -> Snapshot:
    try:
        return read_snapshot()
    except OSError as error:
        raise _unread(error) from None


def _unread(error: OSError) -> ParseError:
    return ParseError(f"the kernel does not say what decides about packets here: {error.strerror or error}")
