"""What lint finds in options, one story a line, and that it leaves good options alone."""

from __future__ import annotations

import gc
import re
import time
import weakref

import pytest
from hypothesis import given, settings

from core import plan, settled
from netinit.base.errors import OptionError
from netinit.base.net import Network, PortRange
from netinit.options import Interception, Options
from netinit.options.user_ports import PortsOfUsers
from netinit.questions import lint as linting
from netinit.questions.lint import ERROR
from netinit.questions.lint.effect_proof import Prover, find_contained, given_flags, minimise, without
from netinit.rules.matches.packet import Port
from netinit.rules.model import NAT, Origin, Plan, Rule, Table
from netinit.rules.targets import Redirect
from randomness import some
from strategies import made_options
from sweeps import choose

BUDGET = 0.45  # seconds of CPU on this machine under load: three times what a quiet one takes at most
TEST = Origin(option="a_test", label="a test")
SIDECAR = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020"


def lint(options, *values, **more):
    return linting.lint(settled(options), *values, **more)


def found_with_messages(line):
    return [(one.severity, one.kind.name, one.option, one.message) for one in lint(Options.from_argv(["--ipv6=on", *line.split()], {}))]


def found(line):
    return [one[:3] for one in found_with_messages(line)]


GOOD = [
    SIDECAR, SIDECAR + " -m TPROXY", SIDECAR + " --redirect-dns --capture-all-dns", SIDECAR + " --redirect-dns --dns-servers 10.96.0.10",
 SIDECAR + " -x 10.0.0.0/8,2001:db8::/32 -o 22 -c eth1 -k net1", "-i 10.0.0.0/8,fd00::/8 -b 80", "--layout classic -i * -b 80",
 "--layout classic -i * -b *", SIDECAR + " --drop-invalid", "-i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16", "-i 10.1.0.0/16,fd00::/8 -q 80 -x 192.168.0.0/16",
 SIDECAR + " --ipset-threshold 0", "--cleanup-only", "--layout ambient", "--layout ambient --redirect-dns -k eth1",
 "--layout ambient --ingress --host-probe-address 10.0.0.1", "-i * -b 80,8000-8100 -o 22,9000-9100",
 SIDECAR + " --redirect-dns --capture-all-dns --exclude-outbound-for-uids tcp:22:1000-2000;udp:53:3000 --exclude-outbound-for-gids *:*:7", SIDECAR + " --reject-quic",
 SIDECAR + " --redirect-dns --capture-all-dns --exclude-outbound-for-uids udp:53:3000;*:80:7;3001-4000",
 SIDECAR + " --retries 3 --retry-delay 1s", "-i 10.0.0.0/8,169.254.0.0/16,fd00::/8 --exclude-cloud-metadata",
 SIDECAR + " --redirect-outbound-udp 514:10514,6000-6009:16000 --reject-quic --redirect-dns --capture-all-dns",
 SIDECAR + " --exclude-inbound-cidrs 10.9.0.0/16 --exclude-cloud-metadata", "-i 10.0.0.0/8,fd00::/8 --reject-quic",
]  # fmt: skip


@pytest.mark.parametrize("line", choose(GOOD[::2], GOOD))
def test_good_options_are_left_alone(line):
    assert found(line) == []


