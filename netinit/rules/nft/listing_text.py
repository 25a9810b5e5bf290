"""Read what `nft list ruleset` or `nft list table` prints into the objects of `nft -j list ruleset` (libnftables-json(5)).

Only the part of nft's language that listings are written in. The part of a rule that is not understood becomes one object, {"unknown":
text}, behind what was understood before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.sanitize import quote, shorten
from netinit.rules.model import PRIORITIES
from netinit.rules.nft.listing_objects import CHANCES, METAS, UNKNOWN
from netinit.rules.nft.listing_values import NotUnderstoodError

BEGINS = re.compile(r"^[ \t]*table[ \t]+(?:ip6?|inet|bridge|arp|netdev)[ \t]+[^\s{}\"#;]+[ \t]*\{", re.MULTILINE)
_CHANGE = re.compile(
    r"""^[ \t]*(?:nft[ \t]+)?(?:(?:add|create|insert|replace)[ \t]+(?:chain|rule|element|set|map)[ \t]|include[ \t]+"
    |(?P<deletes>(?:flush|delete|destroy)[ \t]+(?:ruleset|table|chain|rule|element|set|map)\b)).*""",
    re.MULTILINE | re.VERBOSE,
)
NOT_IN_FORCE = "it is input for nft, and not what is in force; give what `nft list ruleset` prints"
_TOKEN = re.compile(
    r"""[ \t\r]+ | (?P<comment>\#[^\n]*) | (?P<string>"[^"\n]*") | (?P<end>[\n;]) | (?P<sign>==|!=|<=|>=|<<|>>|[{}(),<>&|^=!])
    | (?P<word>[^\s{}(),;=!<>&|^"\#]+) | (?P<other>.)""",
    re.VERBOSE,
)
_EXTENSION = re.compile(r"#\s*(?:xt_|match |target )([A-Za-z0-9_]+)")  # how older nft lists what it cannot translate
_RANGE = re.compile(r"([0-9a-fA-Fx.:]+)-([0-9a-fA-Fx.:]+)")
_VERDICTS = ("accept", "drop", "return", "continue")
_SIDES = ("original", "reply")  # of a connection
_PROTOCOLS = frozenset((
    "ip", "ip6", "tcp", "udp", "th", "icmp", "icmpv6", "igmp", "sctp", "dccp", "udplite", "esp", "ah", "comp", "ether", "arp", "vlan",
    "dst", "frag", "hbh", "mh", "gre",
))  # fmt: skip
_BARE_METAS = frozenset(METAS) | {"iiftype", "oiftype", "iifgroup", "oifgroup", "pkttype", "nftrace", "rtclassid", "priority"}
_OPERATORS = ("==", "!=", "<", ">", "<=", ">=", "!")  # the last: none of these bits
_BITS = {"&": "&", "and": "&", "|": "|", "or": "|", "^": "^", "xor": "^"}
_OBJECTS = ("counter", "quota", "limit", "ct", "flowtable", "synproxy", "secmark", "tunnel")
MAX_TOKENS = 2_000_000
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    line: int
    is_behind_gap: bool = False  # more than one space, where nft left something out

    @property
    def is_string(self) -> bool:
        return self.kind == "string"


def read_listing(text: str) -> list[dict[str, Any]]:
    """Return the objects of the tables in a text, whatever stands around them but a command that changes rules. Raises ParseError."""
    found: list[dict[str, Any]] = []
    at, line = 0, 1
    while begins := BEGINS.search(text, at):
        around = text[at : begins.start()]
        _refuse_changes(around, line, has_tables=bool(found))
        line += around.count("\n")
        tokens, at = _tokens_of_table(text, begins.start(), line)
        line += text.count("\n", begins.start(), at)
        found += _TableReader(tokens).read()
    _refuse_changes(text[at:], line, has_tables=bool(found))
    return found


def leave_tables_out(text: str) -> str:
    """Return the text around the tables; lines keep their numbers. Raises ParseError."""
    kept, at = [], 0
    while begins := BEGINS.search(text, at):
        _, end = _tokens_of_table(text, begins.start(), text[: begins.start()].count("\n") + 1)
        kept += [text[at : begins.start()], "\n" * text.count("\n", begins.start(), end)]
        at = end
    return "".join([*kept, text[at:]])


def _refuse_changes(around: str, line: int, *, has_tables: bool) -> None:
    """Raise ParseError if text outside of tables changes rules: that before all tables may delete, as configuration files do."""
    for change in _CHANGE.finditer(around):
        if has_tables or not change["deletes"]:
            number = line + around[: change.start()].count("\n")
            raise ParseError(f"line {number}: {quote(shorten(change.group().strip(), 80))}: {NOT_IN_FORCE}")


def _tokens_of_table(text: str, start: int, line: int) -> tuple[list[_Token], int]:
    """The tokens up to the brace that closes the first one, and where it ends. Raises ParseError if it does not close."""
    tokens: list[_Token] = []
    depth, is_behind_gap = 0, False
    for match in _TOKEN.finditer(text, start):
        kind, word = match.lastgroup or "", match.group()
        if kind == "end" and word == "\n":
            line_of, line = line, line + 1
        else:
            line_of = line
        if not kind:
            is_behind_gap = len(word) > 1
            continue
        if kind == "other":
            raise ParseError(f"line {line_of}: {shorten(_line_at(text, match.start()), 80)} cannot be read: a quote does not close")
        if kind == "comment":
            if extension := _EXTENSION.match(word):
                tokens += [_Token(one, "word", line_of) for one in ("xt", "?", extension[1])]
            continue
        tokens.append(_Token(word[1:-1] if kind == "string" else word, kind, line_of, is_behind_gap))
        is_behind_gap = False
        depth += {"{": 1, "}": -1}.get(word, 0)
        if word == "}" and not depth:
            return tokens, match.end()
        if len(tokens) > MAX_TOKENS:
            raise ParseError(f"line {line_of}: the listing is longer than netinit reads; list the tables that matter alone")
    raise ParseError(f"line {line}: the listing is cut off inside of a table; save all of it: nft list ruleset > FILE")


def _line_at(text: str, at: int) -> str:
    return (text[:at].rpartition("\n")[2] + text[at:].partition("\n")[0]).strip()


@dataclass
class _TableReader:
    """Reads the tokens of one table."""

    tokens: Sequence[_Token]
    at: int = 0
    objects: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> list[dict[str, Any]]:
        """Return the table's objects. Raises ParseError."""
        _, family, table = (self._take().text for _ in range(3))
        self._place = {"family": family, "table": table}
        self._expect("{")
        self._is_of_iptables = family in ("ip", "ip6") and table in PRIORITIES
        own: dict[str, Any] = {"family": family, "name": table}
        self.objects.append({"table": own})
        while not self._ends_block():
            word = self._take()
            if word.text in ("chain", "set", "map") and not word.is_string:
                name = self._take().text
                self._expect("{")
                getattr(self, f"_read_{word.text}")(name)
            elif word.text == "comment":
                own["comment"] = self._take().text
            elif word.text == "flags":
                own["flags"] = [one.text for one in self._rest()]
            elif word.text in _OBJECTS:
                self._skip_object()
            else:
                raise self._wrong(word)
        return self.objects

    # ---- tokens --------------------------------------------------------------------------------------------------------

    def _peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("", "", self.tokens[-1].line)

    def _take(self) -> _Token:
        found = self._peek()
        self.at += 1
        return found

    def _expect(self, sign: str) -> None:
        found = self._take()
        if found.text != sign or found.kind != "sign":
            raise self._wrong(found)

    def _wrong(self, found: _Token) -> ParseError:
        return ParseError(f"line {found.line}: {shorten(found.text, 40)!r} has no place there in a listing of nft")

    def _ends_block(self) -> bool:
        """Skip ends of lines; whether the block ends, whose brace is taken then."""
        while self._peek().kind == "end":
            self.at += 1
        found = self._peek()
        if not found.kind:
            raise self._wrong(found)
        ends = (found.kind, found.text) == ("sign", "}")
        self.at += ends
        return ends

    def _rest(self) -> list[_Token]:
        """The tokens to the end of the statement; braces may span lines."""
        found: list[_Token] = []
        depth = 0
        while (one := self._peek()).kind:
            if not depth and (one.kind == "end" or (one.kind, one.text) == ("sign", "}")):
                break
            if one.kind == "sign":
                depth += {"{": 1, "}": -1}.get(one.text, 0)
            if one.kind != "end":
                found.append(one)
            self.at += 1
        return found

    def _skip_object(self) -> None:
        while (one := self._take()).text != "{":
            if one.kind not in ("word", "string"):
                raise self._wrong(one)
        depth = 1
        while depth:
            one = self._take()
            depth += {"{": 1, "}": -1}.get(one.text, 0) if one.kind == "sign" else 0

    # ---- chains and sets -------------------------------------------------------------------------------------------------

    def _read_chain(self, name: str) -> None:
        own: dict[str, Any] = {**self._place, "name": name}
        self.objects.append({"chain": own})
        while not self._ends_block():
            words = self._rest()
            texts = [one.text for one in words]
            if texts[0] == "type" and "hook" in texts and not words[0].is_string:
                self._read_hook(own, words)
            elif texts[0] == "policy" and len(texts) == 2 and not words[0].is_string:  # noqa: PLR2004 - its word and its value
                own["policy"] = texts[1]
            elif texts[0] == "comment" and len(texts) == 2 and words[1].is_string:  # noqa: PLR2004 - the chain's, not a rule's
                continue
            else:
                rule = _RuleReader(words).read()
                if self._is_of_iptables:
                    rule["expr"] = _distrust(rule["expr"], words)
                self.objects.append({"rule": {**self._place, "chain": name, **rule}})

    def _read_hook(self, own: dict[str, Any], words: Sequence[_Token]) -> None:
        texts = [one.text for one in words]
        try:
            own["type"], own["hook"] = texts[1], texts[texts.index("hook") + 1]
            at = texts.index("priority")
            own["prio"] = " ".join(texts[at + 1 :])
        except (ValueError, IndexError):
            raise self._wrong(words[0]) from None
        devices = [one.text for one in words[: at] if one.is_string or one.kind == "word"][texts.index("hook") + 3 :]
        own |= {"dev": devices} if devices else {}

    def _read_set(self, name: str) -> None:
        self._read_elements({**self._place, "name": name}, "set")

    def _read_map(self, name: str) -> None:
        self._read_elements({**self._place, "name": name}, "map")

    def _read_elements(self, own: dict[str, Any], kind: str) -> None:
        self.objects.append({kind: own})
        while not self._ends_block():
            words = self._rest()
            texts = [one.text for one in words]
            if texts[0] in ("type", "typeof"):
                own["type"], data = _type_of(texts)
                own |= {"map": data} if kind == "map" else {}
            elif texts[0] == "flags":
                own["flags"] = [one for one in texts[1:] if one != ","]
            elif texts[:2] == ["elements", "="]:
                try:
                    own["elem"] = _RuleReader(words[2:]).read_whole_set()
                except NotUnderstoodError:
                    own["elem"] = {UNKNOWN: shorten(" ".join(texts), 80)}


def _distrust(listed: list[dict[str, Any]], words: Sequence[_Token]) -> list[dict[str, Any]]:
    """The parts of a rule of iptables-nft, which nft translates: it leaves out silently what it has no translation for.

    A target that is left out makes a rule of a counter and no verdict, a match a second space. That a status of a connection is
    negated is lost in translation (iptables 1.8.9).
    """
    kinds = [next(iter(one)) for one in listed]
    lost: list[dict[str, Any]] = [{"xt": {"type": "match", "name": "a match"}}] if any(one.is_behind_gap for one in words[1:]) else []
    found = [
        {"xt": {"type": "match", "name": "conntrack"}} if one.get("match", {}).get("left") == {"ct": {"key": "status"}} else one
        for one in listed
    ]
    is_final = set(kinds) - {"match", "counter", "limit"}
    return [*lost, *found, *([] if is_final or "counter" not in kinds else [{"xt": {"type": "target", "name": "a target"}}])]


def _type_of(texts: Sequence[str]) -> tuple[Any, str]:
    """The types of a set's key, and of a map's data."""
    data = ""
    if ":" in texts:
        at = texts.index(":")
        texts, data = texts[:at], " ".join(texts[at + 1 :])
    if texts[0] == "typeof":
        return [{"typeof": " ".join(texts[1:])}], data
    names = [one for one in texts[1:] if one != "."]
    return (names[0] if len(names) == 1 else names), data


class _RuleReader:
    """Reads the tokens of one rule, or of a set."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def read(self) -> dict[str, Any]:
        """Return the rule's expressions and comment."""
        more = {}
        if [one.text for one in self.tokens[-2:-1]] == ["comment"] and self.tokens[-1].is_string:
            more, self.tokens = {"comment": self.tokens[-1].text}, self.tokens[:-2]
        found: list[dict[str, Any]] = []
        while self.at < len(self.tokens):
            start = self.at
            try:
                found.append(self._one())
            except NotUnderstoodError:
                found.append({UNKNOWN: " ".join([f'"{one.text}"' if one.is_string else one.text for one in self.tokens[start:]])})
                break
        return {"expr": found, **more}

    # ---- tokens --------------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return "" if at >= len(self.tokens) or self.tokens[at].is_string else self.tokens[at].text

    def _take(self) -> str:
        if self.at >= len(self.tokens):
            raise NotUnderstoodError
        self.at += 1
        return self.tokens[self.at - 1].text

    def _skip(self, *words: str) -> bool:
        if self._peek() in words:
            self.at += 1
            return True
        return False

    def _expect(self, *words: str) -> None:
        if not self._skip(*words):
            raise NotUnderstoodError

    def _number(self) -> int:
        text = self._take()
        if not (text.isdecimal() and text.isascii()) or len(text) > 20:  # noqa: PLR2004 - of 64 bits
            raise NotUnderstoodError
        return int(text)

    # ---- statements ------------------------------------------------------------------------------------------------------

    def _one(self) -> dict[str, Any]:
        word = self._peek()
        if word in _VERDICTS:
            return {self._take(): None}
        if word in ("jump", "goto"):
            return {self._take(): {"target": self._take()}}
        if word in ("meta", "ct") and self._peek(3 if self._peek(1) in _SIDES else 2) == "set":
            return self._assignment()
        if word == "mark" and self._peek(1) == "set":
            return self._assignment()
        if word in _PROTOCOLS and self._peek(2) == "set":
            return self._write_field()
        if (word, self._peek(1), self._peek(4)) == ("tcp", "option", "set"):
            return self._write_option()
        if word in _STATEMENTS:
            self.at += 1
            return _STATEMENTS[word](self)
        return self._condition()

    def _write_field(self) -> dict[str, Any]:
        """A field of a header, which the packet gets."""
        protocol, field_name, _ = self._take(), self._take(), self._take()
        return {"mangle": {"key": {"payload": {"protocol": protocol, "field": field_name}}, "value": self._scalar(self._take_value())}}

    def _write_option(self) -> dict[str, Any]:
        """An option of TCP, such as the largest segment: a number, or what the route has."""
        self.at += 2
        option = {"name": self._take(), "field": self._take()}
        self._expect("set")
        value: Any = {"rt": {"key": self._take()}} if self._skip("rt") else self._scalar(self._take_value())
        return {"mangle": {"key": {"tcp option": option}, "value": value}}

    def _assignment(self) -> dict[str, Any]:
        whose = self._take() if self._peek() in ("meta", "ct") else "meta"
        side = {"dir": self._take()} if whose == "ct" and self._peek() in _SIDES else {}
        key = self._take()
        self._expect("set")
        value = self._field() if self._peek() in CHANCES else self._bits()
        return {"mangle": {"key": {whose: {"key": key, **side}}, "value": value}}

    def _bits(self, depth: int = 0) -> Any:
        """An expression of marks, which associates to the left."""
        if depth > MAX_DEPTH:
            raise NotUnderstoodError
        if self._skip("("):
            found = self._bits(depth + 1)
            self._expect(")")
        elif self._peek() in ("meta", "ct"):
            found = {self._take(): {"key": self._take()}}
        elif self._peek() == "mark":
            found = {"meta": {"key": self._take()}}
        else:
            found = self._scalar(self._take_value())
        while operator := _BITS.get(self._peek()):
            self.at += 1
            found = {operator: [found, self._bits_operand(depth + 1)]}
        return found

    def _bits_operand(self, depth: int) -> Any:
        if self._peek() == "(":
            return self._bits(depth)
        return self._scalar(self._take_value())

    def counter(self) -> dict[str, Any]:
        """A counter with its numbers, or a named one."""
        if self._skip("packets"):
            packets = self._number()
            self._expect("bytes")
            return {"counter": {"packets": packets, "bytes": self._number()}}
        return {"counter": self._take()} if self._skip("name") else {"counter": {"packets": 0, "bytes": 0}}

    def to(self) -> dict[str, Any]:
        """Where a translation goes: `[ip|ip6] [to ADDRESS[:PORT]]`, and nothing else."""
        found: dict[str, Any] = {"family": self._take()} if self._peek() in ("ip", "ip6") else {}
        if not self._skip("to"):
            return found
        text = self._take()
        address, port = text, ""
        if text.startswith("["):
            address, bracket, rest = text[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise NotUnderstoodError
            port = rest[1:]
        elif text.count(":") == 1:
            address, port = text.split(":")
        if address:
            found["addr"] = address
        if port:
            if not (port.isdecimal() and port.isascii()):
                raise NotUnderstoodError
            found["port"] = int(port)
        if not address and not port:
            raise NotUnderstoodError
        return found

    def translate(self, name: str) -> dict[str, Any]:
        """A translation of addresses or ports."""
        found = self.to()
        if self._peek() and not found.keys() & {"addr", "port"} and name not in ("masquerade", "redirect"):
            raise NotUnderstoodError
        if self._peek() in ("random", "fully-random", "persistent"):
            if name != "masquerade":
                raise NotUnderstoodError
            while self._peek() in ("random", "fully-random", "persistent", ","):
                self.at += 1
        if name == "redirect" and "addr" in found:
            if not (found["addr"].isdecimal() and found["addr"].isascii()):
                raise NotUnderstoodError
            found = {"port": int(found["addr"])}
        return {name: found}

    def reject(self) -> dict[str, Any]:
        """A rejection."""
        if not self._skip("with"):
            return {"reject": None}
        kind = self._take()
        if kind == "tcp":
            self._expect("reset")
            return {"reject": {"type": "tcp reset"}}
        self._skip("type")
        return {"reject": {"type": kind, "expr": self._take()}}

    def log(self) -> dict[str, Any]:
        """A log entry."""
        found: dict[str, Any] = {}
        while (word := self._peek()) in ("prefix", "level", "group", "snaplen", "queue-threshold", "flags"):
            self.at += 1
            value = self._take()
            while word == "flags" and self._peek() in (",", "sequence", "options"):
                self.at += 1
            found[word] = int(value) if word == "group" and value.isdecimal() and value.isascii() else value
        return {"log": found}

    def limit(self) -> dict[str, Any]:
        """A rate."""
        self._expect("rate")
        over = self._skip("over")
        rate, slash, per = self._take().partition("/")
        if not slash or not rate.isdecimal() or not rate.isascii():
            raise NotUnderstoodError
        found: dict[str, Any] = {"rate": int(rate), "per": per, "inv": over}
        if self._skip("burst"):
            found["burst"] = self._number()
            self._expect("packets")
        return {"limit": found}

    def copy(self) -> dict[str, Any]:
        """A copy to another host, or through another device."""
        self._expect("to")
        return {"dup": {"addr": self._take()} | ({"dev": self._take()} if self._skip("device") else {})}

    def queue(self) -> dict[str, Any]:
        """A program that decides, behind one of the queues."""
        found: dict[str, Any] = {"flags": []}
        while (word := self._peek()) in ("num", "to", "flags", "bypass", "fanout", ","):
            self.at += 1
            if word in ("num", "to"):
                found["num"] = self._take()
            elif word not in ("flags", ","):
                found["flags"].append(word)
        return {"queue": found}

    def extension(self) -> dict[str, Any]:
        """An extension of iptables, by name."""
        kind = self._take()
        name = self._take()
        if kind == "?":
            kind = "target" if name.isupper() else "match"
        return {"xt": {"type": kind, "name": name}}

    # ---- conditions ------------------------------------------------------------------------------------------------------

    def _condition(self) -> dict[str, Any]:
        left = self._field()
        fields = [left]
        while self._skip("."):
            fields.append(self._field())
        if len(fields) > 1:
            left = {"concat": fields}
        if self._skip("vmap"):
            return {"vmap": {"key": left, "data": self._values()}}
        is_flags = left.get("ct", {}).get("key") in ("state", "status") or left.get("payload", {}).get("field") == "flags"
        if self._peek() in ("&", "and"):
            self.at += 1
            left = {"&": [left, self._flags()]}
            is_flags = False
        op = self._take() if self._peek() in _OPERATORS else "in" if is_flags else "=="
        right = self._values()
        if self._skip("/"):  # tcp flags syn / fin,syn,rst,ack
            left, op = {"&": [left, self._values()]}, "==" if op == "in" else op
        elif isinstance(right, list) and not is_flags and "&" not in left:
            raise NotUnderstoodError
        return {"match": {"op": op, "left": left, "right": right}}

    def _field(self) -> dict[str, Any]:
        word = self._take()
        if word in _PROTOCOLS:
            return {"payload": {"protocol": word, "field": self._take()}}
        if word == "meta":
            return {"meta": {"key": self._take()}}
        if word == "ct":
            key = self._take()
            if key in _SIDES:
                family = {"family": self._take()} if self._peek() in ("ip", "ip6") else {}
                return {"ct": {"key": self._take(), "dir": key, **family}}
            return {"ct": {"key": key}}
        if word == "fib":
            flags = [self._take()]
            while self._skip("."):
                flags.append(self._take())
            return {"fib": {"flags": flags, "result": self._take()}}
        if word in CHANCES:
            return self._chance(word)
        if word == "socket":
            return {"socket": {"key": self._take()}}
        if word in _BARE_METAS:
            return {"meta": {"key": word}}
        raise NotUnderstoodError

    def _chance(self, word: str) -> dict[str, Any]:
        """A number that chance, a turn or a hash gives; of what the hash is does not matter."""
        own: dict[str, Any] = {"mode": self._take()} if word == "numgen" else {}
        fields = [self._field()] if word == "jhash" else []
        while fields and self._skip("."):
            fields.append(self._field())
        self._expect("mod")
        own["mod"] = self._number()
        if word == "jhash" and self._skip("seed"):
            self._take()
        return {word: {**own, "offset": self._number() if self._skip("offset") else 0}}

    def _flags(self) -> Any:
        if not self._skip("("):
            return self._scalar(self._take_value())
        found = [self._scalar(self._take_value())]
        while self._skip("|", "or"):
            found.append(self._scalar(self._take_value()))
        self._expect(")")
        return {"|": found}

    def _take_value(self) -> _Token:
        if self.at >= len(self.tokens) or (self.tokens[self.at].kind == "sign"):
            raise NotUnderstoodError
        self.at += 1
        return self.tokens[self.at - 1]

    def _values(self) -> Any:
        """A set, the name of one, or values with commas between."""
        if self._peek() == "{":
            return self.read_set()
        if self._peek() == "(":
            return self._flags()
        found = [self._joined()]
        while self._skip(","):
            found.append(self._joined())
        if len(found) == 1 and self._peek() == "|":
            while self._skip("|"):
                found.append(self._joined())
            return {"|": found}
        return found[0] if len(found) == 1 else found

    def _joined(self) -> Any:
        """A value, or several with points between."""
        found = [self._scalar(self._take_value())]
        while self._skip("."):
            found.append(self._scalar(self._take_value()))
        return found[0] if len(found) == 1 else {"concat": found}

    def read_set(self) -> dict[str, Any]:
        """The elements in braces, with their verdicts if they have any."""
        self._expect("{")
        found: list[Any] = []
        while not self._skip("}"):
            key = self._joined()
            extra = {}
            while (word := self._peek()) in ("timeout", "expires", "comment", "counter"):
                self.at += 1
                extra[word] = self.counter()["counter"] if word == "counter" else self._take()
            if extra:
                key = {"elem": {"val": key, **extra}}
            found.append([key, self._data()] if self._skip(":") else key)
            if self._peek() != "}":
                self._expect(",")
        return {"set": found}

    def read_whole_set(self) -> list[Any]:
        """The elements of a named set, behind which nothing follows."""
        found: list[Any] = self.read_set()["set"]
        if self.at < len(self.tokens):
            raise NotUnderstoodError
        return found

    def _data(self) -> Any:
        word = self._peek()
        if word in _VERDICTS:
            return {self._take(): None}
        if word in ("jump", "goto"):
            return {self._take(): {"target": self._take()}}
        return self._joined()

    def _scalar(self, token: _Token) -> Any:
        text = token.text
        if token.is_string or text.startswith("@"):
            return text
        if text.isascii() and (text.isdecimal() or re.fullmatch("0x[0-9a-fA-F]{1,16}", text)) and len(text) <= 20:  # noqa: PLR2004
            return int(text, 0) if text.startswith("0x") else int(text)
        if ends := _RANGE.fullmatch(text):
            return {"range": [self._plain(end) for end in ends.groups()]}
        address, slash, length = text.partition("/")
        if slash and length.isdecimal() and length.isascii() and len(length) <= 3:  # noqa: PLR2004 - 128
            return {"prefix": {"addr": address, "len": int(length)}}
        return text

    @staticmethod
    def _plain(text: str) -> Any:
        return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else text  # noqa: PLR2004 - of 64 bits


_STATEMENTS: dict[str, Callable[[_RuleReader], dict[str, Any]]] = {
    "counter": _RuleReader.counter, "redirect": lambda one: one.translate("redirect"), "dnat": lambda one: one.translate("dnat"),
    "snat": lambda one: one.translate("snat"), "masquerade": lambda one: one.translate("masquerade"),
    "tproxy": lambda one: {"tproxy": one.to()}, "reject": _RuleReader.reject, "log": _RuleReader.log, "limit": _RuleReader.limit,
    "notrack": lambda _: {"notrack": None}, "xt": _RuleReader.extension,
    "dup": _RuleReader.copy, "queue": _RuleReader.queue,
}  # fmt: skip
