"""What the rules of a layout tell of its options."""

from __future__ import annotations

import pytest

from core import FAMILIES, IPV4, IPV6, Network, Options, parse_rule, plan
from listings import from_listings, listing_of, make_listing
from netinit.rules.infer_options import layout_readers
from netinit.rules.matches.packet import OutInterface, Protocol
from netinit.rules.targets import Jump, Return

USERS = ("-u", "7", "-g", "7", "--ipv6", "on")


def inferred(*words):
    """What the rules tell of their options."""
    made = plan(Options.from_argv([*USERS, *words], {}))
    listings = {family: make_listing(listing_of(made, family)) for family in made.families}
    return from_listings(listings, {rule.mark: rule.table for rule in made.ip_rules})


@pytest.mark.parametrize("layout", ["current", "classic"])
@pytest.mark.parametrize(
    ("words", "networks"),
    [
        (("-i", "*"), "*"), (("-i", "10.0.0.0/8"), (Network.parse("10.0.0.0/8"),)), ((), ()),
        (("-i", "10.0.0.0/8,fd00::/8"), (Network.parse("10.0.0.0/8"), Network.parse("fd00::/8"))),
    ],
)  # fmt: skip
def test_all_networks_are_told_from_some_and_from_none(layout, words, networks):
    found = inferred("-b", "80", *words, "--layout", layout)
    assert found.options.outbound_cidrs == networks
    assert (found.options.layout, found.unread) == (layout, ())


@pytest.mark.parametrize(("words", "port"), [((), 15008), (("-e", "4190"), 4190), (("-e", "0"), 0), (("-e", "53"), 53), (("-e", "0", "--redirect-dns", "--capture-all-dns"), 0)])
def test_the_tunnel_s_port_is_told_beside_that_of_dns(words, port):
    assert inferred("-b", "*", "-i", "*", *words).options.tunnel_port == port


@pytest.mark.parametrize("ipv6", ["on", "off"])
@pytest.mark.parametrize("layout", ["current", "classic", "ambient"])
def test_whether_ipv6_is_captured_is_told_by_the_rules_for_it(layout, ipv6):
    everything = () if layout == "ambient" else ("-b", "*", "-i", "*")
    assert inferred(*everything, "--layout", layout, "--ipv6", ipv6).options.ipv6 == ipv6


# --- what a reader finds ----------------------------------------------------------------------------------------------


def rules(*texts, family=IPV4):
    """Rules by table and chain, out of lines such as `nat OUTPUT -j RETURN`."""
    found = {}
    for text in texts:
        table, chain, *rest = text.split(" ", 2)
        found.setdefault((table, chain), []).extend(parse_rule(one, family) for one in rest)
    return found


def reader(four=(), six=(), kind=layout_readers.Current, minor=None):
    return kind({IPV4: rules(*four), IPV6: rules(*six, family=IPV6)}, {}, minor)


A, B, TO_A = "nat A -o lo -j RETURN", "nat A -o lo -p tcp -j RETURN", "nat A -j ISTIO_OUTPUT"


@pytest.mark.parametrize(
    ("four", "six", "target", "kinds", "family", "found"),
    [
        ((A, B), (), Return, (OutInterface,), None, [A]), ((A, B), (), Return, (OutInterface, Protocol), None, [B]), ((A, B), (), Return, (Protocol, OutInterface), None, [B]),
        ((A, B), (), Return, (), None, []), ((A,), (), Jump, (OutInterface,), None, []),
        ((TO_A,), (), Jump, (), None, [TO_A]), ((TO_A,), (), Jump(chain="ISTIO_OUTPUT"), (), None, [TO_A]), ((TO_A,), (), Jump(chain="ISTIO_INBOUND"), (), None, []),
        ((), (A,), Return, (OutInterface,), None, [A]), ((B,), (A,), Return, (OutInterface,), None, [A]), ((A, A), (A,), Return, (OutInterface,), None, [A, A]),
        ((A,), (), Return, (OutInterface,), IPV6, []), ((), (A,), Return, (OutInterface,), IPV6, [A]), ((A,), (A,), Return, (OutInterface,), IPV4, [A]),
        (("nat B -o lo -j RETURN", "raw A -o lo -j RETURN"), (), Return, (OutInterface,), None, []),
    ],
)  # fmt: skip
def test_rules_of_a_target_and_of_these_matches_and_no_others_are_found(four, six, target, kinds, family, found):
    wanted = [parse_rule(text.split(" ", 2)[2], IPV4) for text in found]
    assert [(one.matches, one.target) for one in reader(four, six).find("nat", "A", target, *kinds, family=family)] == [(one.matches, one.target) for one in wanted]


