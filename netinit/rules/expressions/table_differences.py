"""Compare our nft tables in the kernel with the plan; both are decoded, so the notation of nft's releases is irrelevant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from netinit.base.net import FAMILIES
from netinit.base.records import Record
from netinit.base.snapshot import INET, SET_ANONYMOUS, SET_MAP, HeldChain, NftRule, Snapshot
from netinit.rules.expressions.native import encode_steps
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Source
from netinit.rules.model import BUILTIN_CHAINS, EXTRA, MISSING, MOVED, NFT_NODE_AGENT, Difference, Plan, Rule
from netinit.rules.nft import DIALECT, TABLE_NAMES, NftStep, format_hook, format_rule, plan_tables, render_tables

LONG_LIST = 10  # elements of a set that are shown
RuleKey = tuple[frozenset[object], object]  # the matches; the target with the families
Key = tuple[RuleKey, ...]  # of each rule that one with a verdict map stands for


class LiveRule(Record):
    """A rule in nft syntax, and its meaning."""

    text: str
    key: Key


class LiveChain(Record):
    """A chain: its hook as nft lists it (empty: only jumps lead to it), and its rules."""

    hook: str
    rules: tuple[LiveRule, ...]


class LiveTable(Record):
    """A table's chains, and the names of other things in it: sets, maps, objects."""

    chains: dict[str, LiveChain]
    others: tuple[str, ...] = ()


def decode_tables(snapshot: Snapshot) -> dict[str, LiveTable]:
    """Return our tables in a snapshot."""
    around = References.of(snapshot)
    rules: dict[tuple[str, str], list[LiveRule]] = {}
    for rule in snapshot.rules:
        if rule.family == INET and rule.table in TABLE_NAMES:
            rules.setdefault((rule.table, rule.chain), []).append(_decode(rule, around))
    return {
        table.name: LiveTable(
            chains={
                chain.name: LiveChain(hook=_format_hook(chain), rules=tuple(rules.get((table.name, chain.name), ())))
                for chain in snapshot.chains
                if (chain.family, chain.table) == (INET, table.name)
            },
            others=tuple(_others(snapshot, table.name)),
        )
        for table in snapshot.tables
        if table.family == INET and table.name in TABLE_NAMES
    }


def _others(snapshot: Snapshot, table: str) -> Iterator[str]:
    for one in snapshot.sets:
        if (one.family, one.table) == (INET, table) and not one.flags & SET_ANONYMOUS:
            yield f"{'map' if one.flags & SET_MAP else 'set'} {one.name}"
    for other in snapshot.objects:
        if (other.family, other.table) == (INET, table):
            yield f"{other.kind if other.kind == 'flowtable' else 'object'} {other.name}"


def _decode(rule: NftRule, around: References) -> LiveRule:
    decoded = decode_rule(rule, around)
    texts = [format_rule(one, counter=decoded.packets is not None) for one in decoded.rules]
    return LiveRule(text="; ".join(texts), key=tuple([_key(one, rule.table) for one in decoded.rules]))


def _key(rule: Rule, table: str) -> RuleKey:
    """Return the meaning of a rule. Istio's node agent omits the family, so its tables are compared without it."""
    *matches, target = normalise_rule(rule)
    return frozenset(matches), (target, FAMILIES if table.startswith(NFT_NODE_AGENT) else rule.families)


def render_live(live: dict[str, LiveTable]) -> str:
    """Format the tables as nft does, without sets and objects."""
    return render_tables({
        name: {chain: (held.hook, [rule.text for rule in held.rules]) for chain, held in table.chains.items()}
        for name, table in live.items()
    })  # fmt: skip


def _format_hook(chain: HeldChain) -> str:
    if not chain.is_base:
        return ""
    hook = BUILTIN_CHAINS[chain.hook] if chain.hook < len(BUILTIN_CHAINS) else "ingress"
    return format_hook(hook, chain.kind, chain.priority, accepts=bool(chain.policy))


