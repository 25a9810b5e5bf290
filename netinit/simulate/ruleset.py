"""One family's rules in a form to simulate: rules, chains, the stages of hooks; from a plan or a listing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from netinit.base.net import Family, Network
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, shorten
from netinit.rules.foreign_targets import DestinationNat, Several
from netinit.rules.iptables.parse import part_comment, quote_rule
from netinit.rules.iptables.sets import Contents, resolve
from netinit.rules.iptables.write import Written, write_plan
from netinit.rules.marking_targets import RestoreMark, SaveMark, SetMark
from netinit.rules.matches.context import Mark
from netinit.rules.model import BUILTIN_CHAINS, NAT, OWNED_CHAINS, Origin, Plan, Rule
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, LocalMarks, Surroundings
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return, Target
from netinit.simulate.hooks import STAGES, TRACKING, priority_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ACCEPT = "ACCEPT"
EARLY, LATE = "early", "late"


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule in the kernel: `number` from 1; `purpose` and `origin` from the plan, empty for foreign rules.

    `comment` is the rule's own if it is not its purpose, and untrusted. `packets` is its counter, `handle` its
    handle in nf_tables.
    """

    number: int
    text: str
    rule: Rule
    purpose: str = ""
    origin: Origin | None = None
    packets: int | None = None  # the live counter
    comment: str = ""
    handle: int = 0

    @property
    def bare_text(self) -> str:
        """The rule without its comment, on one line and truncated."""
        return escape(shorten(part_comment(self.text)[0], MAX_RULE_LENGTH))

    @property
    def quotation(self) -> str:
        """The rule as quoted in sentences."""
        return quote_rule(self.text) if self.comment else f"`{self.bare_text}`"

    def label(self, origins: Mapping[str, str]) -> str:
        """The option behind the rule, as the user set it (`origins`); empty if no option makes it."""
        return origins.get(self.origin.option, self.origin.label) if self.origin and self.origin.option else ""

    def why(self, origins: Mapping[str, str]) -> str:
        """Its purpose, with the option behind it; empty for a foreign rule."""
        label = self.label(origins)
        return self.purpose + (f" ({label})" if label else "")


@dataclass(frozen=True, slots=True, eq=False)
class RuleHit:
    """A rule that took packets, or several equivalent neighbours of which each packet met one.

    Compared by identity, because there may be thousands; a rule has one object per hook.
    """

    hook: str
    table: str
    chain: str
    rules: tuple[LoadedRule, ...]
    source: str = ""  # backend of the table, if several have rules
    doubtful: bool = False  # unknown whether they took the packets

    @property
    def matched(self) -> Rule:
        """The first of the rules."""
        return self.rules[0].rule

    def __str__(self) -> str:
        first, last = self.rules[0].number, self.rules[-1].number
        table = f"{self.source}'s {self.table}" if self.source else self.table
        if first == last:
            return f"rule {first} of {table} {self.chain}, {self.rules[0].quotation}"
        return f"rules {first} to {last} of {table} {self.chain}, the first of which is {self.rules[0].quotation}"


@dataclass(frozen=True, slots=True)
class LoadedChain:
    """A chain; `policy` is empty unless it is a built-in chain."""

    name: str
    rules: tuple[LoadedRule, ...]
    policy: str = ""


Tables = dict[str, dict[str, LoadedChain]]  # by the names of table and chain


