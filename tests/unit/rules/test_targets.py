"""The faces of every target: how it is listed, what nft calls it, and its words. What it does is tested with the engine."""

from __future__ import annotations

from struct import pack

import pytest

from applied_targets import apply_target
from core import IPV4, IPV6, number_of, parse_rule, write_rule
from netinit.base.net import FAMILIES, FULL_MASK
from netinit.base.snapshot import NftRule
from netinit.rules import foreign_targets, marking_targets, targets
from netinit.rules.decoding.targets import decode_target
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.foreign_targets import (
    DestinationNat,
    Observe,
    OfferedToSocket,
    Several,
    SourceNat,
    UnknownTarget,
    WriteDestination,
)
from netinit.rules.marking_targets import RestoreMark
from netinit.rules.rule_builder import RuleBuilder
from netinit.rules.targets import (
    ACCEPTED,
    BACK,
    ENDED,
    GO_ON,
    VERDICTS,
    Accept,
    Drop,
    Jump,
    Redirect,
    Reject,
    Return,
    Target,
    Tproxy,
    format_chain,
)
from netinit.simulate.condition import MarkBits
from recorded import FOREIGN
from shown_expressions import show_target
from sweeps import together

MODULES = {one.__name__ for one in (targets, marking_targets, foreign_targets)}


FACES = [
    ("ACCEPT", ("accept",), "accept it"),
    ("DROP", ("drop",), "drop it"),
    ("RETURN", ("return",), "return to the calling chain"),
    ("REJECT --reject-with icmp-port-unreachable", ("reject with icmp type port-unreachable",), "refuse it"),
    ("REJECT --reject-with tcp-reset", ("reject with tcp reset",), "refuse it with tcp-reset"),
    ("ISTIO_IN_REDIRECT", ("jump istio-in-redirect",), "go through chain ISTIO_IN_REDIRECT"),
    ("LOG", ("LOG",), "do `LOG` and go on"),
    ('LOG --log-prefix "in: "', ('log prefix "in: "',), "report it to the kernel's log as 'in' and go on"),
    ('NFLOG --nflog-prefix "in: " --nflog-group 5', ('log prefix "in: " group 5',), "report it to group 5 as 'in' and go on"),
    ("REDIRECT --to-ports 15001", ("redirect to :15001",), "redirect it to port 15001"),
    (
        "TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff",
        # nft's tproxy ends a rule where no transparent socket is open; iptables' drops then
        ("tproxy ip to :15006 meta mark set 0x00000539 accept", "drop"),
        "hand it to the transparent socket on port 15006 and mark it 1337",
    ),
    ("MARK --set-xmark 0x53a/0xffffffff", ("meta mark set 0x0000053a",), "mark it 1338"),
    (
        "MARK --set-xmark 0x1/0x3",
        ("meta mark set meta mark & 0xfffffffd | 0x00000001",),
        "change its mark (0x1 under the mask 0x3)",
    ),
    (
        "CONNMARK --set-xmark 0x1/0x3",
        ("ct mark set ct mark & 0xfffffffd | 0x00000001",),  # as nft lists it
        "change its connection's mark (0x1 under the mask 0x3)",
    ),
    (
        "MARK --set-xmark 0x11/0xf",
        ("meta mark set meta mark & 0xfffffff0 ^ 0x00000011",),
        "change its mark (0x11 under the mask 0xf)",
    ),
    (
        "CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        ("ct mark set meta mark",),
        "copy its mark to the connection",
    ),
    (
        "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        ("meta mark set ct mark",),
        "copy the connection's mark to it",
    ),
    (
        "CONNMARK --restore-mark --nfmask 0x80 --ctmask 0xf0",
        ("CONNMARK --restore-mark --nfmask 0x80 --ctmask 0xf0",),
        "copy the connection's mark to it, bits 0x80 of the packet's and 0xf0 of the connection's",
    ),
    ("CT --zone 2", ("ct zone set 2",), "track it in zone 2"),
    ("CT --zone-orig 2", ("ct original zone set 2",), "track its original direction in zone 2"),
    ("CT --zone-reply 2", ("ct reply zone set 2",), "track its reply direction in zone 2"),
    ("CT --notrack", ("notrack",), "leave its connection untracked, out of reach of NAT"),
    ("DNAT --to-destination 1.2.3.4:80", ("dnat to 1.2.3.4:80",), "send it to 1.2.3.4:80 instead"),
    ("MASQUERADE", ("MASQUERADE",), "replace its source address (`MASQUERADE`)"),
    ("NFQUEUE --queue-num 0", ("NFQUEUE --queue-num 0",), "hand it to the program behind the queue (`NFQUEUE --queue-num 0`), which decides"),
    ("CT --helper ftp", ("CT --helper ftp",), "do `CT --helper ftp` and go on"),
    ("NETMAP --to 10.6.0.0/16", ("NETMAP --to 10.6.0.0/16",), "replace the network of its address by 10.6.0.0/16"),
    ("TTL --ttl-set 64", ("TTL --ttl-set 64",), "do `TTL --ttl-set 64` and go on"),
    ("TTL --ttl-set 1", ("TTL --ttl-set 1",), "do `TTL --ttl-set 1` (not known to netinit)"),
    ("TTL --ttl-dec 1", ("TTL --ttl-dec 1",), "do `TTL --ttl-dec 1` and go on"),
    ("TTL --ttl-dec 40", ("TTL --ttl-dec 40",), "do `TTL --ttl-dec 40` (not known to netinit)"),
    ("SYNPROXY --mss 1460", ("SYNPROXY --mss 1460",), "do `SYNPROXY --mss 1460` (not known to netinit)"),
]


