"""Options read back from rules: in what they differ from others, and what rules that were changed do not tell."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Network, Options, plan, settled, write_nft
from goldens import BEHAVIOURS, THIRDS, options_of
from listings import from_listings, listing_of, make_listing
from netinit.base.net import PortRange
from netinit.options import LAYOUTS
from netinit.options.interception import HOST_PROBES
from netinit.rules.infer_options import InferredOptions, find_other_values, from_chains
from netinit.rules.nft import render_tables
from netinit.rules.render import render_commands
from plan_snapshot import live_chains
from sweeps import together

DEFAULT = ("-b", "*", "-i", "*")


def given(*arguments: str) -> Options:
    return Options.from_argv([*DEFAULT, *arguments], {})


def networks(*texts: str) -> tuple[Network, ...]:
    return tuple([Network.parse(text) for text in texts])


def read(options: Options, *changes: tuple[str, str], routing: dict[int, int] | None = None) -> InferredOptions:
    """What the options' rules tell where the text of some is another, or where they are missing: then the new text is empty."""
    made = plan(options)
    listings = {}
    for family in made.families:
        text = listing_of(made, family)
        for old, new in changes:
            text = text.replace(old, new) if new else "\n".join(line for line in text.splitlines() if old not in line)
        listings[family] = make_listing(text)
    return from_listings(listings, {rule.mark: rule.table for rule in made.ip_rules} if routing is None else routing)


