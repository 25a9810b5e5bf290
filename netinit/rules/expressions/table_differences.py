"""Compare our nft tables in the kernel with the plan; both are decoded, so the notation of nft's releases is irrelevant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from netinit.base.net import FAMILIES
from netinit.base.snapshot import INET, SET_ANONYMOUS, SET_MAP, Snapshot
from netinit.rules import model
from netinit.rules.expressions.decoded_steps import decode_steps, each_element
from netinit.rules.expressions.rule_reader import LiveTables
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.model import BUILTIN_CHAINS, EXTRA, MISSING, MOVED, Difference, LiveChain, LiveRule, Plan
from netinit.rules.nft import DIALECT, TABLE_NAMES, NftStep, format_hook, format_rule, plan_tables

LONG_LIST = 10  # elements of a set that are shown
RuleKey = tuple[frozenset[object], object]  # the matches; the target with the families
Key = tuple[RuleKey, ...]  # of each rule that one with a verdict map stands for


def decode_tables(snapshot: Snapshot) -> dict[str, dict[str, LiveChain]]:
    """Return the chains of our tables in a snapshot."""
    live = LiveTables(snapshot)
    return {
        table.name: {chain.name: chain for chain in live.chains(INET, table.name)}
        for table in snapshot.tables
        if table.family == INET and table.name in TABLE_NAMES
    }


def _others(snapshot: Snapshot, table: str) -> Iterator[str]:
    """Yield the names of other things in a table: sets, maps, objects."""
    for one in snapshot.sets:
        if (one.family, one.table) == (INET, table) and not one.flags & SET_ANONYMOUS:
            yield f"{'map' if one.flags & SET_MAP else 'set'} {one.name}"
    for other in snapshot.objects:
        if (other.family, other.table) == (INET, table):
            yield f"{other.kind if other.kind == 'flowtable' else 'object'} {other.name}"


def format_live(live: LiveRule) -> str:
    """Return a rule of the kernel in nft syntax."""
    return "; ".join([format_rule(one, counter=live.packets is not None) for one in live.rules])


def _key(live: LiveRule, table: str) -> Key:
    """Return the meaning of a rule. Istio's node agent omits the family, so its tables are compared without it."""
    keys = []
    for rule in live.rules:
        *matches, target = normalise_rule(rule)
        keys.append((frozenset(matches), (target, FAMILIES if table.startswith(model.NFT_NODE_AGENT) else rule.families)))
    return tuple(keys)


def format_chain_hook(live: LiveChain) -> str:
    """Return a chain's hook as nft lists it; empty if only jumps lead to it."""
    chain = live.nft
    if chain is None or not chain.is_base:
        return ""
    hook = BUILTIN_CHAINS[chain.hook] if chain.hook < len(BUILTIN_CHAINS) else "ingress"
    return format_hook(hook, chain.kind, chain.priority, accepts=bool(chain.policy))


def compare_tables(plan: Plan, snapshot: Snapshot) -> tuple[Difference, ...]:
    """Return all differences of our tables from a plan's, in the order of tables, chains and rules."""
    planned, live = plan_tables(plan), decode_tables(snapshot)
    found: list[Difference] = []
    for name in dict.fromkeys((*planned, *live)):
        if name not in live or name not in planned:
            kind = EXTRA if name in live else MISSING
            found.append(Difference(kind=kind, where=DIALECT, table=name, rule="the whole table"))
            continue
        wanted = decode_steps(name, planned[name])
        for chain in dict.fromkeys((*wanted, *live[name])):
            hook = planned[name][chain][0] if chain in wanted else ""
            found += _compare_chain(name, chain, hook, wanted.get(chain), live[name].get(chain))
        found += [Difference(kind=EXTRA, where=DIALECT, table=name, rule=other) for other in _others(snapshot, name)]
    return tuple(found)


def _compare_chain(
    table: str, chain: str, hook: str, wanted: list[tuple[NftStep, LiveRule]] | None, live: LiveChain | None
) -> Iterator[Difference]:
    if live is None or wanted is None:
        yield Difference(kind=EXTRA if wanted is None else MISSING, where=DIALECT, table=table, chain=chain)
    elif (found := format_chain_hook(live)) != hook:
        yield Difference(kind=MISSING, where=DIALECT, table=table, chain=chain, rule=hook or "no hook")
        yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=chain, rule=found or "no hook")
    yield from _compare_rules(table, chain, wanted or [], live.rules if live else ())


def _compare_rules(
    table: str, chain: str, wanted: list[tuple[NftStep, LiveRule]], live: Sequence[LiveRule]
) -> Iterator[Difference]:
    keys, listed = [_key(one, table) for _, one in wanted], [_key(one, table) for one in live]
    if keys == listed or one_by_one(keys) == one_by_one(listed):
        return
    texts = [step.text() for step, _ in wanted]
    missing, extra = align(keys, listed)
    live_texts = {place: format_live(live[place]) for place in extra}
    lists = {_skeleton(text): text for text in live_texts.values()}
    planned_lists = {_skeleton(texts[index]): texts[index] for index, _ in missing}
    for index, moved_from in missing:
        rule = wanted[index][0].rule
        yield Difference(
            kind=MISSING if moved_from is None else MOVED, where=DIALECT, table=table, chain=chain,
            number=(index if moved_from is None else moved_from) + 1, rule=_abridge(texts[index], lists),
            purpose=rule.comment, origin=rule.origin_label,
        )  # fmt: skip
    for place, text in live_texts.items():
        yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=chain, number=place + 1, rule=_abridge(text, planned_lists))


def one_by_one(keys: Iterable[Key]) -> list[RuleKey]:
    """Return a rule for each element of a list; consecutive rules with one effect are sorted, since their order is irrelevant."""
    units: list[RuleKey] = []
    run: list[RuleKey] = []
    for matches, effect in [rule for key in keys for rule in key]:
        each = [(frozenset(one), effect) for one in each_element(matches)]
        if run and (effect != run[0][1] or _without_values(each[0][0]) != _without_values(run[0][0])):
            units += sorted(run, key=_by_matches)
            run = []
        run += each
    return units + sorted(run, key=_by_matches)


def _without_values(matches: frozenset[Any]) -> frozenset[object]:
    return frozenset([one.replace(**{one.listed: ()}) if one.listed else one for one in matches])


def _by_matches(rule: RuleKey) -> list[str]:
    return sorted([repr(match) for match in rule[0]])


def _skeleton(text: str) -> str:
    """Return the rule without the elements of its list."""
    head, _, rest = text.partition("{ ")
    return head + rest.partition(" }")[2]


def _abridge(text: str, others: dict[str, str]) -> str:
    """Shorten a long list to the elements that the other side's rule lacks."""
    head, _, rest = text.partition("{ ")
    body, _, tail = rest.partition(" }")
    elements = body.split(", ")
    if len(elements) <= LONG_LIST:
        return text
    known = set(others.get(_skeleton(text), "").replace("{ ", ", ").replace(" }", ", ").split(", "))
    shown = ([element for element in elements if element not in known] or elements)[:LONG_LIST]
    return f"{head}{{ {', '.join(shown)} and {len(elements) - len(shown)} more }}{tail}"