@together(("text", "nft", "words"), FACES)
def test_a_target_says_the_same_in_each_dialect_and_in_words(text, nft, words):
    rule = parse_rule(f"-p tcp -j {text}", IPV4)
    assert write_rule(rule, IPV4) == [f"-p tcp -j {text}"]
    assert tuple([one.nft(IPV4) for one in rule.target.nft_targets()]) == nft
    assert rule.target.describe() == words


def kinds_of(one=Target):
    return {one.__name__} if one.__module__ in MODULES and not one.__subclasses__() else set().union(*map(kinds_of, one.__subclasses__()))


def test_every_target_is_in_the_tables_that_try_its_notations_its_words_and_its_struct():
    kinds = kinds_of() - {OfferedToSocket.__name__, Several.__name__, WriteDestination.__name__}  # iptables has no words for them
    assert len(kinds) >= 15, kinds
    foreign = {type(parse_rule(rule.split(maxsplit=2)[2], IPV4).target).__name__ for rules in FOREIGN.values() for rule in rules}
    tables = {
        "FACES here": {type(parse_rule(f"-p tcp -j {text}", IPV4).target).__name__ for text, *_ in FACES},
        "FOREIGN in tests/recorded.py": foreign | {kind.__name__ for kind in (Observe, RestoreMark, UnknownTarget)},  # in other rules there
    }
    lacking = [f"{table} has no {kind}" for table, held in tables.items() for kind in sorted(kinds - held)]
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize("text", ["NETMAP", "NETMAP --random", "NETMAP --to 10.6.0.0/16 --random", "NETMAP --to 10.6.0.0/33", "NETMAP --to x"])
def test_a_network_that_is_not_said_or_said_with_more_is_not_understood(text):
    assert parse_rule(f"-p tcp -j {text}", IPV4).target == UnknownTarget(text=text)


