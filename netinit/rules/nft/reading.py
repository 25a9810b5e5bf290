"""nft's JSON (libnftables-json(5)) read into typed matches and targets, with counters, for those who walk through the rules.

Read is what the writer writes, and a little more; a statement that is not known keeps its JSON as `UnknownMatch` or
`UnknownTarget`, and its meaning is never guessed. Tables and chains get the names of the model: `istio-proxy-nat` and
`istio-ambient-nat` are nat, `istio-output` is ISTIO_OUTPUT.
"""

from __future__ import annotations

import json
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, number_of
from netinit.base.records import Record
from netinit.rules.matches import Match
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
    UnknownMatch,
)
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import BUILTIN_CHAINS, TABLES, Rule
from netinit.rules.nft import HOOKS
from netinit.rules.nft.listing import collect, spell_rule
from netinit.rules.nft.marks import CONNECTION_MARK, read_flags, read_masked
from netinit.rules.nft.statements import model_name, model_table, read_target
from netinit.rules.targets import Jump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Json = dict[str, Any]
    _Chains = dict[str, list[tuple[Json, Rule]]]

STATUS = {"ct": {"key": "status"}}
_BY_VERSION = {"ipv4": IPV4, "ipv6": IPV6}


class ReadRule(Record):
    """A rule: its place in the chain from 1, nft's text without counter values, what it means, and its packet counter."""

    number: int
    text: str
    rule: Rule
    packets: int | None


class ReadChain(Record):
    """A chain; `policy` is that of one which is hooked in, empty for others."""

    policy: str
    rules: tuple[ReadRule, ...]


Tables = dict[str, dict[str, ReadChain]]  # by the model's names


def read_tables(texts: Iterable[str]) -> Tables:
    """What `nft --json list table` printed of our tables. ParseError where it is not that, or is hooked in elsewhere."""
    read: dict[str, _Chains] = {}
    policies: dict[str, dict[str, str]] = {}
    for text in texts:
        for name, chains in collect(text).items():
            table = model_table(name)
            if table in read:
                raise ParseError(
                    f"table {name}: rules of a sidecar and of an ambient mesh are here; netinit remove takes both away"
                )
            try:
                read[table] = _read_chains(table, chains, name)
                policies[table] = {
                    model_name(chain): str(item.get("policy", "")).upper() for chain, (item, _) in chains.items()
                }
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ParseError(f"nft's JSON listing of table {name} is not understood: {error!r}") from error
    entering = _families_entering(read)
    return {
        table: {
            name: ReadChain(policy=policies[table][name], rules=_number(rules, entering[table, name]))
            for name, rules in read[table].items()
        }
        for table in TABLES
        if table in read
    }


def _read_chains(table: str, chains: dict[str, tuple[Json, list[Json]]], listed: str) -> _Chains:
    sockets = {name: rules for name, (_, rules) in chains.items() if _is_socket_chain(rules)}
    read: _Chains = {}
    for name, (chain, rules) in chains.items():
        if name not in sockets:
            _check_hook(table, chain, listed)
            read[model_name(name)] = [(rule, _read_rule(rule, sockets)) for rule in rules]
    return read


def _number(rules: list[tuple[Json, Rule]], entering: tuple[Family, ...]) -> tuple[ReadRule, ...]:
    return tuple(
        [
            ReadRule(
                number=number, text=spell_rule(listed), packets=_count(listed),
                rule=rule.replace(families=tuple([one for one in rule.families if one in entering])),
            )
            for number, (listed, rule) in enumerate(rules, 1)
        ]
    )  # fmt: skip


def _check_hook(table: str, chain: Json, listed: str) -> None:
    """ParseError where the kernel comes to a chain otherwise than to a chain of ours: its packets would not be followed."""
    from netinit.rules.nft.listing import spell_hook

    wanted = HOOKS.get((table, model_name(chain["name"])), "")
    found = spell_hook(chain)
    if found.partition("; policy")[0] != wanted.partition("; policy")[0]:
        raise ParseError(
            f"table {listed}: the chain {chain['name'][:40]!r} is hooked in otherwise than netinit does it"
            f" ({found[:80]!r}); netinit remove takes the tables away"
        )