FINDINGS = [
    ("-q 80,8000-8100 -o 8000-8200,90", "shadowed", "--istio-outbound-ports",
     "8000-8100: --istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-b 80,90-99 -d 95-120", "no-effect", "--istio-local-exclude-ports",
     "95-120: no packet is treated differently without it: nothing in --istio-inbound-ports is in it; remove it"),
    ("-b * --exclude-outbound-for-uids tcp:22:1", "no-effect", "--exclude-outbound-for-uids",
     "tcp:22:1: counts only with --istio-service-cidr '*'; remove it, or give that"),
    ("-i * --exclude-outbound-for-gids tcp:22:1337", "no-effect", "--exclude-outbound-for-gids",
     "tcp:22:1337: no packet is treated differently without it; remove it"),
    ("-i * --exclude-inbound-cidrs 10.0.0.0/8", "no-effect", "--exclude-inbound-cidrs",
     "10.0.0.0/8: counts only with --istio-inbound-ports '*'; remove it, or give that"),
    ("-b * -m NONE -i * --exclude-inbound-cidrs 10.0.0.0/8", "no-effect", "--exclude-inbound-cidrs",
     "10.0.0.0/8: no packet is treated differently without it with --istio-inbound-interception-mode; remove it"),
    ("-b * --exclude-cloud-metadata", "no-effect", "--exclude-cloud-metadata",
     "counts only with --istio-service-cidr '*'; remove it, or give that"),
    ("-i * --log-group 5", "no-effect", "--log-group",
     "counts only with --log-rules"),
    ("-b * --reject-quic", "no-effect", "--reject-quic",
     "counts only with --istio-service-cidr '*'; remove it, or give that"),
    ("-i * -o 400-500 --reject-quic", "shadowed", "--reject-quic",
     "--istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-i 10.1.0.0/16 -x 10.0.0.0/8 --reject-quic", "shadowed", "--reject-quic",
     "--istio-service-exclude-cidr decides before it does; remove one of the two"),
    ("-b * --exclude-inbound-cidrs 10.0.0.0/8,0.0.0.0/0", "shadowed", "--istio-inbound-ports",
     "'*' captures no IPv4, because of --exclude-inbound-cidrs"),
    ("-b * -d 1-65535", "shadowed", "--istio-inbound-ports",
     "'*' captures no IPv4, because of --istio-local-exclude-ports"),
    ("-i * -o 2-65535,1", "shadowed", "--istio-service-cidr",
     "--istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-q 443 -o 1-65535", "shadowed", "--istio-outbound-ports",
     "443: --istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-i * --exclude-outbound-for-uids tcp:22,80:1-10;tcp:80:5", "redundant", "--exclude-outbound-for-uids",
     "tcp:80:5 is in tcp:22,80:1-10 already; remove it"),
    ("-i * --exclude-outbound-for-gids tcp:*:5-9;tcp:80-90:6", "redundant", "--exclude-outbound-for-gids",
     "tcp:80-90:6 is in tcp:*:5-9 already; remove it"),
    ("-i * --exclude-outbound-for-uids udp:5000:5", "no-effect", "--exclude-outbound-for-uids",
     "udp:5000:5: no packet is treated differently without it; remove it"),
    ("-i * --redirect-dns --capture-all-dns --exclude-outbound-for-uids udp:54:5", "no-effect", "--exclude-outbound-for-uids",
     "udp:54:5: no packet is treated differently without it; remove it"),
    ("-i 10.0.0.0/8 --exclude-cloud-metadata", "no-effect", "--exclude-cloud-metadata",
     "no packet is treated differently without it: nothing in --istio-service-cidr is in it; remove it"),
    ("-i * --retry-delay 5s", "no-effect", "--retry-delay",
     "counts only with --retries"),
    ("-i * --retries 3 --retry-delay 50s", "no-effect", "--retries",
     "--retry-delay is not shorter than --lock-timeout, which ends all attempts; shorten it"),
    ("-i * -o 514 --redirect-outbound-udp 514:10514", "shadowed", "--redirect-outbound-udp",
     "514:10514: --istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-i * -k eth7 --reject-quic", "quic-passes", "--reject-quic",
     "what a VM behind eth7 sends is forwarded, and no rule refuses QUIC there; refuse it in the VM"),
    ("--layout ambient -p 15006", "own-port", "--inbound-capture-port",
     "15006 is --envoy-port too: the proxy cannot distinguish inbound from outbound connections"),
    ("--layout ambient --ipv6 off --host-probe-address fd16::7", "no-effect", "--host-probe-address",
     "fd16::7: no packet is treated differently without it with --ipv6; remove it"),
    ("-b 80 -d 81", "no-effect", "--istio-local-exclude-ports",
     "81: no packet is treated differently without it: nothing in --istio-inbound-ports is in it; remove it"),
    ("-b * -m NONE", "shadowed", "--istio-inbound-ports",
     "--istio-inbound-interception-mode decides before it does; remove one of the two"),
    ("-b * -d 80 -m NONE", "no-effect", "--istio-local-exclude-ports",
     "80: no packet is treated differently without it with --istio-inbound-interception-mode; remove it"),
    ("-t 7 -b *", "no-effect", "--istio-inbound-tproxy-mark",
     "counts only with --istio-inbound-interception-mode TPROXY; remove it, or give that"),
    ("-r 7 -b *", "no-effect", "--istio-inbound-tproxy-route-table",
     "counts only with --istio-inbound-interception-mode TPROXY; remove it, or give that"),
    ("-m TPROXY", "no-effect", "--istio-inbound-interception-mode",
     "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports"),
    ("-x 10.0.0.0/8", "no-effect", "--istio-service-exclude-cidr",
     "10.0.0.0/8: counts only with --istio-service-cidr '*'; remove it, or give that"),
    ("-i * -q 80", "no-effect", "--istio-outbound-ports",
     "80: no packet is treated differently without it with --istio-service-cidr; remove it, or leave --istio-service-cidr out to capture only these"),
    ("-i * --capture-all-dns", "no-effect", "--capture-all-dns",
     "counts only with --redirect-dns"),
    ("-i * --redirect-dns", "no-effect", "--redirect-dns",
     "no name server in /etc/resolv.conf or --dns-servers, so DNS is not captured"),
    ("-i 10.1.0.0/16,fd00::/8 -x 10.0.0.0/8", "shadowed", "--istio-service-cidr",
     "10.1.0.0/16: --istio-service-exclude-cidr decides before it does; remove one of the two"),
    ("-i * -x 0.0.0.0/0", "shadowed", "--istio-service-cidr",
     "'*' captures no IPv4, because of --istio-service-exclude-cidr"),
    ("-q 80 -o 80", "shadowed", "--istio-outbound-ports",
     "80: --istio-local-outbound-ports-exclude decides before it does; remove one of the two"),
    ("-i * --redirect-dns --capture-all-dns -o 53", "shadowed", "--redirect-dns",
     "--istio-local-outbound-ports-exclude 53 comes before it, so no query is captured"),
    ("-i 10.1.0.0/16,10.0.0.0/8,fd00::/8", "redundant", "--istio-service-cidr",
     "10.1.0.0/16 is in 10.0.0.0/8 already; remove it"),
    ("-i 10.0.0.0/8 --ipv6=on", "idle-family", "--istio-service-cidr",
     "lists no IPv6 network, so no outbound IPv6 is captured; add one, or accept it"),
    ("-i * -x 2001:db8::/32 --ipv6=off", "no-effect", "--istio-service-exclude-cidr",
     "2001:db8::/32: no packet is treated differently without it with --ipv6; remove it"),
    ("-i * -u 0,1337", "proxy-owner", "--proxy-uid",
     "0 is root: what applications that run as root send is not captured"),
    ("-i * -b * -d 80,15008", "no-effect", "--istio-local-exclude-ports",
     "15008: counts only with --istio-inbound-interception-mode TPROXY; remove it, or give that"),
    ("-i * -x 10.0.0.0/8,10.1.0.0/16", "redundant", "--istio-service-exclude-cidr",
     "10.1.0.0/16 is in 10.0.0.0/8 already; remove it"),
    ("-i * -k eth1 -c eth1", "contradiction", "--istio-exclude-interfaces",
     "eth1 is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them"),
    ("-i * -k br-+ -c br-0a", "contradiction", "--istio-exclude-interfaces",
     "br-0a is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them"),
    ("-i * -k br-0a -c br-+", "contradiction", "--istio-exclude-interfaces",
     "br-+ is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them"),
    ("-i * -k b+ -c br-+", "contradiction", "--istio-exclude-interfaces",
     "br-+ is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them"),
    ("-i * -c net1@eth0", "no-effect", "--istio-exclude-interfaces",
     "no device is called net1@eth0: `ip addr` shows the device net1 so, with the one that it is linked to behind @; write net1"),
    ("-i * -k net1@eth0", "no-effect", "--kube-virt-interfaces",
     "no device is called net1@eth0: `ip addr` shows the device net1 so, with the one that it is linked to behind @; write net1"),
    ("--layout ambient -k net1@eth0", "no-effect", "--kube-virt-interfaces",
     "no device is called net1@eth0: `ip addr` shows the device net1 so, with the one that it is linked to behind @; write net1"),
    ("", "no-effect", "-b and -i",
     "neither inbound ports nor outbound networks are given, so no connection of an application is captured; add -b '*' and -i '*'"),
    ("-m NONE -b *", "no-effect", "-b and -i",
     "-m NONE captures nothing inbound, and no outbound networks are given, so no connection of an application is captured; leave out -m NONE, or add -i '*'"),
    ("-b 80 -i 10.0.0.0/8,fd00::/8 -x 192.168.0.0/16", "no-effect", "--istio-service-exclude-cidr",
     "192.168.0.0/16: no packet is treated differently without it: nothing in --istio-service-cidr is in it; remove it"),
    ("-i * --dns-servers 10.0.0.1", "no-effect", "--dns-servers",
     "counts only with --redirect-dns"),
    ("-i * --redirect-dns --capture-all-dns --dns-servers 10.0.0.1", "no-effect", "--dns-servers",
     "10.0.0.1: no packet is treated differently without it with --capture-all-dns; remove it"),
    ("-i * --ipset-threshold 7 --backend nftables", "no-effect", "--ipset-threshold",
     "nftables makes no address sets; use an iptables backend, or remove it"),
    ("-i * --ipset-threshold 7 --native-nftables", "no-effect", "--ipset-threshold",
     "nftables makes no address sets; use an iptables backend, or remove it"),
    ("-i * --probe-timeout 9s", "no-effect", "--probe-timeout",
     "counts only with --run-validation"),
    ("-i * -b *", "health-ports", "--istio-inbound-ports",
     "15090, 15021, 15020 are captured, where Istio's proxy answers probes and metrics itself; exclude them with -d 15090,15021,15020"),
    ("-i * -b 80,15021", "health-ports", "--istio-inbound-ports",
     "15021 is captured, where Istio's proxy answers probes and metrics itself; exclude it with -d 15021"),
    ("-i * -b 80 -m TPROXY -k eth1 --layout classic", "contradiction", "--kube-virt-interfaces",
     "with TPROXY in the classic layout, a VM's connections to captured inbound ports are taken twice and never answered; use --layout current, or -m REDIRECT"),
    ("-i * --redirect-dns --dns-servers 127.0.0.53", "dns-loopback", "--dns-servers",
     "127.0.0.53 is a resolver in the pod: its own queries to servers outside are captured only with --capture-all-dns"),
    ("-i * --redirect-dns --dns-servers ::1", "dns-loopback", "--dns-servers",
     "::1 is a resolver in the pod: its own queries to servers outside are captured only with --capture-all-dns"),
    ("-i * --redirect-dns --dns-servers 10.0.0.1,fd00::1 --ipv6=off", "no-effect", "--dns-servers",
     "IPv6 servers have no effect, since IPv6 is off: queries to them are not captured"),
    ("-i * --redirect-dns --dns-servers fd00::1 --ipv6=inet", "no-effect", "--dns-servers",
     "IPv6 servers have no effect, since --ipv6 inet has no rule that names an IPv6 address: queries to them are not captured"),
    ("-i * -g 0", "proxy-owner", "--proxy-gid",
     "0 is root's group, the usual one of containers: what they send is not captured"),
]  # fmt: skip
ONE_OF_EACH = [*{row[1:3]: row for row in reversed(FINDINGS)}.values(), *{re.sub(r"\S*[-\d]\S*", "", row[3]): row for row in reversed(FINDINGS)}.values()]
ONE_OF_EACH = [*dict.fromkeys(ONE_OF_EACH)]  # of each kind and option, and of each sentence


