"""Matches on marks, connections, sockets, flags and address types: as nft's expressions, as iptables' structs, as packets that they choose."""

from __future__ import annotations

from struct import pack

import pytest

from core import IPV4, Packet, Surroundings, number_of, parse_rule
from netinit.rules.matches import Match
from netinit.rules.matches.context import FLAGS, ConnectionState, Socket, TcpFlags, UnknownMatch
from netinit.simulate.one_packet import OnePacket
from shown_expressions import show_match
from sweeps import together

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
PACKET = Packet(family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), destination=number_of("1.2.3.4"), source_port=40000, destination_port=80)
ZERO = "5.1=00000000"


def listed(text):
    """The last match of a rule as iptables lists it."""
    return parse_rule(f"{text} -j RETURN", IPV4).matches[-1]


def masked(mask, compared):
    return f"bitwise 1=1 2=1 3=4 6=0 4.1={mask} {ZERO} | cmp 1=1 {compared}"


@together(("text", "expressions"), [
    ("-m mark --mark 0xdeadbeef", "meta 2=3 1=1 | cmp 1=1 2=0 3.1=efbeadde"),
    ("-m mark ! --mark 0xf0000001/0xf0000003", f"meta 2=3 1=1 | {masked('030000f0', '2=1 3.1=010000f0')}"),
    ("-m connmark --mark 0x539", "ct 1=1 2=3 | cmp 1=1 2=0 3.1=39050000"),
    ("-m connmark ! --mark 0x2/0x3", f"ct 1=1 2=3 | {masked('03000000', '2=1 3.1=02000000')}"),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", f"ct 1=1 2=0 | {masked('06000000', '2=1 3.1=00000000')}"),
    ("-m conntrack ! --ctstate INVALID,NEW", f"ct 1=1 2=0 | {masked('09000000', '2=0 3.1=00000000')}"),
    ("-m conntrack --ctstate UNTRACKED", f"ct 1=1 2=0 | {masked('40000000', '2=1 3.1=00000000')}"),
    ("-m conntrack --ctstate DNAT", f"ct 1=1 2=2 | {masked('20000000', '2=1 3.1=00000000')}"),
    ("-m conntrack ! --ctstate NEW,SNAT", f"ct 1=1 2=0 | {masked('08000000', '2=0 3.1=00000000')} | ct 1=1 2=2 | {masked('10000000', '2=0 3.1=00000000')}"),
    ("-m conntrack --ctdir REPLY", "ct 1=1 2=1 | cmp 1=1 2=0 3.1=01"),
    ("-m conntrack --ctdir ORIGINAL", "ct 1=1 2=1 | cmp 1=1 2=0 3.1=00"),
    ("-m addrtype --dst-type LOCAL", "fib 1=1 2=3 3=2 | cmp 1=1 2=0 3.1=02000000"),
    ("-m addrtype ! --src-type LOCAL", "fib 1=1 2=3 3=1 | cmp 1=1 2=1 3.1=02000000"),
    ("-m addrtype ! --src-type LOCAL,BROADCAST", "fib 1=1 2=3 3=1 | lookup 1=5f5f7365743000 2=1 5=1 | __set0: flags 3, type 21, 4 bytes: 02000000 03000000"),
    ("-m addrtype --dst-type UNSPEC,UNICAST", "fib 1=1 2=3 3=2 | lookup 1=5f5f7365743000 2=1 5=0 | __set0: flags 3, type 21, 4 bytes: 00000000 01000000"),
    ("-m socket", "socket 1=0 2=1 | cmp 1=1 2=3 3.1=01"),
    (
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN",
        "meta 2=16 1=1 | cmp 1=1 2=0 3.1=06 | payload 1=1 2=2 3=13 4=1 | bitwise 1=1 2=1 3=1 6=0 4.1=17 5.1=00 | cmp 1=1 2=0 3.1=02",
    ),
    (
        "-p tcp -m tcp ! --tcp-flags SYN,ACK,URG NONE",
        "meta 2=16 1=1 | cmp 1=1 2=0 3.1=06 | payload 1=1 2=2 3=13 4=1 | bitwise 1=1 2=1 3=1 6=0 4.1=32 5.1=00 | cmp 1=1 2=1 3.1=00",
    ),
    ("-m limit --limit 5/sec --limit-burst 9", "limit 1=0000000000000005 2=0000000000000001 3=9 4=0 5=0"),
    ("-m limit --limit 5/sec --limit-burst 4294967295", "limit 1=0000000000000005 2=0000000000000001 3=-1 4=0 5=0"),
])  # fmt: skip
def test_the_expressions_of_a_match_are_those_that_nft_writes(text, expressions):
    assert " | ".join(show_match(listed(text))) == expressions


