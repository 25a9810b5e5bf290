"""Matches that only foreign rules have: their texts, as iptables' structs, as packets that they choose."""

from __future__ import annotations

from struct import pack

import pytest

from core import IPV4, IPV6, Network, Packet, Surroundings, number_of, parse_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import ABOUT, AddressRange, EitherPort, InSet, OriginalEnd, Undecided, name_unread
from netinit.rules.matches.packet import Port, Source
from netinit.simulate.one_packet import OnePacket
from sweeps import together

PACKET = Packet(family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), destination=number_of("1.2.3.4"), source_port=40000, destination_port=80, state="NEW")
FD = b"\xfd" + bytes(15)


def listed(text, family=IPV4):
    """The last match of a rule as iptables lists it."""
    return parse_rule(f"{text} -j RETURN", family).matches[-1]


BEGAN = ((number_of("192.0.2.2"), 8080), (number_of("10.0.0.9"), 5000))


def holds(match, began=BEGAN, **changes):
    """Whether it is true of a packet; `began`: the destination and the source with which its connection began."""
    return match.choose(OnePacket(PACKET.replace(**changes), Surroundings(family=IPV4), "FORWARD", began=began)).holds


def ip(text):
    return number_of(text).to_bytes(4, "big")


@together(("text", "nft", "words"), [
    ("-m iprange --src-range 10.0.0.5-10.2.3.4", "ip saddr 10.0.0.5-10.2.3.4", "its source is from 10.0.0.5 to 10.2.3.4"),
    ("-m iprange ! --dst-range 10.0.0.0-10.255.255.255", "ip daddr != 10.0.0.0/8", "its destination is not from 10.0.0.0 to 10.255.255.255"),
    ("-p tcp -m multiport --ports 80,90:99", None, "its source or destination port is 80, 90 to 99"),
    ("-p udp -m multiport ! --ports 53", None, "its source or destination port is not 53"),
    ("-m conntrack --ctorigsrc 10.0.0.0/8", "ct original ip saddr 10.0.0.0/8", "the first packet of its connection came from 10.0.0.0/8"),
    ("-m conntrack ! --ctorigdst 192.0.2.2", "ct original ip daddr != 192.0.2.2", "the first packet of its connection was not for 192.0.2.2"),
    ("-m conntrack --ctorigsrcport 80:90", "ct original proto-src 80-90", "the first packet of its connection came from port 80 to 90"),
    ("-m conntrack ! --ctorigdstport 80", "ct original proto-dst != 80", "the first packet of its connection was not for port 80"),
])  # fmt: skip
def test_a_match_is_listed_as_it_was_and_said_in_words(text, nft, words):
    match = listed(text)
    assert (match.xt(), match.describe()) == (text.removeprefix("-p tcp ").removeprefix("-p udp "), words)
    if nft:
        assert match.nft() == nft
    else:
        with pytest.raises(ValueError, match=r"^either port: nft has no expression for it$"):
            match.nft()


def test_an_address_of_ipv6_is_written_as_one():
    assert [listed(f"-m iprange --{side}-range fd00::1-fd00::9", IPV6).nft() for side in ("src", "dst")] == ["ip6 saddr fd00::1-fd00::9", "ip6 daddr fd00::1-fd00::9"]
    assert listed("-m conntrack --ctorigdst fd00::/64", IPV6).nft() == "ct original ip6 daddr fd00::/64"
    assert listed("-m iprange ! --src-range fd00::1-fd00::9", IPV6).describe() == "its source is not from fd00::1 to fd00::9"


