"""The rules of earlier releases of Istio, where one release differs from the one before; tests/conformance records all of them."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4
from netinit.options import Options, offline
from netinit.rules.infer_options import release_plans
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