def test_a_socket_that_is_bound_to_all_addresses_is_asked_for_by_nft_alone():
    wildcard = listed("-m socket").nft_unless()
    assert wildcard == Socket(wildcard=True)
    assert show_match(wildcard) == ["socket 1=2 2=1", "cmp 1=1 2=0 3.1=01"]
    assert (wildcard.nft(), Socket().nft()) == ("socket wildcard 1", "socket transparent <= 1")


@together(("text", "name", "info"), [
    ("-m mark --mark 0xf0000001/0xf0000003", ("mark", 1), pack("=2IB", 0xF0000001, 0xF0000003, 0)),
    ("-m mark ! --mark 1", ("mark", 1), pack("=2IB", 1, 0xFFFFFFFF, 1)),
    ("-m connmark --mark 0xdeadbeef", ("connmark", 1), pack("=2IB", 0xDEADBEEF, 0xFFFFFFFF, 0)),
    ("-m connmark ! --mark 1/3", ("connmark", 1), pack("=2IB", 1, 3, 1)),
    ("-m conntrack --ctstate NEW,ESTABLISHED", ("conntrack", 3), bytes(146) + pack("=3H", 1, 0, 10)),
    ("-m conntrack ! --ctstate INVALID,RELATED,UNTRACKED", ("conntrack", 3), bytes(146) + pack("=3H", 1, 1, 261)),
    ("-m conntrack ! --ctstate SNAT,DNAT", ("conntrack", 3), bytes(146) + pack("=3H", 1, 1, 192)),
    ("-m state --state NEW", ("conntrack", 3), bytes(146) + pack("=3H", 0x2001, 0, 8)),
    ("-m state ! --state NEW", ("conntrack", 3), bytes(146) + pack("=3H", 0x2001, 1, 8)),
    ("-m conntrack --ctdir REPLY", ("conntrack", 3), bytes(146) + pack("=3H", 0x1000, 0x1000, 0)),
    ("-m conntrack --ctdir ORIGINAL", ("conntrack", 3), bytes(146) + pack("=3H", 0x1000, 0, 0)),
    ("-m addrtype --src-type UNSPEC,LOCAL", ("addrtype", 1), pack("=2HI", 5, 0, 0)),
    ("-m addrtype ! --src-type LOCAL", ("addrtype", 1), pack("=2HI", 4, 0, 1)),
    ("-m addrtype --dst-type XRESOLVE", ("addrtype", 1), pack("=2HI", 0, 1 << 11, 0)),
    ("-m addrtype ! --dst-type LOCAL,BROADCAST", ("addrtype", 1), pack("=2HI", 0, 12, 2)),
    ("-m socket", ("socket", 3), b""),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", ("tcp", 0), pack("=4H4B", 0, 65535, 0, 65535, 0, 0x17, 2, 0)),
    ("-p tcp -m tcp ! --tcp-flags PSH,URG NONE", ("tcp", 0), pack("=4H4B", 0, 65535, 0, 65535, 0, 0x28, 0, 4)),
    ("-m limit --limit 5/sec --limit-burst 9", ("limit", 0), pack("=2I", 2000, 9)),
    ("-m limit --limit 3/sec --limit-burst 4000000000", ("limit", 0), pack("=2I", 3333, 4000000000)),
])  # fmt: skip
def test_the_struct_of_a_match_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(text, name, info):
    size = {"mark": 16, "connmark": 16, "conntrack": 168, "addrtype": 8, "socket": 8, "tcp": 16, "limit": 40}[name[0]]
    assert listed(text).struct() == (*name, info.ljust(size, b"\0"))


def test_flags_share_a_struct_with_the_ports_of_their_rule():
    port, flags = parse_rule("-p tcp -m tcp ! --dport 80 ! --tcp-flags SYN,ACK SYN -j RETURN", IPV4).matches
    assert flags.struct(port) == ("tcp", 0, pack("=4H4B", 0, 65535, 80, 80, 0, 0x12, 2, 6).ljust(16, b"\0"))


@together(("states", "texts"), [
    (("NEW", "DNAT"), ("ct state new or ct status dnat", "NEW or DNAT")),
    (("ESTABLISHED", "INVALID", "SNAT", "DNAT"), ("ct state invalid,established or ct status snat,dnat", "ESTABLISHED or INVALID or SNAT or DNAT")),
])  # fmt: skip
def test_a_state_or_a_translation_is_no_one_expression_of_nft(states, texts):
    match = ConnectionState(states=states)
    for write, text in zip((match.nft, lambda: show_match(match)), texts, strict=True):
        with pytest.raises(ValueError, match=f"^{text}: nft has no one expression for both$"):
            write()
    assert show_match(match.replace(negated=True))