@pytest.mark.parametrize("ipv6", ["on", "off"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rules_of_every_layout_are_recognised_and_told_by_a_golden(layout, ipv6):
    found = read(Options(layout=layout, ipv6=ipv6))
    assert found.options
    assert (found.options.layout, found.options.ipv6) == (layout, ipv6)
    assert any(options_of(name).layout == layout for name in BEHAVIOURS), f"no golden has --layout {layout}"


@together(
    ("wanted", "live", "differing"),
    [
        ((), (), {}),
        (("-d", "1,2"), ("-d", "2,1"), {}),
        (("-d", "1,2"), ("-d", "1,3"), {"exclude_inbound_ports": ((1, 2), (1, 3))}),
        (("-d", "1-3"), ("-d", "2,1,3"), {}),
        (("-d", "1-3,7"), ("-d", "7,1-2,3"), {}),
        (("-d", "1-3"), ("-d", "1-4"), {"exclude_inbound_ports": ((PortRange((1, 3)),), (PortRange((1, 4)),))}),
        (("-x", "10.0.0.0/9,10.128.0.0/9,fd00::/8"), ("-x", "fd00::/8,10.0.0.0/8"), {}),
        (("-x", "10.0.0.0/9"), ("-x", "10.0.0.0/8"), {"exclude_outbound_cidrs": (networks("10.0.0.0/9"), networks("10.0.0.0/8"))}),
        (("-x", "fd00::/8"), ("-x", "fd00::/9"), {"exclude_outbound_cidrs": (networks("fd00::/8"), networks("fd00::/9"))}),
        (("-p", "15002"), (), {"outbound_port": (15002, 15001)}),
        (("-c", "a,b"), ("-c", "b,a"), {}),
        (("-u", "5"), ("-u", "6"), {"proxy_uids": ((5,), (6,)), "proxy_gids": ((5,), (6,))}),
        (("-u", "5,6"), ("-u", "6,5"), {}),
        (("--exclude-outbound-for-uids", "udp:53:5;tcp:80:5"), ("--exclude-outbound-for-uids", "tcp:80:5;udp:53:5"), {}),
        (("-m", "TPROXY"), (), {"inbound_mode": ("TPROXY", "REDIRECT")}),
        (("-m", "TPROXY", "-r", "134"), ("-m", "TPROXY"), {"tproxy_table": (134, 133)}),
        (("--dual-stack",), (), {}),  # it makes no rule
    ],
)
def test_two_sets_of_options_differ_in_what_makes_other_rules(wanted, live, differing):
    found = read(given(*live)).options
    assert found
    assert {flag.field: tuple(values) for flag, *values in find_other_values(settled(given(*wanted)), found)} == differing


@together(
    ("arguments", "changes", "unread"),
    [
        ((), (), ()),
        ((), (("REDIRECT --to-ports 15001", ""),), ("--envoy-port: the rule that redirects to it is missing",)),
        ((), (("REDIRECT --to-ports 15006", ""),), ("--inbound-capture-port: the rule that redirects to it is missing",)),
        ((), (("--uid-owner", ""),), ("--proxy-uid: no rule names one",)),
        ((), (("--gid-owner", ""),), ("--proxy-gid: no rule names one",)),
        (("-m", "TPROXY"), (("0x539", ""),), ("--istio-inbound-tproxy-mark: no rule has it",)),
        (("--ipv6", "off", "--redirect-dns", "--dns-servers", "fd00::53"), (),
         ("--dns-servers: servers of IPv6, which is off, so that no rule names them",)),
        (("--redirect-dns", "--dns-servers", "10.0.0.1"), (("-d 10.0.0.1/32", "-d 10.0.0.0/25"),),
         ("--dns-servers: a rule for more than 64 addresses", "--dns-servers: servers of IPv6, which is off, so that no rule names them")),
        (("--redirect-dns", "--dns-servers", "10.0.0.1,10.0.0.2"), (("-d 10.0.0.1/32", "-d 10.0.0.0/25"),),
         ("--dns-servers: a rule for more than 64 addresses",)),
        (("-x", "10.0.0.0/8"), (("-d 10.0.0.0/8", "-m set --match-set x dst"),),
         ("--istio-service-exclude-cidr: the address set of IPv4 cannot be read",)),
        (("-i", "10.0.0.0/8"), (("-d 10.0.0.0/8", "-m set --match-set x dst"),), ("--istio-service-cidr: the address set of IPv4 cannot be read",)),
        (("-i", "fd00::/8", "--ipv6", "off", "-k", "tap0"), (),
         ("--istio-service-cidr: networks of IPv6, which is off, so that no rule names them",)),
        (("--layout", "classic", "--ipv6", "reject", "-i", "10.0.0.0/8", "--istio-inbound-ports="), (),
         ("--ipv6: no rule is for IPv6, as if it is rejected where none of it would be captured",)),
        (("--layout", "classic"), (("--uid-owner", ""),), ("--proxy-uid: no rule names one",)),
        (("--layout", "classic", "-i", "fd00::/8", "--ipv6", "off"), (),
         ("--istio-service-cidr: networks of IPv6, which is off, so that no rule names them",)),
    ],
)
def test_what_a_missing_rule_does_not_tell_is_named(arguments, changes, unread):
    assert read(given(*arguments), *changes).unread == unread


def test_a_kernel_without_ipv6_leaves_no_doubt_about_its_rules():
    made = plan(given("--layout", "classic", "--ipv6", "off"))
    assert from_listings({IPV4: make_listing(listing_of(made, IPV4)), IPV6: make_listing("")}, {}).unread, "rules of IPv6 are missing"
    assert from_listings({IPV4: make_listing(listing_of(made, IPV4))}, {}).unread == ()


def test_rules_of_nobody_make_no_options():
    assert from_listings({}, {}) == InferredOptions(None)
    assert from_listings({IPV4: make_listing("nat OUTPUT -o lo -j RETURN")}, {}) == InferredOptions(None)
    assert from_listings({IPV4: make_listing("nat OUTPUT -j ISTIO_OUTPUT")}, {}) == InferredOptions(None), "a jump to what is gone"


def test_a_port_that_is_excluded_for_udp_is_none_of_the_excluded_ports():
    options = given("-o", "7,8")
    assert read(options).options.exclude_outbound_ports == (7, 8)
    assert read(options, ("-p tcp -m tcp --dport 7 ", "-p udp -m udp --dport 7 ")).options.exclude_outbound_ports == (8,)


@pytest.mark.parametrize(
    "foreign",
    [
        "PREROUTING -i eth5 -j RETURN",
        "PREROUTING ! -i eth5 -j RETURN",
        "PREROUTING -p udp -j RETURN",
        "OUTPUT -o eth5 -j RETURN",
        "OUTPUT -d 10.0.0.1/32 -p udp -m udp --dport 53 -j ISTIO",
    ],
)
def test_rules_of_others_in_built_in_chains_tell_nothing_about_ours(foreign):
    made = plan(given())
    listing = make_listing(f"nat {foreign}\n{listing_of(made, IPV4)}")
    assert from_listings({IPV4: listing}, {}).options == from_listings({IPV4: make_listing(listing_of(made, IPV4))}, {}).options


@pytest.mark.parametrize(
    "arguments",
    [
        ("-i", "127.0.0.0/8"),
        ("-i", "::1/128", "--ipv6", "off"),
        ("-i", "10.0.0.0/8,::1/128", "--ipv6", "off"),
        ("-i", "10.0.0.0/8,::1/128"),
        ("-i", "126.0.0.0/7,10.0.0.0/8"),
        ("-i", "10.0.0.0/8", "--ipv6", "off"),
        ("-i", "0.0.0.0/0"),
    ],
)
def test_networks_that_hold_a_loopback_one_are_told_by_what_is_missing_beside_them(arguments):
    options = given(*arguments)
    found = read(options)
    assert found.unread == ()
    assert render_commands(plan(found.options)) == render_commands(plan(options))


def test_the_tunnel_s_port_is_told_by_either_rule_that_has_it():
    options = given("--inbound-tunnel-port", "15009")
    found = read(options, ("! --dport 15009", ""))
    assert (found.options, found.unread) == (read(options).options, ()), "the proxy's user and group stand in other rules too"
    assert read(options, ("ISTIO_INBOUND -p tcp -m tcp --dport 15009", "")).options.tunnel_port == 15009
    found = read(options, ("--dport 15009", ""))
    assert (found.options.tunnel_port, set(found.unread)) == (15008, {"--inbound-tunnel-port: no rule names it"})


@together("behaviour", THIRDS[0])
def test_the_rules_of_a_golden_tell_options_that_make_them_again(behaviour):
    options = options_of(behaviour)
    made, found = plan(options), read(options)
    assert found.unread == ()
    assert render_commands(plan(found.options)) == render_commands(made)
    found = from_chains(live_chains(made), {rule.mark: rule.table for rule in made.ip_rules})
    assert found.unread == ()
    assert render_tables(write_nft(plan(found.options))) == render_tables(write_nft(made))


def test_what_an_ambient_mesh_s_missing_rule_does_not_tell_is_named():
    options = Options.from_argv(["--layout", "ambient"], {})
    assert read(options).unread == ()
    assert read(options, ("REDIRECT --to-ports 15001", "")).unread == ("--envoy-port: the rule that redirects to it is missing",)


CAPTURED6, PROBE6 = "! -d ::1/128 -p tcp -m mark ! --mark 0x539/0xfff -j REDIRECT", "-d fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"
DNS_RULES = ("--dport 53 -j REDIRECT", "--dport 53 -m mark ! --mark 0x539/0xfff -j REDIRECT", "CT --zone")


@together(
    ("arguments", "lost", "field", "value"),
    [
        ((), (), "ipv6", "on"),
        ((), (CAPTURED6,), "ipv6", "on"),
        ((), (PROBE6,), "ipv6", "on"),
        ((), (CAPTURED6, PROBE6), "ipv6", "off"),
        (("--ipv6", "off"), (), "ipv6", "off"),
        (("--redirect-dns",), (), "redirect_dns", True),
        (("--redirect-dns",), DNS_RULES[:2], "redirect_dns", True),
        (("--redirect-dns",), DNS_RULES[2:], "redirect_dns", True),
        (("--redirect-dns",), (*DNS_RULES, "raw PREROUTING", "raw OUTPUT", "raw ISTIO_OUTPUT"), "redirect_dns", False),
        ((), (), "redirect_dns", False),
        (("--host-probe-address", "10.0.0.1,fd00::1"), (), "host_probe_addresses", ("10.0.0.1", "fd00::1")),
        (("--host-probe-address", "10.0.0.1,fd00::1"), ("nat ISTIO_PRERT -s",), "host_probe_addresses", ("10.0.0.1", "fd00::1")),
        (("--host-probe-address", "10.0.0.1,fd00::1"), ("nat ISTIO_OUTPUT -d",), "host_probe_addresses", ("10.0.0.1", "fd00::1")),
        (("--host-probe-address", "10.0.0.1,10.0.0.2,fd00::1"), (), "host_probe_addresses", ("10.0.0.1", "10.0.0.2", "fd00::1")),
        (("--ipv6", "off"), (), "host_probe_addresses", HOST_PROBES),
        (("--ipv6", "off", "--host-probe-address", "10.0.0.1"), (), "host_probe_addresses", ("10.0.0.1", HOST_PROBES[1])),
        (("-z", "15007", "--inbound-tunnel-port", "15009"), (), "inbound_port", 15007),
        (("-z", "15007", "--inbound-tunnel-port", "15009"), (), "tunnel_port", 15009),
        ((), ("--dport 15008",), "ingress", True),
        ((), (), "ingress", False),
        (("-k", "tap0,tap1"), (), "virtual_interfaces", ("tap0", "tap1")),
        (("-p", "15002"), (), "outbound_port", 15002),
    ],
)  # fmt: skip
def test_each_option_of_an_ambient_mesh_is_told_by_any_rule_that_has_it(arguments, lost, field, value):
    found = read(Options.from_argv(["--layout", "ambient", "--ipv6", "on", *arguments], {}), *[(text, "") for text in lost])
    assert found.options.layout == "ambient"
    assert getattr(found.options, field) == value, found


def test_a_mark_that_no_policy_rule_routes_is_named_unless_nothing_is_captured():
    options = given("-m", "TPROXY")
    assert read(options, routing={}).unread == ("--istio-inbound-tproxy-route-table: no policy rule routes the mark 1337",)
    assert read(options, routing={1337: 5}).options.tproxy_table == 5
    assert read(options.replace(inbound_ports=()), routing={}).unread == ()


@pytest.mark.parametrize(("layout", "more"), [("classic", ("-b", "80")), ("current", ("-b", "80"))])
def test_a_layout_is_known_without_the_jump_to_its_rules(layout, more):
    found = read(given("--layout", layout, *more), ("nat OUTPUT ", ""))
    assert found.options.layout == layout


def test_rules_that_no_options_can_make_are_named():
    found = read(given("-d", "1"), ("--dport 1 ", "--dport 0 "))
    assert found.options is None
    assert len(found.unread) == 1
    assert found.unread[0].startswith("the rules make no valid options: exclude_inbound_ports: '(0,)' is not a port")


@pytest.mark.parametrize("number", [1, 4, 9])
def test_one_rule_of_somebody_else_in_a_chain_of_ours_hides_no_options(number):
    options = given("-x", "10.1.0.0/16", "-d", "15021")
    made = plan(options)
    listings = {}
    for family in made.families:
        listing = make_listing(listing_of(made, family))
        if family is IPV4:
            listing["nat"].rules["ISTIO_OUTPUT"].insert(number - 1, "-d 10.9.9.9/32 -j RETURN")
        listings[family] = listing
    found = from_listings(listings, {})
    assert found.options is not None, found.unread
    if find_other_values(settled(options), found.options):  # where it stands an exclusion belongs, it is one
        assert {flag.field: live for flag, _, live in find_other_values(settled(options), found.options)}.keys() == {"exclude_outbound_cidrs"}
    else:
        assert found.unread == ("a rule of ISTIO_OUTPUT that no option makes: it goes to 10.9.9.9/32",)


@pytest.mark.parametrize("captured", [("-i", "*"), ("-i", "10.0.0.0/8"), ("-i", "")])
@pytest.mark.parametrize("servers", ["2001:db8::7", "10.77.0.1,2001:db8::7", "10.77.0.1"])
@pytest.mark.parametrize("forwarded", [(), ("--redirect-forwarded-dns",)])
def test_queries_from_behind_the_pod_are_told_where_ipv6_which_alone_has_name_servers_is_refused(forwarded, servers, captured):
    options = given(*captured, "-k", "eth1,eth2", "--redirect-dns", "--dns-servers", servers, "--ipv6", "reject", *forwarded)
    found = read(options)
    assert found.options
    assert render_commands(plan(found.options)) == render_commands(plan(options))
    assert found.options.redirect_forwarded_dns == bool(forwarded)