@dataclass(frozen=True, slots=True)
class HookedChain:
    """A base chain at a hook, with the `chains` it may call; `effect` is the iptables table whose targets it may use.

    The kernel does not expose whether a foreign chain with the priority of connection tracking or NAT runs before
    or after it: such a chain is listed twice, distinguished by `turn`.
    """

    table: str
    chain: LoadedChain
    chains: Mapping[str, LoadedChain]
    effect: str
    hook: str
    priority: int
    source: str = ""
    turn: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """The table and the name of the chain."""
        return (self.table, self.chain.name)

    @property
    def name(self) -> str:
        """The table's name in sentences, with its backend if there are several."""
        return f"{self.source}'s {self.table}" if self.source else self.table

    @property
    def policy_reason(self) -> str:
        """Why the chain's policy ends a packet."""
        unknown = "" if self.chain.policy in (ACCEPT, "DROP") else ", which netinit does not know"
        return f"the policy of {self.name} {self.chain.name} is {self.chain.policy}{unknown}"

    def find_called(self, name: str, above: Sequence[str]) -> tuple[LoadedChain | None, str]:
        """The chain that a rule calls, or why it cannot be followed; `above` are the chains that called the rule's."""
        called = self.chains.get(name)
        if called is None or called.policy:
            return None, f"nothing is known of {name}"
        return (None, f"the chain {name} calls itself") if name in above else (called, "")

    def is_final(self, target: Target) -> bool:
        """Whether packets that a rule takes end, leave its chain, or come back to it as they were."""
        if isinstance(target, Several):
            return target.targets[-1].is_final
        reachable = list_targets(self.chains, target)  # a packet that DNAT changes does not come back
        return all(one.is_final or one.only_observes or isinstance(one, DestinationNat | Jump) for one in reachable)

    @property
    def changes_packets(self) -> bool:
        """Whether a reachable rule does more than log, accept or end packets."""
        return any(
            not (isinstance(target, Accept | Return | Jump | Drop | Reject) or target.only_observes)
            for name, chain in self.chains.items()
            if name == self.chain.name or not chain.policy
            for loaded in chain.rules
            for target in (loaded.rule.target.targets if isinstance(loaded.rule.target, Several) else (loaded.rule.target,))
        )


@dataclass(frozen=True, slots=True)
class HookStage:
    """What runs at one priority of a hook: connection tracking, NAT or an iptables table (`name`).

    Each of `rounds` has chains of one priority; all of NAT's run in its stage.
    """

    name: str
    rounds: tuple[tuple[HookedChain, ...], ...] = ()


