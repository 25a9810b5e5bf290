"""What is asked of all rules together: whether they are Istio's alone, whether one is foreign, and who excludes an interface."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, parse_rule, plan
from netinit.rules import infer_options
from netinit.rules.infer_options import from_chains, from_iptables, from_nft, native_plan, older_releases, release_plans
from netinit.rules.infer_options.older_releases import NATIVE, Releases, list_rules
from plan_snapshot import live_chains
from release_options import settle

OPTIONS = settle("all-ports-of-both-families")


def with_rule(rules, text, place="nat OUTPUT", family=IPV4, at=None):
    """The rules with one more in a chain, at its end where no number is given."""
    table, chain = place.split()
    its = [*rules[family].get((table, chain), ())]
    its.insert(len(its) if at is None else at, parse_rule(text, family))
    return {**rules, family: {**rules[family], (table, chain): its}}


@pytest.mark.parametrize(
    ("place", "text", "is_exact"),
    [
        ("filter ISTIO_INBOUND", "-j RETURN", False), ("filter ISTIO_OUTPUT", "-j RETURN", False), ("filter ISTIO_PRERT", "-j RETURN", False), ("filter ISTIO_DROP", "-j DROP", False),
        ("mangle ISTIO_DROP", "-j DROP", True), ("filter ISTIO_QUIC", "-j RETURN", True), ("nat ISTIO_OPEN_REUSE", "-j RETURN", False), ("nat ISTIO_OPEN_OTHER", "-j RETURN", False),
        ("filter ISTIO_OPEN_REUSE", "-j RETURN", True), ("mangle ISTIO_INBOUND", "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate DNAT -j ISTIO_DIVERT", False),
        ("mangle ISTIO_INBOUND", "-p tcp -m conntrack --ctstate DNAT -j ISTIO_DIVERT", True), ("filter OUTPUT", "-j RETURN", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_one_rule_beyond_istios_shows_that_the_rules_are_not_its_alone(place, text, is_exact, family):
    rules = list_rules(plan(OPTIONS.replace(istio_exact=True)))
    assert from_chains(rules, {}).options.istio_exact
    assert from_chains(with_rule(rules, text, place, family), {}).options.istio_exact is is_exact


def test_options_that_close_nothing_are_not_said_to_be_exact():
    nothing = settle("nothing")
    assert not from_chains(list_rules(plan(nothing)), {}).options.istio_exact


INVALID = "-p tcp -m tcp --dport 0 -j RETURN"


def test_one_foreign_rule_is_looked_for_among_so_many_rules_and_no_more(monkeypatch):
    rules = with_rule(list_rules(plan(settle("nothing", exclude_inbound_ports="22", inbound_ports="*"))), INVALID, "nat ISTIO_INBOUND", at=1)
    number = sum(len(its) for chains in rules.values() for (_, chain), its in chains.items() if chain.startswith("ISTIO"))
    monkeypatch.setattr(infer_options, "MAX_CANDIDATES", number)
    found = from_chains(rules, {})
    assert found.unread == ("a rule of ISTIO_INBOUND that no option makes: it is TCP and its destination port is 0",)
    assert found.options.exclude_inbound_ports == (22,)
    monkeypatch.setattr(infer_options, "MAX_CANDIDATES", number - 1)
    found = from_chains(rules, {})
    assert (found.options, len(found.unread)) == (None, 1)
    assert found.unread[0].startswith("the rules make no valid options: exclude_inbound_ports: ")


def test_of_two_foreign_rules_neither_is_found():
    rules = list_rules(plan(settle("all-ports")))
    for _ in range(2):
        rules = with_rule(rules, INVALID, "nat ISTIO_INBOUND", at=1)
    assert from_chains(rules, {}).options is None


@pytest.mark.parametrize(
    ("texts", "at", "names"),
    [
        (("-i eth5 -j RETURN",), 0, "eth5"), (("-i eth5 -j RETURN", "-i eth6 -j RETURN"), 0, "eth6, eth5"), (("-i eth5 -j RETURN",) * 2, 0, "eth5"), (("! -i eth5 -j RETURN",), 0, ""),
        (("-i eth5 -p tcp -j RETURN",), 0, ""), (("-i eth5 -j ACCEPT",), 0, ""), (("-s 10.0.0.0/8 -j RETURN",), 0, ""), (("-i eth5 -j RETURN",), None, ""), ((), 0, ""),
    ],
)  # fmt: skip
def test_who_excludes_an_interface_before_our_rules_is_not_known(texts, at, names):
    rules = list_rules(plan(OPTIONS))
    for text in texts:
        rules = with_rule(rules, text, "nat PREROUTING", at=at)
    found = from_iptables(rules, {})
    assert found.options == from_iptables(list_rules(plan(OPTIONS)), {}).options
    assert found.unread == ((f"--kube-virt-interfaces: it is unknown whether the rules that exclude {names} are netinit's",) if names else ())


def test_rules_of_nobody_are_of_no_release():
    assert from_iptables({}, {}).options is None
    foreign = {IPV4: {("nat", "PREROUTING"): [parse_rule("-i eth5 -j RETURN", IPV4)]}, IPV6: {("filter", "INPUT"): [parse_rule("-j REJECT --reject-with icmp6-port-unreachable", IPV6)]}}
    found = from_iptables(foreign, {})
    assert (found.options, found.unread, found.older) == (None, (), None)
    assert from_nft({}, {}).options is None


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        (Releases(0, 1, exact=True), "Istio 1.0"), (Releases(1, 3, exact=True), "Istio 1.1 to 1.2"), (Releases(7, 18, exact=False), "Istio 1.7 to 1.17"),
        (NATIVE, "Istio 1.27 and later, native nft"), (Releases(24, 25, exact=True), "Istio 1.24"),
    ],
)  # fmt: skip
def test_releases_are_named_from_the_first_to_the_last(releases, words):
    assert str(releases) == words


@pytest.mark.parametrize("port", [15013, 15053])
@pytest.mark.parametrize(("minor", "name"), [(6, "dns-of-all-servers"), (7, "dns-of-all-servers"), (8, "dns"), (8, "dns-of-all-servers")])
def test_where_dns_went_before_1_9_is_told_by_the_rules(port, minor, name):
    options = release_plans.settle_as(settle(name, tunnel_port=15008), minor)
    live = list_rules(release_plans.plan(options, minor, port))
    found = from_iptables(live, {})
    assert (found.older.resolver, found.older.exact, found.options.redirect_dns) == (port, True, True)
    assert list_rules(found.make_plan(found.options)) == live
    assert older_releases._resolver_of({IPV4: {("nat", "OUTPUT"): []}}) == 15053


@pytest.mark.parametrize(("place", "text"), [("nat OUTPUT", "-o eth7 -j RETURN"), ("nat PREROUTING", "-i eth7 -j RETURN")])
@pytest.mark.parametrize("minor", [5, 12, 20])
def test_a_rule_for_an_interface_alone_is_not_taken_for_a_release_s(place, text, minor):
    options = release_plans.settle_as(OPTIONS.replace(exclude_inbound_ports=(15020,)), minor)
    rules = list_rules(release_plans.plan(options, minor))
    found, known = (from_iptables(one, {}) for one in (with_rule(rules, text, place, at=0), rules))
    assert (found.options, found.older) == (known.options, known.older)
    assert found.older.exact


@pytest.mark.parametrize("minor", [5, 12, 20])
def test_rules_of_a_release_with_one_that_is_foreign_are_not_exactly_its(minor):
    options = release_plans.settle_as(OPTIONS.replace(exclude_inbound_ports=(15020,)), minor)
    rules = list_rules(release_plans.plan(options, minor))
    found = from_iptables(with_rule(rules, "-m mark --mark 0x7 -j RETURN", "nat ISTIO_OUTPUT", at=1), {})
    assert found.older.first <= minor < found.older.after
    assert not found.older.exact


@pytest.mark.parametrize(("make", "read"), [(list_rules, from_iptables), (live_chains, from_nft)])
@pytest.mark.parametrize("cidrs", ["*", "10.0.0.0/8", "10.0.0.0/8,fd00::/8", ""])
def test_what_is_captured_is_told_where_ipv6_is_refused(make, read, cidrs):
    options = settle("ipv6-rejected", outbound_cidrs=cidrs)
    found = read(make(plan(options)), {})
    assert (found.options.outbound_cidrs, found.options.ipv6, found.unread) == (options.outbound_cidrs, "reject", ())


@pytest.mark.parametrize(("first", "after", "minor"), [(6, 7, 6), (7, 8, 7), (5, 7, 6), (7, 18, 17), (3, 5, 4), (1, 3, 2)])
def test_options_are_settled_as_by_the_last_of_several_releases(first, after, minor):
    given = settle("listed", tunnel_port=15008)
    assert Releases(first, after, exact=True).settle_as(given, given) == release_plans.settle_as(given, minor)
    assert Releases(first, after, exact=True).plan(given) == release_plans.plan(given, first)
    assert Releases(8, 9, exact=True, resolver=15013).plan(given) == release_plans.plan(given, 8, 15013)
    assert NATIVE.plan(given) == native_plan.plan(given)


def test_the_rules_of_each_family_are_of_it_alone():
    for family, chains in list_rules(plan(OPTIONS)).items():
        assert {rule.families for rules in chains.values() for rule in rules} == {(family,)}