@pytest.mark.parametrize(("line", "kind", "option", "message"), choose(ONE_OF_EACH, FINDINGS))
def test_options_without_effect_or_in_each_other_s_way_are_warned_of(line, kind, option, message):
    assert ("warning", kind, option, message) in found_with_messages(line)


@pytest.mark.parametrize(
    ("line", "option", "message"),
    [
        ("-i * -b 80,15006", "--istio-inbound-ports",
         "15006 is the proxy's own (--inbound-capture-port): connections to it would be handed to the proxy a second time; remove it"),
        ("-i * -b 15001", "--istio-inbound-ports",
         "15001 is the proxy's own (--envoy-port): connections to it would be handed to the proxy a second time; remove it"),
        ("-q 15001", "--istio-outbound-ports", "15001 is the proxy's own (--envoy-port); remove it"),
        ("-i * -b * -e 15006", "--inbound-tunnel-port", "15006 is also --inbound-capture-port; each needs a port of its own"),
        ("-p 15053 --redirect-dns --capture-all-dns -i *", "--envoy-port", "15053 is where captured DNS queries go; use another port"),
    ],
)  # fmt: skip
def test_capturing_the_proxy_s_own_ports_is_an_error(line, option, message):
    assert (ERROR, "own-port", option, message) in found_with_messages(line)


