"""What nft lists, parsed: its JSON (libnftables-json(5)), spelled as the writer spells rules, and compared.

The text of a listing changes with the version of nft, its JSON is a documented format. What is not understood is kept
as JSON, so that it shows up as a difference and is never taken for something planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, number_of
from netinit.base.records import Record
from netinit.rules.model import EXTRA, MISSING, MOVED, NFT_AMBIENT, Difference, Rule
from netinit.rules.nft import DIALECT, TABLE_NAMES, Written, WrittenNftChain
from netinit.rules.nft.marks import read_change, read_flags, read_masked

Json = dict[str, Any]
LONG_LIST = 10  # elements of a set that are shown
VERSIONS = ("meta nfproto ipv4", "meta nfproto ipv6")
STATES = ("invalid", "established", "related", "new", "untracked")
PRIORITIES = {-300: "raw", -150: "mangle", 0: "filter"}


class ListedChain(Record):
    """A chain: where it is hooked in (empty: nowhere), its rules in order, and the conditions of each."""

    hook: str
    rules: tuple[str, ...]
    conditions: tuple[tuple[str, ...], ...]


class ListedNftTable(Record):
    """A table: its chains, and what else is in it (sets, maps, ...) as kind and name."""

    chains: dict[str, ListedChain]
    others: tuple[str, ...] = ()


Listing = dict[str, ListedNftTable]  # table -> its contents
Key = tuple[frozenset[str], str]  # of a rule: its conditions, and the rest


def parse_listing(text: str) -> Listing:
    """The owned tables in what `nft --json list` printed. ParseError where it is not that."""
    try:
        return {
            table: ListedNftTable(
                chains={name: _read_chain(chain, rules) for name, (chain, rules) in chains.items()},
                others=tuple(others),
            )
            for table, (chains, others) in _collect(text).items()
        }
    except _OTHERWISE as error:
        raise _misunderstood(text, error) from error


def _read_chain(chain: Json, rules: list[Json]) -> ListedChain:
    conditions = [tuple([_spell_statement(one) for one in rule["expr"] if "match" in one or "limit" in one]) for rule in rules]
    texts = [spell_rule(rule) for rule in rules]
    return ListedChain(hook=spell_hook(chain), rules=tuple(texts), conditions=tuple(conditions))


def collect(text: str) -> dict[str, dict[str, tuple[Json, list[Json]]]]:
    """The chains of the owned tables, each as its JSON and that of its rules. ParseError as above."""
    try:
        return {table: chains for table, (chains, _) in _collect(text).items()}
    except _OTHERWISE as error:
        raise _misunderstood(text, error) from error


_OTHERWISE = (ValueError, KeyError, TypeError, AttributeError, StopIteration)


def _misunderstood(text: str, error: Exception) -> ParseError:
    return ParseError(f"nft's JSON listing is not understood: {error!r} in {text[:200]!r}")


def _collect(text: str) -> dict[str, tuple[dict[str, tuple[Json, list[Json]]], list[str]]]:
    """By table: the chains with their rules, and what else is in it, as kind and name."""
    tables: dict[str, tuple[dict[str, tuple[Json, list[Json]]], list[str]]] = {}
    for kind, item in [next(iter(item.items())) for item in json.loads(text)["nftables"]]:
        if item.get("family") != "inet" or (item["name"] if kind == "table" else item["table"]) not in TABLE_NAMES:
            continue
        if kind == "table":
            tables.setdefault(item["name"], ({}, []))
        elif kind == "chain":
            tables[item["table"]][0][item["name"]] = (item, [])
        elif kind == "rule":
            tables[item["table"]][0][item["chain"]][1].append(item)
        else:
            tables[item["table"]][1].append(f"{kind} {item['name']}")
    return tables


def spell_hook(chain: Json) -> str:
    """Where a chain is hooked in, as the writer spells it; empty where only jumps lead to it."""
    if "hook" not in chain:
        return ""
    priority = chain["prio"]
    if priority == -100 and chain["hook"] == "prerouting":  # noqa: PLR2004 - NF_IP_PRI_NAT_DST
        priority = "dstnat"
    return (
        f"type {chain['type']} hook {chain['hook']} priority {PRIORITIES.get(priority, priority)};"
        f" policy {chain['policy']};"
    )


def spell_rule(rule: Json) -> str:
    """The rule without its comment: comments change nothing that a rule does."""
    return " ".join([_spell_statement(statement) for statement in rule["expr"]])


def _spell_statement(statement: dict[str, Any]) -> str:
    ((kind, content),) = statement.items()
    speller = _SPELLERS.get(kind)
    text = speller(content) if speller else None
    return json.dumps(statement) if text is None else text


def _spell_match(match: dict[str, Any]) -> str | None:
    if flags := read_flags(match):
        return flags.nft()
    masked = read_masked(match["left"])
    left = _spell_left(masked[0] if masked else match["left"])
    operators = {"==": "== " if masked else "", "in": "", "!=": "!= ", "<=": "<= ", "!": "! "}
    right = left and _spell_right(left, match["right"])
    if not right or match["op"] not in operators:
        return None
    return f"{left} {f'& {masked[1]:#010x} ' if masked else ''}{operators[match['op']]}{right}"


def _spell_left(left: Any) -> str | None:
    """What is compared, for `{"meta": {"key": "mark"}}` and its like; None for what no planned rule has."""
    ((kind, content),) = left.items()
    if kind == "payload" and set(content) == {"protocol", "field"}:
        return f"{content['protocol']} {content['field']}"
    if kind == "fib" and content["result"] == "type":
        return f"fib {' . '.join(content['flags'])} type"
    if kind in ("meta", "ct", "socket") and set(content) == {"key"}:
        key: str = content["key"]
        return key if key in ("iifname", "oifname") else f"{kind} {key}"
    return None


def _spell_right(left: str, right: Any) -> str | None:
    if isinstance(right, dict) and "set" in right:
        elements = [_spell_value(left, element) for element in right["set"]]
        known = [element for element in elements if element is not None]
        if len(known) < len(elements):
            return None
        return f"{{ {', '.join(sorted(known, key=_order_of(left)))} }}" if len(known) > 1 else known[0]
    if isinstance(right, list):
        if left != "ct state" or not set(right) <= set(STATES):
            return None
        return ",".join([state for state in STATES if state in right])
    return _spell_value(left, right)


def _spell_value(left: str, value: Any) -> str | None:
    if isinstance(value, dict):
        if set(value) == {"prefix"}:
            return f"{value['prefix']['addr']}/{value['prefix']['len']}"
        if set(value) == {"range"}:
            return "-".join([str(end) for end in value["range"]])
        return None
    if left in ("meta mark", "ct mark") and isinstance(value, int):
        return f"{value:#010x}"
    if left in ("iifname", "oifname"):  # whoever names an interface chooses its letters
        return f'"{value}"' if value.isprintable() and '"' not in value else None
    return str(value)


def _order_of(left: str) -> Callable[[str], Any]:
    """How the elements of a set are ordered, which the kernel does not say: by value."""
    if left.startswith(("ip ", "ip6 ")):
        return lambda text: number_of(text.partition("/")[0].partition("-")[0])
    if left in ("iifname", "oifname"):
        return lambda text: int.from_bytes(text.strip('"').encode(), "little")
    return _number_first


def _number_first(text: str) -> tuple[bool, int, str]:
    """Numbers and ranges of them by where they begin, then words."""
    first = text.partition("-")[0]
    return (not first.isdigit(), int(first) if first.isdigit() else 0, text)


def _spell_assignment(content: dict[str, Any]) -> str | None:
    change = read_change(content["key"], content["value"])
    if change:
        return change.nft(IPV4)[0]
    key = _spell_left(content["key"])
    if key is None:
        return None
    value = _spell_left(content["value"]) if isinstance(content["value"], dict) else _spell_value(key, content["value"])
    return value and f"{key} set {value}"


def _spell_reject(content: dict[str, Any] | None) -> str | None:
    if content == {"type": "tcp reset"}:
        return "reject with tcp reset"
    if not content or set(content) != {"type", "expr"}:
        return None
    return f"reject with {content['type']} type {content['expr']}"


def _spell_port_statement(kind: str, keys: set[str]) -> Callable[[Any], str | None]:
    def spell(content: Any) -> str | None:
        if not isinstance(content, dict) or set(content) != keys or not isinstance(content["port"], int):
            return None
        family = f" {content['family']}" if "family" in content else ""
        return f"{kind}{family} to :{content['port']}"

    return spell


def _spell_limit(content: dict[str, Any]) -> str | None:
    if set(content) != {"rate", "burst", "per"}:
        return None
    return f"limit rate {content['rate']}/{content['per']} burst {content['burst']} packets"


def _spell_log(content: Any) -> str | None:
    """A report; whoever made it chose the prefix."""
    if not isinstance(content, dict) or not set(content) <= {"prefix", "group"} or not isinstance(content.get("prefix"), str):
        return None
    if not content["prefix"].isprintable() or '"' in content["prefix"]:
        return None
    group = f" group {content['group']}" if "group" in content else ""
    return f'log prefix "{content["prefix"]}"{group}'


_SPELLERS: dict[str, Callable[[Any], str | None]] = {
    "match": _spell_match,
    "counter": lambda _: "counter",
    "accept": lambda _: "accept",
    "drop": lambda _: "drop",
    "return": lambda _: "return",
    "jump": lambda content: f"jump {content['target']}",
    "goto": lambda content: f"goto {content['target']}",
    "mangle": _spell_assignment,
    "reject": _spell_reject,
    "limit": _spell_limit,
    "log": _spell_log,
    "redirect": _spell_port_statement("redirect", {"port"}),
    "tproxy": _spell_port_statement("tproxy", {"family", "port"}),
}


def compare_listing(written: Written, listing: Listing) -> tuple[Difference, ...]:
    """Every difference, in the order of tables, chains and rules; empty when the kernel is as planned."""
    found: list[Difference] = []
    for name in [*written, *[name for name in listing if name not in written]]:
        if name not in listing:
            found.append(Difference(kind=MISSING, where=DIALECT, table=name, rule="the whole table"))
        elif name not in written:
            found.append(Difference(kind=EXTRA, where=DIALECT, table=name, rule="the whole table"))
        else:
            found += _compare_table(name, written[name], listing[name])
    return tuple(found)


def _compare_table(table: str, planned: dict[str, WrittenNftChain], listed: ListedNftTable) -> Iterator[Difference]:
    nothing = ListedChain(hook="", rules=(), conditions=())
    for name, wanted in planned.items():
        live = listed.chains.get(name)
        if live is None:
            yield Difference(kind=MISSING, where=DIALECT, table=table, chain=name)
        elif live.hook != wanted.hook:
            yield Difference(kind=MISSING, where=DIALECT, table=table, chain=name, rule=wanted.hook or "no hook")
            yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=name, rule=live.hook or "no hook")
        yield from _compare_chain(table, name, wanted, live or nothing)
    for name, chain in listed.chains.items():
        if name not in planned:
            yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=name)
            yield from _compare_chain(table, name, WrittenNftChain(hook="", rules=()), chain)
    for other in listed.others:
        yield Difference(kind=EXTRA, where=DIALECT, table=table, rule=other)


def _compare_chain(table: str, chain: str, wanted: WrittenNftChain, live: ListedChain) -> Iterator[Difference]:
    """Aligns both sequences; what is missing at one place and extra at another has moved."""
    from difflib import SequenceMatcher

    texts = [written.text.partition(' comment "')[0] for written in wanted.rules]
    keys = [_key(table, text, [*VERSIONS, *_conditions(one.rule)]) for text, one in zip(texts, wanted.rules, strict=True)]
    listed = [_key(table, text, conditions) for text, conditions in zip(live.rules, live.conditions, strict=True)]
    if keys != listed and _one_by_one(keys) == _one_by_one(listed):
        return
    missing: list[int] = []
    extra: list[int] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, keys, listed, autojunk=False).get_opcodes():
        if tag != "equal":
            missing += range(i1, i2)
            extra += range(j1, j2)
    lists = {_skeleton(live.rules[place]): live.rules[place] for place in extra}
    planned_lists = {_skeleton(texts[index]): texts[index] for index in missing}
    for index in missing:
        moved_from = next((place for place in extra if listed[place] == keys[index]), None)
        if moved_from is not None:
            extra.remove(moved_from)
        yield Difference(
            kind=MISSING if moved_from is None else MOVED,
            where=DIALECT,
            table=table,
            chain=chain,
            number=(index if moved_from is None else moved_from) + 1,
            rule=_abridge(texts[index], lists),
            purpose=wanted.rules[index].rule.comment,
            origin=wanted.rules[index].rule.origin_label,
        )
    for place in extra:
        rule = _abridge(live.rules[place], planned_lists)
        yield Difference(kind=EXTRA, where=DIALECT, table=table, chain=chain, number=place + 1, rule=rule)


def _conditions(rule: Rule) -> list[str]:
    """Those of all rules of nft that it is written as: a match with a chain of its own has some there."""
    return [text for match in rule.matches for text in (match.nft(), *match.nft_unless())]


def _key(table: str, text: str, conditions: Iterable[str]) -> Key:
    """What rules that do the same have in common: conditions in any order, and what follows, without a counter.

    The tables of Istio's node agent leave out the family where it is one alone; that counts for none in these.
    """
    rest, found = f" {text}", set()
    for condition in conditions:
        before, holds, behind = rest.partition(f" {condition} ")
        if holds:
            rest = f"{before} {behind}"
            found.add(condition)
    if table.startswith(NFT_AMBIENT):
        found.difference_update(VERSIONS)
    return frozenset(found), rest.replace(" counter ", " ", 1)


def _one_by_one(keys: Iterable[Key]) -> list[Key]:
    """The rules with a list as one rule an element, as Istio writes them; those that look at the same and do the same in one order.

    What comes of a packet is the same: neither which of them it meets nor in which order decides, since all do the same.
    """
    units: list[Key] = []
    run: list[Key] = []
    for conditions, rest in keys:
        each = [frozenset(one) for one in product(*[_elements(condition) for condition in conditions])]
        if run and (rest != run[0][1] or _left_sides(each[0]) != _left_sides(run[0][0])):
            units += sorted(run, key=_by_conditions)
            run = []
        run += [(one, rest) for one in each]
    return units + sorted(run, key=_by_conditions)


def _elements(condition: str) -> list[str]:
    """The condition for each element of its list; a negated list is one."""
    left, opens, elements = condition.partition("{ ")
    if not opens or left.endswith("!= "):
        return [condition]
    return [f"{left}{element}" for element in elements.removesuffix(" }").split(", ")]


def _left_sides(conditions: frozenset[str]) -> list[str]:
    return sorted([condition.rpartition(" ")[0] for condition in conditions])


def _by_conditions(key: Key) -> list[str]:
    return sorted(key[0])


def _skeleton(text: str) -> str:
    """The rule without the elements of its list."""
    head, _, rest = text.partition("{ ")
    return head + rest.partition(" }")[2]


def _abridge(text: str, others: dict[str, str]) -> str:
    """The rule for people: of a long list what the other side's rule of the same form does not have, and how many more."""
    head, _, rest = text.partition("{ ")
    body, _, tail = rest.partition(" }")
    elements = body.split(", ")
    if len(elements) <= LONG_LIST:
        return text
    known = set(others.get(_skeleton(text), "").replace("{ ", ", ").replace(" }", ", ").split(", "))
    shown = ([element for element in elements if element not in known] or elements)[:LONG_LIST]
    return f"{head}{{ {', '.join(shown)} and {len(elements) - len(shown)} more }}{tail}"
