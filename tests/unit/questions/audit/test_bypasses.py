"""What passes the proxy by: each option makes the bypass that it makes, and a sidecar's honest list is known by heart."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from allpackets import around
from audits import SIDECAR, subject_of
from core import FAMILIES, IPV4, IPV6, Options, load_plan, parse_listing, plan, settled
from netinit.questions.audit import kinds
from netinit.questions.audit.bypasses import audit
from netinit.questions.audit.words import _few, _format_number, _list, _phrase, merge_families
from netinit.questions.pod_rules import PodRules
from netinit.simulate.listed_rules import load_listing

BY_DESIGN = ["proxy", "not-tcp", "not-tcp", "no-connection", "proxy-port", "local"]
MOST_LINES = 15


def bypasses(rows):
    """Those that do not go through the proxy, the most dangerous first."""
    return tuple(row for row in rows if row.kind in kinds.BYPASSES)


def named(rows):
    return [row.kind.name for row in rows]


def only(rows, name):
    (found,) = [row for row in rows if row.kind.name == name]
    return found


def test_the_default_sidecar_is_read_in_fifteen_lines_and_has_one_bypass_that_is_not_by_design():
    rows = audit(subject_of(SIDECAR))
    assert len(rows) <= MOST_LINES
    assert named(bypasses(rows)) == ["tunnel-port", *BY_DESIGN]
    ports = only(rows, "proxy-port")
    assert ports.who == ("TCP inbound on port 15020-15021, 15090",)
    assert ports.because == ("these inbound ports are not captured (--istio-local-exclude-ports)",)


def test_ports_beside_the_proxys_own_are_a_bypass_and_so_are_these_where_they_are_another_containers():
    rows = audit(subject_of(SIDECAR.replace("-d ", "-d 8080,")))
    assert only(rows, "inbound-port").who == ("TCP inbound on port 8080",)
    assert only(rows, "inbound-port").closes == "remove them from --istio-local-exclude-ports"
    rows = audit(subject_of(SIDECAR, proxy_ports=(15021, 15090)))
    assert (only(rows, "inbound-port").who, only(rows, "proxy-port").who) == (("TCP inbound on port 15020",), ("TCP inbound on port 15021, 15090",))


def test_the_tunnel_s_port_is_open_by_configuration_unless_the_proxy_is_known_to_listen_there():
    (open_port,) = [row for row in audit(subject_of(SIDECAR)) if row.kind is kinds.TUNNEL_PORT]
    assert (open_port.who, open_port.closes) == (("TCP inbound on port 15008",), "--inbound-tunnel-port 0")
    assert open_port.kind.intent == kinds.CONFIGURATION

    rows = bypasses(audit(subject_of(SIDECAR, has_tunnel=True)))
    assert named(rows) == [*BY_DESIGN[:-1], "tunnel", "local"]
    assert only(rows, "tunnel").kind.intent == kinds.DESIGN


@pytest.mark.parametrize("more", ["", "-m TPROXY", "--redirect-dns --dns-servers 203.0.113.7,2001:db8::7"])
def test_without_a_tunnel_its_port_is_captured_as_any_other(more):
    rows = audit(subject_of(f"{SIDECAR} {more} -e 0"))
    assert {"tunnel", "tunnel-port"}.isdisjoint(named(rows))
    assert not any("15008" in text for row in bypasses(rows) for text in row.who)


def test_the_lines_are_all_traffic_and_each_packet_is_in_one():
    rows = audit(subject_of(SIDECAR))
    regions = [region for row in rows for region in row.regions]
    spaces = {id(region.space): region.space for region in regions}
    for space in spaces.values():
        assert sum(region.size for region in regions if region.space is space) == prod(one.last + 1 for one in space.dimensions)


@pytest.mark.parametrize(
    ("more", "kind", "who"),
    [
        ("-x 10.0.0.0/8", "network", "IPv4: TCP outbound to 10.0.0.0/8"),
        ("-o 25,5432", "port", "TCP outbound on port 25, 5432"),
        ("-c net1", "interface", "outbound through net1"),
        ("--ipv6=off", "ipv6", "IPv6: TCP"),
        ("-i 10.0.0.0/8", "uncaptured", "TCP outbound"),
        ("-b 8080", "uncaptured", "TCP inbound on a port other than 8080, 15008"),
        ("-m NONE", "uncaptured", "TCP inbound"),
        ("-i ,", "uncaptured", "TCP outbound"),
        ("-m TPROXY", "mark", "with the mark 1337"),
    ],
)
def test_an_option_makes_its_bypass(more, kind, who):
    rows = audit(subject_of(f"{SIDECAR} {more}".replace("-i ,", "-i=")))
    found = [row for row in rows if row.kind.name == kind]
    assert found, named(rows)
    assert any(who in text for row in found for text in row.who), [row.who for row in found]
    assert all(row.kind.intent == kinds.CONFIGURATION for row in found)
    assert kind in named(bypasses(rows))


@pytest.mark.parametrize(("variable", "value"), [("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4001"), ("ISTIO_OUTBOUND_OWNER_GROUPS", "4001")])
def test_groups_that_are_excluded_are_a_bypass(variable, value):
    options = settled(Options.from_argv(["--ipv6=on", *SIDECAR.split()], {variable: value}))
    made = plan(options)
    found = PodRules({"plan": {IPV4: load_plan(made, IPV4)}}, {IPV4: around(IPV4)}, {"plan": options})
    assert "group" in named(bypasses(audit(found)))


def listed(text):
    return PodRules({"iptables-nft": {IPV4: load_listing(parse_listing(text), IPV4)}}, {IPV4: around(IPV4)})


SENDS_AWAY = """*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:ISTIO_OUTPUT - [0:0]
-A ISTIO_OUTPUT -j RETURN
{rules}
COMMIT
"""


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        ("-A OUTPUT -p tcp -m tcp --dport 9999 -j ACCEPT\n-A OUTPUT -p tcp -j REDIRECT --to-ports 15001", "foreign"),
        ("-A OUTPUT -p tcp -m tcp --dport 9999 -j DNAT --to-destination 203.0.113.9", "foreign"),
        ("-A PREROUTING -p tcp -j REDIRECT --to-ports 2222", "foreign"),
        ("-A OUTPUT -p tcp -m time --timestart 08:00:00 -j REDIRECT --to-ports 15001", "unknown"),
    ],
)
def test_foreign_rules_and_what_nobody_can_know_come_first(rules, kind):
    rows = bypasses(audit(listed(SENDS_AWAY.format(rules=rules))))
    assert rows[0].kind.name == kind
    assert rows[0].because


OF_ANOTHER_MESH = """*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:MESH - [0:0]
-A PREROUTING -p tcp -m tcp --dport 22 -j RETURN
-A PREROUTING -p tcp -j REDIRECT --to-ports 4143
-A OUTPUT -p tcp -j MESH
-A MESH -m owner --uid-owner 2102 -j RETURN
-A MESH -o lo -j RETURN
-A MESH -j REDIRECT --to-ports 4140
COMMIT
"""


def test_the_rules_of_another_mesh_capture_where_no_rule_of_ours_is_there():
    rows = audit(listed(OF_ANOTHER_MESH))
    assert [(row.directions, row.port) for row in rows if row.kind is kinds.CAPTURED] == [(("inbound",), 4143), (("outbound",), 4140)]
    assert named(bypasses(rows)) == ["untranslated", "untranslated", "uncaptured", "uncaptured", "not-tcp", "not-tcp", "no-connection", "local"]
    past = [row for row in rows if row.kind is kinds.UNCAPTURED]
    assert [row.who for row in past] == [("TCP inbound on port 22",), ("TCP outbound, uid 2102",)]
    assert ["--dport 22 -j RETURN" in past[0].because[0], "--uid-owner 2102 -j RETURN" in past[1].because[0]] == [True, True]
    assert all("netinit convert" in row.closes for row in past)


def test_what_such_rules_let_pass_that_is_not_tcp_names_the_rule():
    text = OF_ANOTHER_MESH.replace("-A OUTPUT -p tcp", "-A OUTPUT -p udp -m udp --dport 53 -j RETURN\n-A OUTPUT -p tcp")
    rows = [row for row in audit(listed(text)) if row.kind is kinds.NOT_TCP]
    inbound, outbound = ["`-p udp -m udp --dport 53 -j RETURN`" in "; ".join(row.because) for row in rows]
    assert (inbound, outbound) == (False, True)


def test_what_such_rules_leave_of_a_family_is_ipv6_that_is_not_captured():
    rulesets = {family: load_listing(parse_listing(OF_ANOTHER_MESH if family is IPV4 else ""), family) for family in FAMILIES}
    rows = bypasses(audit(PodRules({"iptables-nft": rulesets}, {family: around(family) for family in FAMILIES})))
    assert {row.who for row in rows if row.kind is kinds.IPV6} == {("IPv6: TCP inbound",), ("IPv6: TCP outbound",)}


def test_a_foreign_rule_that_takes_packets_out_of_tracking_is_named():
    text = "*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -m tcp --dport 25 -j CT --notrack\nCOMMIT\n" + SENDS_AWAY.format(
        rules="-A OUTPUT -p tcp -j REDIRECT --to-ports 15001"
    )
    first = bypasses(audit(listed(text)))[0]
    assert first.kind is kinds.FOREIGN
    assert "CT --notrack" in first.because[0]


@pytest.mark.parametrize(("flags", "rule", "kind"), [
    ("", "-p udp -m udp --dport 6081 -j CT --notrack", None),
    ("", "-p icmp -j CT --notrack", None),
    ("", "-p tcp -m tcp --dport 25 -j CT --notrack", "foreign"),
    ("--redirect-dns --capture-all-dns", "-p udp -m udp --dport 53 -j CT --notrack", "unknown"),  # both are at the same priority
    ("--reject-quic", "-p udp -m udp --dport 443 -j CT --notrack", "foreign"),
])  # fmt: skip
def test_a_foreign_rule_about_datagrams_is_no_bypass_where_the_pods_rules_leave_them_alone(flags, rule, kind):
    text = f"*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT {rule}\nCOMMIT\n"
    subject = subject_of(f"{SIDECAR} --ipv6 off {flags}".strip())
    foreign = {IPV4: load_listing(parse_listing(text), IPV4), IPV6: load_listing(parse_listing(""), IPV6)}
    rows = bypasses(audit(replace(subject, rulesets={**subject.rulesets, "iptables-nft": foreign})))
    assert [one for one in named(rows) if one in ("foreign", "unknown")][:1] == [kind] * bool(kind), named(rows)


def places(**ports):
    """A pod where several places redirect all TCP, each to its port."""
    listings = {name: SENDS_AWAY.format(rules=f"-A OUTPUT -p tcp -j REDIRECT --to-ports {port}") for name, port in ports.items()}
    rulesets = {name: {IPV4: load_listing(parse_listing(text), IPV4)} for name, text in listings.items()}
    return PodRules(rulesets, {IPV4: around(IPV4)})


def test_rules_in_two_places_that_disagree_about_packets_are_unknown():
    rows = bypasses(audit(places(nft=15001, legacy=15006)))
    assert rows[0].kind is kinds.UNKNOWN
    assert "does not show which it runs first" in rows[0].because[0]


def test_rules_in_two_places_that_agree_about_packets_are_as_one():
    assert kinds.UNKNOWN not in [row.kind for row in bypasses(audit(places(nft=15001, legacy=15001)))]


def test_a_policy_alone_in_another_place_drops_what_ours_would_capture():
    options = settled(Options.from_argv(["--ipv6=off", *SIDECAR.split()], {}))
    made = plan(options)
    theirs = load_listing(parse_listing("*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT DROP [0:0]\nCOMMIT\n"), IPV4)
    rulesets = {"nftables": {IPV4: load_plan(made, IPV4)}, "iptables-nft": {IPV4: theirs}}
    rows = audit(PodRules(rulesets, {IPV4: around(IPV4)}, {"nftables": options}))
    made_here = [row for row in rows if row.directions == ("outbound",)]
    assert {row.kind for row in made_here} == {kinds.DROPPED}
    assert any("the policy of iptables-nft's filter OUTPUT is DROP" in row.because[0] for row in made_here)


@pytest.mark.parametrize("rulesets", [{"plan": {}}, {}])
def test_a_pod_without_rules_is_uncaptured_altogether(rulesets):
    rows = bypasses(audit(PodRules(rulesets, {family: around(family) for family in (IPV4, IPV6)})))
    assert [row.kind.name for row in rows if row.kind.intent == kinds.CONFIGURATION] == ["uncaptured", "uncaptured"]


def test_what_a_table_looks_at_that_nobody_here_can_read_is_unknown():
    made = plan(Options.from_argv(["--ipv6=off", *SIDECAR.split()], {}))
    rulesets = {"plan": {IPV4: replace(load_plan(made, IPV4), unread=("nft table inet theirs",))}}
    rows = bypasses(audit(PodRules(rulesets, {IPV4: around(IPV4)})))
    assert [(row.kind, row.directions) for row in rows] == [(kinds.UNKNOWN, ("inbound",)), (kinds.UNKNOWN, ("outbound",))]
    assert all("nft table inet theirs" in row.because[0] for row in rows)


def test_an_ambient_pod_passes_nothing_by_that_is_not_by_design_but_the_node_proxys_mark():
    made = plan(options := settled(Options.from_argv(["--layout=ambient", "--ipv6=on"], {})))
    rulesets = {"plan": {family: load_plan(made, family) for family in FAMILIES}}
    rows = bypasses(audit(PodRules(rulesets, {family: around(family) for family in FAMILIES}, {"plan": options})))
    assert [row.kind.name for row in rows if row.kind.intent != kinds.DESIGN] == ["mark"]
    assert {"proxy", "probes", "tunnel", "local"} <= set(named(rows))


def test_names_are_listed_up_to_a_number_and_families_are_named_where_they_differ():
    assert _list(list("abcde")) == "a, b, c, d, e"
    assert _list(list("abcdef")) == "a, b, c, d and 2 more"
    assert _few(["lo"], ["eth0", "net1"]) == _few(["lo"], ["eth0"]) == "lo"
    assert _few(["lo", "eth0"], ["net1"]) == "all but net1"
    assert merge_families([("x", IPV4), ("x", IPV6), ("y", IPV6)], 2) == ("x", "IPv6: y")


def test_a_family_is_on_where_it_has_a_rule():
    subject = listed("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j RETURN\nCOMMIT\n")
    assert (subject.has_rules(IPV4), subject.has_rules(IPV6)) == (True, False)
    assert not listed("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n").has_rules(IPV4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (((0, 9),), ""), (((3, 9),), "other than 0-2"), (((0, 6),), "other than 7-9"), (((0, 3), (5, 9)), "other than 4"), (((1, 8),), "other than 0, 9"),
        (((0, 2),), "only 0-2"), (((7, 9),), "only 7-9"), (((0, 0), (9, 9)), "only 0, 9"), (((0, 3),), "only 0-3"),
    ],
)  # fmt: skip
def test_values_are_listed_or_those_that_are_missing_if_they_are_fewer(values, said):
    assert _phrase(values, 9, ("only", "other than"), _format_number) == said
