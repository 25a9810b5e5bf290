"""Decode nf_tables rules, expression by expression."""

from __future__ import annotations

from sys import byteorder

from netinit.base.net import FAMILIES, Family
from netinit.base.netlink_attributes import MalformedError, attributes_of, name, number
from netinit.base.records import Record
from netinit.base.snapshot import SET_DYNAMIC, SET_MAP, NftElement, NftRule, NftSet, Snapshot
from netinit.rules.decoding import registers
from netinit.rules.decoding.matches import MAX_ALTERNATIVES, decode_comparison, decode_match
from netinit.rules.decoding.registers import (
    CONSTANT,
    CT,
    META,
    OTHER,
    PAYLOAD,
    Known,
    Operand,
    Range,
    Registers,
    RegisterTest,
)
from netinit.rules.decoding.targets import decode_effect, decode_verdict
from netinit.rules.expressions.known_attributes import split_expressions
from netinit.rules.foreign_targets import Observe, Several, UnknownTarget
from netinit.rules.matches import Match
from netinit.rules.matches.context import Limit, UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Port, Protocol, drop_implied_protocols
from netinit.rules.model import LiveChain, LiveRule, Rule
from netinit.rules.numbers import CT_LENGTHS, LOADS, META_L4PROTO, META_LENGTHS, META_PROTOCOL, OPERATORS
from netinit.rules.structs import TCP_FLAGS
from netinit.rules.targets import Jump, Target

MAX_EXPRESSIONS = 128  # NFT_RULE_MAXEXPRS of nf_tables_api.c
MAX_VARIANTS = 4096  # iptables rules that one rule with a verdict map may expand to
LENGTHS = {META: META_LENGTHS, CT: CT_LENGTHS}  # lengths of loaded values; 4 if not listed
OTHER_LOADS = {"exthdr": 1, "rt": 1, "osf": 1, "tunnel": 2, "xfrm": 1}  # by the attribute of the register
OF_FAMILY = {"tproxy": 1, "nat": 2}  # the attribute of the one family that it acts on: NFTA_TPROXY_FAMILY, NFTA_NAT_FAMILY
CT_DIRECTION = 3  # NFTA_CT_DIRECTION
NUMBERS = ("numgen", "hash")  # give a number below a modulus, from an offset on
MAX_NUMBERS = 16  # that a mark set by chance is followed to: balancing has few, and each is a rule more
MARKING = {META: 3, CT: 4}  # NFTA_META_SREG, NFTA_CT_SREG
TRANSLATING = frozenset(("nat", "redir", "masq"))  # end the chain
LIMIT_PACKETS = 0
ENDING = ("dynset", "quota", "connlimit")  # end a rule when a limit is reached, or a set is full
POLICIES = {0: "DROP", 1: "ACCEPT"}
COMMENT_OF_NFT = 0  # NFTNL_UDATA_RULE_COMMENT, NFTNL_UDATA_TABLE_COMMENT


