"""Rules as the kernel holds them, decoded: recorded rule sets, and bytes that are no rules."""

from __future__ import annotations

import random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.netlink_attributes import MalformedError, attributes_of, split_attributes, write_attribute
from netinit.base.snapshot import ELEMENT_CATCHALL, INET, IP, SET_DYNAMIC, SET_MAP, NftElement, NftRule, NftSet
from netinit.live.snapshot_rules import load_snapshot
from netinit.rules.decoding.matches import decode_comparison
from netinit.rules.decoding.registers import CONSTANT, Known, Operand, Registers, RegisterTest
from netinit.rules.decoding.targets import _nat_range
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.foreign_targets import DestinationNat, Observe, SourceNat, UnknownTarget, WriteDestination
from netinit.rules.iptables.parse import normalise, normalise_rule
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Port
from netinit.rules.model import Rule
from netinit.rules.numbers import CT_STATE, META_IIF, META_SKUID
from netinit.rules.packet_inputs import Packet
from netinit.rules.rule_builder import REGISTER, RuleBuilder, expression
from netinit.rules.targets import Reject, Return
from netinit.rules.xtables.decoded_tables import decode_table
from netinit.simulate.one_packet import TRUTHS, OnePacket
from netinit.simulate.stand_ins import stand_in
from recorded import FOREIGN, NAMES, read
from sweeps import together

NOTHING = References(sets={}, devices={})
# What nft was given (tests/recorded.py), as iptables would say it.
NATIVE = {
    IPV4: [
        "-p tcp -m multiport --dports 22,80,8000:8100 -j ACCEPT",
        "-m conntrack --ctstate INVALID -j DROP",
        "-m conntrack --ctstate ESTABLISHED -j ACCEPT",
        "-m conntrack --ctstate RELATED -j ACCEPT",
        "-i lo -j ACCEPT",
        "-i eth+ -j helpers",
        "-p tcp -m tcp --dport 53 -j ACCEPT",
        "-p udp -m udp --dport 53 -j ACCEPT",
        "-s 10.0.0.0/8 | -s 192.0.2.1/32 | -s 192.0.2.2/31 | -s 192.0.2.4/30 | -s 192.0.2.8/31 -j DROP",
        "-s 10.1.1.1/32 -p tcp -m tcp --dport 80 -j ACCEPT",
        "-s 10.1.1.2/32 -p tcp -m tcp --dport 443 -j ACCEPT",
        "-p tcp -m tcp --dport 1:1023 -j DROP",
        "-p tcp -m tcp --dport 5000 -g helpers",
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset",
        "-m mark --mark 0x7/0xff -j MARK --set-xmark 0x9/0xff ACCEPT",
        '-s 1.2.3.4/32 -d 5.6.7.8/32 -p tcp -m tcp --sport 9 --dport 10 -j LOG --log-prefix "odd" DROP',
        "-m owner --uid-owner 1000-2000 -j CONNMARK --set-xmark 0x5/0xffffffff",
        '-m comment --comment "the end"',
        "-d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.1.1.1:6443",
        "-d 10.96.0.0/12 -j DNAT --to-destination 10.1.1.9",
        "-p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 80",
        "-p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30000:32767",
    ],
    IPV6: [
        "-s fe80::/10 -p ipv6-icmp [payload 2 0 == 80] -m limit --limit 5/sec --limit-burst 5 -j ACCEPT",
        "-j REJECT --reject-with icmp6-port-unreachable",
    ],
}


def test_foreign_nft_rules_are_read_as_what_they_mean():
    foreign = load_snapshot(read("nft")).foreign
    for family in FAMILIES:
        found = [one.text for base in foreign[family] for chain in base.chains.values() for one in chain.rules]
        assert [text for text in NATIVE[family] if text not in found] == [], "\n".join(found)
    assert len([one for base in foreign[IPV4] for chain in base.chains.values() for one in chain.rules]) == len(NATIVE[IPV4])