@together(("states", "nft"), [
    (("ESTABLISHED", "RELATED", "NEW", "INVALID", "UNTRACKED"), "ct state invalid,established,related,new,untracked"), (("DNAT", "SNAT"), "ct status snat,dnat"),
    (("SNAT",), "ct status snat"), (("UNTRACKED",), "ct state untracked"),
])  # fmt: skip
def test_states_are_listed_in_the_order_of_their_bits_by_nft_and_as_given_by_iptables(states, nft):
    match = ConnectionState(states=states)
    assert match.nft() == nft
    assert match.xt() == f"-m conntrack --ctstate {','.join(states)}"
    assert match.replace(negated=True, module="state").xt() == f"-m state ! --state {','.join(states)}"
    assert match.replace(negated=True).nft() == nft.replace("state ", "state ! ").replace("status ", "status ! ")


def test_the_direction_is_said_in_words():
    assert [listed(f"-m conntrack --ctdir {one}").describe() for one in ("ORIGINAL", "REPLY")] == ["it is no answer in its connection", "it is an answer in its connection"]
    assert listed("-m conntrack --ctdir ORIGINAL").nft() == "ct direction original"


NO_CONNECTION = ("", "INVALID", "UNTRACKED")


@together(("text", "changes", "truth"), [
    ("-m conntrack --ctdir REPLY", {"state": "ESTABLISHED", "is_answer": True}, True), ("-m conntrack --ctdir REPLY", {"state": "ESTABLISHED", "is_answer": False}, False),
    ("-m conntrack --ctdir ORIGINAL", {"state": "ESTABLISHED", "is_answer": True}, False), ("-m conntrack --ctdir ORIGINAL", {"state": "NEW", "is_answer": False}, True),
    ("-m conntrack --ctdir REPLY", {"state": "ESTABLISHED", "is_answer": None}, None), ("-m conntrack --ctdir ORIGINAL", {"state": "ESTABLISHED", "is_answer": None}, None),
    *[(f"-m conntrack --ctdir {side}", {"state": state, "is_answer": side == "REPLY"}, False) for side in ("ORIGINAL", "REPLY") for state in NO_CONNECTION],
    *[(f"-m conntrack --ctstate {states}", {"state": "ESTABLISHED", "destination_translated": True}, True) for states in ("DNAT", "NEW,DNAT", "SNAT,DNAT")],
    ("-m conntrack --ctstate DNAT", {"state": "ESTABLISHED", "destination_translated": False}, False), ("-m conntrack ! --ctstate DNAT", {"state": "ESTABLISHED", "destination_translated": False}, True),
    ("-m conntrack --ctstate DNAT", {"state": "ESTABLISHED"}, None), ("-m conntrack ! --ctstate DNAT", {"state": "ESTABLISHED", "destination_translated": True}, False),
    ("-m conntrack --ctstate NEW", {"state": "ESTABLISHED", "destination_translated": True}, False), ("-m conntrack --ctstate SNAT", {"state": "ESTABLISHED"}, None),
    ("-m conntrack --ctstate SNAT,DNAT", {"state": "ESTABLISHED", "destination_translated": False}, None),
    # Without a connection it has no status; whether a negated one matches differs between iptables and nft.
    *[(f"-m conntrack --ctstate {states}", {"state": state}, False) for states in ("DNAT", "SNAT", "SNAT,DNAT") for state in NO_CONNECTION],
    *[(f"-m conntrack ! --ctstate {states}", {"state": ""}, None) for states in ("DNAT", "SNAT", "SNAT,DNAT", "NEW,DNAT", "NEW,SNAT")],
    *[(f"-m conntrack ! --ctstate {states}", {"state": "UNTRACKED"}, True) for states in ("DNAT", "SNAT", "NEW,SNAT")],
    ("-m conntrack ! --ctstate NEW", {"state": ""}, True), ("-m conntrack --ctstate NEW", {"state": ""}, False),
    ("-m addrtype --src-type LOCAL,BROADCAST", {}, True), ("-m addrtype --src-type LOCAL", {"source": number_of("1.2.3.4")}, False),
    ("-m addrtype ! --src-type LOCAL,BROADCAST", {}, False), ("-m addrtype ! --dst-type LOCAL,BROADCAST", {}, None), ("-m addrtype ! --dst-type BROADCAST", {}, None),
    ("-m limit --limit 5/sec --limit-burst 9", {}, None), ("-m set --match-set banned dst", {}, None),
    ("-m connmark ! --mark 7", {"state": "NEW"}, True), *[("-m connmark ! --mark 7", {"state": state}, False) for state in NO_CONNECTION],
    ("-m mark ! --mark 7", {"state": ""}, True),
])  # fmt: skip
def test_a_match_is_true_of_these_packets(text, changes, truth):
    assert listed(text).choose(OnePacket(PACKET.replace(**changes), POD, "FORWARD")).holds is truth


