"""The rules that capture DNS: which queries go to the proxy's resolver, and in which conntrack zones the two meet."""

from __future__ import annotations

import pytest

from core import FAMILIES, IPV4, IPV6, Options, plan, write_plan

SERVER = ("--dns-servers", "10.0.0.53")
FORWARDED = (*SERVER, "-k", "eth7", "--redirect-forwarded-dns")
OF_SERVER = "-d 10.0.0.53/32 -p udp -m udp --dport 53"


def chain(place, *words, family=IPV4):
    """The rules of a chain, as `nat OUTPUT` names it; empty where there is none."""
    table, name = place.split()
    options = Options.from_argv(["-b", "*", "-i", "*", "-g", "7", "-u", "7", "--redirect-dns", "--ipv6", "on", *words], {})
    chains = write_plan(plan(options), family).get(table, {})
    return chains[name].texts if name in chains else []


def zones(*own, to):
    """The rules that set the zones of the proxy's queries and answers, then that of the application's queries."""
    of_proxy = [f"-p udp -m udp {ports} -m owner --{kind}-owner 7 -j CT {zone}" for kind in ("uid", "gid") for ports, zone in (("--dport 53", own[0]), ("--sport 15053", "--zone 2"))]
    return [*of_proxy, f"{to} -j CT --zone 2"]


def test_queries_to_the_name_servers_go_to_the_resolver_over_tcp_and_udp_in_their_family_alone():
    both = ("--dns-servers", "10.0.0.53,fd00::53")
    for family, server in ((IPV4, "10.0.0.53/32"), (IPV6, "fd00::53/128")):
        listed = [f"-d {server} -p {one} -m {one} --dport 53 -j REDIRECT --to-ports 15053" for one in ("tcp", "udp")]
        assert chain("nat ISTIO_OUTPUT_DNS", *both, family=family) == listed
        assert chain("nat ISTIO_OUTPUT_DNS", *SERVER, family=family) == (listed if family is IPV4 else [])
        every = [f"-p {one} -m {one} --dport 53 -j REDIRECT --to-ports 15053" for one in ("tcp", "udp")]
        assert chain("nat ISTIO_OUTPUT_DNS", "--capture-all-dns", family=family) == every


@pytest.mark.parametrize(("words", "own"), [(SERVER, "--zone-orig 1"), ((*SERVER, "--istio-exact"), "--zone 1")])
def test_the_application_s_queries_are_in_another_zone_than_the_proxy_s(words, own):
    assert chain("raw OUTPUT", *words) == ["-j ISTIO_OUTPUT_DNS"]
    assert chain("raw ISTIO_OUTPUT_DNS", *words) == zones(own, to=OF_SERVER)


def test_answers_to_the_proxy_are_looked_up_in_its_zone_only_as_istio_does():
    answers = ["-s 10.0.0.53/32 -p udp -m udp --sport 53 -j CT --zone 1"]
    assert chain("raw ISTIO_INBOUND", *SERVER, "--istio-exact") == answers
    assert chain("raw PREROUTING", *SERVER, "--istio-exact") == ["-j ISTIO_INBOUND"]
    assert chain("raw ISTIO_INBOUND", *SERVER) == chain("raw PREROUTING", *SERVER) == []


def test_queries_from_behind_the_pod_are_in_the_application_s_zone():
    assert chain("raw PREROUTING", *FORWARDED) == ["-j ISTIO_INBOUND"]
    assert chain("raw ISTIO_INBOUND", *FORWARDED) == ["-d 10.0.0.53/32 -i eth7 -p udp -m udp --dport 53 -j CT --zone 2"]
    assert chain("raw ISTIO_INBOUND", "--capture-all-dns", "-k", "eth7", "--redirect-forwarded-dns") == ["-i eth7 -p udp -m udp --dport 53 -j CT --zone 2"]
    for words in ((*SERVER, "-k", "eth7"), (*SERVER, "--redirect-forwarded-dns")):
        assert chain("raw ISTIO_INBOUND", *words) == [], "without an interface, nothing comes from behind the pod"


def test_queries_from_behind_the_pod_are_redirected_before_tproxy_takes_them():
    assert chain("nat PREROUTING", *FORWARDED)[0] == "-i eth7 -j ISTIO_OUTPUT_DNS"
    returned = "-d 10.0.0.53/32 -i eth7 -p tcp -m tcp --dport 53 -j RETURN"
    assert [returned in chain("mangle ISTIO_INBOUND", *FORWARDED, *mode) for mode in ((), ("-m", "TPROXY"))] == [False, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_queries_to_dockers_resolver_are_checked_before_dockers_own_rule(family):
    first = [f"-d 127.0.0.11/32 -p {one} -m {one} --dport 53 -j ISTIO_OUTPUT" for one in ("tcp", "udp")]
    found = [rule for rule in chain("nat OUTPUT", "--dns-servers", "127.0.0.11", family=family) if "127.0.0.11" in rule]
    assert sorted(found) == (first if family is IPV4 else [])
    untouched = [f"-d 127.0.0.11/32 -p udp -m udp --dport 53 -m owner --{kind}-owner 7 -j RETURN" for kind in ("uid", "gid")]
    assert chain("raw ISTIO_OUTPUT_DNS", "--dns-servers", "127.0.0.11", family=family)[:2] == (untouched if family is IPV4 else zones("--zone-orig 1", to="")[:2])
    everywhere = ("--dns-servers", "127.0.0.11", "--capture-all-dns")
    assert not [rule for rule in chain("nat OUTPUT", *everywhere, family=family) if "127.0.0.11" in rule]


def test_every_rule_says_what_it_is_for():
    made = plan(Options.from_argv(["--redirect-dns", "--ipv6", "off", "-m", "TPROXY", "-b", "*", *FORWARDED], {}))
    said = {(table.name, rule.comment) for table in made.tables for one in table.chains for rule in one.all_rules if rule.origin and "dns" in rule.origin.option}
    assert {text for table, text in said if table == "raw"} == {
        "DNS queries get zones of their own", "the proxy's own queries", "the proxy's answers to the application", "the application's queries",
        "DNS queries from behind the pod are checked", "queries from behind the pod that go to the proxy's resolver",
    }  # fmt: skip
    assert {text for table, text in said if table == "nat"} == {"DNS queries are checked", "DNS queries go to the proxy's resolver", "DNS queries from behind the pod are checked"}
    assert {text for table, text in said if table == "mangle"} == {"DNS queries from behind the pod are redirected instead"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--istio-exact",), ("DNS answers are checked", "--redirect-dns")),
        (("-k", "eth7", "--redirect-forwarded-dns"), ("DNS queries from behind the pod are checked", "--redirect-forwarded-dns")),
        (("-k", "eth7", "--redirect-forwarded-dns", "--istio-exact"), ("DNS answers are checked", "--redirect-dns")),
    ],
)
def test_what_comes_in_is_looked_at_for_the_answers_or_for_what_is_behind_the_pod(words, said):
    made = plan(Options.from_argv(["--redirect-dns", "--ipv6", "on", *SERVER, *words], {}))
    (rule,) = [rule for table, place, rule in made.walk() if (table, place) == ("raw", "PREROUTING")]
    assert (rule.comment, rule.origin_label, rule.families) == (*said, (IPV4,))


def test_only_the_families_of_the_servers_are_asked_for_queries_from_behind_the_pod():
    assert chain("nat PREROUTING", *FORWARDED)[0] == "-i eth7 -j ISTIO_OUTPUT_DNS"
    assert "-i eth7 -j ISTIO_OUTPUT_DNS" not in chain("nat PREROUTING", *FORWARDED, family=IPV6)