def in_front(made: Plan, rule: Rule) -> Plan:
    """The plan with one more rule at the top of ISTIO_OUTPUT."""
    tables = []
    for table in made.tables:
        chains = [
            c.replace(rules=(rule, *c.rules)) if (table.name, c.name) == (NAT, "ISTIO_OUTPUT") else c
            for c in table.chains
        ]
        tables.append(Table(name=table.name, chains=tuple(chains)))
    return made.replace(tables=tuple(tables))


@pytest.mark.parametrize(("port", "to", "kind", "option", "message"), [
    (53, 15053, "dns-loop", "--redirect-dns", "the proxy's own queries (tcp to 198.51.100.53, uid 1337) come back to it and loop forever"),
    (80, 15001, "loop", "--proxy-uid", "what the proxy (uid 1337) sends to 198.51.100.53 comes back to its own port 15001 and loops forever"),
])  # fmt: skip
def test_a_proxy_whose_own_traffic_comes_back_is_found_by_simulating_it(port, to, kind, option, message):
    options = Options.from_argv([*SIDECAR.split(), "--ipv6=on", "--redirect-dns", "--capture-all-dns"])
    rule = Rule(
        matches=(Port(protocol="tcp", ports=(port,)),), target=Redirect(port=to), comment="everybody's", origin=TEST
    )
    assert lint(options, plan(options)) == ()
    loops = [one for one in lint(options, in_front(plan(options), rule)) if one.severity == ERROR]
    assert {(one.kind.name, one.option) for one in loops} == {(kind, option)}
    assert loops[0].message == message