def test_the_rules_of_a_chain_are_those_of_each_family_that_has_any():
    assert [len(one) for one in reader((A, B), (A,)).rules_of("nat", "A")] == [2, 1]
    assert [len(one) for one in reader((A,), ("nat B -j RETURN",)).rules_of("nat", "A")] == [1]
    assert reader(("nat A",), ()).rules_of("nat", "A") == reader().rules_of("nat", "A") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-m set --match-set x dst -j RETURN", "--istio-service-exclude-cidr"), ("-m set --match-set x dst -j ISTIO_REDIRECT", "--istio-service-cidr"),
        ("-m set --match-set x dst -j ACCEPT", ""), ("-p tcp -m set --match-set x dst -j RETURN", ""), ("-m foo --bar x -j RETURN", ""), ("-j RETURN", ""),
        ("-m set --match-set x dst -m set --match-set y dst -j RETURN", ""),
    ],
)  # fmt: skip
def test_a_set_that_stands_alone_in_a_rule_hides_the_networks_of_its_family(text, said):
    for family, name in ((IPV4, "IPv4"), (IPV6, "IPv6")):
        found = layout_readers.Current({family: rules(f"nat ISTIO_OUTPUT {text}", family=family)}, {})
        found.warn_of_sets()
        assert found.unread == ([f"{said}: the address set of {name} cannot be read"] if said else [])
    both = reader((f"nat ISTIO_OUTPUT {text}",) * 2, (f"nat ISTIO_OUTPUT {text}",))
    both.warn_of_sets()
    assert len(both.unread) == 3 * bool(said)
    elsewhere = reader((f"nat ISTIO_INBOUND {text}", f"filter ISTIO_OUTPUT {text}"))
    elsewhere.warn_of_sets()
    assert elsewhere.unread == []


OURS, OF_DNS, TCP_ALONE, DOCKER = "-j ISTIO_OUTPUT", "-p udp -j ISTIO_OUTPUT", "-p tcp -j ISTIO_OUTPUT", "-d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j ISTIO_OUTPUT"


@pytest.mark.parametrize(
    ("four", "six", "found"),
    [
        ((OURS,), (), OURS), ((DOCKER, OURS), (), OURS), ((TCP_ALONE, OF_DNS), (), TCP_ALONE), ((OF_DNS,), (OURS,), OURS), ((), (TCP_ALONE,), TCP_ALONE), ((OURS,), (TCP_ALONE,), OURS),
        (("-j ISTIO_INBOUND", "-j RETURN"), (), ""), ((OF_DNS,), (), ""), ((), (), ""),
    ],
)  # fmt: skip
def test_the_jump_to_our_rules_is_the_last_that_is_not_of_dns_alone(four, six, found):
    live = {IPV4: rules(*(f"nat OUTPUT {one}" for one in four)), IPV6: rules(*(f"nat OUTPUT {one}" for one in six), family=IPV6)}
    jump = layout_readers.find_jump(live)
    assert (jump.matches if jump else None) == (parse_rule(found, IPV4).matches if found else None)
    assert layout_readers.find_jump({}) is None


REFUSE_IN, REFUSE_OUT = "filter ISTIO_REFUSE_IN -j RETURN", "filter ISTIO_REFUSE_OUT -j RETURN"
NAMED, NAMELESS = "nat ISTIO_OUTPUT -d ::1/128 -j RETURN", "nat ISTIO_OUTPUT -j RETURN"


@pytest.mark.parametrize(
    ("four", "six", "ipv6", "captured"),
    [
        ((A,), (), "off", (IPV4,)), ((A,), (NAMED,), "on", FAMILIES), ((A,), ("nat ISTIO_OUTPUT -s ::6/128 -j RETURN",), "on", FAMILIES), ((A,), (NAMELESS,), "inet", (IPV4,)),
        ((A,), ("nat OUTPUT -d ::1/128 -j RETURN",), "off", (IPV4,)), ((A,), (NAMED, REFUSE_IN), "reject", FAMILIES), ((A,), (NAMED, REFUSE_OUT), "reject", FAMILIES), ((A, REFUSE_IN), (NAMED,), "on", FAMILIES),
    ],
)  # fmt: skip
def test_how_ipv6_is_treated_is_told_by_its_own_rules(four, six, ipv6, captured):
    found = reader(four, six)
    assert (found.ipv6, found.captured, found.layout) == (ipv6, captured, "current")
    assert [found.refuses(family) for family in FAMILIES] == [False, ipv6 == "reject"]