@pytest.mark.parametrize("name", ["iptables-nft", "iptables-legacy"])
def test_recorded_rules_of_iptables_mean_what_was_written(name):
    tables = load_snapshot(read(name)).rulesets[name][IPV4].tables
    for table, rules in FOREIGN.items():
        loaded = [normalise_rule(one.rule) for chain in tables[table].values() for one in chain.rules]
        for rule in rules:
            assert normalise(rule.split(" ", 2)[2], IPV4) in loaded, rule


def mutate(data, rng):
    """The bytes with some changed, cut out or put in."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) or 1)
        kind = rng.randrange(3)
        if kind == 0 and changed:
            changed[at] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        elif kind == 1:
            del changed[at : at + rng.randint(1, 8)]
        else:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(changed)


@pytest.mark.parametrize("name", NAMES)
def test_whatever_becomes_of_recorded_bytes_is_decoded_or_unknown(name):
    rng = random.Random(7)
    snapshot = read(name)
    references = References.of(snapshot)
    for _ in range(1500):
        if snapshot.rules:
            rule = rng.choice(snapshot.rules)
            decoded = decode_rule(rule.replace(expressions=mutate(rule.expressions, rng), userdata=mutate(rule.userdata, rng)), references)
            assert all(one.families for one in decoded.rules)
        if snapshot.legacy:
            table = rng.choice(snapshot.legacy)
            try:
                decode_table(table.replace(entries=mutate(table.entries, rng)))
            except ValueError as error:
                assert table.name in str(error)


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_attributes_or_malformed(data):
    try:
        found = split_attributes(data)
    except MalformedError:
        return
    assert split_attributes(b"".join([write_attribute(kind, payload) for kind, payload in found])) == found


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_a_rule_or_one_unknown_rule(data):
    decoded = decode_rule(NftRule(family=IP, table="t", chain="c", handle=1, expressions=data), NOTHING)
    for rule in decoded.rules:
        known = not any(isinstance(match, UnknownMatch) for match in rule.matches)
        assert known or isinstance(rule.target, UnknownTarget) or rule.matches


@pytest.mark.parametrize("data", [b"\1", b"\3\0\1\0", b"\xff\0\1\0abc", pack("=HHI", 8, 1, 0) + b"\5"])
def test_lengths_that_do_not_add_up_are_malformed(data):
    with pytest.raises(MalformedError):
        split_attributes(data)


@together(
    ("one", "other", "both"),
    [
        ((b"\2", b"\6"), (b"\4", b"\x09"), ((b"\4", b"\6"),)),
        ((b"\2", b"\3"), (b"\4", b"\x09"), None),
        ((b"\2", b"\6"), (b"\4\0", b"\x09\0"), None),
    ],
)
def test_two_ranges_of_one_length_that_overlap_are_one(one, other, both):
    operand = Operand(source="payload", key=(1, 2), length=1)
    found = RegisterTest(operand=operand, ranges=(one,)).intersect(RegisterTest(operand=operand, ranges=(other,)))
    assert (found.ranges if found else None) == both


def test_an_attribute_that_is_there_twice_is_malformed():
    with pytest.raises(MalformedError, match="two attributes of one type"):
        attributes_of(write_attribute(1, b"a") + write_attribute(1, b"b"))


@pytest.mark.parametrize(
    ("kind", "code", "target"),
    [
        (0, 3, Reject()), (0, 13, Reject(message="icmp code 13")), (1, 0, Reject(message="tcp-reset")), (2, 1, Reject()),
        (2, 3, Reject(message="icmpx code 3")), (3, 3, None), (1 << 24, 3, None),
    ],
)  # fmt: skip
def test_a_rejection_of_a_kind_that_the_kernel_has_not_is_unknown(kind, code, target):
    rejects = expression(b"reject", (1, pack(">I", kind)), (2, bytes((code,))))
    (rule,) = decode_rule(NftRule(family=IP, table="t", chain="c", handle=1, expressions=rejects), NOTHING).rules
    assert rule.target == target or (target is None and isinstance(rule.target, UnknownTarget))


def look_up(held, *, negated=False, target=None, load=None):
    """The rules that a lookup of the packet's mark in this set is; `target`: the register that a map's value goes to."""
    looks = RuleBuilder(IP, [])
    if load:
        load(looks)
    else:
        looks.load_mark(connection=False)
    more = [(3, target)] if target else []
    looks.add(b"lookup", (1, held.name.encode() + b"\0"), (2, REGISTER), *more, (5, pack(">I", negated)))
    rule = NftRule(family=IP, table="t", chain="c", handle=1, expressions=looks.block())
    return decode_rule(rule, References(sets={(IP, "t", held.name): held}, devices={})).rules


def matched(rule, packet):
    """Whether a rule takes a packet; None: unknown."""
    found = TRUTHS[True]
    for match in rule.matches:
        found &= match.choose(OnePacket(packet, stand_in(IPV4), "OUTPUT"))
    return found.holds


def sent(**fields):
    return Packet(family=IPV4, protocol="tcp", source=1, source_port=2, destination=fields.pop("to", 3), destination_port=4, has_socket=True, uid=5, gid=6, **fields)


MARKS = NftSet(family=IP, table="t", name="m", key_length=4)
NINE = NftElement(key=pack("=I", 9))
SEVEN = NftElement(key=pack("=I", 7))
ANY = NftElement(key=b"", flags=ELEMENT_CATCHALL)


@pytest.mark.parametrize(
    ("elements", "marks"),
    [((), set()), ((NINE,), {9}), ((NINE, SEVEN), {7, 9}), ((ANY,), {0, 7, 9}), ((NINE, ANY), {0, 7, 9})],
)
@pytest.mark.parametrize("negated", [False, True])
def test_a_set_that_was_read_holds_what_it_holds_and_an_empty_one_nothing(elements, marks, negated):
    (rule,) = look_up(MARKS.replace(elements=elements), negated=negated)
    for mark in (0, 7, 9):
        assert matched(rule, sent(mark=mark)) is ((mark in marks) is not negated), (mark, rule.matches)


ONE, TWO = (pack("=I", index) for index in (1, 2))
DEVICE = Operand(source="meta", key=(META_IIF,), length=4)


@pytest.mark.parametrize(
    ("operand", "ranges", "names"),
    [
        (DEVICE, ((ONE, ONE),), ("lo",)), (DEVICE, ((ONE, ONE), (TWO, TWO)), ("lo", "eth0")), (DEVICE, ((ONE, TWO),), None), (DEVICE, ((ONE, ONE), (ONE, TWO)), None),
        (DEVICE, ((pack("=I", 3),) * 2,), None), (DEVICE.replace(mask=ONE), ((ONE, ONE),), None),
    ],
)  # fmt: skip
def test_a_device_is_told_by_its_index_if_it_is_there_and_nothing_else_is_asked_of_the_number(operand, ranges, names):
    (match,) = decode_comparison(RegisterTest(operand=operand, ranges=ranges), Known(families=(IPV4,), devices={1: "lo", 2: "eth0"}))
    assert getattr(match, "names", None) == names


INVALID, ESTABLISHED, RELATED, BOTH = (pack("=I", bits) for bits in (1, 2, 4, 6))
STATE = Operand(source="ct", key=(CT_STATE,), length=4)


@pytest.mark.parametrize(
    ("operand", "ranges", "states"),
    [
        (STATE, ((INVALID,) * 2,), ("INVALID",)), (STATE, ((ESTABLISHED,) * 2, (RELATED,) * 2), ("RELATED", "ESTABLISHED")), (STATE, ((INVALID, ESTABLISHED),), None),
        (STATE, ((INVALID, ESTABLISHED), (RELATED,) * 2), None), (STATE.replace(mask=BOTH), ((ESTABLISHED,) * 2, (RELATED,) * 2), None), (STATE.replace(mask=BOTH), ((ESTABLISHED,) * 2,), None),
    ],
)  # fmt: skip
def test_a_connection_has_one_state_and_of_those_under_a_mask_only_whether_there_is_one_is_understood(operand, ranges, states):
    (match,) = decode_comparison(RegisterTest(operand=operand, ranges=ranges), Known(families=(IPV4,), devices={}))
    assert getattr(match, "states", None) == states
    (match,) = decode_comparison(RegisterTest(operand=STATE.replace(mask=BOTH), ranges=((bytes(4),) * 2,), negated=True), Known(families=(IPV4,), devices={}))
    assert (match.states, match.negated) == (("RELATED", "ESTABLISHED"), False)


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(("mark", "port", "is_held"), [(9, 4, True), (9, 5, False), (7, 4, False), (7, 5, True), (8, 9, False)])
def test_an_element_of_several_fields_holds_packets_that_have_all_of_them(mark, port, is_held, negated):
    pairs = tuple([(Mark(value=value), Port(protocol="tcp", ports=(number,))) for value, number in ((9, 4), (7, 5))])
    rule = Rule(matches=(InSet(text="a set", alternatives=pairs, negated=negated),), target=Return())
    assert matched(rule, sent(mark=mark).replace(destination_port=port)) is (is_held is not negated)


@pytest.mark.parametrize("held", [MARKS.replace(is_complete=False), MARKS.replace(flags=SET_DYNAMIC)])
def test_a_set_that_was_not_read_or_that_packets_fill_is_unknown(held):
    (rule,) = look_up(held)
    assert matched(rule, sent(mark=9)) is None
    assert rule.matches[0].text.startswith("meta 3 in ")


ACCEPTS, DROPS = (write_attribute(1, pack(">I", code)) for code in (1, 0))


@pytest.mark.parametrize(
    ("elements", "ends"),
    [
        ((), {0: None, 7: None, 9: None}), ((NINE.replace(verdict=DROPS),), {0: None, 9: "DROP"}),
        ((NINE.replace(verdict=DROPS), ANY.replace(verdict=ACCEPTS)), {0: "ACCEPT", 7: "ACCEPT", 9: "DROP"}),
        ((ANY.replace(verdict=DROPS),), {0: "DROP", 7: "DROP"}),
    ],
)  # fmt: skip
def test_a_verdict_map_decides_about_what_it_holds_and_about_all_else_by_its_catch_all(elements, ends):
    rules = look_up(MARKS.replace(flags=SET_MAP, elements=elements), target=pack(">I", 0))
    for mark, end in ends.items():
        taken = [one.target.name for one in rules if matched(one, sent(mark=mark))]
        assert taken[:1] == ([end] if end else []), mark
        assert not any(matched(one, sent(mark=mark)) is None for one in rules)


def test_a_map_gives_its_value_to_what_follows():
    looks = RuleBuilder(IP, [])
    looks.load_mark(connection=False)
    looks.add(b"lookup", (1, b"m\0"), (2, REGISTER), (3, REGISTER), (5, bytes(4)))
    looks.store_mark(connection=False)
    held = MARKS.replace(flags=SET_MAP, elements=(NINE.replace(value=pack("=I", 70)), SEVEN.replace(value=pack("=I", 71))))
    rules = decode_rule(NftRule(family=IP, table="t", chain="c", handle=1, expressions=looks.block()), References(sets={(IP, "t", "m"): held}, devices={})).rules
    assert {next(mark for mark in (7, 9) if matched(one, sent(mark=mark))): one.target.value for one in rules} == {9: 70, 7: 71}


def test_users_in_a_set_are_each_tried_and_negated_they_are_unknown_for_packets_without_a_socket_have_no_user():
    users = MARKS.replace(elements=tuple(NftElement(key=pack("=I", one)) for one in (5, 1337)))
    (rule,) = look_up(users, load=lambda looks: looks.load("meta", META_SKUID))
    assert [matched(rule, sent().replace(uid=uid)) for uid in (5, 6, 1337)] == [True, False, True]
    (rule,) = look_up(users, negated=True, load=lambda looks: looks.load("meta", META_SKUID))
    assert matched(rule, sent()) is None


@pytest.mark.parametrize("length", [4, 8])
@pytest.mark.parametrize("target", [None, pack(">I", 0), REGISTER])
def test_what_is_looked_up_of_a_register_that_holds_nothing_is_unknown(length, target):
    element = NftElement(key=bytes(length), verdict=DROPS, value=b"" if target is None else bytes(4))
    held = MARKS.replace(key_length=length, elements=(element,), flags=0 if target is None else SET_MAP)
    (rule,) = look_up(held, target=target, load=lambda _: None)
    assert matched(rule, sent()) is None
    assert [one.text for one in rule.matches] == [f"other register == {bytes(length).hex()}"]


@pytest.mark.parametrize(("number", "word"), [(1, 0), (4, 12), (8, 0), (9, 1), (23, 15), (0, None), (5, None), (7, None), (24, None)])
def test_a_register_has_its_word_by_both_of_its_numbers(number, word):
    known = Registers()
    for at in range(16):
        known.store((8 + at).to_bytes(4, "big"), Operand(source=CONSTANT, key=(at,), length=4))
    if word is None:
        with pytest.raises(MalformedError, match=f"there is no register {number}"):
            known.load(number.to_bytes(4, "big"))
    else:
        assert known.load(number.to_bytes(4, "big")).key == (word,)


NAT = {  # what a range of REDIRECT or DNAT says: flags, first and last address, first and last port
    (2, 1, 9, 80, 80): ("", 80), (1, 1, 1, 80, 99): ("10.0.0.1", 0), (3, 1, 1, 80, 80): ("10.0.0.1", 80), (0, 1, 9, 80, 99): ("", 0),
    (1, 1, 9, 80, 80): None, (3, 1, 9, 80, 80): None, (2, 1, 1, 80, 99): None, (6, 1, 1, 80, 80): None, (4, 1, 1, 80, 80): None,
}  # fmt: skip


@together("given", NAT, ids=str)
@pytest.mark.parametrize("revision", [0, 2])
def test_a_range_of_addresses_or_ports_and_flags_that_are_not_known_are_no_one_destination(given, revision):
    flags, first, last, low, high = given
    addresses = [bytes((10, 0, 0, one)) for one in (first, last)]
    layout = ("=2I4s4s", 1, flags) if revision == 0 else ("=I16s16s", flags)
    info = pack(*layout, *addresses) + pack(">2H", low, high)
    assert _nat_range(info, IPV4, revision) == NAT[given]
    assert revision or _nat_range(pack("=2I4s4s2H", 2, flags, *addresses, low, high), IPV4, 0) is None


def decode(*parts, family=IP):
    """The rule that these expressions are, in a table of IPv4 or of another family."""
    looks = RuleBuilder(family, [])
    for part in parts:
        part(looks)
    (rule,) = decode_rule(NftRule(family=family, table="t", chain="c", handle=1, expressions=looks.block()), NOTHING).rules
    return rule


def number_of_turns(modulus, offset):
    """`numgen inc mod MODULUS offset OFFSET == 7`."""
    def write(looks):
        looks.add(b"numgen", (1, REGISTER), (2, modulus), (3, 0), (4, offset))
        looks.compare(pack("=I", 7))

    return write


@pytest.mark.parametrize(("modulus", "offset", "holds"), [(1, 7, True), (1, 0, None), (2, 7, None)])
def test_one_of_one_is_no_chance(modulus, offset, holds):
    assert matched(decode(number_of_turns(modulus, offset)), sent()) is holds


@pytest.mark.parametrize("kind", ["numgen", "hash"])
def test_one_of_the_numbers_of_a_map_is_found_where_the_map_has_them_all_and_the_rule_ends_the_chain(kind):
    """`dnat to numgen inc mod 2 offset 3 map { 3 : 10.0.0.3, 4 : 10.0.0.4 }`."""
    held = [NftElement(key=pack("=I", one), value=bytes((10, 0, 0, one))) for one in (3, 4)]
    attributes = ((1, REGISTER), (2, 2), (3, 0), (4, 3)) if kind == "numgen" else ((2, REGISTER), (4, 2), (6, 3))

    def read(elements, *more):
        looks = RuleBuilder(IP, [])
        looks.add(kind.encode(), *attributes)
        looks.add(b"lookup", (1, b"m\0"), (2, REGISTER), (3, REGISTER))
        for each in more:
            looks.add(*each)
        known = NftSet(family=IP, table="t", name="m", flags=8, key_length=4, elements=tuple(elements))
        rule = NftRule(family=IP, table="t", chain="c", handle=1, expressions=looks.block())
        return decode_rule(rule, References(sets={(IP, "t", "m"): known}, devices={})).rules

    translation = (b"nat", (1, 1), (2, 2), (3, REGISTER), (4, REGISTER))
    first, last = read(held, translation)
    assert (first.target, last.target) == (DestinationNat(address="10.0.0.3", port=0), DestinationNat(address="10.0.0.4", port=0))
    assert ([one.text for one in first.matches], last.matches) == ([f"{kind} mod 2 offset 3 == 3"], ())
    (lone,) = read(held[:1], translation)
    assert [one.text for one in lone.matches] == [f"{kind} mod 2 offset 3 == 3"]
    marking = read(held, (b"meta", (2, 3), (3, REGISTER)))
    assert [len(one.matches) for one in marking] == [1, 1], "a mark does not end the chain"


@pytest.mark.parametrize(
    ("base", "offset", "value", "target"),
    [
        (1, 16, bytes((10, 0, 0, 9)), WriteDestination(text="write 4 bytes at 16 of the network header", address="10.0.0.9")),
        (2, 2, bytes((0, 81)), WriteDestination(text="write 2 bytes at 2 of the transport header", port=81)),
        (1, 1, bytes(1), Observe(text="DSCP set")), (1, 12, bytes(4), UnknownTarget(text="write 4 bytes at 12 of the network header")),
        (2, 0, bytes(2), UnknownTarget(text="write 2 bytes at 0 of the transport header")),
        (1, 16, bytes(2), UnknownTarget(text="write 2 bytes at 16 of the network header")),
    ],
)  # fmt: skip
def test_a_destination_that_is_written_is_known_and_of_other_fields_only_those_that_no_rule_tests(base, offset, value, target):
    def write(looks):
        looks.put(value)
        looks.add(b"payload", (2, base), (3, offset), (4, len(value)), (5, REGISTER), (6, 0), (7, 0), (8, 0))

    assert decode(write).target == target


@pytest.mark.parametrize(
    ("attributes", "value", "target"),
    [
        (((2, 2), (3, REGISTER)), bytes((10, 0, 0, 9)), DestinationNat(address="10.0.0.9", port=0)),
        (((2, 2), (3, REGISTER), (4, REGISTER), (7, 1)), bytes((10, 0, 0, 9)), DestinationNat(address="10.0.0.9", port=0)),
        (((2, 10), (3, REGISTER)), bytes(15) + b"\1", DestinationNat(address="::1", port=0)),
        (((2, 2), (5, REGISTER), (6, REGISTER), (7, 2)), bytes((0, 80)), DestinationNat(address="", port=80)),
        (((2, 2), (3, REGISTER), (4, REGISTER + 1)), bytes((10, 0, 0, 9)), None), (((2, 2), (5, REGISTER), (6, REGISTER + 1)), bytes((0, 80)), None),
        (((2, 2), (3, REGISTER), (7, 4)), bytes((10, 0, 0, 9)), None), (((2, 7), (3, REGISTER)), bytes((10, 0, 0, 9)), None),
        (((2, 2),), bytes(4), None), (((2, 2), (3, REGISTER + 1)), bytes((10, 0, 0, 9)), None),
    ],
    ids=str,
)  # fmt: skip
def test_a_translation_to_one_destination_is_known_and_to_a_range_or_with_other_flags_it_is_not(attributes, value, target):
    def translate(looks):
        looks.put(value)
        looks.add(b"nat", (1, 1), *attributes)

    found = decode(translate, family=INET)
    assert found.target == (target or UnknownTarget(text="nat"))
    assert found.families == tuple([one for one in FAMILIES if one.number == attributes[0][1]] or FAMILIES)


def test_a_translated_source_is_one_whatever_its_address_is():
    def translate(looks):
        looks.put(bytes((10, 0, 0, 9)))
        looks.add(b"nat", (1, 0), (2, 2), (3, REGISTER))

    assert decode(translate).target == SourceNat(text="snat", address="10.0.0.9")
    assert decode(lambda looks: looks.add(b"nat", (1, 0), (2, 2))).target == SourceNat(text="snat", address="")