class References(Record):
    """What rules refer to: sets by family, table and name; devices by index."""

    sets: dict[tuple[int, str, str], NftSet]
    devices: dict[int, str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> References:
        """Return the references of a snapshot."""
        return cls(
            sets={(one.family, one.table, one.name): one for one in snapshot.sets},
            devices={link.index: link.name for link in snapshot.links},
        )


class LiveTables:
    """The nf_tables tables of a snapshot; a table is decoded when it is first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._around = References.of(snapshot)
        self._snapshot = snapshot
        self._decoded: dict[tuple[int, str], tuple[LiveChain, ...]] = {}

    def names(self, family: int) -> list[str]:
        """Return the names of a family's tables that have a chain."""
        return list(dict.fromkeys([chain.table for chain in self._snapshot.chains if chain.family == family]))

    def chains(self, family: int, table: str) -> tuple[LiveChain, ...]:
        """Return a table's chains in the kernel's order."""
        if (family, table) not in self._decoded:
            rules: dict[str, list[LiveRule]] = {}
            for rule in self._snapshot.rules:
                if (rule.family, rule.table) == (family, table):
                    rules.setdefault(rule.chain, []).append(decode_rule(rule, self._around))
            self._decoded[family, table] = tuple([
                LiveChain(
                    name=one.name, policy=POLICIES.get(one.policy, str(one.policy)) if one.is_base else "", nft=one,
                    rules=tuple(rules.get(one.name, ())),
                )
                for one in self._snapshot.chains if (one.family, one.table) == (family, table)
            ])  # fmt: skip
        return self._decoded[family, table]


class _SeveralWays(Exception):  # noqa: N818 - a question, not an error
    """The rule has several alternatives at this expression; the argument is their number."""


def decode_rule(rule: NftRule, around: References) -> LiveRule:
    """Decode a rule. A malformed one becomes an unknown match with an unknown target."""
    comment = read_comment(rule.userdata)
    try:
        walks = _decode_variants(rule, _split(rule.expressions), around)
    except (MalformedError, KeyError, IndexError) as error:
        matches, target = (UnknownMatch(text="malformed"),), UnknownTarget(text=f"malformed: {error}")
        unknown = Rule(matches=matches, target=target, comment=comment, families=_families(rule.family))
        return LiveRule(rules=(unknown,), handle=rule.handle)
    rules = tuple([one.rule(comment or walks[-1].comment) for one in walks if one.families])
    return LiveRule(rules=rules, packets=walks[-1].packets if walks else None, handle=rule.handle)


def _split(block: bytes) -> list[tuple[str, dict[int, bytes]]]:
    found = split_expressions(block)
    if len(found) > MAX_EXPRESSIONS:
        raise MalformedError(f"{len(found)} expressions in one rule")
    return found


def _decode_variants(rule: NftRule, expressions: list[tuple[str, dict[int, bytes]]], around: References) -> list[_Walk]:
    """Decode every combination of a rule's alternatives."""
    done: list[_Walk] = []
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        choices = waiting.pop()
        walk = _Walk(rule, around, choices)
        try:
            walk.go(expressions)
            done.append(walk)
        except _SeveralWays as choice:
            count = choice.args[0]
            if len(waiting) + len(done) + count > MAX_VARIANTS:
                raise MalformedError("a verdict map with too many elements") from None
            waiting += [(*choices, at) for at in reversed(range(count))]
    return done


def _families(family: int) -> tuple[Family, ...]:
    return _families_named(family, FAMILIES)


def _families_named(family: int, among: tuple[Family, ...]) -> tuple[Family, ...]:
    """The family with this number, if it is among these; all of them if the number is of no single one."""
    return tuple([one for one in among if one.number == family]) if any(one.number == family for one in FAMILIES) else among


class _Walk:
    """Decodes one combination; `choices` are its alternatives, in order."""

    def __init__(self, rule: NftRule, around: References, choices: tuple[int, ...]) -> None:
        self.families = _families(rule.family)
        self.packets: int | None = None
        self.comment = ""
        self._place = rule
        self._around = around
        self._choices = list(choices)
        self._registers = Registers()
        self._protocol = ""
        self._matches: list[Match] = []
        self._compared: list[tuple[int, int, RegisterTest]] = []  # the last comparison, and the range of its matches
        self._targets: list[Target] = []

    def go(self, expressions: list[tuple[str, dict[int, bytes]]]) -> None:
        """Decode the expressions. Raises MalformedError, KeyError, _SeveralWays."""
        self._translates = not TRANSLATING.isdisjoint([kind for kind, _ in expressions])
        for kind, found in expressions:
            handler = getattr(self, f"_on_{kind}", None)
            if handler is not None:
                handler(found)
            elif kind in LOADS and LOADS[kind][0] in found:  # without a register it acts
                self._load(kind, found)
            elif OTHER_LOADS.get(kind) in found:
                self._load_other(kind, found[OTHER_LOADS[kind]])
            elif kind in ENDING:
                self._matches.append(UnknownMatch(text=kind))
            else:
                if kind in OF_FAMILY and not self._targets:  # on packets of the other family, only what stands before it acts
                    self.families = _families_named(number(found.get(OF_FAMILY[kind])), self.families)
                if kind in MARKING:
                    self._choose_number(found.get(MARKING[kind]))
                self._targets.append(decode_effect(kind, found, self._registers, self._known.family))

    def rule(self, comment: str) -> Rule:
        """Return the decoded rule."""
        kept = sorted(drop_implied_protocols(self._matches), key=lambda match: match.place)  # iptables' order: all must match
        for at in range(1, len(kept)):
            if (kept[at - 1].header_fields or "")[:1] == (TCP_FLAGS,) and isinstance(kept[at], Port):  # iptables lists ports first
                kept[at - 1 : at + 1] = kept[at], kept[at - 1]
        targets = self._targets[0].take(self._targets[1:]) if self._targets else [Observe(text="")]
        target = targets[0] if len(targets) == 1 else Several(targets=tuple(targets))
        return Rule(matches=tuple(kept), target=target, comment=comment, families=self.families)

    def _choose(self, count: int) -> int:
        if not self._choices:
            raise _SeveralWays(count)
        return self._choices.pop(0)

    @property
    def _known(self) -> Known:
        return Known(families=self.families, protocol=self._protocol, devices=self._around.devices)

    # ---- loads ----------------------------------------------------------------------------------------------

    def _load(self, kind: str, found: dict[int, bytes]) -> None:
        register, order = LOADS[kind]
        key = [number(found[one]) for one in order if one != register]
        if kind == CT and CT_DIRECTION in found:
            key.append(number(found[CT_DIRECTION]))
        length = key.pop() if kind == PAYLOAD else LENGTHS.get(kind, {}).get(key[0], 4)
        self._registers.store(found[register], Operand(source=kind, key=tuple(key), length=length))

    def _load_other(self, kind: str, register: bytes | None, *key: int) -> None:
        self._registers.store(register, Operand(source=OTHER, key=(kind, *key), length=4))

    def _on_numgen(self, found: dict[int, bytes]) -> None:
        if number(found.get(2)) == 1:  # NFTA_NG_MODULUS: one of one
            first = number(found.get(4)).to_bytes(4, byteorder)
            self._registers.store(found[1], Operand(source=CONSTANT, key=("value",), length=4, data=first))
        else:
            self._load_other("numgen", found.get(1), number(found.get(2)), number(found.get(4)))

    def _on_hash(self, found: dict[int, bytes]) -> None:
        self._load_other("hash", found.get(2), number(found.get(4)), number(found.get(6)))  # NFTA_HASH_MODULUS, NFTA_HASH_OFFSET

    def _choose_number(self, register: bytes | None) -> None:
        """Make one of few numbers that chance gives a constant, in a rule that may hold."""
        operand = self._registers.load(register)
        if operand.key[0] not in NUMBERS or operand.mask or operand.swapped or not 0 < int(operand.key[1]) <= MAX_NUMBERS:
            return
        data = (int(operand.key[2]) + self._choose(int(operand.key[1]))).to_bytes(4, byteorder)
        self._matches += RegisterTest(operand=operand, ranges=((data, data),)).unknown()
        self._registers.store(register, Operand(source=CONSTANT, key=("value",), length=4, data=data))

    def _on_immediate(self, found: dict[int, bytes]) -> None:
        data = attributes_of(found[2])
        if 2 in data:  # NFTA_DATA_VERDICT  # noqa: PLR2004
            self._targets += decode_verdict(data[2])
        else:
            self._registers.store(found[1], Operand(source=CONSTANT, key=("value",), length=len(data[1]), data=data[1]))

    def _on_bitwise(self, found: dict[int, bytes]) -> None:
        value = self._registers.load(found[1])
        length = number(found.get(3))
        mask, xor = (attributes_of(found.get(kind, b"")).get(1, b"") for kind in (4, 5))
        simple = number(found.get(6)) == 0 and len(mask) == len(xor) == length and not value.mask and value.source != CONSTANT
        changed = value.replace(mask=mask, xor=xor if xor.strip(b"\0") else b"", length=length)
        self._registers.store(found[2], changed if simple else Operand(source=OTHER, key=("bitwise",), length=length))

    def _on_byteorder(self, found: dict[int, bytes]) -> None:
        value = self._registers.load(found[1])
        swapped = value.replace(swapped=not value.swapped)
        self._registers.store(found[2], swapped if not value.mask else Operand(source=OTHER, key=("byteorder",), length=value.length))

    # ---- comparisons --------------------------------------------------------------------------------------------

    def _on_cmp(self, found: dict[int, bytes]) -> None:
        value = attributes_of(found[3])[1]
        operator = OPERATORS[number(found.get(2))]
        operand = self._registers.load(found[1])
        if operand.source == PAYLOAD and len(value) < operand.length:
            operand = operand.replace(length=len(value))
        lowest, highest = b"\0" * len(value), b"\xff" * len(value)
        ranges = {
            "==": (value, value), "!=": (value, value), "<": (value, highest), "<=": (lowest, value), ">": (lowest, value),
            ">=": (value, highest),
        }  # fmt: skip
        self._compare(RegisterTest(operand=operand, ranges=(ranges[operator],), negated=operator in ("!=", "<", ">")))

    def _on_range(self, found: dict[int, bytes]) -> None:
        ends = tuple([attributes_of(found[kind])[1] for kind in (3, 4)])
        negated = number(found.get(2)) == 1  # NFT_RANGE_NEQ
        self._compare(RegisterTest(operand=self._registers.load(found[1]), ranges=((ends[0], ends[1]),), negated=negated))

    def _compare(self, compared: RegisterTest) -> None:
        """Add the matches of a comparison; the two ends of a range become one match."""
        constant = compared.operand.data if compared.operand.source == CONSTANT and not compared.negated else None
        if constant is not None and all(low <= constant <= high for low, high in compared.ranges):
            return  # always true
        families = registers.families_of(compared)
        if families is not None:
            self.families = tuple([one for one in self.families if one in families])
            return
        start = len(self._matches)
        if self._compared:
            before, behind, last = self._compared[0]
            joined = last.intersect(compared) if behind == start else None
            if joined is not None:
                compared, start = joined, before
                del self._matches[before:]
        found = decode_comparison(compared, self._known)
        if len(found) > 1 and any(isinstance(one, UnknownMatch) for one in found):
            found = compared.unknown()
        self._matches += found
        self._compared = [(start, len(self._matches), compared)]
        if len(found) == 1 and isinstance(found[0], Protocol) and not found[0].negated:
            self._protocol = found[0].name

    def _on_lookup(self, found: dict[int, bytes]) -> None:
        key = (self._place.family, self._place.table, name(found[1]))
        nft_set = self._around.sets.get(key)
        flags = number(found.get(5))
        if flags & ~1:
            raise MalformedError(f"flag {flags:#x} of a lookup is not known")
        negated = bool(flags & 1)  # NFT_LOOKUP_F_INV
        if nft_set is None or not nft_set.is_complete:
            self._unknown(f"in a set that is not read: {key[2]}", found)
        elif nft_set.flags & SET_DYNAMIC:
            self._unknown(f"in the set {key[2]}, to which packets add elements", found)
        elif not nft_set.elements and not (negated and 3 in found):  # noqa: PLR2004 - NFTA_LOOKUP_DREG: a map
            if not negated:
                self._matches.append(InSet(text=f"{self._registers.load(found[2])} in the empty set {key[2]}", alternatives=()))
            if 3 in found and number(found[3]):  # noqa: PLR2004
                self._load_other("map", found[3])
        elif 3 in found and nft_set.flags & SET_MAP:  # noqa: PLR2004
            self._look_up_value(found, nft_set)
        elif 3 in found:  # noqa: PLR2004 - no map: the kernel refuses it
            self._unknown(f"in the map {key[2]}", found)
        else:
            self._look_up(found, nft_set, negated=negated)

    def _unknown(self, text: str, found: dict[int, bytes]) -> None:
        self._matches.append(UnknownMatch(text=f"{self._registers.load(found[2])} {text}"))
        if 3 in found and number(found[3]):  # noqa: PLR2004 - NFTA_LOOKUP_DREG: the register of a map's value
            self._load_other("map", found[3])
        elif 3 in found:  # noqa: PLR2004 - that of the verdict
            self._targets.append(UnknownTarget(text=f"a verdict {text}"))

    def _look_up(self, found: dict[int, bytes], nft_set: NftSet, *, negated: bool) -> None:
        fields = self._registers.load_fields(found[2], nft_set.key_length)
        elements = registers.with_ends(nft_set)
        found_ranges = [ends for _, ends in elements or ()]
        operand = fields[0]
        if registers.catch_all_of(nft_set):
            if negated:
                self._matches.append(InSet(text=f"{operand} in the set {nft_set.name}, which holds all", alternatives=()))
        elif elements is None:
            self._unknown(f"in the set {nft_set.name}", found)
        elif len(fields) > 1:
            self._look_up_fields(found, nft_set, fields, found_ranges, negated=negated)
        elif operand.source == META and operand.key in ((META_L4PROTO,), (META_PROTOCOL,)) and len(found_ranges) > 1 and not negated:
            at = self._choose(len(found_ranges))
            self._compare(RegisterTest(operand=operand, ranges=(found_ranges[at],)))
        else:
            self._compare(RegisterTest(operand=operand, ranges=tuple(found_ranges), negated=negated))

    def _look_up_fields(
        self, found: dict[int, bytes], nft_set: NftSet, fields: list[Operand], ranges: list[Range], *, negated: bool
    ) -> None:
        """Look several fields up at once, of which each element may have a range."""
        exact = all(low == high for low, high in ranges)
        if exact and not negated:
            self._compare_fields(fields, *ranges[self._choose(len(ranges))])
            return
        known, alternatives = self._known, []
        for low, high in ranges[:MAX_ALTERNATIVES]:
            compared = _split_fields(fields, low, high)
            alternatives.append(tuple([match for one in compared for match in decode_comparison(one, known)]))
        text = f"{', '.join(map(str, fields))} in the set {nft_set.name}"
        is_unknown = any(isinstance(match, UnknownMatch) for each in alternatives for match in each)
        if is_unknown or len(ranges) > MAX_ALTERNATIVES:
            self._unknown(f"in the set {nft_set.name} of several fields", found)
        else:
            self._matches.append(InSet(text=f"not {text}" if negated else text, alternatives=tuple(alternatives), negated=negated))

    def _compare_fields(self, fields: list[Operand], low: bytes, high: bytes) -> None:
        for one in _split_fields(fields, low, high):
            self._compare(one)

    def _look_up_value(self, found: dict[int, bytes], nft_set: NftSet) -> None:
        """Take one element of a map: its verdict, or the value that the register gets; packets that match none continue."""
        fields = self._registers.load_fields(found[2], nft_set.key_length)
        elements = registers.with_ends(nft_set)
        catch_all = registers.catch_all_of(nft_set)
        is_verdict = number(found[3]) == 0
        unknown = f"in the verdict map {nft_set.name}" if is_verdict else f"in the map {nft_set.name}"
        if elements is None or (catch_all and elements and len(fields) > 1):
            self._unknown(unknown, found)
            return
        at = self._choose(len(elements) + bool(catch_all))
        if catch_all is None or at < len(elements):
            element, (low, high) = elements[at]
            ends = _all_end(elements) if is_verdict else self._translates
            if not (ends and at + 1 == len(elements) and _are_all_numbers(fields[0], elements)):
                self._compare_fields(fields, low, high)
        else:
            element = catch_all
            ranges = tuple([ends for _, ends in elements])
            if ranges:
                self._compare(RegisterTest(operand=fields[0], ranges=ranges, negated=True))
        if is_verdict:
            self._targets += decode_verdict(element.verdict)
        else:
            value = element.value
            self._registers.store(found[3], Operand(source=CONSTANT, key=("value",), length=len(value), data=value))

    # ---- other expressions ----------------------------------------------------------------------------------------------------

    def _on_counter(self, found: dict[int, bytes]) -> None:
        self.packets = number(found.get(2))

    def _on_limit(self, found: dict[int, bytes]) -> None:
        rate, unit, burst, kind, flags = (number(found.get(attribute)) for attribute in (1, 2, 3, 4, 5))
        plain = unit == 1 and kind == LIMIT_PACKETS and not flags & 1
        self._matches.append(Limit(rate=rate, burst=burst) if plain else UnknownMatch(text="limit"))

    def _on_match(self, found: dict[int, bytes]) -> None:
        matches, comment = decode_match(name(found[1]), number(found.get(2)), found.get(3, b""), self._protocol, self._known.family)
        self._matches += matches
        self.comment = comment or self.comment


def _all_end(elements: list[tuple[NftElement, Range]]) -> bool:
    """Whether all verdicts of a map end the chain."""
    verdicts = [target for element, _ in elements for target in decode_verdict(element.verdict)]
    return all(target.is_final or (isinstance(target, Jump) and target.goto) for target in verdicts)


def _are_all_numbers(operand: Operand, elements: list[tuple[NftElement, Range]]) -> bool:
    """Whether elements are all numbers that an operand can be, so that one of them is found."""
    if operand.key[0] not in NUMBERS:
        return False
    _, modulus, offset = operand.key
    keys = {int.from_bytes(low, byteorder) for _, (low, high) in elements if low == high}
    return keys == set(range(int(offset), int(offset) + min(int(modulus), MAX_VARIANTS)))


def _split_fields(fields: list[Operand], low: bytes, high: bytes) -> list[RegisterTest]:
    """Return the comparison of each field with its part of a key, which begins at a multiple of four bytes."""
    if len(fields) == 1:
        return [RegisterTest(operand=fields[0], ranges=((low, high),))]
    found, at = [], 0
    for operand in fields:
        end = at + operand.length
        found.append(RegisterTest(operand=operand, ranges=((low[at:end], high[at:end]),)))
        at += -(-operand.length // 4) * 4
    return found


def read_comment(userdata: bytes) -> str:
    """Return the comment in nft's userdata: records of type, length and text."""
    at = 0
    while at + 2 <= len(userdata):
        kind, length = userdata[at], userdata[at + 1]
        if kind == COMMENT_OF_NFT:
            return userdata[at + 2 : at + 2 + length].rstrip(b"\0").decode("utf-8", "surrogateescape")
        at += 2 + length
    return ""