def test_a_group_that_libiptc_cannot_report_to_is_an_error():
    message = "libiptc cannot make NFLOG rules; remove it, or use another backend"
    assert found_with_messages(SIDECAR + " --log-rules --log-group 5 --backend libiptc") == [("error", "backend", "--log-group", message)]
    assert found(SIDECAR + " --log-rules --backend libiptc") == []


def test_one_thing_is_told_once():
    assert found("-q 80 -o 80") == [("warning", "shadowed", "--istio-outbound-ports")]


@pytest.mark.parametrize("ipv6", ["on", "off"])
def test_dual_stack_beside_a_decision_about_ipv6_has_no_effect(ipv6):
    given = Options.from_argv([*SIDECAR.split(), "--dual-stack", "--ipv6", ipv6])
    message = f"counts only with --ipv6 auto, and --ipv6 {ipv6} decides already; leave one of them out"
    assert [(one.severity, one.kind.name, one.option, one.message) for one in lint(given, given=given)] == [("warning", "no-effect", "--dual-stack", message)]
    auto = given.replace(ipv6="auto")
    assert lint(auto.replace(ipv6=ipv6), given=auto) == (), "what auto has settled is no contradiction"


def test_the_ports_that_are_captured_by_mistake_are_named():
    (one,) = lint(Options.from_argv(["-i", "*", "-b", "*", "-d", "22"]))
    assert one.message.startswith("15090, 15021, 15020 are captured")
    assert one.message.endswith("exclude them with -d 15090,15021,15020")
    (one,) = lint(Options.from_argv(["-i", "*", "-b", "80,15021"]))
    assert one.message.startswith("15021 is captured")
    assert lint(Options.from_argv(["-i", "*", "-b", "*", "-d", "15021"])) == (), "who excludes one of them has thought of them"