@dataclass(frozen=True)
class Ruleset:
    """The tables of one family, and what their plan adds to the host: marks that policy rules route to it, `addresses` on lo.

    `tracked`: something else enables connection tracking. `unread`: what decides too and cannot be read. `doubt`: why it is not known
    whether these rules will be there.
    `others`: the rules of the kernel's other backends, which run at the same hooks; `source` then names this one.
    `foreign`: base chains of foreign nf_tables tables.
    """

    family: Family
    tables: Tables = field(default_factory=dict)
    local_marks: LocalMarks = frozenset()
    routing_table: int = 0  # that routes those marks
    addresses: frozenset[int] = frozenset()
    tracked: bool = False
    unread: tuple[str, ...] = ()
    doubt: str = ""
    source: str = ""
    others: tuple[Ruleset, ...] = ()
    foreign: tuple[HookedChain, ...] = ()

    def place_on(self, host: Surroundings) -> Surroundings:
        """The host with what the plan of these rules adds to it."""
        added = self.addresses - {address for _, address in host.addresses}
        if not added and self.local_marks <= host.local_marks:
            return host
        addresses = (*host.addresses, *[(LOOPBACK_DEVICE, one) for one in sorted(added)])
        return host.replace(local_marks=host.local_marks | self.local_marks, addresses=addresses)

    @property
    def backends(self) -> tuple[Ruleset, ...]:
        """These rules and those of the other backends."""
        return (self, *self.others)

    @property
    def chains(self) -> list[LoadedChain]:
        """The chains of its own tables."""
        return [chain for chains in self.tables.values() for chain in chains.values()]

    @cached_property
    def is_foreign(self) -> bool:
        """Whether no rule is netinit's or Istio's."""
        chains = [chain for backend in self.backends for chain in backend.chains if chain.rules]
        return not any(chain.name in OWNED_CHAINS or any(rule.origin for rule in chain.rules) for chain in chains)

    @cached_property
    def stages(self) -> dict[str, tuple[HookStage, ...]]:
        """The stages of each hook, in the kernel's order."""
        return {hook: tuple(self._list_stages(hook)) for hook in STAGES}

    def _list_stages(self, hook: str) -> Iterator[HookStage]:
        by_priority: dict[int, list[HookedChain]] = {}
        nat: dict[int, list[HookedChain]] = {}
        fixed = {priority_at(hook, stage): stage for stage in STAGES[hook]}
        own = [
            HookedChain(table, chain, backend.tables[table], table, hook, priority, backend.source)
            for priority, table in fixed.items()
            for backend in self.backends
            if (chain := backend.tables.get(table, {}).get(hook)) and chain.policy  # a chain without a policy has no hook
        ]
        for one in [*own, *[base for base in self.foreign if base.hook == hook]]:
            if one.chain.rules or one.chain.policy != ACCEPT:
                (nat if one.effect == NAT else by_priority).setdefault(one.priority, []).append(one)
        for priority in sorted({*fixed, *by_priority}):
            stage, here = fixed.get(priority, ""), tuple(by_priority.get(priority, ()))
            if stage in (TRACKING, NAT):
                waiting = tuple([tuple(nat[one]) for one in sorted(nat)]) if stage == NAT else ()
                early, late = (tuple([replace(one, turn=turn) for one in here]) for turn in (EARLY, LATE))
                around = (HookStage("", (early,)), HookStage("", (late,))) if here else ()
                yield from (*around[:1], HookStage(stage, waiting), *around[1:])
            elif here:
                yield HookStage(stage, (here,))

    def list_chains(self) -> Iterator[LoadedChain]:
        """Every chain of all backends and foreign tables."""
        for backend in self.backends:
            yield from backend.chains
        for table in {id(base.chains): base.chains for base in self.foreign}.values():
            yield from table.values()

    @cached_property
    def proxy_ports(self) -> frozenset[int]:
        """Ports that planned rules capture to; empty if no rule is known to be planned, when any port may be."""
        captures = {
            loaded.rule.target.captures_at for chain in self.list_chains() for loaded in chain.rules if loaded.origin or loaded.purpose
        }
        return frozenset(captures - {0})

    def is_proxy(self, port: int) -> bool:
        """Whether redirection to this port is capture, not a foreign redirection."""
        return not self.proxy_ports or port in self.proxy_ports

    @cached_property
    def tracks(self) -> bool:
        """Whether the kernel tracks connections, which only some rules request (nf_ct_netns_get)."""
        return self.tracked or any(
            loaded.rule.target.tracks or any(match.tracks for match in loaded.rule.matches)
            for chain in self.list_chains()
            for loaded in chain.rules
        )


    def marks_for_nobody(self, target: Target, local_marks: LocalMarks) -> bool:
        """Whether a target only changes bits of marks that no rule, and no policy rule for `local_marks`, reads."""
        if not isinstance(target, SetMark):
            return False
        packet, connection = self._marks_read
        asked = connection if target.connection else packet | _bits_of([mask for _, mask in local_marks])
        if not target.connection and self._copies_marks:
            asked |= connection
        return not (target.mask | target.value) & asked

    @cached_property
    def _copies_marks(self) -> bool:
        targets = [loaded.rule.target for chain in self.list_chains() for loaded in chain.rules]
        parts = [part for one in targets for part in (one.targets if isinstance(one, Several) else (one,))]
        return any(isinstance(part, SaveMark | RestoreMark) for part in parts)

    @cached_property
    def _marks_read(self) -> tuple[int, int]:
        """The bits of packets' and of connections' marks that rules read, directly or through a copy."""
        rules = [loaded.rule for chain in self.list_chains() for loaded in chain.rules]
        matches = [match for rule in rules for one in rule.matches for match in one.parts if isinstance(match, Mark)]
        packet = _bits_of([one.mask for one in matches if not one.connection]) | _bits_of([mask for _, mask in self.local_marks])
        connection = _bits_of([one.mask for one in matches if one.connection])
        return (packet | connection, packet | connection) if self._copies_marks else (packet, connection)