@together(("family", "text", "name", "parts"), [
    (IPV4, "-m iprange --src-range 10.0.0.5-10.2.3.4", ("iprange", 1, 72), {0: ip("10.0.0.5"), 16: ip("10.2.3.4"), 64: b"\x01"}),
    (IPV4, "-m iprange ! --src-range 10.0.0.5-10.2.3.4", ("iprange", 1, 72), {0: ip("10.0.0.5"), 16: ip("10.2.3.4"), 64: b"\x11"}),
    (IPV4, "-m iprange ! --dst-range 10.0.0.5-10.2.3.4", ("iprange", 1, 72), {32: ip("10.0.0.5"), 48: ip("10.2.3.4"), 64: b"\x22"}),
    (IPV6, "-m iprange --dst-range fd00::-fdff::", ("iprange", 1, 72), {32: FD, 48: b"\xfd\xff", 64: b"\x02"}),
    (IPV4, "-p tcp -m multiport --ports 1,60001", ("multiport", 1, 48), {0: pack("=2B2H", 2, 2, 1, 60001)}),
    (IPV4, "-p tcp -m multiport ! --ports 1:9", ("multiport", 1, 48), {0: pack("=2B2H", 2, 2, 1, 9), 32: b"\1", 47: b"\1"}),
    (IPV4, "-m conntrack --ctorigsrc 10.0.0.0/9", ("conntrack", 3, 168), {0: ip("10.0.0.0"), 16: ip("255.128.0.0"), 146: pack("=2H", 4, 0)}),
    (IPV4, "-m conntrack ! --ctorigdst 192.0.2.2", ("conntrack", 3, 168), {32: ip("192.0.2.2"), 48: ip("255.255.255.255"), 146: pack("=2H", 8, 8)}),
    (IPV6, "-m conntrack --ctorigdst fd00::/64", ("conntrack", 3, 168), {32: FD, 48: b"\xff" * 8, 146: pack("=2H", 8, 0)}),
    (IPV6, "-m conntrack ! --ctorigsrc fd00::/15", ("conntrack", 3, 168), {0: b"\xfd", 16: b"\xff\xfe", 146: pack("=2H", 4, 4)}),
    (IPV4, "-m conntrack --ctorigsrcport 80:60001", ("conntrack", 3, 168), {138: pack("=H", 80), 154: pack("=H", 60001), 146: pack("=2H", 256, 0)}),
    (IPV4, "-m conntrack ! --ctorigdstport 60001", ("conntrack", 3, 168), {140: pack("=H", 60001), 156: pack("=H", 60001), 146: pack("=2H", 512, 512)}),
])  # fmt: skip
def test_the_struct_of_a_match_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(family, text, name, parts):
    *expected, size = name
    info = bytearray(size)
    for at, part in parts.items():
        info[at : at + len(part)] = part
    assert listed(text, family).struct() == (*expected, bytes(info))


@together(("text", "changes", "truth"), [
    ("-m iprange --src-range 10.0.0.2-10.0.0.5", {}, True), ("-m iprange --src-range 10.0.0.3-10.0.0.5", {}, False), ("-m iprange --dst-range 10.0.0.2-10.0.0.5", {}, False),
    ("-m iprange ! --src-range 10.0.0.2-10.0.0.5", {}, False), ("-m iprange --dst-range 1.2.3.3-1.2.3.4", {}, True), ("-m iprange ! --dst-range 1.2.3.0-1.2.3.3", {}, True),
    ("-m iprange --src-range 10.0.0.2-10.0.0.5", {"source": None}, None),
    ("-p tcp -m multiport --ports 80", {}, True), ("-p tcp -m multiport --ports 40000", {}, True), ("-p tcp -m multiport --ports 81", {}, False),
    ("-p tcp -m multiport --ports 80", {"protocol": "udp"}, False), ("-p tcp -m multiport ! --ports 80", {"protocol": "udp"}, False), ("-p tcp -m multiport ! --ports 81", {}, True),
    ("-p tcp -m multiport ! --ports 40000", {}, False), ("-p tcp -m multiport --ports 80", {"source_port": None}, True), ("-p tcp -m multiport --ports 81", {"source_port": None}, None),
    ("-m conntrack --ctorigdst 192.0.2.2", {}, True), ("-m conntrack --ctorigdst 1.2.3.4", {}, False), ("-m conntrack ! --ctorigdst 1.2.3.4", {}, True),
    ("-m conntrack --ctorigsrc 10.0.0.9", {}, True), ("-m conntrack --ctorigsrc 10.0.0.2", {}, False), ("-m conntrack --ctorigdstport 8080", {}, True),
    ("-m conntrack --ctorigdstport 80", {}, False), ("-m conntrack --ctorigsrcport 5000:5001", {}, True), ("-m conntrack ! --ctorigsrcport 5000", {}, False),
    ("-m conntrack --ctorigdst 192.0.2.2", {"began": None}, None), ("-m conntrack ! --ctorigdst 192.0.2.2", {"began": None}, None),
    *[(f"-m conntrack {asked}", {"state": state}, False) for asked in ("--ctorigdst 192.0.2.2", "! --ctorigdst 9.9.9.9", "! --ctorigsrcport 9") for state in ("", "INVALID", "UNTRACKED")],
    ("-m ttl --ttl-eq 1", {}, None),
])  # fmt: skip
def test_a_match_is_true_of_these_packets(text, changes, truth):
    assert holds(listed(text), **changes) is truth


