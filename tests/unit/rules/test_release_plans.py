"""The rules of earlier releases of Istio, where one release differs from the one before; tests/conformance records all of them."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4
from netinit.options import Options, offline
from netinit.rules.infer_options import release_plans
from netinit.rules.infer_options.older_releases import NATIVE, Releases
from netinit.simulate.ruleset import load_plan

ALL = ["-b", "*", "-i", "*", "-u", "1337", "-g", "1337", "--istio-exact", "--ipv6", "off"]


def rules(minor, *words):
    options = release_plans.settle_as(Options.from_argv([*ALL, *words]).settle(offline()), minor)
    made = release_plans.plan(options, minor)
    return [(table.name, chain.name, rule) for table in made.tables for chain in table.chains for rule in chain.all_rules]


@pytest.mark.parametrize(("minor", "names"), [(3, "Socket"), (4, "Socket"), (5, "ConnectionState"), (8, "ConnectionState")])
def test_before_1_5_tproxy_knew_its_connections_by_their_sockets(minor, names):
    inbound = [rule for table, chain, rule in rules(minor, "-m", "TPROXY") if (table, chain) == ("mangle", "ISTIO_INBOUND")]
    kinds = {type(match).__name__ for rule in inbound for match in rule.matches}
    assert kinds & {"Socket", "ConnectionState"} == {names}


@pytest.mark.parametrize(("minor", "there"), [(5, False), (6, True), (8, True), (9, False)])
def test_from_1_6_to_1_8_tproxy_marked_what_an_application_answered_over_loopback(minor, there):
    marked = [rule.comment for table, chain, rule in rules(minor, "-m", "TPROXY") if (table, chain) == ("mangle", "OUTPUT") and "127.0.0.1" in str(rule.matches)]
    assert bool(marked) is there, marked


def test_what_is_marked_goes_from_the_loopback_address_to_another_one():
    options = release_plans.settle_as(Options.from_argv([*ALL, "-m", "TPROXY"]).settle(offline()), 7)
    listed = [one.text for one in load_plan(release_plans.plan(options, 7), IPV4).tables["mangle"]["OUTPUT"].rules]
    assert listed == ["-s 127.0.0.1/32 ! -d 127.0.0.1/32 -p tcp -j MARK --set-xmark 0x539/0xffffffff"]


@pytest.mark.parametrize(
    ("minor", "words", "ports"),
    [
        (6, (), ["22"]), (6, ("-d", "15008"), ["22", "15008"]), (7, (), ["15008", "22"]), (7, ("-d", "15008"), ["15008", "22"]), (9, ("-d", "80,15008"), ["15008", "22", "80"]),
        (7, ("-m", "TPROXY", "-d", "15008"), ["15008", "22", "15008"]),
    ],
)  # fmt: skip
def test_since_1_7_the_tunnel_s_port_is_excluded_and_by_redirect_only_once(minor, words, ports):
    options = release_plans.settle_as(Options.from_argv([*ALL, *words]).settle(offline()), minor)
    tables = load_plan(release_plans.plan(options, minor), IPV4).tables
    listed = [one.text for table in ("nat", "mangle") if "ISTIO_INBOUND" in tables.get(table, ()) for one in tables[table]["ISTIO_INBOUND"].rules]
    assert [text.split()[5] for text in listed if "--dport" in text and text.endswith("-j RETURN")] == ports, listed


TO_ITSELF = "! -d 127.0.0.1/32 -o lo"
END = ["-m owner --uid-owner 1337 -j RETURN", "-m owner --gid-owner 1337 -j RETURN", "-d 127.0.0.1/32 -j RETURN", "-j ISTIO_REDIRECT"]
OF_PROXY = "-s 127.0.0.6/32 -o lo -j RETURN"


@pytest.mark.parametrize(
    ("minors", "listed"),
    [
        ((0, 1, 2), [f"{TO_ITSELF} -j ISTIO_REDIRECT", *END]),  # the shell script asked for no user, and said so once
        ((3, 4), [OF_PROXY, f"{TO_ITSELF} -j ISTIO_IN_REDIRECT", *END]),
        (
            (5, 6, 8),
            [
                OF_PROXY,
                f"{TO_ITSELF} -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT", "-o lo -m owner ! --uid-owner 1337 -j RETURN", END[0],
                f"{TO_ITSELF} -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT", "-o lo -m owner ! --gid-owner 1337 -j RETURN", *END[1:],
            ],
        ),
    ],
)  # fmt: skip
def test_what_an_application_sends_is_treated_as_each_release_does(minors, listed):
    for minor in minors:
        options = release_plans.settle_as(Options.from_argv(ALL).settle(offline()), minor)
        tables = load_plan(release_plans.plan(options, minor), IPV4).tables
        assert [one.text for one in tables["nat"]["ISTIO_OUTPUT"].rules] == listed, minor


LISTED = ["-b", "80,15008", "-i", "*", "--ipv6", "off", "-e", "15008"]
EXCLUDING = ["-b", "*", "-d", "15020,22", "-i", "*", "--ipv6", "off", "-e", "15008"]


@pytest.mark.parametrize(
    ("words", "minor", "changed"),
    [
        (EXCLUDING, 2, {}), (EXCLUDING, 3, {"tunnel_port": 0, "exclude_inbound_ports": (22, 15020)}), (EXCLUDING, 12, {"tunnel_port": 0, "exclude_inbound_ports": (15008, 22, 15020)}),
        (EXCLUDING, 13, {"tunnel_port": 0, "exclude_inbound_ports": (15008, 15020, 22)}), (EXCLUDING, 25, {}), ([*EXCLUDING, "-m", "TPROXY"], 13, {"tunnel_port": 0, "exclude_inbound_ports": (15020, 22)}),
        (LISTED, 3, {"tunnel_port": 0, "inbound_port": 15001}), (LISTED, 5, {"tunnel_port": 0, "inbound_port": 15001}), (LISTED, 6, {"tunnel_port": 0}),
        (LISTED, 13, {"tunnel_port": 0, "inbound_ports": (80,)}), (LISTED, 25, {}),
    ],
)  # fmt: skip
def test_options_with_which_todays_rules_treat_packets_as_a_release_did_leave_out_what_it_left_out(words, minor, changed):
    given = Options.from_argv(words).settle(offline())
    found = release_plans.settle_as(given, minor)
    wanted = given.replace(istio_exact=True, **changed)
    assert {flag.field: getattr(found, flag.field) for flag in Options.flags if getattr(found, flag.field, None) != getattr(wanted, flag.field, None)} == {}


@pytest.mark.parametrize(("after", "ssh", "shared", "minor"), [(13, True, False, 7), (13, False, False, 12), (6, False, True, 5), (6, False, False, 5), (13, False, True, 7)])
def test_rules_of_several_releases_are_those_of_the_first_where_they_show_what_only_it_has(after, ssh, shared, minor):
    shown = Options.from_argv(ALL).settle(offline())
    shown = shown.replace(exclude_inbound_ports=(22,) if ssh else (), inbound_port=shown.outbound_port if shared else shown.inbound_port)
    given = Options.from_argv(EXCLUDING).settle(offline())
    first = 5 if after == 6 else 7
    assert Releases(first, after, exact=True).settle_as(given, shown) == release_plans.settle_as(given, minor)


@pytest.mark.parametrize(("ipv6", "settled"), [("off", "inet"), ("on", "on"), ("inet", "inet")])
def test_native_rules_capture_ipv6_where_it_is_off_too(ipv6, settled):
    given = Options.from_argv(["-b", "*", "--ipv6", ipv6]).settle(offline())
    assert not given.istio_exact
    assert NATIVE.settle_as(given, given) == given.replace(istio_exact=True, ipv6=settled)


@pytest.mark.parametrize(("minor", "senders", "is_answered"), [(6, 1, False), (7, 2, True), (8, 2, True)])
def test_rules_of_dns_before_1_9_say_why_they_are_there(minor, senders, is_answered):
    found = [(table, chain, rule.comment) for table, chain, rule in rules(minor, "--redirect-dns") if "DNS" in rule.comment or "resolver" in rule.comment or "own queries" in rule.comment]
    assert [why for _, chain, why in found if chain == "OUTPUT"] == ["the proxy's own queries"] * senders + ["DNS queries go to the proxy's resolver"]
    answered = [("nat", "POSTROUTING", "the proxy's resolver answers to the address that it listens on")]
    assert [one for one in found if one[1] == "POSTROUTING"] == answered * is_answered