def test_thousands_of_excluded_networks_are_looked_through_at_once():
    networks = ",".join(f"10.{number >> 8}.{number & 255}.0/24" for number in range(choose(3_000, 10_000)))
    assert (
        found(f"-i * -x {networks},10.3.7.0/25 --ipv6=on").count(
            ("warning", "redundant", "--istio-service-exclude-cidr")
        )
        == 1
    )


def test_errors_stand_first():
    severities = [one[0] for one in found("-b 80,15006 -d 7")]
    assert severities == ["error", "warning"]


def test_what_was_proved_is_released_with_the_prover_without_a_garbage_collection():
    options = Options.from_argv([*SIDECAR.split(), "-o", "22"], {})
    other = Options.from_argv(SIDECAR.split(), {})
    gc.disable()
    try:
        prover = Prover(settled(options))
        assert not prover.are_same(prover.options, settled(other))
        kept = [weakref.ref(prover), *(weakref.ref(space.diagram) for space in prover.spaces)]
        del prover
        assert not any(one() for one in kept)
    finally:
        gc.enable()


@settings(max_examples=choose(2, some(5)), deadline=None)
@given(made_options())
def test_the_smallest_equivalent_options_are_equivalent_and_small(drawn):
    options = settled(Options(**{flag.field: getattr(drawn, flag.field) for flag in Interception.flags}).replace(ipv6="on"))
    least = minimise(options)
    prover = Prover(options)
    assert prover.are_same(options, least)
    assert least.ipv6 == "on"
    again = [flag for flag in given_flags(least) if flag.field != "ipv6" and prover.are_same(options, without(least, flag))]
    assert not again, "each of them has an effect"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-m NONE -b *", "-m NONE captures nothing inbound, and no outbound networks are given, so no connection of an application is captured; leave out -m NONE, or add -i '*'"),
        ("-u 1", "neither inbound ports nor outbound networks are given, so no connection of an application is captured; add -b '*' and -i '*'"),
    ],
)
def test_options_that_capture_nothing_are_explained_by_those_given(line, said):
    assert [one.message for one in lint(Options.from_argv(line.split())) if one.option == "-b and -i"] == [said]


def test_tproxy_without_inbound_ports_says_what_to_add():
    said = "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports"
    assert said in [one.message for one in lint(Options.from_argv(["-m", "TPROXY", "-i", "*"]))]


@pytest.mark.parametrize(
    ("line", "least"),
    [
        (SIDECAR, ["-b", "*", "-d", "15090,15021,15020", "-i", "*"]),
        ("-i * -q 80 -x 10.0.0.0/8,10.1.0.0/16 -t 7 --dns-servers 10.0.0.1 -e 0", ["-i", "*", "-x", "10.0.0.0/8", "-e", "0"]),
        ("-b 80 -d 90 -m REDIRECT --reject-quic --retry-delay 9s", ["-b", "80"]),
    ],
)
def test_the_smallest_equivalent_options(line, least):
    made = minimise(settled(Options.from_argv([*line.split(), "--ipv6=on"])))
    assert sorted(made.given.to_argv()) == sorted([*least, "--ipv6", "on"])


def users(first, last, *ports, protocol="tcp"):
    return PortsOfUsers(protocol=protocol, ports=ports, first=first, last=last)


@pytest.mark.parametrize(
    ("items", "contained"),
    [
        ((80,), {}), ((80, 81), {}), ((PortRange((80, 90)), 85, 91), {1: 0}), ((85, PortRange((80, 90)), PortRange((85, 90))), {0: 1, 2: 1}),
        ((PortRange((80, 90)), PortRange((85, 95))), {}), ((Network.parse("10.0.0.0/8"), Network.parse("10.1.0.0/16"), Network.parse("::/0")), {1: 0}),
        (("eth0", "eth1"), {}), ((users(1, 9, 80),), {}), ((users(1, 9, 80), users(2, 3, 80)), {1: 0}), ((users(2, 3, 80), users(1, 9)), {0: 1}), ((users(1, 9, 80), users(2, 10, 80)), {}),
        ((users(1, 9, 80), users(2, 3, 81)), {}), ((users(1, 9, 80), users(2, 3, 80, protocol="udp")), {}), ((users(1, 9, 80), users(1, 9, 80, 81), users(1, 1)), {0: 1}),
    ],
)  # fmt: skip
def test_an_entry_is_contained_in_another_of_its_kind_and_never_in_itself(items, contained):
    assert find_contained(items) == {index: items[wider] for index, wider in contained.items()}