def test_flags_are_read_from_the_bits_of_the_header():
    assert [TcpFlags.from_bits(1 << bit, 0, negated=False).mask for bit in range(6)] == [(name,) for name in ("FIN", "SYN", "RST", "PSH", "ACK", "URG")]
    for mask, flags, negated in ((0x3F, 0x15, True), (0x12, 2, False), (0xFF, 0, False)):
        match = TcpFlags.from_bits(mask, flags, negated=negated)
        assert (match.bits, match.negated) == ((mask & 0x3F, flags), negated)
    assert TcpFlags.from_bits(0x3F, 0, negated=False).mask == FLAGS


@together(("text", "nft", "words", "phrase"), [
    ("FIN,SYN,RST,ACK SYN", "tcp flags syn / fin,syn,rst,ack", "it opens a connection (SYN without ACK)", "TCP with SYN"),
    ("! FIN,SYN,RST,ACK SYN", "tcp flags != syn / fin,syn,rst,ack", "it does not open a connection (SYN without ACK)", "TCP but not with SYN"),
    ("! SYN,ACK SYN,ACK", "tcp flags != syn,ack / syn,ack", "of its TCP flags SYN, ACK not just SYN, ACK are set", "TCP but not with SYN/ACK"),
    ("FIN,RST NONE", "tcp flags ! fin,rst", "of its TCP flags FIN, RST just none are set", "TCP with none of FIN/RST"),
    ("! FIN,RST NONE", "tcp flags & (fin | rst) != 0x0", "of its TCP flags FIN, RST not just none are set", "TCP but not with none of FIN/RST"),
])  # fmt: skip
def test_flags_are_said_in_nft_s_words_and_in_a_reader_s(text, nft, words, phrase):
    no, flags = ("! ", text[2:]) if text.startswith("!") else ("", text)
    match = listed(f"-p tcp -m tcp {no}--tcp-flags {flags}")
    assert (match.nft(), match.describe(), match.phrase()) == (nft, words, phrase)
    assert match.xt() == f"-m tcp {no}--tcp-flags {flags}"


@together(("text", "field"), [
    ("-m mark --mark 1", "has_own_mark"), ("-m connmark --mark 1", ""), ("-p tcp -m tcp --syn", "has_own_ports"), ("-p tcp -m tcp --dport 1", "has_own_ports"),
    ("-p tcp -m tcp --dport 1:2", "has_own_ports"), ("-p tcp -m multiport --dports 1,2", ""), ("-m limit --limit 1/sec --limit-burst 5", "always"), ("-m socket", ""),
])  # fmt: skip
def test_iptables_nft_writes_expressions_for_some_matches_and_structs_for_others(text, field):
    assert listed(text).compat == field


def test_what_is_not_known_keeps_its_struct_without_being_another_match_for_it():
    match = UnknownMatch(text="-m odd", kept=("odd", 3, b"bytes"))
    assert match.struct() == ("odd", 3, b"bytes")
    assert match == UnknownMatch(text="-m odd") != UnknownMatch(text="-m other")
    with pytest.raises(ValueError, match=r"^-m odd: not understood, and not kept$"):
        UnknownMatch(text="-m odd").struct()


def test_a_match_that_one_of_both_has_no_form_for_says_whose():
    class Moon(Match):
        """A match that only words have."""

        words = "it is full moon"

    for write, problem in ((lambda: show_match(Moon()), "nft has no expression for it"), (Moon().struct, "iptables has no module for it")):
        with pytest.raises(ValueError, match=f"^Moon: {problem}$"):
            write()
    assert (Moon().describe(), Moon().phrase(), Moon().parts, Moon().each(), Moon().header_fields, Moon().nft_unless()) == ("it is full moon", "full moon", (Moon(),), (Moon(),), None, None)


@together(("words", "phrase"), [
    ("it is open", "open"), ("its sender is open", "sender is open"), ("it opens its socket", "opens its socket"), ("a socket of it is its", "a socket of it is its"),
    ("it is its own", "own"),
])  # fmt: skip
def test_a_phrase_leaves_out_the_packet_at_the_start_of_the_words_alone(words, phrase):
    class Said(Match):
        """A match with these words."""

        text: str
        words = "{0.text}"

    assert Said(text=words).phrase() == phrase