def _families_entering(tables: dict[str, _Chains]) -> dict[tuple[str, str], tuple[Family, ...]]:
    """The families whose packets come to each chain; to one that no rule leads to, those that come to any of ours."""
    entering: dict[tuple[str, str], set[Family]] = {
        (table, name): set(FAMILIES if name in BUILTIN_CHAINS else ())
        for table, chains in tables.items()
        for name in chains
    }
    jumps = [
        ((table, name), (table, rule.target.chain), set(rule.families))
        for table, chains in tables.items()
        for name, rules in chains.items()
        for _, rule in rules
        if isinstance(rule.target, Jump) and (table, rule.target.chain) in entering
    ]
    growing = True
    while growing:  # twice as many times as there are chains, at the most
        growing = False
        for source, target, families in jumps:
            more = (entering[source] & families) - entering[target]
            entering[target] |= more
            growing = growing or bool(more)
    anywhere = set().union(*[found for (_, name), found in entering.items() if name not in BUILTIN_CHAINS]) or set(
        FAMILIES
    )
    return {place: tuple([one for one in FAMILIES if one in (found or anywhere)]) for place, found in entering.items()}


def _count(rule: Json) -> int | None:
    """What the rule's counter has counted; None where it has none, or where the listing is without what counters hold."""
    counters = [statement["counter"] for statement in rule["expr"] if isinstance(statement.get("counter"), dict)]
    count = counters[0].get("packets") if counters else None
    if count is not None and (not isinstance(count, int) or count < 0):
        raise ParseError("nft's JSON listing is not understood: a counter whose packets are no number")
    return count


def _is_socket_chain(rules: list[Json]) -> bool:
    """Whether a chain is the second half of a rule with a Socket match, see the writer."""
    unless = [f"{condition} counter return" for condition in Socket().nft_unless()]
    texts = [spell_rule(rule) for rule in rules]
    return texts[:-1] == unless and texts[-1].startswith(f"{Socket().nft()} counter jump ")


def _read_rule(listed: Json, sockets: dict[str, list[Json]]) -> Rule:
    """What a rule means, in the families that its conditions leave."""
    families = set(FAMILIES)
    matches: list[Match] = []
    statements: list[Json] = []
    for statement in listed["expr"]:
        ((kind, content),) = statement.items()
        if kind == "match":
            only = _family_of(content)
            families &= {only} if only else families
            if not _is_version(content):
                matches.append(_read_match(content) or UnknownMatch(text=json.dumps(statement)))
        elif kind == "limit" and (limit := _read_limit(content)):
            matches.append(limit)
        elif kind != "counter":
            statements.append(statement)
    target = read_target(statements)
    if isinstance(target, Jump) and (halves := sockets.get(statements[0].get("jump", {}).get("target"))):
        matches.append(Socket())
        target = read_target([halves[-1]["expr"][-1]])
    implied = {match.protocol for match in matches if isinstance(match, (Port, TcpFlags))}
    kept = [
        match for match in matches if not (isinstance(match, Protocol) and match.name in implied and not match.negated)
    ]
    return Rule(
        matches=tuple(kept), target=target, comment=str(listed.get("comment", "")), origin=None,
        families=tuple([one for one in FAMILIES if one in families]),
    )  # fmt: skip


# ---- matches -----------------------------------------------------------------------------------------------------------


def _is_version(content: Json) -> bool:
    """Whether the condition is on the family alone, and one that is understood."""
    return content["left"] == {"meta": {"key": "nfproto"}} and content["op"] == "==" and content["right"] in _BY_VERSION


def _family_of(content: Json) -> Family | None:
    """The one family whose packets can meet a condition."""
    if _is_version(content):
        return _BY_VERSION[content["right"]]
    protocol = content["left"].get("payload", {}).get("protocol") if isinstance(content["left"], dict) else None
    return next((family for family in FAMILIES if family.nft == protocol), None)


def _read_match(content: Json) -> Match | None:
    """The match of a condition; None for what is not understood."""
    if flags := read_flags(content):
        return flags
    if content["op"] not in ("==", "!=", "in", "!"):
        return None
    negated = content["op"] in ("!=", "!")
    if (content["left"] == STATUS) is not (content["op"] in ("in", "!")) and (content["op"] == "!" or content["left"] == STATUS):
        return None  # of a status, `==` and `!=` would compare all bits
    masked = read_masked(content["left"])
    if masked:
        return _read_masked(masked, content["right"], negated)
    ((kind, left),) = content["left"].items()
    right = content["right"]
    values = (
        right["set"]
        if isinstance(right, dict) and set(right) == {"set"}
        else right
        if isinstance(right, list)
        else [right]
    )
    try:
        if kind == "payload" and set(left) == {"protocol", "field"}:
            return _read_payload(left["protocol"], left["field"], values, negated)
        if kind == "fib":
            return _read_address_type(left, values, negated)
        if kind in ("meta", "ct") and set(left) == {"key"}:
            reader = _KEYS.get((kind, left["key"]))
            return reader(values, negated) if reader else None
    except (ValueError, TypeError, KeyError, OSError):  # an element of another form
        return None
    return None


def _read_limit(content: Json) -> Match | None:
    if set(content) != {"rate", "burst", "per"} or content["per"] != "second":
        return None
    return Limit(rate=int(content["rate"]), burst=int(content["burst"]))