def test_a_usual_sidecar_is_linted_within_the_budget():
    options = Options.from_argv([*SIDECAR.split(), "--ipv6=on"])
    lint(options)
    begun = time.process_time()
    assert lint(options) == ()
    assert time.process_time() - begun < BUDGET


@pytest.mark.parametrize(
    "line", ["-b 80 -m TPROXY -k eth1", "-b 80 -k eth1 --layout classic", "-m TPROXY -k eth1 --layout classic", "-b 80 -m TPROXY --layout classic"]
)
def test_a_vm_s_connections_are_answered_but_in_tproxy_of_the_classic_layout(line):
    assert ("warning", "contradiction", "--kube-virt-interfaces") not in found("-i * " + line)


OPEN = [("warning", "open-tunnel", "--inbound-tunnel-port")]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (SIDECAR, OPEN), (f"{SIDECAR} -e 4190", OPEN), (f"{SIDECAR} -e 0", []), (f"{SIDECAR} -m TPROXY", []), (f"{SIDECAR} -m NONE", []),
        ("-i * -b 80,15000-15010", OPEN), ("-i * -b 80", []), ("-i * -b * -d 15008,15021", []), ("-i * -b * -d 15021 --layout classic", []),
    ],
)  # fmt: skip
def test_a_tunnel_s_port_that_the_proxy_does_not_serve_is_a_finding_where_it_is_left_open(line, wrong):
    options = Options.from_argv([*line.split(), "--ipv6=on"], {})
    of_tunnel = {known: [(one.severity, one.kind.name, one.option) for one in lint(options, has_tunnel=known) if one.kind.name == "open-tunnel"] for known in choose((False, None, True) if line == SIDECAR else (False,), (False, None, True))}
    assert of_tunnel == {known: wrong if known is False else [] for known in of_tunnel}


def test_an_open_tunnel_s_finding_says_what_is_reached_and_what_to_do():
    (one,) = [one for one in lint(Options.from_argv([*SIDECAR.split(), "--ipv6=on"], {}), has_tunnel=False) if one.kind.name == "open-tunnel"]
    assert one.message == (
        "15008 is left to the proxy's tunnel (HBONE), which nothing in the pod's environment enables: an application that listens there is reached directly; "
        "use --inbound-tunnel-port 0, or ISTIO_META_ENABLE_HBONE=true"
    )


def test_a_sidecar_without_a_tunnel_is_left_alone():
    assert lint(Options.from_argv([*SIDECAR.split(), "-e", "0", "--ipv6=on"], {}), has_tunnel=False) == ()


def test_an_ambient_mesh_needs_its_tunnel():
    with pytest.raises(OptionError, match="--inbound-tunnel-port: '0' leaves --layout ambient without a tunnel"):
        Options.from_argv(["--layout", "ambient", "-e", "0"], {})
    assert Options.from_argv(["--layout", "classic", "-e", "0"], {}).tunnel_port == 0, "which has none anyway"


def test_a_name_as_iproute2_prints_it_is_answered_with_the_device_s_own():
    (said,) = [str(one) for one in lint(Options.from_argv(["-i", "*", "-b", "*", "-d", "15020", "-c", "net1@eth0"], {})) if one.kind.name == "no-effect"]
    assert said == (
        "warning: --istio-exclude-interfaces: no device is called net1@eth0: `ip addr` shows the device net1 so, with the one that it"
        " is linked to behind @; write net1"
    )


def test_names_that_only_begin_alike_are_no_contradiction():
    for line in ("-k br-0 -c br-0a", "-k br-+ -c net+", "-k br-+ -c br", "-k net1 -c net"):
        assert "contradiction" not in [kind for _, kind, _ in found(f"-i * {line}")], line


def test_a_resolver_in_the_pod_is_fine_where_all_queries_are_captured():
    options = settled(Options.from_argv(["-i", "*", "--redirect-dns", "--dns-servers", "127.0.0.53", "--capture-all-dns"]))
    assert "dns-loopback" not in [one.kind.name for one in linting.lint(options, proved=False)]