def compare_tables(plan: Plan, live: dict[str, LiveTable]) -> tuple[Difference, ...]:
    """Return all differences, in the order of tables, chains and rules."""
    planned = plan_tables(plan)
    found: list[Difference] = []
    for name in dict.fromkeys((*planned, *live)):
        if name not in live or name not in planned:
            kind = EXTRA if name in live else MISSING
            found.append(Difference(kind=kind, where=DIALECT, table=name, rule="the whole table"))
            continue
        encoded = encode_steps(planned[name])
        around = References(sets={(INET, name, one.name): one for one in encoded.held_sets(name)}, devices={})
        for chain, (hook, steps) in planned[name].items():
            blocks = [one.expressions for one in encoded.chains[chain]]
            rules = [NftRule(family=INET, table=name, chain=chain, handle=0, expressions=block) for block in blocks]
            pairs = [(step, _decode(rule, around)) for step, rule in zip(steps, rules, strict=True)]
            found += _compare_chain(name, chain, hook, pairs, live[name].chains.get(chain))
        for chain, held in live[name].chains.items():
            if chain not in planned[name]:
                found.append(Difference(kind=EXTRA, where=DIALECT, table=name, chain=chain))
                found += _compare_rules(name, chain, [], held.rules)
        found += [Difference(kind=EXTRA, where=DIALECT, table=name, rule=other) for other in live[name].others]
    return tuple(found)


def _compare_chain(
    table: str, chain: str, hook: str, wanted: list[tuple[NftStep, LiveRule]], live: LiveChain | None
) -> Iterator[Difference]:
    if live is None:
        yield Difference(kind=MISSING, where=DIALECT, table=table, chain=chain)
    elif live.hook != hook:
        yield Difference(kind=MISSING, where=DIALECT, table=table, chain=chain, rule=hook or "no hook")
        yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=chain, rule=live.hook or "no hook")
    yield from _compare_rules(table, chain, wanted, live.rules if live else ())


def _compare_rules(
    table: str, chain: str, wanted: list[tuple[NftStep, LiveRule]], live: Sequence[LiveRule]
) -> Iterator[Difference]:
    keys, listed = [one.key for _, one in wanted], [one.key for one in live]
    if keys == listed or _one_by_one(keys) == _one_by_one(listed):
        return
    texts = [step.text() for step, _ in wanted]
    missing, extra = align(keys, listed)
    lists = {_skeleton(live[place].text): live[place].text for place in extra}
    planned_lists = {_skeleton(texts[index]): texts[index] for index, _ in missing}
    for index, moved_from in missing:
        rule = wanted[index][0].rule
        yield Difference(
            kind=MISSING if moved_from is None else MOVED, where=DIALECT, table=table, chain=chain,
            number=(index if moved_from is None else moved_from) + 1, rule=_abridge(texts[index], lists),
            purpose=rule.comment, origin=rule.origin_label,
        )  # fmt: skip
    for place in extra:
        rule_text = _abridge(live[place].text, planned_lists)
        yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=chain, number=place + 1, rule=rule_text)


def _one_by_one(keys: Iterable[Key]) -> list[RuleKey]:
    """Return a rule for each element of a list; consecutive rules with one effect are sorted, since their order is irrelevant."""
    units: list[RuleKey] = []
    run: list[RuleKey] = []
    for matches, effect in [rule for key in keys for rule in key]:
        each = [(frozenset(one), effect) for one in product(*[_elements(match) for match in matches])]
        if run and (effect != run[0][1] or _without_values(each[0][0]) != _without_values(run[0][0])):
            units += sorted(run, key=_by_matches)
            run = []
        run += each
    return units + sorted(run, key=_by_matches)


_LISTS: dict[type[object], str] = {
    Source: "networks", Destination: "networks", Port: "ports", InInterface: "names", OutInterface: "names",
}  # fmt: skip


def _elements(match: Any) -> list[object]:
    """Return a match for each element of its list; a negated list is one match."""
    field = _LISTS.get(type(match))
    if field is None or getattr(match, "negated", False):
        return [match]
    return [match.replace(**{field: (element,)}) for element in getattr(match, field)]


def _without_values(matches: frozenset[Any]) -> frozenset[object]:
    return frozenset([one.replace(**{_LISTS[type(one)]: ()}) if type(one) in _LISTS else one for one in matches])


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