def test_several_statements_of_one_rule_are_each_written_and_said_in_order():
    first, second, last = Observe(text="LOG"), Observe(text="dup to 10.0.0.9", copies=True), parse_rule("-p tcp -j CHAIN", IPV4).target
    marks = parse_rule("-p tcp -j CONNMARK --set-xmark 0x1/0xffffffff", IPV4).target
    both = Several(targets=(first, last))
    assert (both.xt(IPV4), both.nft(IPV4), both.describe()) == ("LOG CHAIN", "LOG jump chain", "do `LOG` and go on, then go through chain CHAIN")
    assert (both.calls, both.tracks, both.copies, both.only_observes) == ("CHAIN", False, False, False)
    seen = Several(targets=(second, first))
    assert (seen.calls, seen.tracks, seen.copies, seen.only_observes) == ("", False, True, True)
    assert (Several(targets=(first, marks)).tracks, Several(targets=(marks, first)).only_observes) == (True, False)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_source_that_is_known_is_written_as_a_struct_and_as_an_expression_that_are_read_as_it(family):
    address = {IPV4: "10.0.0.9", IPV6: "fd00::9"}[family]
    target = SourceNat(text=f"SNAT --to-source {address}", address=address)
    name, revision, info = target.struct(family)
    assert (name, revision, decode_target(name, revision, info, family)) == ("SNAT", family is IPV6, target)
    writer = RuleBuilder(family.number, [])
    target.express(writer, family)
    (rule,) = decode_rule(NftRule(family=family.number, table="t", chain="c", handle=1, expressions=writer.block()), References(sets={}, devices={})).rules
    assert (rule.target.address, rule.target.own) == (address, False)


