"""What holds for the plan of any options, and how rules become chains. Whole rulesets are on file in golden/rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from core import FAMILIES, IPV4, IPV6, Options, describe_plan, plan, settled, write_plan
from netinit.options import LAYOUTS
from netinit.rules import layouts
from netinit.rules.layouts import untranslated
from netinit.rules.marking_targets import TrackZone
from netinit.rules.matches.context import BARE_SYN, ConnectionDirection, ConnectionState
from netinit.rules.matches.packet import InInterface, Port, Protocol
from netinit.rules.model import ALWAYS
from netinit.rules.targets import Tproxy
from strategies import made_options
from sweeps import together

SOME = settings(max_examples=80)
BUILTIN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")


def chain(options, place, family=IPV4):
    """The rules of one chain, as `nat OUTPUT` names it; empty where there is none."""
    table, name = place.split()
    chains = write_plan(plan(options), family).get(table, {})
    return chains[name].texts if name in chains else []


def rules_of(made):
    return [(table, one, rule) for table in made.tables for one in table.chains for rule in (*one.inserted, *one.rules)]


@SOME
@given(made_options())
def test_the_same_options_make_the_same_plan(options):
    assert plan(options) == plan(options.replace())


@SOME
@given(made_options())
def test_every_rule_says_why_it_exists_and_is_of_a_family_that_is_planned(options):
    made = plan(options)
    for _, _, rule in rules_of(made):
        assert rule.comment
        assert rule.origin == ALWAYS or rule.origin.label == Options.flag(rule.origin.option).label, rule
        assert rule.families
        assert set(rule.families) <= set(made.families)


@SOME
@given(made_options())
def test_tables_stand_in_the_order_of_programming_and_every_chain_is_reached_and_named_once(options):
    made = plan(options)
    order = ["mangle", "nat", "raw", "filter"]
    names = [table.name for table in made.tables]
    assert names == sorted(names, key=order.index)
    for table in made.tables:
        chains = [one.name for one in table.chains]
        assert len(set(chains)) == len(chains)
        jumped_to = {
            rule.target.chain for where, _, rule in rules_of(made) if where is table and hasattr(rule.target, "chain")
        }
        assert jumped_to <= set(chains)
        assert all(one.rules or one.inserted or one.name in jumped_to for one in table.chains)
        assert all(not one.inserted for one in table.chains if one.name not in BUILTIN)


@SOME
@given(made_options())
def test_addresses_routes_and_policy_rules_belong_together(options):
    made = plan(options)
    assert [(one.family, one.table) for one in made.routes] == [(one.family, one.table) for one in made.ip_rules]
    assert all((one.mark, one.table) == (options.tproxy_mark, options.tproxy_table) for one in made.ip_rules)
    assert bool(made.ip_rules) == (options.inbound_mode == "TPROXY" and bool(options.inbound_ports))
    current = options.layout == "current"
    assert [one.cidr for one in made.addresses] == (["::6/128"] if current and options.ipv6 == "on" else [])


def test_ipv6_is_planned_unless_it_is_off():
    assert plan(Options()).families == FAMILIES
    assert plan(Options(ipv6="on")).families == FAMILIES
    assert plan(Options(ipv6="off")).families == (IPV4,)
    assert plan(Options(layout="classic", ipv6="off")).families == FAMILIES  # which refuses it


# --- orders that the kernel's listing has ------------------------------------------------------------------------------


def test_in_tproxy_mode_each_port_has_its_rules_together():
    options = Options(inbound_mode="TPROXY", inbound_ports=(80, 443), ipv6="on")
    assert [rule.rpartition(" -j ")[2] for rule in chain(options, "mangle ISTIO_INBOUND")][-6:] == [
        "ISTIO_DIVERT",
        "ISTIO_DIVERT",
        "ISTIO_TPROXY",
    ] * 2
    ports = [rule.partition("--dport ")[2].partition(" ")[0] for rule in chain(options, "mangle ISTIO_INBOUND")]
    assert ports[-6:] == ["80", "80", "80", "443", "443", "443"]
    classic = chain(options.replace(layout="classic"), "mangle ISTIO_INBOUND")
    assert [rule.rpartition(" -j ")[2] for rule in classic] == ["ISTIO_DIVERT", "ISTIO_DIVERT", "ISTIO_DIVERT", "ISTIO_TPROXY"] * 2


def test_virtual_interfaces_stand_in_the_reverse_of_their_order():
    options = Options(virtual_interfaces=("a", "b"), outbound_cidrs="*", ipv6="on")
    assert [rule.split()[1] for rule in chain(options, "nat PREROUTING")] == ["b", "a", "b", "a"]
    for layout in ("current", "classic"):
        listed = options.replace(outbound_cidrs="10.0.0.0/8,192.0.2.0/24", layout=layout)
        assert [rule.split(" -j")[0] for rule in chain(listed, "nat PREROUTING")] == [
            "-d 192.0.2.0/24 -i b", "-d 192.0.2.0/24 -i a", "-d 10.0.0.0/8 -i b", "-d 10.0.0.0/8 -i a", "-i b", "-i a",
        ]  # fmt: skip
        assert [rule.split(" -j")[0] for rule in chain(listed, "nat PREROUTING", IPV6)] == ["-i b", "-i a"]


def test_a_plan_names_the_interfaces_that_it_excludes_and_no_others():
    options = Options(exclude_interfaces=("a", "b"), inbound_ports="*", virtual_interfaces=("tap0",), ipv6="on")
    assert plan(options).excluded_interfaces() == {"a", "b"}
    assert plan(options.replace(exclude_interfaces=())).excluded_interfaces() == frozenset()


def test_excluded_interfaces_stand_first_in_every_table_that_captures():
    options = Options(exclude_interfaces=("a", "b"), inbound_ports="*", drop_invalid=True, ipv6="on")
    for mode, tables in (("REDIRECT", ("nat",)), ("NONE", ("nat",)), ("TPROXY", ("nat", "mangle"))):
        for table in ("nat", "mangle"):
            for name, option in (("PREROUTING", "-i"), ("OUTPUT", "-o")):
                first = chain(options.replace(inbound_mode=mode), f"{table} {name}")[:2]
                wanted = [f"{option} {interface} -j RETURN" for interface in ("a", "b")]
                assert (first == wanted) == (table in tables), (mode, table, name, first)


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cidrs", "kept"),
    [("127.0.0.0/8", False), ("127.5.0.0/16,10.0.0.0/8", False), ("::1/128", False), ("10.0.0.0/8", True), ("", True), ("*", True),
     ("126.0.0.0/8", True), ("128.0.0.0/8", True), ("0.0.0.0/0", True), ("::2/128", True), ("::/64", True)],
)  # fmt: skip
def test_the_application_s_return_over_lo_is_kept_unless_a_loopback_network_is_captured(cidrs, kept):
    for family in FAMILIES:
        rules = chain(Options(outbound_cidrs=cidrs, ipv6="on"), "nat ISTIO_OUTPUT", family)
        assert ("-o lo -m owner ! --uid-owner 1337 -j RETURN" in rules) is kept
        assert ("-o lo -m owner ! --gid-owner 1337 -j RETURN" in rules) is kept


def test_with_dns_capture_the_users_own_port_53_is_left_alone_and_the_groups_is_not():
    rules = chain(Options(redirect_dns=True, capture_all_dns=True, ipv6="on"), "nat ISTIO_OUTPUT")
    users, groups = (
        [rule for rule in rules if f"-m owner --{kind}-owner 1337 -j ISTIO_IN" in rule] for kind in ("uid", "gid")
    )
    assert [rule.partition("-m ")[2].partition(" -m")[0] for rule in users + groups] == [
        "multiport ! --dports 53,15008",
        "tcp ! --dport 15008",
    ]


@pytest.mark.parametrize(
    ("servers", "four", "six"), [("10.0.0.1", 1, 0), ("fd00::1", 0, 1), ("10.0.0.1,10.0.0.2,fd00::1", 2, 1)]
)
def test_each_family_s_queries_go_to_the_resolver_where_the_family_has_a_server(servers, four, six):
    options = Options(redirect_dns=True, dns_servers=servers, ipv6="on")
    for family, count in ((IPV4, four), (IPV6, six)):
        assert len(chain(options, "nat ISTIO_OUTPUT_DNS", family)) == 2 * count
        assert ("-j ISTIO_OUTPUT_DNS" in chain(options, "nat ISTIO_OUTPUT", family)) is bool(count)
        assert len(chain(options, "raw ISTIO_OUTPUT_DNS", family)) == 4 + count
        assert chain(options, "raw PREROUTING", family) == [], "answers are looked up where those of every other query are"
        exact = options.replace(istio_exact=True)
        assert chain(exact, "raw PREROUTING", family) == (["-j ISTIO_INBOUND"] if count else [])
        assert len(chain(exact, "raw ISTIO_INBOUND", family)) == count


@pytest.mark.parametrize("layout", ["current", "ambient"])
def test_only_the_option_sends_dns_from_behind_the_pod_to_the_resolver(layout):
    fields = {"layout": layout, "redirect_dns": True, "virtual_interfaces": "net1", "ipv6": "off"} | ({"dns_servers": "10.0.0.1"} if layout == "current" else {})
    without, made = (plan(Options(**fields, **more)) for more in ({}, {"redirect_forwarded_dns": True}))
    before = [rule for *_, rule in rules_of(without)]
    added = [(table, one, rule) for table, one, rule in rules_of(made) if rule not in before]
    assert any(table.name == "nat" and one.name in ("PREROUTING", "ISTIO_PRERT") for table, one, _ in added)
    assert all(InInterface(names=("net1",)) in rule.matches for table, one, rule in added if table.name == "nat")
    alone = {key: value for key, value in fields.items() if key != "virtual_interfaces"}
    assert plan(Options(**alone, redirect_forwarded_dns=True)).tables == plan(Options(**alone)).tables, "nothing is behind the pod"


def without_deviations(made):
    """The rules of a plan by table and chain, without what `--istio-exact` leaves out."""
    added = ConnectionState(states=("DNAT",))
    deviations = (BARE_SYN.replace(negated=True), ConnectionDirection(direction="REPLY"))
    found = {}
    classic_tproxy = made.layout == "classic" and any(table.name == "mangle" for table in made.tables)
    for table, one, rule in rules_of(made):
        chains = {*untranslated.CHAINS, "ISTIO_DROP"}
        if table.name == "raw" and {one.name, rule.target.calls} & {"ISTIO_INBOUND", "ISTIO_PRERT"}:
            continue  # where Istio's rules look up DNS answers apart
        if classic_tproxy and table.name == "nat" and rule.families == (IPV6,) and one.name in ("PREROUTING", "ISTIO_INBOUND"):
            continue  # inbound IPv6, which Istio's rules leave alone there
        if classic_tproxy and table.name == "mangle" and InInterface(names=("lo",)) in rule.matches:
            continue  # Istio's rules let every packet of a known socket pass
        if not {BARE_SYN, added} & set(rule.matches) and not (table.name == "filter" and {one.name, rule.target.calls} & chains):
            refusing = one.name.startswith("ISTIO_REFUSE")  # of --ipv6 reject, which is no deviation
            matches = rule.matches if refusing else tuple(match for match in rule.matches if match not in deviations)
            if table.name == "mangle" and one.name == "ISTIO_INBOUND" and len(matches) < len(rule.matches) and Protocol(name="tcp") not in matches and not any(isinstance(match, Port) for match in matches):
                matches = (Protocol(name="tcp"), *matches)  # implied by the flags
            target = rule.target.replace(closes=False) if isinstance(rule.target, Tproxy) else rule.target
            target = target.replace(side="") if isinstance(target, TrackZone) else target
            found.setdefault((table.name, one.name), []).append(rule.replace(matches=matches, target=target, promise=""))
    return found


@SOME
@given(made_options())
def test_istio_exact_leaves_out_what_stops_connections_on_old_conntrack_entries_and_nothing_else(options):
    exact = plan(options.replace(istio_exact=True))
    assert without_deviations(plan(options.replace(istio_exact=False))) == without_deviations(exact)
    answers = {("raw", "ISTIO_INBOUND"), ("raw", "PREROUTING")}
    everything = {(table.name, one.name): [*one.inserted, *one.rules] for table in exact.tables for one in table.chains if one.rules or one.inserted}
    assert without_deviations(exact) == {place: rules for place, rules in everything.items() if place not in answers}


def test_dns_without_a_server_is_a_warning_and_no_rule():
    options = Options(redirect_dns=True, ipv6="on")
    (warning,) = plan(options).warnings
    assert warning.startswith("--redirect-dns: no name server")
    assert plan(options).tables == plan(Options(ipv6="on")).tables
    assert plan(options.replace(capture_all_dns=True)).warnings == ()


def test_the_classic_layout_refuses_ipv6_that_is_off():
    made = plan(Options(layout="classic", ipv6="off", inbound_ports="*", istio_exact=True))
    assert write_plan(made, IPV6).keys() == {"filter"}
    assert chain(Options(layout="classic", ipv6="off"), "filter INPUT", IPV6) == [
        "-m state --state ESTABLISHED -j ACCEPT",
        "-d ::1/128 -i lo -j ACCEPT",
        "-j REJECT --reject-with icmp6-port-unreachable",
    ]
    assert "filter" not in write_plan(made, IPV4)
    assert "filter" not in write_plan(plan(Options(layout="classic", ipv6="on", istio_exact=True)), IPV6)


# --- which option made a rule -----------------------------------------------------------------------------------------


def origins(**fields):
    return {rule["origin"] for rule in describe_plan(plan(Options(ipv6="on", istio_exact=True, **fields)))["rules"]}


@pytest.mark.parametrize("layout", ["current", "classic"])
def test_without_any_option_these_make_the_rules(layout):
    basic = {"always", "--envoy-port", "--inbound-capture-port", "--proxy-uid", "--proxy-gid"}
    one_more = {"current": "--inbound-tunnel-port", "classic": "DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK"}
    assert origins(layout=layout) == basic | {one_more[layout]}


@together(
    ("fields", "origin"),
    [
        ({"inbound_ports": "80"}, "--istio-inbound-ports"),
        ({"inbound_ports": "*"}, "--istio-inbound-ports"),
        ({"outbound_cidrs": "*"}, "--istio-service-cidr"),
        ({"outbound_cidrs": "10.0.0.0/8"}, "--istio-service-cidr"),
        ({"exclude_outbound_cidrs": "10.0.0.0/8"}, "--istio-service-exclude-cidr"),
        ({"virtual_interfaces": ("tap0",)}, "--kube-virt-interfaces"),
    ],
)
@pytest.mark.parametrize("layout", ["current", "classic"])
def test_a_rule_names_the_option_that_made_it(layout, fields, origin):
    assert origins(layout=layout, **fields) - origins(layout=layout) == {origin}


@pytest.mark.parametrize(
    ("fields", "origin"),
    [
        ({"exclude_interfaces": ("eth1",)}, "--istio-exclude-interfaces"),
        ({"outbound_ports": "80"}, "--istio-outbound-ports"),
        ({"exclude_outbound_ports": "80"}, "--istio-local-outbound-ports-exclude"),
        ({"redirect_dns": True, "capture_all_dns": True}, "--redirect-dns"),
        ({"redirect_dns": True, "dns_servers": "10.0.0.1"}, "--redirect-dns"),
        ({"drop_invalid": True}, "--drop-invalid"),
        ({"owner_groups": "5"}, "ISTIO_OUTBOUND_OWNER_GROUPS"),
        ({"exclude_owner_groups": "5"}, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"),
        ({"inbound_mode": "TPROXY"}, "--istio-inbound-interception-mode"),
    ],
)
def test_a_rule_of_the_current_layout_names_the_option_that_made_it(fields, origin):
    assert origins(**fields) - origins() == {origin}


def test_a_rule_names_the_option_that_made_it_where_two_belong_together():
    for layout in ("current", "classic"):
        both = origins(layout=layout, inbound_ports="*", exclude_inbound_ports="80")
        assert both - origins(layout=layout, inbound_ports="*") == {"--istio-local-exclude-ports"}
        made = {
            rule["text"]: rule["origin"]
            for rule in describe_plan(
                plan(Options(layout=layout, inbound_ports="*", inbound_mode="TPROXY", ipv6="on"))
            )["rules"]
        }
        assert made["-j MARK --set-xmark 0x539/0xffffffff"] == "--istio-inbound-tproxy-mark"
        assert made["-j ACCEPT"] == "--istio-inbound-interception-mode"
        (tproxy,) = {origin for text, origin in made.items() if "-j TPROXY" in text}
        assert tproxy == ("--inbound-capture-port" if layout == "current" else "--envoy-port")
    assert origins(layout="classic", inbound_ports="*") - origins(layout="classic") == {"--istio-inbound-ports"}
    refusing = describe_plan(plan(Options(layout="classic", ipv6="off", istio_exact=True)))["rules"]
    assert {rule["origin"] for rule in refusing if rule["table"] == "filter"} == {"--ipv6"}


def test_where_quic_is_refused_in_one_family_the_other_reports_in_nat_alone():
    options = Options(ipv6="on", outbound_cidrs=("2001:db8::/32",), reject_quic=True, log_rules=True)
    quic = "-p udp -m udp --dport 443 -m conntrack --ctstate NEW -j ISTIO_LOG"
    assert (chain(options, "filter OUTPUT", IPV6).count(quic), chain(options, "filter OUTPUT", IPV4).count(quic)) == (1, 0)
    assert (len(chain(options, "filter ISTIO_LOG", IPV6)), chain(options, "filter ISTIO_LOG", IPV4)) == (1, [])
    assert [line.split(" -m limit")[0] for line in chain(options, "filter ISTIO_QUIC", IPV6)][-2:] == [
        "-d 2001:db8::/32", "-d 2001:db8::/32 -j REJECT --reject-with icmp6-port-unreachable",
    ], "what is reported as refused is what is refused"  # fmt: skip
    assert "-j ISTIO_LOG" in chain(options, "nat OUTPUT", IPV4)
    assert "-j ISTIO_LOG" not in chain(options, "nat OUTPUT", IPV6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_plan_says_which_layout_and_which_options_made_it(layout):
    options = settled(Options(layout=layout, ipv6="on"))
    made = plan(options)
    assert (made.layout, made.made_from) == (layout, options)
    with pytest.raises(TypeError, match=r"^the options are not settled for a pod: use options.settle\(facts\), or options.settle\(offline\(\)\) without a pod$"):
        layouts.plan(Options(layout=layout))


def test_no_group_is_excluded_where_no_groups_are_listed():
    made = plan(Options(owner_groups="", outbound_cidrs="*"))
    assert not [rule for *_, rule in made.walk() if "group" in rule.comment]