def test_only_a_chain_of_the_node_agent_s_own_is_a_sign_of_an_ambient_mesh():
    assert reader(("nat ISTIO_PRERT -j RETURN",), kind=layout_readers.Ambient).recognises()
    assert reader((), ("mangle ISTIO_PRERT -j RETURN",), kind=layout_readers.Ambient).recognises()
    assert not reader((A,), (A,), kind=layout_readers.Ambient).recognises()


JUMP, TO_ITSELF = "nat OUTPUT -p tcp -j ISTIO_OUTPUT", "! -d 127.0.0.1/32 -o lo"


@pytest.mark.parametrize(
    ("texts", "is_classic"),
    [
        ((JUMP,), True), (("nat OUTPUT -j ISTIO_OUTPUT",), False), ((JUMP, "nat ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN"), False),
        ((JUMP, "nat ISTIO_OUTPUT ! -s 127.0.0.6/32 -o lo -j RETURN"), True), ((JUMP, "nat ISTIO_OUTPUT -s 127.0.0.7/32 -o lo -j RETURN"), True),
        ((JUMP, f"nat ISTIO_OUTPUT {TO_ITSELF} -j ISTIO_IN_REDIRECT"), False), ((JUMP, f"nat ISTIO_OUTPUT {TO_ITSELF} -j ISTIO_REDIRECT"), True),
        ((f"nat ISTIO_OUTPUT {TO_ITSELF} -j ISTIO_IN_REDIRECT",), False), ((), True), (("nat ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN",), False),
        (("nat ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT",), True), ((JUMP, "nat ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN"), True),
        (("nat ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT", "nat ISTIO_INBOUND -p tcp -j RETURN"), True),
    ],
)  # fmt: skip
def test_the_classic_layout_knows_no_way_back_to_the_pod_and_jumps_for_tcp(texts, is_classic):
    for four, six in ((texts, ()), ((), texts)):
        if "127.0.0" not in str(six):
            assert reader(four, six, layout_readers.Classic).recognises() is is_classic


REJECTED = "-j REJECT --reject-with icmp6-port-unreachable"


@pytest.mark.parametrize(
    ("four", "six", "ipv6"),
    [
        ((), (f"filter INPUT {REJECTED}",), "off"), ((), (f"filter INPUT -p tcp {REJECTED}",), "on"), ((), (f"filter OUTPUT {REJECTED}",), "on"), ((), ("filter INPUT -j DROP",), "on"),
        (("filter INPUT -j REJECT --reject-with icmp-port-unreachable",), (), "on"), ((), (), "on"),
    ],
)  # fmt: skip
def test_the_classic_layout_refuses_ipv6_by_one_rule(four, six, ipv6):
    assert reader(four, six, layout_readers.Classic).ipv6 == ipv6


def own(ports, owner="uid"):
    return f"nat ISTIO_OUTPUT {TO_ITSELF} -p tcp {ports} -m owner --{owner}-owner 7 -j ISTIO_IN_REDIRECT"


OF_RAW, OF_NAT = "raw ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -j CT --zone 2", "nat ISTIO_OUTPUT_DNS -p tcp -m tcp --dport 53 -j REDIRECT --to-ports 15053"
UNTOLD = ["--inbound-tunnel-port: no rule names it"]


@pytest.mark.parametrize(
    ("texts", "port", "unread"),
    [
        ((own(""),), 0, []), ((own("-m tcp ! --dport 4190"),), 4190, []), ((own("-m multiport ! --dports 53,4190"), OF_RAW), 4190, []), ((own("-m tcp ! --dport 53"),), 53, []),
        ((own("-m tcp ! --dport 53"), OF_RAW), 0, []), ((own("-m tcp ! --dport 53"), OF_NAT), 0, []), ((own("-m tcp ! --dport 53", "gid"), OF_RAW), 53, []),
        ((own("-m multiport ! --dports 53,4190"), own("-m tcp ! --dport 53", "gid"), OF_RAW), 53, []), (("nat ISTIO_INBOUND -p tcp -m tcp --dport 4190 -j RETURN",), 4190, []),
        (("nat ISTIO_INBOUND -p tcp -m tcp --dport 4190 -j RETURN", "nat ISTIO_INBOUND -p tcp -m tcp --dport 22 -j RETURN"), 4190, []),
        (("nat ISTIO_INBOUND -p tcp -m tcp --dport 1:9 -j RETURN",), 15008, UNTOLD), (("nat ISTIO_INBOUND -p tcp -m tcp --dport 9 -j ISTIO_IN_REDIRECT",), 15008, UNTOLD), ((), 15008, UNTOLD),
    ],
)  # fmt: skip
def test_the_tunnel_s_port_is_the_one_that_the_proxy_does_not_send_to_itself(texts, port, unread):
    found = reader(texts)
    assert (found.first_fields()["tunnel_port"], found.unread) == (port, unread)
    before, since = (reader(texts, minor=minor) for minor in (17, 18))
    assert (before.first_fields(), before.unread) == ({"tunnel_port": 0}, []), "earlier releases had none"
    assert (since.first_fields(), since.unread) == ({"tunnel_port": port}, unread)


