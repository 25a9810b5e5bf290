"""Loads a snapshot's rules in a form to simulate: by backend, plus foreign base chains.

Backends' rules are the iptables tables, in nf_tables or legacy, and our own nft tables; any other base chain that a
family's packets reach is foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from netinit.base.net import FAMILIES, Family
from netinit.base.snapshot import DORMANT, INET, IP, IP6, NETDEV, NftChain, Snapshot
from netinit.live.unfollowed import hook_of
from netinit.options import BACKENDS, FIRST_WITH, LEGACY_TABLES, NF_TABLES, TABLES_OF_OUR_OWN
from netinit.rules.expressions.decoded_steps import decode_steps, each_element
from netinit.rules.expressions.rule_reader import LiveTables
from netinit.rules.foreign_targets import Several, socket_target
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.live_listing import name_sets, write_live
from netinit.rules.matches import Match
from netinit.rules.matches.context import Socket, UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import InInterface, OutInterface, Protocol
from netinit.rules.model import BUILTIN_CHAINS, NAT, PREROUTING, RAW, LiveChain, Origin, Plan, Rule, is_base_of
from netinit.rules.nft import TABLE_NAMES, format_rule, model_name, model_table, plan_tables
from netinit.rules.targets import Accept, Jump, Return, Target
from netinit.rules.xtables.decoded_tables import decode_table
from netinit.rules.xtables.set_lookups import read_lookups
from netinit.simulate.hooks import STAGES, TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import (
    HookedChain,
    LoadedChain,
    LoadedRule,
    Ruleset,
    Tables,
    join_backends,
    list_reachable,
    load_plan,
    map_chains,
)

SOURCES = {name: FIRST_WITH[line.tables] for name, line in BACKENDS.items()}  # whose rules stand for a backend's
BY_PREFIX, OTHER_DEVICES = "a hook of devices by prefix", "not one of these devices"  # what such a chain begins with, in sentences
FILLS_SETS = b"SET\0"  # as the target of iptables is called that adds to a set
INGRESS_PRIORITY = -(1 << 31)  # first, or for egress last
Planned = tuple[str, Origin | None]  # purpose and origin of a rule
Purposes = dict[tuple[str, str, tuple[object, ...]], Planned]  # by table, chain and canonical rule
UNPLANNED: Planned = ("", None)
Writer = Callable[[Rule, Family], str]


@dataclass(frozen=True, slots=True)
class KernelRules:
    """The rules of each backend and the foreign base chains, both by family."""

    rulesets: dict[str, dict[Family, Ruleset]]
    foreign: dict[Family, tuple[HookedChain, ...]]
    unreadable: tuple[str, ...] = ()

    def join(self, family: Family, source: str) -> Ruleset:
        """All rules that a family's packets reach; `source` is the backend of ours."""
        return replace(join_backends(self.rulesets, family, source), foreign=self.foreign[family])


def load_snapshot(snapshot: Snapshot, plans: Sequence[Plan] = ()) -> KernelRules:
    """Load a snapshot's rules, with purpose and origin if one of `plans` contains them."""
    return _Loader(snapshot, plans).load()