def _read_masked(masked: tuple[Json, int], right: Any, negated: bool) -> Match | None:
    whose, mask = masked
    return Mark(value=right, mask=mask, connection=whose == CONNECTION_MARK, negated=negated) if isinstance(right, int) else None


def _read_payload(protocol: str, field: str, values: list[Any], negated: bool) -> Match | None:
    if field in ("dport", "sport") and protocol in ("tcp", "udp"):
        ports = tuple([_read_port(value) for value in values])
        return Port(protocol=protocol, ports=ports, source=field == "sport", negated=negated)
    family = next((one for one in FAMILIES if one.nft == protocol), None)
    if family and field in ("saddr", "daddr"):
        networks = tuple([network for value in values for network in _read_networks(value, family)])
        return (Source if field == "saddr" else Destination)(networks=networks, negated=negated)
    return None


def _read_address_type(left: Json, values: list[Any], negated: bool) -> Match | None:
    side = {"saddr": "source", "daddr": "destination"}.get(left["flags"][0])
    if not side or left["result"] != "type" or len(left["flags"]) > 1:
        return None
    return AddressType(side=side, types=tuple([str(value).upper() for value in values]), negated=negated)


def _read_port(value: Any) -> int | tuple[int, int]:
    if isinstance(value, dict):
        low, high = value["range"]
        return int(low), int(high)
    return int(value)


def _read_networks(value: Any, family: Family) -> list[Network]:
    """An address, a prefix, or as many networks as a range takes."""
    if isinstance(value, str):
        return [Network((family.version, number_of(value), family.bits))]
    if "prefix" in value:
        return [Network.parse(f"{value['prefix']['addr']}/{value['prefix']['len']}")]
    low, high = (number_of(end) for end in value["range"])
    found = []
    while low <= high:
        free = min((low & -low).bit_length() - 1 if low else family.bits, (high - low + 1).bit_length() - 1)
        found.append(Network((family.version, low, family.bits - free)))
        low += 1 << free
    return found


def _read_names(kind: type[InInterface | OutInterface]) -> Callable[[list[Any], bool], Match]:
    def read(values: list[Any], negated: bool) -> Match:
        if not all(isinstance(value, str) for value in values):
            raise TypeError
        return kind(
            names=tuple([f"{value[:-1]}+" if value.endswith("*") else value for value in values]), negated=negated
        )

    return read


def _read_owner(kind: str) -> Callable[[list[Any], bool], Match | None]:
    def read(values: list[Any], negated: bool) -> Match | None:
        (value,) = values
        low, high = value["range"] if isinstance(value, dict) else (value, value)
        if not isinstance(low, int) or not isinstance(high, int):  # a name: what it means is another image's affair
            return None
        return Owner(kind=kind, number=low, last=None if low == high else high, negated=negated)

    return read


def _read_mark(*, connection: bool) -> Callable[[list[Any], bool], Match]:
    def read(values: list[Any], negated: bool) -> Match:
        (value,) = values
        return Mark(value=int(value), connection=connection, negated=negated)

    return read


def _read_states(values: list[Any], negated: bool) -> Match | None:
    words = [str(value).upper() for value in values]
    known = ("INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED")  # as iptables lists them
    if not set(words) <= set(known):
        return None
    return ConnectionState(states=tuple([word for word in known if word in words]), negated=negated)


def _read_status(values: list[Any], negated: bool) -> Match | None:
    """What conntrack has translated, which iptables counts among the states."""
    known = [word for word in ("snat", "dnat") if word in values]
    return ConnectionState(states=tuple([word.upper() for word in known]), negated=negated) if len(known) == len(values) else None


def _read_direction(values: list[Any], negated: bool) -> Match | None:
    return ConnectionDirection(direction=values[0].upper()) if values in (["original"], ["reply"]) and not negated else None


def _read_protocol(values: list[Any], negated: bool) -> Match | None:
    return Protocol(name=values[0], negated=negated) if len(values) == 1 and isinstance(values[0], str) else None


_KEYS: dict[tuple[str, str], Callable[[list[Any], bool], Match | None]] = {
    ("meta", "iifname"): _read_names(InInterface),
    ("meta", "oifname"): _read_names(OutInterface),
    ("meta", "l4proto"): _read_protocol,
    ("meta", "skuid"): _read_owner("uid"),
    ("meta", "skgid"): _read_owner("gid"),
    ("meta", "mark"): _read_mark(connection=False),
    ("ct", "mark"): _read_mark(connection=True),
    ("ct", "state"): _read_states,
    ("ct", "status"): _read_status,
    ("ct", "direction"): _read_direction,
}
