"""Read the objects of `nft -j list ruleset` (libnftables-json(5)) into a snapshot, with expressions as the kernel holds them.

What is not understood becomes an unknown match or target in its place in the rule, or a set that is not read completely. Never
fails for a single object: a dump is written by whatever version of nft, and perhaps edited.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from struct import pack
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.net import FULL_MASK, IPV4, IPV6, MAX_PORT, Family
from netinit.base.netlink_attributes import NftChain, write_attribute
from netinit.base.sanitize import shorten
from netinit.base.snapshot import (
    DORMANT,
    FAMILY_NAMES,
    SET_ANONYMOUS,
    SET_DYNAMIC,
    SET_INTERVAL,
    SET_MAP,
    NftElement,
    NftRule,
    NftSet,
    NftTable,
    Snapshot,
)
from netinit.rules import numbers
from netinit.rules.decoding.registers import FIRST_SMALL, WORD
from netinit.rules.marking_targets import DIRECTIONS
from netinit.rules.nft.listing_values import (
    FLAG_VALUES,
    HOST_ORDER,
    NETWORK_ORDER,
    NotUnderstoodError,
    Range,
    range_of,
    value_of,
    write_address,
    write_interface,
    write_number,
    write_protocol,
)
from netinit.rules.nft.priorities import read_priority
from netinit.rules.rule_builder import REGISTER, RuleBuilder, be32, expression

NUMBERS = {name: number for number, name in FAMILY_NAMES.items()}
HOOKS = {
    "prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4,
}  # NF_INET_*  # fmt: skip
DEVICE_HOOKS = {("inet", "ingress"): 5, ("netdev", "ingress"): 0, ("netdev", "egress"): 1}
MAX_ELEMENTS = 100_000  # of all sets and maps of a dump
MAX_DEPTH = 8  # of nested operators
NO_FAMILY, NO_PROTOCOL = None, ""
CHANCES = ("numgen", "jhash", "symhash")  # expressions that give a number below a modulus


@dataclass(frozen=True, slots=True)
class ListedField:
    """What a rule compares: how it is loaded, how long it is, and what its values are."""

    kind: str
    key: tuple[int, ...]
    length: int
    values: str  # of listing_values
    family: Family | None = NO_FAMILY  # that it limits the rule to
    protocol: str = NO_PROTOCOL


def _payload(base: int, offset: int, length: int, values: str, **limits: Any) -> ListedField:
    return ListedField("payload", (base, offset, length), length, values, **limits)


def _meta(key: int, length: int, values: str) -> ListedField:
    return ListedField("meta", (key,), length, values)


def _ct(key: int, length: int, values: str) -> ListedField:
    return ListedField("ct", (key,), length, values)


_PORTS = {
    (protocol, name): _payload(numbers.TRANSPORT_HEADER, offset, 2, "port", protocol="" if protocol == "th" else protocol)
    for protocol in ("tcp", "udp", "th") for name, offset in (("sport", 0), ("dport", 2))
}  # fmt: skip
PAYLOADS: dict[tuple[str, str], ListedField] = {
    **_PORTS,
    **{
        (word, name): _payload(numbers.NETWORK_HEADER, *numbers.ADDRESSES[family][at], "address", family=family)
        for word, family in (("ip", IPV4), ("ip6", IPV6)) for at, name in enumerate(("saddr", "daddr"))
    },
    ("ip", "protocol"): _payload(numbers.NETWORK_HEADER, *numbers.PROTOCOL[IPV4], "protocol", family=IPV4),
    ("ip6", "nexthdr"): _payload(numbers.NETWORK_HEADER, *numbers.PROTOCOL[IPV6], "protocol", family=IPV6),
    ("tcp", "flags"): _payload(numbers.TRANSPORT_HEADER, numbers.TCP_FLAGS_AT, 1, "tcp flag", protocol="tcp"),
}  # fmt: skip
METAS: dict[str, ListedField] = {
    "l4proto": _meta(numbers.META_L4PROTO, 1, "protocol"), "nfproto": _meta(numbers.META_NFPROTO, 1, "family"),
    "protocol": _meta(numbers.META_PROTOCOL, 2, "ethertype"), "mark": _meta(numbers.META_MARK, 4, "number"),
    "skuid": _meta(numbers.META_SKUID, 4, "id"), "skgid": _meta(numbers.META_SKGID, 4, "id"),
    "iifname": _meta(numbers.META_IIFNAME, 16, "interface"), "oifname": _meta(numbers.META_OIFNAME, 16, "interface"),
    # a dump shows the name that an index had: it is compared by that
    "iif": _meta(numbers.META_IIFNAME, 16, "interface"), "oif": _meta(numbers.META_OIFNAME, 16, "interface"),
}  # fmt: skip
CONNECTIONS: dict[str, ListedField] = {
    "state": _ct(numbers.CT_STATE, 4, "state"), "status": _ct(numbers.CT_STATUS, 4, "status"),
    "direction": _ct(numbers.CT_DIRECTION, 1, "direction"), "mark": _ct(numbers.CT_MARK, 4, "number"),
}  # fmt: skip
SOCKETS = {"transparent": numbers.SOCKET_TRANSPARENT, "wildcard": numbers.SOCKET_WILDCARD}
_SET_TYPES = {  # of keys: their length, and what they are
    "ipv4_addr": (4, "address"), "ipv6_addr": (16, "address"), "inet_service": (2, "port"), "inet_proto": (1, "protocol"),
    "mark": (4, "number"), "ifname": (16, "interface"), "nf_proto": (1, "family"), "uid": (4, "id"), "gid": (4, "id"),
}  # fmt: skip
_FIELD_WORDS = {"payload": ("protocol", "field"), "meta": ("key",), "ct": ("dir", "family", "key"), "fib": ("flags", "result")}
PROTOCOLS_OF_FIELDS = ("icmp", "icmpv6", "tcp", "udp", "sctp")  # that nft tests by itself before a field of theirs


def _describe_match(item: Any) -> str:
    """A statement as nft lists it, if it is a match of one field whose words are known; else its JSON."""
    try:
        body = item["match"]
        ((what, left),), right, op = body["left"].items(), body["right"], body.get("op")
        words = [str(left.get(name, "")) for name in _FIELD_WORDS[what][:-1]] + [str(left[_FIELD_WORDS[what][-1]])]
        if what == "fib":
            words[0] = left["flags"] if isinstance(left["flags"], str) else " . ".join(left["flags"])
        named = [] if what == "payload" else [what]
        text = " ".join([one for one in (*named, *words, "" if op == "==" else op, str(right)) if one])
        if isinstance(right, str | int) and text.isascii() and text.isprintable():
            return text
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    return json.dumps(item)


# ---- sets ------------------------------------------------------------------------------------------------------------------


def _verdict_of(value: Any) -> bytes:
    """The payload of NFTA_DATA_VERDICT for a verdict of a map. Raises NotUnderstoodError, AttributeError or ValueError."""
    ((name, body),) = value.items()
    if name in _VERDICTS:
        return write_attribute(1, be32(_VERDICTS[name]))
    if name in _JUMPS and isinstance(body, Mapping) and isinstance(body.get("target"), str):
        return write_attribute(1, be32(_JUMPS[name])) + write_attribute(2, _name(body["target"]))
    raise NotUnderstoodError


_VERDICTS = {"accept": numbers.NF_ACCEPT, "drop": numbers.NF_DROP, "return": -5, "continue": -1}
_JUMPS = {"jump": numbers.NFT_JUMP, "goto": numbers.NFT_GOTO}


def _name(text: object) -> bytes:
    return str(text).encode("utf-8", "surrogateescape") + b"\0"


def _pad(value: bytes) -> bytes:
    return value + b"\0" * (-len(value) % WORD)


def _elements_of(
    listed: Sequence[Any], kinds: Sequence[tuple[int, str]], *, verdicts: bool = False
) -> tuple[tuple[NftElement, ...], bool]:
    """The elements with these kinds of fields, and whether one is a range. Raises NotUnderstoodError, or what a wrong type raises."""
    found: list[NftElement] = []
    ranged = False
    for item in listed:
        key, data = item if verdicts else (item, None)
        if isinstance(key, Mapping) and isinstance(inner := key.get("elem"), Mapping):
            if set(inner) - {"val", "comment", "timeout", "expires", "counter"}:
                raise NotUnderstoodError
            key = inner.get("val")
        parts = key["concat"] if isinstance(key, Mapping) and isinstance(key.get("concat"), Sequence) else [key]
        ends = [range_of(part, *kind) for part, kind in zip(parts, kinds, strict=True)]
        low, high = (b"".join([_pad(end[at]) if len(kinds) > 1 else end[at] for end in ends]) for at in (0, 1))
        ranged = ranged or low != high
        found.append(NftElement(key=low, key_end=high, verdict=_verdict_of(data) if verdicts else b""))
    return tuple(found), ranged


# ---- rules -----------------------------------------------------------------------------------------------------------------


@dataclass
class _Reading:
    """What has been read of a dump."""

    tables: list[NftTable] = field(default_factory=list)
    chains: list[NftChain] = field(default_factory=list)
    rules: list[NftRule] = field(default_factory=list)
    sets: list[NftSet] = field(default_factory=list)
    named: dict[tuple[int, str, str], NftSet] = field(default_factory=dict)
    elements: int = 0

    hidden: int = 0  # extensions of iptables of which only the name is listed, or nothing

    def add_set(self, one: NftSet) -> None:
        self.elements += len(one.elements)
        if self.elements > MAX_ELEMENTS:
            raise ParseError(f"its sets and maps have more than {MAX_ELEMENTS} elements; list the tables that matter alone")
        self.sets.append(one)


class _RuleEncoder:
    """Encodes one rule."""

    def __init__(self, reading: _Reading, family: int, table: str) -> None:
        self._reading = reading
        self._family = family
        self._table = table
        self.writer = RuleBuilder(family, [], splits_ranges=False)

    def encode(self, listed: Sequence[Any]) -> bytes:
        """Return the expressions of a rule."""
        for item in listed:
            kind = next(iter(item), None) if isinstance(item, Mapping) else None
            kept = len(self.writer.parts)
            try:
                self._one(str(kind), item[kind])
            except (NotUnderstoodError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                del self.writer.parts[kept:]
                text = shorten(str(item[kind]) if kind == UNKNOWN else _describe_match(item))
                if kind == "match":
                    self._limit_to(item)
                    self.writer.add(b"match", (1, _name(text)), (2, 0), (3, b""))
                else:
                    self.writer.parts.append(expression(text.encode("utf-8", "surrogateescape").replace(b"\0", b"?")))
        return self.writer.block()

    def _one(self, kind: str, body: Any) -> None:
        if kind == "match":
            self._match(body["left"], body.get("op", "=="), body["right"])
        elif kind in _VERDICTS:
            self.writer.decide(_VERDICTS[kind])
        elif kind in _JUMPS:
            self.writer.decide(_JUMPS[kind], str(body["target"]))
        elif handler := _STATEMENTS.get(kind):
            handler(self, body)
        else:
            raise NotUnderstoodError

    # ---- conditions ----------------------------------------------------------------------------------------------------

    def _limit_to(self, item: Any) -> None:
        """Test what a match that is not understood implies of packets: a field of ICMP, say, that of TCP it says nothing."""
        with suppress(KeyError, TypeError):
            named = item["match"]["left"]["payload"]["protocol"]
            if named in PROTOCOLS_OF_FIELDS:
                self.writer.load("meta", numbers.META_L4PROTO)
                self.writer.compare(write_protocol(named, 1))

    def _match(self, left: Any, op: str, right: Any) -> None:
        mask: Any = None
        if isinstance(left, Mapping) and "&" in left:
            left, mask = left["&"]
        if isinstance(left, Mapping) and "socket" in left:
            self._socket(left["socket"]["key"], op, right)
            return
        fields = self._fields(left)
        if isinstance(right, str) and right.startswith("@"):
            if mask is not None or op not in ("==", "in", "!="):
                raise NotUnderstoodError
            self._look_up(fields, right[1:], negated=op == "!=")
            return
        if len(fields) > 1:
            self._look_up_values(fields, right, op)
            return
        self._compare(fields[0], op, right, mask)

    def _fields(self, left: Any) -> list[ListedField]:
        """What an expression on the left compares. Raises NotUnderstoodError."""
        if left.get("concat"):
            return [field for one in left["concat"] for field in self._fields(one)]
        if "payload" in left:
            found = PAYLOADS.get((left["payload"].get("protocol"), left["payload"].get("field")))
        elif "meta" in left:
            found = METAS.get(left["meta"]["key"])
        elif "ct" in left:
            found = CONNECTIONS.get(left["ct"]["key"]) if "dir" not in left["ct"] else None
        elif "numgen" in left:
            body = left["numgen"]
            found = ListedField("numgen", (body["mod"], {"inc": 0, "random": 1}[body["mode"]], body.get("offset", 0)), 4, "number")
        elif body := left.get("jhash") or left.get("symhash"):
            found = ListedField("hash", (body["mod"], body.get("offset", 0)), 4, "number")
        elif "fib" in left:
            flags = left["fib"]["flags"]
            (flag,) = [flags] if isinstance(flags, str) else flags
            side = {"saddr": numbers.FIB_SADDR, "daddr": numbers.FIB_DADDR}[flag]
            found = ListedField("fib", (numbers.FIB_ADDRTYPE, side), 4, "address type") if left["fib"]["result"] == "type" else None
        else:
            raise NotUnderstoodError
        if found is None:
            raise NotUnderstoodError
        return [found]

    def _limit(self, one: ListedField) -> None:
        """Test what a field implies of packets; this uses REGISTER."""
        if one.family:
            self.writer.limit_family(one.family)
        if one.protocol:
            self.writer.limit_protocol(one.protocol)

    def _load(self, one: ListedField, register: int = REGISTER) -> None:
        self._limit(one)
        if one.kind == "numgen":
            self.writer.add(b"numgen", (1, register), *enumerate(one.key, 2))  # NFTA_NG_MODULUS, _TYPE, _OFFSET
            return
        if one.kind == "hash":
            self.writer.add(b"hash", (2, register), (4, one.key[0]), (6, one.key[1]))  # NFTA_HASH_DREG, _MODULUS, _OFFSET
            return
        own, order = numbers.LOADS[one.kind]
        values = iter(one.key)
        self.writer.add(one.kind.encode(), *[(each, register if each == own else next(values)) for each in order])

    def _compare(self, one: ListedField, op: str, right: Any, mask: Any) -> None:
        listed = right["set"] if isinstance(right, Mapping) and "set" in right else right if isinstance(right, list) else [right]
        if one.values in FLAG_VALUES and op in ("in", "!") and mask is None:  # one of the bits, or none
            bits = _join_bits([value_of(value, one.length, one.values) for value in listed])
            self._load(one)
            self.writer.mask(bits)
            self.writer.compare(bytes(one.length), negated=op == "in")
            return
        if mask is not None:
            self._compare_masked(one, op, listed, mask)
            return
        if isinstance(right, list) and one.values in FLAG_VALUES:
            raise NotUnderstoodError
        if op in ("<", ">", "<=", ">="):
            if one.values != "port" or len(listed) != 1:
                raise NotUnderstoodError
            listed, op = [{"range": _ports_of(op, listed[0])}], "=="
        if op not in ("==", "!=", "in") or not listed:
            raise NotUnderstoodError
        prefixes = [value for value in listed if one.values == "interface" and str(value).endswith("*")]
        if prefixes:
            if len(listed) > 1:
                raise NotUnderstoodError
            beginning = write_interface(str(prefixes[0])[:-1], one.length).rstrip(b"\0")
            self._load(one)
            self.writer.compare(beginning, op == "!=")
            return
        if one.values == "id" and any(isinstance(value, Mapping) for value in listed):  # compared in network order
            ranges = [range_of(value, one.length, "port") for value in listed]
            self._load(one)
            self.writer.swap(one.length)
        else:
            ranges = [range_of(value, one.length, one.values) for value in listed]
            self._load(one)
        self._compare_ranges(ranges, op == "!=")

    def _compare_ranges(self, ranges: list[Range], negated: bool) -> None:
        if len(ranges) == 1:
            self.writer.compare_ranges(ranges, negated, 0)
            return
        elements = tuple([NftElement(key=low, key_end=high) for low, high in ranges])
        self._write_lookup(self._add_anonymous(elements, len(ranges[0][0]), any(low != high for low, high in ranges)), negated)

    def _compare_masked(self, one: ListedField, op: str, listed: Sequence[Any], mask: Any) -> None:
        masks = mask["|"] if isinstance(mask, Mapping) and "|" in mask else mask if isinstance(mask, list) else [mask]
        if one.values not in ("number", *FLAG_VALUES) or op not in ("==", "!=", "in"):
            raise NotUnderstoodError
        flat = [each for value in listed for each in (value["|"] if isinstance(value, Mapping) and "|" in value else [value])]
        if one.values == "number" and len(flat) != 1:
            raise NotUnderstoodError
        bits, value = (_join_bits([value_of(each, one.length, one.values) for each in values]) for values in (masks, flat))
        self._load(one)
        self.writer.mask(bits)
        self.writer.compare(value, op == "!=")

    def _socket(self, key: str, op: str, right: Any) -> None:
        if op not in numbers.OPERATORS:
            raise NotUnderstoodError
        self.writer.load("socket", SOCKETS[key])
        self.writer.compare_with(op, write_number(right, 1, NETWORK_ORDER))

    def _load_all(self, fields: Sequence[ListedField]) -> None:
        """Load fields one behind the other, as for the key of a set."""
        word = 0
        for one in fields:  # before any is loaded, for FIRST_SMALL is a part of REGISTER
            self._limit(one)
        for one in fields:
            self._load(one, FIRST_SMALL + word if len(fields) > 1 else REGISTER)
            word += -(-one.length // WORD)

    def _look_up(self, fields: Sequence[ListedField], name: str, *, negated: bool) -> None:
        """Look a named set up; one of another type, or that is not there, is not read."""
        self._load_all(fields)
        self._write_lookup(name, negated, first=FIRST_SMALL if len(fields) > 1 else REGISTER)

    def _look_up_values(self, fields: Sequence[ListedField], right: Any, op: str) -> None:
        listed = right["set"] if isinstance(right, Mapping) and "set" in right else [right]
        elements, ranged = _elements_of(listed, [(one.length, one.values) for one in fields])
        if op not in ("==", "in", "!="):
            raise NotUnderstoodError
        self._load_all(fields)
        name = self._add_anonymous(elements, sum(_words(one) for one in fields) * WORD, ranged)
        self._write_lookup(name, op == "!=", first=FIRST_SMALL)

    def _add_anonymous(self, elements: tuple[NftElement, ...], length: int, ranged: bool, flags: int = 0) -> str:
        name = f"__set{len(self._reading.sets)}"
        self._reading.add_set(_settled_set(self._family, self._table, name, flags | SET_ANONYMOUS, length, elements, ranged))
        return name

    def _write_lookup(self, name: str, negated: bool, first: int = REGISTER) -> None:
        self.writer.add(b"lookup", (1, _name(name)), (2, first), (5, int(negated)))

    # ---- statements ----------------------------------------------------------------------------------------------------

    def vmap(self, body: Any) -> None:
        """A verdict map, of its own or named."""
        fields, data = self._fields(body["key"]), body["data"]
        if isinstance(data, str) and data.startswith("@"):
            name = data[1:]
        else:
            kinds = [(one.length, one.values) for one in fields]
            elements, ranged = _elements_of(data["set"], kinds, verdicts=True)
            length = fields[0].length if len(fields) == 1 else sum(map(_words, fields)) * WORD
            name = self._add_anonymous(elements, length, ranged, SET_MAP)
        self._load_all(fields)
        first = FIRST_SMALL if len(fields) > 1 else REGISTER
        self.writer.add(b"lookup", (1, _name(name)), (2, first), (3, 0))

    def counter(self, body: Any) -> None:
        """A counter with its numbers, or a named one."""
        if isinstance(body, str):
            self.writer.add(b"objref", (1, 1), (2, _name(body)))
            return
        packets, octets = (write_number((body or {}).get(name, 0), 8, NETWORK_ORDER) for name in ("packets", "bytes"))
        self.writer.add(b"counter", (1, octets), (2, packets))

    def redirect(self, body: Any) -> None:
        """A redirection to a port."""
        if set(body) - {"port"}:
            raise NotUnderstoodError
        self.writer.put(write_number(body["port"], 2, NETWORK_ORDER))
        self.writer.add(b"redir", (1, REGISTER), (2, REGISTER), (3, 2))

    def nat(self, body: Any, kind: int) -> None:
        """A translation to an address, a port or both."""
        if set(body) - {"addr", "port", "family"}:
            raise NotUnderstoodError
        family = self._family_of(body)
        attributes: list[tuple[int, int]] = [(1, kind), (2, family.number)]
        if "addr" in body:
            self.writer.put(write_address(body["addr"], family.bits // 8))
            attributes += [(3, 1), (4, 1)]
        if "port" in body:
            self.writer.put(write_number(body["port"], 2, NETWORK_ORDER), 2)
            attributes += [(5, 2), (6, 2)]
        self.writer.add(b"nat", *attributes)

    def _family_of(self, body: Any) -> Family:
        known = {"ip": IPV4, "ip6": IPV6}
        by_address = IPV6 if ":" in str(body.get("addr")) else IPV4 if "addr" in body else None
        found = known.get(body.get("family")) or known.get(FAMILY_NAMES[self._family]) or by_address
        if not found:
            raise NotUnderstoodError
        return found

    def tproxy(self, body: Any) -> None:
        """A transparent socket."""
        family = known.number if (known := {"ip": IPV4, "ip6": IPV6}.get(body.get("family", FAMILY_NAMES[self._family]))) else 0
        attributes: list[tuple[int, int]] = [(1, family)]
        if "addr" in body:
            self.writer.put(write_address(body["addr"], 16 if ":" in str(body["addr"]) else 4), 2)
            attributes.append((2, 2))
        self.writer.put(write_number(body["port"], 2, NETWORK_ORDER))
        self.writer.add(b"tproxy", *attributes, (3, 1))

    def reject(self, body: Any) -> None:
        """A rejection, by default with `port unreachable`."""
        kind, name = (body or {}).get("type"), (body or {}).get("expr", "port-unreachable")
        if kind == "tcp reset":
            self.writer.add(b"reject", (1, numbers.REJECT_RESET))
            return
        kind = kind or {IPV4.number: "icmp", IPV6.number: "icmpv6"}.get(self._family, "icmpx")
        code = write_number(_REJECTIONS[kind].get(name, name), 1, NETWORK_ORDER)
        if family := {"icmp": IPV4, "icmpv6": IPV6}.get(kind):  # nft does not list that it tests the family
            self.writer.limit_family(family)
        self.writer.add(b"reject", (1, numbers.REJECT_ICMPX if kind == "icmpx" else numbers.REJECT_ICMP), (2, code))

    def mangle(self, body: Any) -> None:
        """A change of a mark or a zone, or of what decides nothing."""
        if "payload" in body["key"]:
            self._write(body["key"]["payload"], body["value"])
            return
        if "tcp option" in body["key"]:
            self.writer.add(b"exthdr", (7, REGISTER))  # NFTA_EXTHDR_SREG
            return
        (whose,) = [one for one in ("meta", "ct") if one in body["key"]]
        key = body["key"][whose]["key"]
        if (whose, key) == ("ct", "zone"):
            self.writer.put(write_number(body["value"], 2, HOST_ORDER))
            side = body["key"]["ct"].get("dir")
            sides = [(numbers.CT_SIDE, bytes([_SIDES.index(side)]))] if side else []
            self.writer.add(b"ct", (4, REGISTER), (2, numbers.CT_ZONE), *sides)
            return
        if whose == "meta" and key in _HARMLESS:
            self.writer.put(bytes(4))
            self.writer.add(b"meta", (2, _HARMLESS[key]), (3, REGISTER))
            return
        if key != "mark":
            raise NotUnderstoodError
        if isinstance(body["value"], Mapping) and not body["value"].keys().isdisjoint(CHANCES):
            self._load(self._fields(body["value"])[0])
        else:
            source, mask, xor = _bits_of(body["value"])
            if not source:
                self.writer.put(pack("=I", xor))
            else:
                self.writer.load_mark(connection=source == "ct")
            if source and (mask, xor) != (FULL_MASK, 0):
                self.writer.mask(pack("=I", mask), pack("=I", xor))
        self.writer.store_mark(connection=whose == "ct")

    def _write(self, place: Any, value: Any) -> None:
        """Write a field of a header: an address or a port, or one that decides nothing."""
        where = (place["protocol"], place["field"])
        if lifetime := _LIFETIMES.get(where):
            packed, base, offset, length = write_number(value, 1, NETWORK_ORDER), numbers.NETWORK_HEADER, lifetime, 1
        elif where in _CLASSES:
            packed, base, offset, length = bytes(1), numbers.NETWORK_HEADER, 1 if where[0] == "ip" else 0, 1
        else:
            one = PAYLOADS[where]
            self._limit(one)
            packed, (base, offset, length) = value_of(value, one.length, one.values), one.key
        self.writer.put(packed)
        self.writer.add(b"payload", (2, base), (3, offset), (4, length), (5, REGISTER))

    def queue(self, body: Any) -> None:
        """A program that decides, behind a queue or one of several."""
        first = str((body or {}).get("num", 0)).partition("-")[0]
        self.writer.add(b"queue", (1, write_number(first, 2, NETWORK_ORDER)))

    def log(self, body: Any) -> None:
        """A log entry."""
        found = body or {}
        prefix = [(2, _name(found["prefix"]))] if "prefix" in found else []
        group = [(1, write_number(found["group"], 2, NETWORK_ORDER))] if "group" in found else []
        other = [(3, 0)] if set(found) - {"prefix", "group"} else []
        self.writer.add(b"log", *prefix, *group, *other)

    def limit(self, body: Any) -> None:
        """A rate, on which it depends whether the rule matches."""
        units = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
        is_packets = "rate_unit" not in body
        self.writer.add(
            b"limit",
            (1, write_number(body["rate"], 8, NETWORK_ORDER)), (2, units[body["per"]].to_bytes(8, "big")), (3, body.get("burst", 5)),
            (4, 0 if is_packets else 1), (5, int(bool(body.get("inv")))),
        )  # fmt: skip

    def xt(self, body: Any) -> None:
        """An extension of iptables, of which nft shows the name alone."""
        self._reading.hidden += 1
        name = (body or {}).get("name")
        is_target = (body or {}).get("type") == "target" or not name
        text = name or "an extension of iptables that nft does not show"
        self.writer.add(b"target" if is_target else b"match", (1, _name(text)), (2, FULL_MASK), (3, b""))

    def dup(self, body: Any) -> None:
        """A copy of the packet."""
        if isinstance(body.get("addr"), str):
            self.writer.put(write_address(body["addr"], 16 if ":" in body["addr"] else 4))
            self.writer.add(b"dup", (1, REGISTER))
        else:
            self.writer.add(b"dup")


UNKNOWN = "unknown"  # the rest of a rule as text, where a text is not understood
_SIDES = tuple(DIRECTIONS.values())  # of a connection, in the order of their numbers
_LIFETIMES = {("ip", "ttl"): 8, ("ip6", "hoplimit"): 7}  # by their offset in the header
_CLASSES = (("ip", "dscp"), ("ip6", "dscp"), ("ip", "ecn"), ("ip6", "ecn"))
_HARMLESS = {"priority": 2, "nftrace": 12}
_REJECTIONS: dict[str, dict[str, int]] = {
    "icmp": {
        "net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "net-prohibited": 9,
        "host-prohibited": 10, "admin-prohibited": 13,
    },
    "icmpv6": {
        "no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5, "reject-route": 6,
    },
    "icmpx": {"no-route": 0, "port-unreachable": 1, "host-unreachable": 2, "admin-prohibited": 3},
}  # fmt: skip
_STATEMENTS: dict[str, Any] = {
    "vmap": _RuleEncoder.vmap, "counter": _RuleEncoder.counter, "redirect": _RuleEncoder.redirect,
    "dnat": lambda encoder, body: encoder.nat(body, 1), "snat": lambda encoder, body: encoder.nat(body, 0),
    "masquerade": lambda encoder, _: encoder.writer.add(b"masq"), "tproxy": _RuleEncoder.tproxy,
    "reject": _RuleEncoder.reject, "mangle": _RuleEncoder.mangle, "log": _RuleEncoder.log, "limit": _RuleEncoder.limit,
    "notrack": lambda encoder, _: encoder.writer.add(b"notrack"), "xt": _RuleEncoder.xt, "dup": _RuleEncoder.dup,
    "queue": _RuleEncoder.queue,
}  # fmt: skip


def _words(one: ListedField) -> int:
    return -(-one.length // WORD)


def _join_bits(values: Sequence[bytes]) -> bytes:
    joined = 0
    for value in values:
        joined |= int.from_bytes(value, "big")
    return joined.to_bytes(len(values[0]), "big")


def _ports_of(op: str, value: object) -> list[int]:
    port = int.from_bytes(write_number(value, 2, NETWORK_ORDER), "big")
    low, high = {"<": (0, port - 1), "<=": (0, port), ">": (port + 1, MAX_PORT), ">=": (port, MAX_PORT)}[op]
    if low > high:
        raise NotUnderstoodError
    return [low, high]


def _bits_of(value: Any, depth: int = 0) -> tuple[str, int, int]:
    """Whose mark a value is made of (meta, ct, or empty for a number), which bits of it stay, and which are flipped then."""
    if depth > MAX_DEPTH:
        raise NotUnderstoodError
    if not isinstance(value, Mapping):
        return "", 0, int.from_bytes(write_number(value, 4, "big"), "big")
    ((operator, body),) = value.items()
    if operator in ("meta", "ct") and body["key"] == "mark":
        return operator, FULL_MASK, 0
    if operator not in ("&", "|", "^"):
        raise NotUnderstoodError
    first, *rest = body
    source, mask, xor = _bits_of(first, depth + 1)
    for other in rest:
        number = int.from_bytes(write_number(other, 4, "big"), "big")
        if operator == "&":
            mask, xor = mask & number, xor & number
        elif operator == "|":
            mask, xor = mask & ~number, xor & ~number | number
        else:
            xor ^= number
    return source, mask & FULL_MASK, xor & FULL_MASK


def _settled_set(  # noqa: PLR0917 - the fields of a set
    family: int, table: str, name: str, flags: int, length: int, elements: tuple[NftElement, ...], ranged: bool
) -> NftSet:
    """A set whose elements are all known; ends of elements are kept only where one is a range."""
    kept = elements if ranged else tuple([one.replace(key_end=b"") for one in elements])
    flags = flags | SET_INTERVAL if ranged else flags & ~SET_INTERVAL
    return NftSet(family=family, table=table, name=name, flags=flags, key_length=length, elements=kept)


# ---- objects ---------------------------------------------------------------------------------------------------------------


def read_objects(objects: Sequence[object]) -> tuple[Snapshot, int]:
    """Return what the objects of a dump list, and how many extensions of iptables it does not show.

    Raises ParseError for what is no such object, or more than is read.
    """
    reading = _Reading()
    bodies: dict[str, list[Mapping[str, Any]]] = {}
    for kind, body in [pair for item in objects if isinstance(item, Mapping) for pair in item.items()]:
        if kind in _KINDS and not (isinstance(body, Mapping) and str(body.get("family")) in NUMBERS):
            raise ParseError(f"{shorten(json.dumps({kind: body}))} is no object of `nft -j list ruleset`")
        if isinstance(body, Mapping):
            bodies.setdefault(str(kind), []).append(body)
    reading.tables += map(_table, bodies.get("table", ()))
    for name, number in Counter(map(str, reading.tables)).items():
        if number > 1:
            raise ParseError(f"the table {shorten(name)} is there twice; give one state of it")
    for body in bodies.get("chain", ()):
        reading.chains.append(_chain(body))
    listed = [*bodies.get("set", ()), *bodies.get("map", ())]
    # `nft -t` leaves all elements out, which looks as if every set were empty
    are_listed = any(body.get("elem") for body in listed)
    filled = {(body["family"], _word(body, "table"), name) for body in bodies.get("rule", ()) for name in _sets_filled_by(body)}
    for body in listed:
        is_filled = (body["family"], _word(body, "table"), _word(body, "name")) in filled
        reading.add_set(_set(body, are_listed=are_listed, is_filled=is_filled))
    for body in bodies.get("rule", ()):
        family, table = NUMBERS[body["family"]], _word(body, "table")
        expressions = body.get("expr")
        if not isinstance(expressions, list):
            raise ParseError(f"{shorten(json.dumps(body))} is no rule of `nft -j list ruleset`")
        reading.rules.append(
            NftRule(
                family=family, table=table, chain=_word(body, "chain"), handle=_handle(body),
                expressions=_RuleEncoder(reading, family, table).encode(expressions), userdata=_comment(body.get("comment")),
            )
        )  # fmt: skip
    found = Snapshot(
        tables=tuple(reading.tables), chains=tuple(reading.chains), rules=tuple(reading.rules), sets=tuple(reading.sets)
    )
    return found, reading.hidden


_KINDS = ("table", "chain", "rule", "set", "map")


def _sets_filled_by(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sets and maps to which a rule's packets add elements: their flag is not in the JSON of nft 1.0."""
    expressions = rule.get("expr")
    for statement in expressions if isinstance(expressions, list) else ():
        for kind in ("set", "map"):
            one = statement.get(kind) if isinstance(statement, Mapping) else None
            if isinstance(one, Mapping) and isinstance(one.get(kind), str):
                yield one[kind].removeprefix("@")