def _bits_of(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def join_backends(rulesets: Mapping[str, Mapping[Family, Ruleset]], family: Family, first: str = "") -> Ruleset:
    """A family's rules of all of a kernel's backends as one ruleset; `first` is the backend of our rules, if known."""
    present = {name: found[family] for name, found in rulesets.items() if family in found}
    if not present:
        return Ruleset(family)
    deciding = {
        name: ruleset
        for name, ruleset in present.items()
        if any(chain.rules or chain.policy not in ("", ACCEPT) for chain in ruleset.chains)
    }
    rest = deciding or present
    chosen = first if first in rest else next(iter(rest))
    main = rest.pop(chosen)
    if not rest:
        return main
    marks = main.local_marks.union(*[one.local_marks for one in rest.values()])
    added = main.addresses.union(*[one.addresses for one in rest.values()])
    others = tuple(replace(one, source=name) for name, one in rest.items())
    return replace(main, source=chosen, others=others, local_marks=marks, addresses=added)


def load_plan(plan: Plan, family: Family, written: Written | None = None) -> Ruleset:
    """The rules of one family after the plan is applied; `written` is the plan as written, if known."""
    tables: Tables = {}
    for table, chains in (written or write_plan(plan, family)).items():
        tables[table] = {}
        for name, chain in chains.items():
            rules = tuple(
                LoadedRule(number, one.text, one.listed(family), one.rule.comment, one.rule.origin)
                for number, one in enumerate(chain.rules, 1)
            )
            tables[table][name] = LoadedChain(name, rules, ACCEPT if name in BUILTIN_CHAINS else "")
    routes = {route.table for route in plan.routes if route.family is family}
    rules_of_family = [rule for rule in plan.ip_rules if rule.family is family and rule.table in routes]
    return Ruleset(
        family,
        tables,
        frozenset((rule.mark, rule.mask) for rule in rules_of_family),
        rules_of_family[0].table if rules_of_family else 0,
        frozenset([Network.parse(one.cidr).first for one in plan.addresses if one.family is family]),
    )


def with_plan(ruleset: Ruleset, plan: Plan) -> Ruleset:
    """Replace all rules of ours by a plan's; foreign rules keep their places."""
    written = write_plan(plan, ruleset.family)
    return with_loaded(ruleset, written, load_plan(plan, ruleset.family, written))


def with_loaded(ruleset: Ruleset, written: Written, planned: Ruleset) -> Ruleset:
    """Replace all rules of ours by those of a plan that was written and loaded before."""
    return replace(
        ruleset,
        tables=_exchange(ruleset.tables, planned.tables, written),
        others=tuple(replace(one, tables=_exchange(one.tables, {}, {})) for one in ruleset.others),
        local_marks=planned.local_marks or ruleset.local_marks,
        routing_table=planned.routing_table,
        addresses=planned.addresses,
    )


def _exchange(current: Tables, planned: Tables, written: Written) -> Tables:
    """The tables with `planned` rules instead of ours."""
    tables: Tables = {}
    for table in dict.fromkeys([*current, *planned]):
        live, wanted = current.get(table, {}), planned.get(table, {})
        tables[table] = {name: chain for name, chain in live.items() if name not in OWNED_CHAINS} | wanted
        for name, chain in live.items():
            if name in BUILTIN_CHAINS:
                own = wanted[name].rules if name in wanted else ()
                first = written[table][name].inserted if name in wanted else 0
                foreign = [rule for rule in chain.rules if not is_ours(rule)]
                rules = tuple(replace(rule, number=at) for at, rule in enumerate([*own[:first], *foreign, *own[first:]], 1))
                tables[table][name] = LoadedChain(name, rules, chain.policy)
    return tables


def is_ours(loaded: LoadedRule) -> bool:
    """Whether a rule in a built-in chain is planned, or jumps into our chains."""
    target = loaded.rule.target
    return bool(loaded.origin) or (isinstance(target, Jump) and target.chain in OWNED_CHAINS)


def resolve_sets(ruleset: Ruleset, contents: Contents) -> Ruleset:
    """Replace references to address sets by their networks, if known."""
    if not contents:
        return ruleset

    def resolve_chain(_: str, chain: LoadedChain) -> LoadedChain:
        return replace(chain, rules=tuple(replace(each, rule=resolve(each.rule, contents)) for each in chain.rules))

    others = tuple(resolve_sets(one, contents) for one in ruleset.others)
    return replace(ruleset, tables=map_chains(ruleset.tables, resolve_chain), others=others)


def map_chains(tables: Tables, change: Callable[[str, LoadedChain], LoadedChain]) -> Tables:
    """The tables with every chain changed; `change` gets the table's name and the chain."""
    return {table: {name: change(table, chain) for name, chain in chains.items()} for table, chains in tables.items()}


def list_reachable(chains: Mapping[str, LoadedChain], roots: Iterable[str]) -> list[str]:
    """The chains of a table that `roots` may call, directly or not, with themselves; depth first."""
    found: dict[str, None] = {}
    waiting = [*roots][::-1]
    while waiting:
        name = waiting.pop()
        if name in chains and name not in found:
            found[name] = None
            waiting += [loaded.rule.target.calls for loaded in reversed(chains[name].rules)]
    return list(found)


def list_targets(chains: Mapping[str, LoadedChain], target: Target) -> list[Target]:
    """A target, and those of the chains that it calls, directly or not."""
    return [target, *[loaded.rule.target for name in list_reachable(chains, (target.calls,)) for loaded in chains[name].rules]]