@pytest.mark.parametrize(("has_address", "port"), [(True, 0), (True, 80), (False, 80)])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_destination_is_written_as_a_struct_that_is_read_as_its_address_and_its_port(family, has_address, port):
    target = DestinationNat(address={IPV4: "10.0.0.9", IPV6: "fd00::9"}[family] if has_address else "", port=port)
    name, revision, info = target.struct(family)
    assert (name, decode_target(name, revision, info, family)) == ("DNAT", target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (SourceNat(text="MASQUERADE", own=True), "MASQUERADE: not understood"), (UnknownTarget(text="BALANCE 3"), "BALANCE 3: not understood"),
        (Several(targets=(Observe(text="LOG"),)), "Several: iptables has no extension for it"),
    ],
)  # fmt: skip
def test_what_iptables_has_no_struct_for_says_so(target, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        target.struct(IPV4)


def test_a_goto_is_no_jump():
    rule = parse_rule("-p tcp -g THEIR_CHAIN", IPV4)
    assert write_rule(rule, IPV4) == ["-p tcp -g THEIR_CHAIN"]
    assert rule.target.nft(IPV4) == "goto their-chain"
    assert rule.target.describe() == "go over to chain THEIR_CHAIN"


def test_a_rule_without_a_target_counts():
    rule = parse_rule("-p tcp", IPV4)
    assert write_rule(rule, IPV4) == ["-p tcp"]
    assert (rule.target.describe(), rule.target.label()) == ("count it and go on", "count")


@together(
    ("text", "tracks", "only_observes", "is_final"),
    [
        ("ACCEPT", False, False, True),
        ("DROP", False, False, True),
        ("REJECT", False, False, True),
        ("RETURN", False, False, True),
        ("CHAIN", False, False, False),
        ("REDIRECT --to-ports 1", True, False, True),
        ("TPROXY --on-port 1 --tproxy-mark 1", False, False, True),
        ("MARK --set-xmark 0x1/0xffffffff", False, False, False),
        ("CONNMARK --set-xmark 0x1/0xffffffff", True, False, False),
        ("CONNMARK --save-mark", True, False, False),
        ("CONNMARK --restore-mark", True, False, False),
        ("CT --zone 2", True, False, False),
        ("CT --helper ftp", True, False, False),
        ("CT --notrack", False, False, False),
        ("DNAT --to-destination 1.2.3.4", True, False, False),
        ("SNAT --to-source 1.2.3.4", True, False, True),
        ("LOG", False, True, False),
        ("NFQUEUE --queue-num 0", False, False, True),
        ("NETMAP --to 10.6.0.0/16", True, False, True),
        ("SYNPROXY", True, False, True),  # it may
    ],
)
def test_targets_say_whether_the_kernel_tracks_connections_for_them_and_whether_they_change_or_end_anything(text, tracks, only_observes, is_final):
    target = parse_rule(f"-p tcp -j {text}", IPV4).target
    assert (target.tracks, target.only_observes, target.is_final) == (tracks, only_observes, is_final)


@pytest.mark.parametrize(
    ("text", "nft"),
    [
        ("REJECT --reject-with icmp6-port-unreachable", ("reject with icmpv6 type port-unreachable",)),
        (
            "TPROXY --on-port 15006 --on-ip :: --tproxy-mark 0x539/0xffffffff",
            ("tproxy ip6 to :15006 meta mark set 0x00000539 accept", "drop"),
        ),
        ("DNAT --to-destination [fd00::1]:80", ("dnat to [fd00::1]:80",)),
    ],
)
def test_ipv6_has_its_own_spellings(text, nft):
    rule = parse_rule(f"-p tcp -j {text}", IPV6)
    assert write_rule(rule, IPV6) == [f"-p tcp -j {text}"]
    assert tuple([one.nft(IPV6) for one in rule.target.nft_targets()]) == nft


@together(
    ("text", "label", "calls", "captures_at"),
    [
        ("ACCEPT", "ACCEPT", "", 0),
        ("DROP", "DROP", "", 0),
        ("RETURN", "RETURN", "", 0),
        ("REJECT --reject-with tcp-reset", "REJECT", "", 0),
        ("ISTIO_OUTPUT", "ISTIO_OUTPUT", "ISTIO_OUTPUT", 0),
        ("REDIRECT --to-ports 15001", "REDIRECT 15001", "", 15001),
        ("TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff", "TPROXY 15006", "", 15006),
        ("LOG --log-prefix x", "LOG", "", 0),
        ("TRACE", "TRACE", "", 0),
        ("TEE --gateway 10.0.0.1", "TEE", "", 0),
        ("NFLOG --nflog-prefix x --nflog-group 5", "NFLOG", "", 0),
        ("MARK --set-xmark 0x1/0x3", "change its mark", "", 0),
        ("MASQUERADE", "replace its source address", "", 0),
        ("DNAT --to-destination 1.2.3.4:80", "send it to 1.2.3.4:80 instead", "", 0),
    ],
)
def test_a_picture_has_a_target_in_a_word_or_two_and_where_it_leads(text, label, calls, captures_at):
    target = parse_rule(f"-p tcp -j {text}", IPV4).target
    assert (target.label(), target.calls, target.captures_at) == (label, calls, captures_at)


@together(("family", "text", "expressions"), [
    ("ip", "ACCEPT", "immediate 1=0 2.2.1=1"), ("ip", "DROP", "immediate 1=0 2.2.1=0"), ("ip", "RETURN", "immediate 1=0 2.2.1=-5"), ("ip", "CHAIN_X", "immediate 1=0 2.2.1=-3 2.2=434841494e5f5800"),
    ("ip", "REJECT", "reject 1=0 2=03"), ("ip6", "REJECT", "reject 1=0 2=04"), ("inet", "REJECT", "reject 1=2 2=01"), ("inet", "REJECT --reject-with tcp-reset", "reject 1=1"),
    ("ip", "REDIRECT --to-ports 60001", "immediate 1=1 2.1=ea61 | redir 1=1 2=1 3=2"),
    ("ip", "TPROXY --on-port 60001 --on-ip 0.0.0.0 --tproxy-mark 0xf0000539", "immediate 1=1 2.1=ea61 | tproxy 1=2 3=1 | immediate 1=1 2.1=390500f0 | meta 2=3 3=1 | immediate 1=0 2.2.1=1"),
    ("ip6", "TPROXY --on-port 7 --on-ip :: --tproxy-mark 0x539", "immediate 1=1 2.1=0007 | tproxy 1=10 3=1 | immediate 1=1 2.1=39050000 | meta 2=3 3=1 | immediate 1=0 2.2.1=1"),
])  # fmt: skip
def test_the_expressions_of_a_target_are_those_that_nft_writes(family, text, expressions):
    assert " | ".join(show_target(parse_rule(f"-p tcp -j {text}", IPV6 if family == "ip6" else IPV4).target, family)) == expressions


def test_a_goto_is_expressed_as_one():
    assert show_target(Jump(chain="CHAIN_X", goto=True)) == ["immediate 1=0 2.2.1=-4 2.2=434841494e5f5800"]


@together(("message", "expression"), [
    ("icmp code 13", "reject 1=0 2=0d"), ("icmpx code 3", "reject 1=2 2=03"), ("icmp code 0", "reject 1=0 2=00"),
])  # fmt: skip
def test_a_code_without_a_name_is_expressed_as_its_number_in_every_family(message, expression):
    for family in ("ip", "ip6", "inet"):
        assert show_target(Reject(message=message), family) == [expression]


@together("message", ["icmp-net-unreachable", "icmp6-adm-prohibited"])
def test_a_message_that_iptables_names_is_no_expression(message):
    with pytest.raises(ValueError, match=f"^reject with {message}: nft has another name for it$"):
        show_target(Reject(message=message))


@together(("message", "nft"), [
    ("icmp-net-unreachable", "reject with icmp type net-unreachable"), ("icmp-net-prohibited", "reject with icmp type net-prohibited"), ("tcp-reset", "reject with tcp reset"),
])  # fmt: skip
def test_a_message_is_written_and_said_as_it_is_named(message, nft):
    target = Reject(message=message)
    assert (target.nft(IPV4), target.nft(IPV6), target.xt(IPV6), target.describe()) == (nft, nft, f"REJECT --reject-with {message}", f"refuse it with {message}")
    assert target.nft_lists_family is message.startswith("icmp")
    assert Reject().nft_lists_family


PORT_60001 = b"\xea\x61" * 2


@together(("version", "target", "name", "info"), [
    (4, Redirect(port=60001), ("REDIRECT", 0, 24), pack("=2I8x", 1, 2) + PORT_60001), (6, Redirect(port=60001), ("REDIRECT", 0, 40), pack("=I32x", 2) + PORT_60001),
    (4, Reject(), ("REJECT", 0, 8), pack("=I", 3)), (6, Reject(), ("REJECT", 0, 8), pack("=I", 4)), (4, Reject(message="icmp-net-unreachable"), ("REJECT", 0, 8), pack("=I", 0)),
    (4, Reject(message="tcp-reset"), ("REJECT", 0, 8), pack("=I", 7)), (6, Reject(message="tcp-reset"), ("REJECT", 0, 8), pack("=I", 6)),
    (6, Reject(message="icmp6-reject-route"), ("REJECT", 0, 8), pack("=I", 8)),
    (4, Tproxy(port=60001, mark=0xF0000539, mask=0xF0000FFF), ("TPROXY", 1, 32), pack("=2I16x", 0xF0000FFF, 0xF0000539) + PORT_60001[:2]),
    (4, Tproxy(port=7, mark=1, address="10.0.0.9"), ("TPROXY", 1, 32), pack("=2I4B12x", FULL_MASK, 1, 10, 0, 0, 9) + b"\0\7"),
    (6, Tproxy(port=7, mark=1, address="fd00::9"), ("TPROXY", 1, 32), pack("=2I", FULL_MASK, 1) + b"\xfd" + bytes(14) + b"\x09" + b"\0\7"),
])  # fmt: skip
def test_the_struct_of_a_target_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(version, target, name, info):
    *expected, size = name
    assert target.struct({4: IPV4, 6: IPV6}[version]) == (*expected, info.ljust(size, b"\0"))


def test_a_message_of_the_other_family_has_no_struct():
    for message, family in (("icmp6-adm-prohibited", IPV4), ("icmp-net-unreachable", IPV6)):
        with pytest.raises(ValueError, match="not in tuple"):
            Reject(message=message).struct(family)


def test_a_target_that_one_of_both_has_no_form_for_says_whose():
    with pytest.raises(ValueError, match=r"^UnknownTarget: nft has no expression for it$"):
        show_target(UnknownTarget(text="ODD"))
    for target in (Accept(), Jump(chain="A")):
        with pytest.raises(ValueError, match=f"^{type(target).__name__}: iptables has no extension for it$"):
            target.struct(IPV4)


@together(("target", "table", "outcome"), [
    (Accept(), "nat", (ACCEPTED, {}, "")), (Drop(), "nat", (ENDED, {}, "dropped")), (Return(), "nat", (BACK, {}, "")), (Reject(), "filter", (ENDED, {}, "refused")),
    (Jump(chain="A"), "nat", (GO_ON, {}, "A")), (Jump(chain="A", goto=True), "nat", (BACK, {}, "A")), (Redirect(port=9), "mangle", (ENDED, {}, "unknown")),
    (Tproxy(port=15001, mark=0x35, mask=0x0F), "mangle", (ACCEPTED, {"mark": MarkBits(flip=0xC5), "redirect_port": 15001, "transparent": True}, "")),
    (Tproxy(port=15001, mark=0x35), "mangle", (ACCEPTED, {"mark": MarkBits(flip=0x35), "redirect_port": 15001, "transparent": True}, "")),
])  # fmt: skip
def test_a_target_decides_what_becomes_of_a_packet(target, table, outcome):
    assert apply_target(target, table, mark=MarkBits(flip=0xFF)) == outcome


def test_a_redirect_leads_to_its_port():
    assert apply_target(Redirect(port=15001), in_interface="lo")[1] == {"redirected": True, "destination": number_of("127.0.0.1"), "destination_port": 15001, "redirect_port": 15001}


def test_tproxy_without_a_drop_is_one_rule_of_nft_and_the_same_target():
    closing, open_ = Tproxy(port=7, mark=1), Tproxy(port=7, mark=1, closes=False)
    assert (closing.nft_targets(), open_.nft_targets()) == ((closing, Drop()), (open_,))
    assert closing == open_ != open_.replace(address="10.0.0.9")
    assert [open_.replace(**{field: 2}) == open_ for field in ("port", "mark", "mask")] == [False] * 3


def test_tproxy_s_socket_may_have_an_address():
    target = Tproxy(port=7, mark=1, mask=3, address="10.0.0.9")
    assert (target.socket_address, Tproxy(port=7, mark=1).socket_address, Redirect(port=7).socket_address) == ("10.0.0.9", "", "")
    assert target.xt(IPV4) == "TPROXY --on-port 7 --on-ip 10.0.0.9 --tproxy-mark 0x1/0x3"
    assert target.nft(IPV4) == "tproxy ip to 10.0.0.9:7 meta mark set 0x00000001 accept"


@together(("name", "chain"), [("ISTIO_PRERT", "istio-prerouting"), ("ISTIO_IN_REDIRECT", "istio-in-redirect"), ("ISTIO_PRERT_", "istio-prert-"), ("POSTROUTING", "postrouting")])
def test_a_chain_has_istio_s_native_name_in_nft(name, chain):
    assert format_chain(name) == chain


def test_verdicts_are_known_by_the_numbers_of_legacy_tables_and_of_nf_tables():
    assert {number: (one.name, one.code, one.nft(IPV4)) for number, one in VERDICTS.items()} == {-2: ("ACCEPT", 1, "accept"), -1: ("DROP", 0, "drop"), -5: ("RETURN", -5, "return")}


def test_a_target_that_nft_has_one_of_needs_no_more_and_takes_no_other():
    assert (Accept().nft_targets(), Accept().take([]), Drop().take([Accept()])) == ((Accept(),), [Accept()], [Drop(), Accept()])