@together(("kind", "match"), [(EitherPort, "-p tcp -m multiport --ports 80"), (AddressRange, "-m iprange --src-range 10.0.0.2-10.0.0.5"), (OriginalEnd, "-m conntrack --ctorigdst 192.0.2.2")])
def test_a_match_is_read_as_its_kind(kind, match):
    assert type(listed(match)) is kind


@together("module", ABOUT)
def test_a_module_on_what_no_question_names_is_said_with_what_it_depends_on(module):
    match = name_unread(f"-m {module} --more 1", (module, 0, b"held"))
    assert (match, type(match), match.kept) == (Undecided(text=f"-m {module} --more 1", about=ABOUT[module]), Undecided, (module, 0, b"held"))
    assert match.describe() == f"`-m {module} --more 1` holds, which depends on {ABOUT[module]}"
    assert (match.xt(), match.nft()) == (match.text, match.text)
    assert (match.struct(), holds(match)) == ((module, 0, b"held"), None)
    assert name_unread(f"-m {module}").kept is None
    assert match.tracks is (module in ("connbytes", "connlimit", "conntrack", "helper")), "of the connection"


def test_a_module_that_is_not_known_is_unknown_and_may_track_connections():
    match = name_unread("-m odd --ttl", ("odd", 2, b"held"))
    assert (type(match), match.text, match.kept, match.tracks, match.describe()) == (UnknownMatch, "-m odd --ttl", ("odd", 2, b"held"), True, "`-m odd --ttl` (not known to netinit) holds")
    assert name_unread("-m odd").kept is None


PORT, NETWORK, STATE = Port(protocol="tcp", ports=(80,)), Source(networks=(Network.parse("10.0.0.0/8"),)), listed("-m conntrack --ctstate ESTABLISHED")


@together(("alternatives", "truth"), [
    ((), False), (((PORT,),), True), (((PORT, NETWORK),), True), (((PORT, STATE),), False), (((STATE, PORT),), False), (((STATE,), (PORT,)), True), (((PORT,), (STATE,)), True),
    (((STATE,), (STATE, PORT)), False), (((name_unread("-m odd"), PORT),), None), (((name_unread("-m odd"),), (PORT,)), True), (((name_unread("-m odd"), STATE),), False),
])  # fmt: skip
def test_a_set_holds_a_packet_for_which_all_of_one_alternative_is_true(alternatives, truth):
    match = InSet(text="@held", alternatives=alternatives)
    assert holds(match) is truth
    assert holds(match.replace(negated=True)) is (None if truth is None else not truth)


def test_a_set_is_shown_by_its_lookup_and_asks_what_its_elements_ask():
    held = InSet(text="ip saddr @held", alternatives=((PORT, NETWORK), (STATE,)))
    assert (held.parts, held.tracks, held.replace(alternatives=((PORT, NETWORK),)).tracks) == ((PORT, NETWORK, STATE), True, False)
    assert (held.xt(), held.nft(), held.describe()) == ("ip saddr @held", "ip saddr @held", "`ip saddr @held` holds")
    empty = held.replace(alternatives=())
    assert (empty.describe(), empty.parts, empty.tracks) == ("`ip saddr @held` holds, and the set is empty", (), False)
    with pytest.raises(ValueError, match=r"^ip saddr @held: netinit writes no lookup in a foreign set$"):
        held.struct()