class _Loader:
    def __init__(self, snapshot: Snapshot, plans: Sequence[Plan]) -> None:
        self._snapshot = snapshot
        self._live = LiveTables(snapshot)
        self._sets = dict(snapshot.address_sets)
        held = [*[one.expressions for one in snapshot.rules], *[one.entries for one in snapshot.legacy]]
        are_filled = any(FILLS_SETS in one for one in held)  # by packets, so that what was read does not stay
        self._contents = {} if are_filled else {one.number: one for one in snapshot.foreign_sets}
        self._plans = plans
        self._known = {family: list_purposes(plans, family) for family in FAMILIES}
        self._unreadable: list[str] = []

    def load(self) -> KernelRules:
        rulesets: dict[str, dict[Family, Ruleset]] = {}
        for kind, tables in (
            (NF_TABLES, {family: self._iptables(family) for family in FAMILIES}),
            (LEGACY_TABLES, {family: self._legacy(family) for family in FAMILIES}),
            (TABLES_OF_OUR_OWN, _leave_out_other_family({family: self._native(family) for family in FAMILIES})),
        ):
            if any(tables.values()) or kind != LEGACY_TABLES:  # legacy table names may be hidden
                rulesets[FIRST_WITH[kind]] = {family: Ruleset(family, found) for family, found in tables.items()}
        foreign = {family: tuple(self._foreign(family)) for family in FAMILIES}
        return KernelRules(rulesets, foreign, tuple(self._unreadable))

    def _iptables(self, family: Family) -> Tables:
        found = {}
        for table in self._snapshot.tables:
            if table.family == family.number and table.name in TABLES_OF_THE_KERNEL and not table.flags & DORMANT:
                chains = [one for one in self._live.chains(table.family, table.name) if not one.policy or _is_of_backend(one.nft)]
                found[table.name] = {chain.name: self._load(table.name, chain, family, self._known[family]) for chain in chains}
        return found

    def _load(self, table: str, chain: LiveChain, family: Family, purposes: Purposes, write: Writer = write_live) -> LoadedChain:
        """A chain with its rules for a family, numbered as in the kernel."""
        loaded: list[LoadedRule] = []
        for number, live in enumerate(chain.rules, 1):
            for rule in [name_sets(read_lookups(rule, self._contents, family), self._sets) for rule in live.rules]:
                if family in rule.families:
                    purpose, origin = purposes.get((table, chain.name, normalise_rule(rule)), UNPLANNED)
                    text, comment = str(write(rule, family)), rule.comment if rule.comment != purpose else ""
                    loaded.append(LoadedRule(number, text, rule, purpose, origin, live.packets, comment, live.handle))
        return LoadedChain(chain.name, tuple(loaded), chain.policy)

    def _legacy(self, family: Family) -> Tables:
        found: Tables = {}
        for table in self._snapshot.legacy:
            if table.version != family.version:
                continue
            try:
                chains = decode_table(table)
            except ValueError as error:
                self._unreadable.append(f"{family.name}: {error}")
                continue
            found[table.name] = {chain.name: self._load(table.name, chain, family, self._known[family]) for chain in chains}
        return found

    def _native(self, family: Family) -> Tables:
        """Our nft tables under the model's chain names."""
        found: Tables = {}
        for table in self._snapshot.tables:
            if table.family != INET or table.name not in TABLE_NAMES or table.flags & DORMANT:
                continue
            if model_table(table.name) in found:
                why = "rules of another layout are here too; netinit remove deletes both"
                self._unreadable.append(f"table {table.name}: {why}")
                continue
            chains = [
                self._load(table.name, chain, family, self._planned, lambda rule, _: format_rule(rule))
                for chain in self._live.chains(table.family, table.name)
                if not chain.policy or _is_of_backend(chain.nft)
            ]
            sockets = {one.name: one.rules for one in chains if _is_socket_chain(one.rules)}
            renamed = [
                LoadedChain(model_name(one.name), tuple(_in_model(rule, sockets) for rule in one.rules), one.policy)
                for one in chains
                if one.name not in sockets
            ]
            found[model_table(table.name)] = {one.name: one for one in renamed}
        return found

    @cached_property
    def _planned(self) -> Purposes:
        """Planned rules in nft tables, by the tables' and chains' own names."""
        found: Purposes = {}
        for plan in reversed(self._plans):
            for name, table in plan_tables(plan).items():
                for chain, pairs in decode_steps(name, table).items():
                    for step, live in pairs:
                        purpose = step.rule.comment, step.rule.origin
                        for *matches, target in map(normalise_rule, live.rules):  # Istio has a rule for each element of a list
                            found |= {(name, chain, (*one, target)): purpose for one in (*each_element(matches), matches)}
        return found

    def _foreign(self, family: Family) -> Iterable[HookedChain]:
        """Active base chains of no backend that packets of this family reach."""
        tables = {(table.family, table.name): table for table in self._snapshot.tables}
        for chain in self._snapshot.chains:
            if not chain.is_base or chain.family not in (INET, family.number, NETDEV) or _is_of_backend(chain):
                continue
            table = tables.get((chain.family, chain.table))
            hook = hook_of(chain)
            if table is None or table.flags & DORMANT or not hook:
                continue
            live = self._live.chains(chain.family, chain.table)
            chains = {one.name: self._with_sockets(self._load(chain.table, one, family, {}), family) for one in live}
            priority, own = chain.priority, chains[chain.name]
            if chain.family == NETDEV or chain.hook == len(BUILTIN_CHAINS):
                priority = INGRESS_PRIORITY if hook == PREROUTING else -INGRESS_PRIORITY
            if chain.devices or chain.has_other_devices:
                kind = InInterface if hook == PREROUTING else OutInterface
                other = UnknownMatch(text=OTHER_DEVICES) if chain.has_other_devices else kind(names=chain.devices, negated=True)
                text = BY_PREFIX if chain.has_other_devices else ""
                passing = LoadedRule(0, text, Rule(matches=(other,), target=Accept(), comment="", origin=None))
                own = chains[chain.name] = replace(own, rules=(passing, *own.rules))
            effect = NAT if chain.kind == "nat" else RAW  # notrack and zones apply wherever a connection is not tracked yet
            yield HookedChain(f"nft table {table}", own, chains, effect, hook, priority)

    def _with_sockets(self, chain: LoadedChain, family: Family) -> LoadedChain:
        """The chain, in which a rule with nft's tproxy takes packets alone for which a transparent socket is open (nft_tproxy.c)."""
        if not any(socket_target(one.rule.target) for one in chain.rules):
            return chain
        return replace(chain, rules=tuple([self._with_socket(one, family) for one in chain.rules]))

    def _with_socket(self, loaded: LoadedRule, family: Family) -> LoadedRule:
        target = socket_target(loaded.rule.target)
        if target is None:
            return loaded
        known = self._snapshot.listeners.sockets if self._snapshot.listeners else ()
        named = f"a transparent socket on port {target.port}"
        taking = [one for one in known if one.port == target.port and one.transparent and one.takes(family) and one.is_wildcard]
        found: list[Match] = [Protocol(name=one) for one in sorted({one.protocol for one in taking if not one.device})]
        unsure = UnknownMatch(text=named)
        matches = tuple([(one,) for one in [*found, unsure]])
        needed = InSet(text=f"{named} is open", alternatives=matches)
        return replace(loaded, rule=loaded.rule.replace(matches=(*loaded.rule.matches, needed)))