@pytest.mark.parametrize(
    ("texts", "redirected"),
    [
        (("! -o lo -p udp -m udp --dport 514 -j REDIRECT --to-ports 10514",), ["514:10514"]), (("! -o lo -p tcp -m tcp --dport 514 -j REDIRECT --to-ports 10514",), []),
        (("! -o lo -p udp -m udp ! --dport 514 -j REDIRECT --to-ports 10514",), []), (("-p udp -m udp --dport 514 -j REDIRECT --to-ports 10514",), []),
        (("! -o lo -p udp -m udp --dport 5:7 -j REDIRECT --to-ports 8", "! -o lo -p udp -m udp --dport 9 -j REDIRECT --to-ports 8"), ["5-7:8", "9:8"]),
        (("! -o lo -p udp -m udp --dport 9 -j REDIRECT --to-ports 8",) * 2, ["9:8"]),
    ],
)  # fmt: skip
def test_redirected_datagrams_are_those_that_leave_the_pod(texts, redirected):
    assert list(map(str, reader([f"nat ISTIO_OUTPUT {one}" for one in texts]).first_fields()["redirect_outbound_udp"])) == redirected


@pytest.mark.parametrize(
    ("texts", "users", "groups"),
    [
        (("-p tcp -m tcp --dport 22 -m owner --uid-owner 5 -j RETURN",), ["tcp:22:5"], []), (("-p udp -m udp --dport 22 -m owner --gid-owner 5-9 -j RETURN",), [], ["udp:22:5-9"]),
        (("-p tcp -m owner --uid-owner 5 -j RETURN",), ["tcp:*:5"], []), (("-m owner --uid-owner 5 -j RETURN", "-p tcp -m tcp --dport 22 -j RETURN"), [], []),
        (("-p tcp -m tcp --dport 22 -m owner ! --uid-owner 5 -j RETURN",), [], []), (("-p tcp -m tcp --dport 22 -m owner --uid-owner 5 -j ACCEPT",), [], []),
        (("-p tcp -m tcp --dport 80 -m owner --uid-owner 5 -j RETURN", "-p tcp -m tcp --dport 22:25 -m owner --uid-owner 5 -j RETURN"), ["tcp:80,22-25:5"], []),
        (("-p tcp -m tcp --dport 80 -m owner --uid-owner 5 -j RETURN", "-p udp -m udp --dport 80 -m owner --uid-owner 5 -j RETURN", "-p tcp -m tcp --dport 80 -m owner --uid-owner 6 -j RETURN"),
         ["tcp:80:5", "udp:80:5", "tcp:80:6"], []),
        (("-o lo -p tcp -m tcp --dport 80 -m owner --uid-owner 5 -j RETURN",), [], []),
    ],
)  # fmt: skip
def test_what_users_send_to_ports_is_told_apart_by_user_protocol_and_kind(texts, users, groups):
    found = reader([f"nat ISTIO_OUTPUT {one}" for one in texts]).first_fields()
    assert [list(map(str, found[f"exclude_outbound_for_{kind}s"])) for kind in ("uid", "gid")] == [users, groups]


def test_a_range_of_ports_is_read_as_options_have_it():
    found = inferred("-b", "80,8000-8100", "-o", "1-3,9").options
    assert [str(one) for one in (*found.inbound_ports, *found.exclude_outbound_ports)] == ["80", "8000-8100", "1-3", "9"]


def test_name_servers_that_rules_name_leave_nothing_unread():
    found = inferred("-b", "*", "-i", "*", "--redirect-dns", "--dns-servers", "10.0.0.1,fd00::53")
    assert (found.options.dns_servers, found.options.capture_all_dns, found.unread) == (("10.0.0.1", "fd00::53"), False, ())