def _word(body: Mapping[str, Any], name: str) -> str:
    return str(body.get(name, ""))


def _handle(body: Mapping[str, Any]) -> int:
    found = body.get("handle")
    return found if isinstance(found, int) else 0


def _comment(text: object) -> bytes:
    encoded = _name(text)[:-1][:254] if isinstance(text, str) else b""
    return bytes((0, len(encoded) + 1)) + encoded + b"\0" if encoded else b""


def _table(body: Mapping[str, Any]) -> NftTable:
    flags = body.get("flags")
    dormant = "dormant" in (flags if isinstance(flags, list | str) else ())
    name, number = _word(body, "name"), NUMBERS[body["family"]]
    return NftTable(
        family=number, name=name, flags=DORMANT if dormant else 0, handle=_handle(body), userdata=_comment(body.get("comment"))
    )


def _chain(body: Mapping[str, Any]) -> NftChain:
    family, table, name = NUMBERS[body["family"]], _word(body, "table"), _word(body, "name")
    if "hook" not in body:
        return NftChain(family=family, table=table, name=name, handle=_handle(body))
    where = str(body["hook"])
    hook = DEVICE_HOOKS.get((body["family"], where), HOOKS.get(where, len(HOOKS) + 1))
    devices = body.get("dev")
    named = (devices,) if isinstance(devices, str) else tuple(map(str, devices)) if isinstance(devices, list) else ()
    is_prefix = any(one.endswith("*") for one in named)
    return NftChain(
        family=family, table=table, name=name, handle=_handle(body), kind=_word(body, "type"), hook=hook,
        priority=read_priority(body.get("prio", 0), where), policy=0 if body.get("policy") == "drop" else 1,
        devices=() if is_prefix else named, has_other_devices=is_prefix,
    )  # fmt: skip


def _set(body: Mapping[str, Any], *, are_listed: bool, is_filled: bool = False) -> NftSet:
    family, table, name = NUMBERS[body["family"]], _word(body, "table"), _word(body, "name")
    data = body.get("map")
    listed = body.get("flags")
    is_dynamic = is_filled or (isinstance(listed, list) and "dynamic" in listed)
    flags = (SET_MAP if data is not None else 0) | (SET_DYNAMIC if is_dynamic else 0)
    types: Any = body.get("type")
    names = types if isinstance(types, list) else [types]
    elements = body.get("elem", [])
    if are_listed and isinstance(elements, list) and data in (None, "verdict"):
        with suppress(NotUnderstoodError, KeyError, TypeError, ValueError, AttributeError):
            kinds = [_SET_TYPES[one] for one in names]  # a TypeError for `typeof`, of which the length is not listed
            found, ranged = _elements_of(elements, kinds, verdicts=data == "verdict")
            length = kinds[0][0] if len(kinds) == 1 else sum(-(-size // WORD) * WORD for size, _ in kinds)
            return _settled_set(family, table, name, flags, length, found, ranged)
    return NftSet(family=family, table=table, name=name, flags=flags, is_complete=False)