def list_purposes(plans: Sequence[Plan], family: Family) -> Purposes:
    """The purposes of the rules of plans in the tables of iptables; those of the first plan count first."""
    found: Purposes = {}
    for plan in reversed(plans):
        for table, chains in load_plan(plan, family).tables.items():
            for name, chain in chains.items():
                for loaded in chain.rules:
                    found[table, name, normalise_rule(loaded.rule)] = (loaded.purpose, loaded.origin)
    return found


def _is_of_backend(chain: NftChain | None) -> bool:
    """Whether it is a base chain of iptables, or of ours, with the expected hook and priority; all others are foreign."""
    if chain is None:
        return False
    is_ours = chain.family == INET and chain.table in TABLE_NAMES
    table, name = (model_table(chain.table), model_name(chain.name)) if is_ours else (chain.table, chain.name)
    return (is_ours or chain.family in (IP, IP6)) and is_base_of(chain, table, name) and table in STAGES[name]


def _leave_out_other_family(tables: dict[Family, Tables]) -> dict[Family, Tables]:
    """Restrict our nft tables, which both families share, to the chains that each family's packets reach.

    A chain that no packet reaches goes to the families that reach any non-base chain.
    """
    reached = {
        family: {(table, name) for table, chains in own.items() for name in list_reachable(chains, BUILTIN_CHAINS)}
        for family, own in tables.items()
    }
    anywhere = set().union(*reached.values())
    captured = [family for family, places in reached.items() if any(name not in BUILTIN_CHAINS for _, name in places)] or FAMILIES

    def restrict(family: Family, table: str, chain: LoadedChain) -> LoadedChain:
        place = (table, chain.name)
        belongs = place in reached[family] or (place not in anywhere and family in captured)
        return chain if belongs else replace(chain, rules=())

    return {family: map_chains(own, partial(restrict, family)) for family, own in tables.items()}


def _is_socket_chain(rules: Sequence[LoadedRule]) -> bool:
    """Whether a chain is the second half of a rule with a Socket match (see netinit.rules.nft)."""
    if len(rules) != 2:  # noqa: PLR2004 - the negated and the positive match
        return False
    unless, last = (one.rule for one in rules)
    return (
        unless.matches == (UnknownMatch(text="socket 2 == 01"),)
        and isinstance(unless.target, Return)
        and last.matches == (UnknownMatch(text="socket 0 == 00-01"),)
        and isinstance(last.target, Jump)
    )


def _in_model(loaded: LoadedRule, sockets: Mapping[str, Sequence[LoadedRule]]) -> LoadedRule:
    """The rule under the model's chain names, with the Socket match of its helper chain."""
    target = loaded.rule.target
    if isinstance(target, Jump) and target.chain in sockets:
        last = sockets[target.chain][-1].rule
        rule = loaded.rule.replace(matches=(*loaded.rule.matches, Socket()), target=_rename(last.target))
    else:
        rule = loaded.rule.replace(target=_rename(target))
    return replace(loaded, rule=rule)


def _rename(target: Target) -> Target:
    if isinstance(target, Jump):
        return target.replace(chain=model_name(target.chain))
    if isinstance(target, Several):
        return target.replace(targets=tuple([_rename(one) for one in target.targets]))
    return target
