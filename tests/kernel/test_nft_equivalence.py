"""Native nft, both variants of iptables and Istio's own nft commands do the same to real connections.

One pod with a server behind every port that a case names; for each dialect in turn the case's rules, then one
connection for every row of a table of probes (who connects, over what, to where), and where each of them arrived.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings

from core import plan
from lab_probes import Arrival, Probe
from laboratory import Listener, Pod
from netinit.backends import routes
from netinit.base.net import FAMILIES
from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.model import EMPTY_PLAN, Plan
from netinit.rules.nft import render_script
from randomness import some
from strategies import made_options
from sweeps import choose

pytestmark = pytest.mark.netns

CASES = [
    "basic-exclude-nic",
    "dns-uid-gid",
    "drop-invalid",
    "empty",
    "inbound-ports-include",
    "inbound-ports-wildcard",
    "inbound-ports-wildcard-tproxy",
    "ip-range",
    "ipv6-outbound-ports",
    "ipv6-uid-gid",
    "kube-virt-interfaces",
    "outbound-owner-groups",
    "outbound-owner-groups-exclude",
    "tproxy",
]
MORE = {  # what Istio's cases leave out
    "classic": ["--layout", "classic", "-b", "80,4000", "-i", "9.9.0.0/16,2001:db8::/32", "-x", "9.9.9.0/24"],
    "classic-tproxy": ["--layout", "classic", "-m", "TPROXY", "-b", "*", "-d", "4000", "-i", "*"],
    "classic-without-ipv6": ["--layout", "classic", "-b", "*", "-i", "*", "--ipv6", "off"],
    "classic-refusing-ipv6": ["--layout", "classic", "-b", "80,4000", "-i", "9.9.0.0/16,2001:db8::/32", "-x", "2001:db8::7/128", "--ipv6", "reject"],
    "ambient-refusing-ipv6": ["--layout", "ambient", "--redirect-dns", "-k", "eth1", "--ipv6", "reject"],
    "refusing-ipv6": ["-b", "*", "-d", "4000-5000,8080", "-i", "*", "-o", "443", "-x", "2001:db9::7/128", "-k", "eth1", "-c", "eth2", "--ipv6", "reject"],
    "refusing-ipv6-by-tproxy": ["-m", "TPROXY", "-b", "80,15008", "-i", "2001:db8::/32,9.9.0.0/16", "-q", "8080", "--ipv6", "reject", "--redirect-dns", "--capture-all-dns"],
    "as-istio-leaves-ipv6": ["-b", "*", "-i", "*", "-x", "2001:db9::7/128", "--redirect-dns", "--capture-all-dns", "-k", "eth1", "-c", "eth2", "--ipv6", "inet"],
    "ambient": ["--layout", "ambient", "--redirect-dns", "--host-probe-address", "10.77.0.1,fd77::1"],
    "ambient-ingress": ["--layout", "ambient", "--ingress", "-k", "eth1,eth2"],
    "ambient-without-ipv6": ["--layout", "ambient", "--redirect-dns", "--ipv6", "off", "-k", "eth1"],
    "ranges": ["-b", "80,4000-5000,31000-32000", "-i", "9.9.0.0/16", "-q", "1-79,443-8080", "-o", "442-444,8080"],
    "ranges-by-tproxy": ["-m", "TPROXY", "-b", "*", "-d", "22,4000-5000,8080", "-i", "*", "-o", "8000-9000"],
    "classic-ranges": ["--layout", "classic", "-b", "*", "-d", "4000-6000,80", "-i", "*"],
    "all-dns": ["--redirect-dns", "--capture-all-dns", "-i", "*", "-b", "*", "--drop-invalid"],
    "dns-to-a-server-outside": ["--redirect-dns", "--dns-servers", "203.0.113.7,2001:db8::7", "-i", "*", "-o", "443"],
    "touching-networks": ["-i", "*", "-x", "203.0.113.6/32,203.0.113.7/32,1.1.0.0/16,1.0.0.0/16,2001:db8::/33"],
    "captured-groups": ["-i", "*"],
    "spared-groups": ["-i", "*"],
}
ENVIRONMENTS = {
    "captured-groups": {"ISTIO_OUTBOUND_OWNER_GROUPS": "4001,202"},
    "spared-groups": {"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "4001,202"},
}
GROUPS = {"java": "4001", "ftp": "4002"}  # groups that a case names and no image has
APP_PORTS = (22, 80, 443, 4000, 5000, 6000, 8080, 9000, 15008, 31000, 32000)
OUTSIDE_PORTS = (22, 53, 80, 443, 8080, 9000, 15008, 31000)
OUTSIDE = ("203.0.113.7", "198.51.100.7", "1.1.5.5", "9.9.9.9", "2001:db8::7", "2001:db9::7")
INTERFACES = ("eth1", "eth2", "not-istio-nic")
DELETE_CONNECTIONS = 1 << 8 | 2  # linux/netfilter/nfnetlink_conntrack.h: IPCTNL_MSG_CT_DELETE; with no tuple, all
IPTABLES = ("iptables-nft", "iptables-legacy")
ISTIOS = "Istio's own nft commands"
IPTABLES_TABLES = ("nat", "mangle", "raw", "filter")


@dataclass(frozen=True)
class Row:
    """One probe of the table: from which namespace, and what."""

    start: str  # pod, client or the name of an interface with a virtual machine behind it
    probe: Probe

    def __str__(self) -> str:
        probe = self.probe
        who = f"uid {probe.uid} gid {probe.gid} in the pod" if self.start == "pod" else self.start
        kind = "udp" if probe.udp else "tcp"
        source = f" from {probe.source}" if probe.source else ""
        return f"{who} -> {kind} {probe.host} port {probe.port}{source}"


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    with Pod(interfaces=INTERFACES, outside=OUTSIDE) as made:
        both = [(port, family) for port in APP_PORTS for family in (4, 6)]
        made.serve("app", [Listener(port, family) for port, family in both], uid=APP_ID, gid=APP_ID)
        outside = [Listener(port, family) for port in OUTSIDE_PORTS for family in (4, 6)]
        outside += [Listener(53, family, kind="udp") for family in (4, 6)]
        made.client.serve("outside", outside)
        yield made


def table(options: Options) -> list[Row]:
    """Every kind of connection that the options may tell apart."""
    owners = [(APP_ID, APP_ID), (0, 0), *[(uid, APP_ID) for uid in options.proxy_uids]]
    owners += [(APP_ID, gid) for gid in (*options.proxy_gids, *options.exclude_owner_groups)]
    if isinstance(options.owner_groups, tuple):
        owners += [(APP_ID, int(gid)) for gid in options.owner_groups]
    servers = options.dns_servers or ("127.0.0.53",)
    listed = [one[0] if isinstance(one, tuple) else one for one in (*options.outbound_ports[:2], *options.exclude_outbound_ports[:2])]
    ports = dict.fromkeys((80, 53, *listed))
    rows = []
    for uid, gid in dict.fromkeys(owners):
        for host in ("203.0.113.7", "2001:db8::7"):
            rows += [_out(uid, gid, host, port) for port in ports]
            rows.append(_out(uid, gid, host, 53, udp=True))
        rows += [_out(uid, gid, host, 80) for host in ("198.51.100.7", "1.1.5.5", "9.9.9.9", "2001:db9::7")]
        for host in ("127.0.0.1", "10.77.0.2", "::1", "fd77::2"):
            rows += [_out(uid, gid, host, port) for port in (80, 53, 15008)]
        rows += [_out(uid, gid, host, 80, source="127.0.0.6") for host in ("127.0.0.1", "10.77.0.2")]
        for server in servers:
            rows += [_out(uid, gid, server, 53, udp=udp) for udp in (False, True)]
    for port in (*APP_PORTS, 9999, 15006):
        rows += [Row("client", _probe(host, port)) for host in ("10.77.0.2", "fd77::2")]
    for number, name in enumerate(INTERFACES if options.virtual_interfaces or options.exclude_interfaces else (), 78):
        hosts = (f"10.{number}.0.2", f"fd{number}::2", "203.0.113.7", "9.9.9.9", "2001:db8::7", "2001:db9::7")
        rows += [Row(name, _probe(host, 80)) for host in hosts]
    return rows


def _probe(host: str, port: int, **more) -> Probe:
    return Probe(host, port, timeout=0.4, **more)


def _out(uid: int, gid: int, host: str, port: int, **more) -> Row:
    return Row("pod", _probe(host, port, uid=uid, gid=gid, **more))


def fates(pod: Pod, rows: list[Row]) -> dict[Row, str]:
    """What became of each probe."""
    arrivals: dict[Row, Arrival] = {}
    for start in dict.fromkeys(row.start for row in rows):
        namespace = {"pod": pod, "client": pod.client}.get(start) or pod.neighbours[start]
        chosen = [row for row in rows if row.start == start]
        arrivals |= zip(chosen, namespace.probe([row.probe for row in chosen]), strict=True)
    return {row: _fate(arrival) for row, arrival in arrivals.items()}


def _fate(arrival: Arrival) -> str:
    if arrival.outcome != "answered":
        return arrival.outcome
    peer = str(arrival.peer).rpartition(":")[0]
    # Tables of the family inet have IPv6 tracked even where no rule is about it: an original destination that is the
    # present one says only that.
    redirected = f", was to {arrival.original_destination}" if arrival.original_destination not in (None, arrival.local) else ""
    return f"{arrival.server}:{arrival.port} at {arrival.local} from {peer}{redirected}"


def program(pod: Pod, dialect: str, wanted: Plan, istio: str = "") -> None:
    with pod.entered():
        for step in routes.steps_towards(wanted, FAMILIES):
            routes.make_one(step)
    if dialect not in IPTABLES:
        script = istio if dialect == ISTIOS else render_script(wanted)
        pod.run(["nft", "-f", "-"], stdin=script, check=True)
        return
    for family in FAMILIES:
        script = render_restore(write_plan(wanted, family))
        if script:
            pod.run([f"{family.program}-{dialect.removeprefix('iptables-')}-restore", "-w", "--noflush"], stdin=script, check=True)


def clear(pod: Pod, dialect: str) -> None:
    pod.run(["nft", "flush", "ruleset"], check=True)
    if dialect == "iptables-legacy":
        text = "".join(f"*{table}\nCOMMIT\n" for table in IPTABLES_TABLES)
        for family in FAMILIES:
            pod.run([f"{family.program}-legacy-restore", "-w"], stdin=text, check=True)
    with pod.entered():
        for step in routes.steps_towards(EMPTY_PLAN, FAMILIES):
            routes.make_one(step)
        forget_connections()


def forget_connections() -> None:
    """Flushes connection tracking: a new connection whose source port served before would meet the old rules' verdict."""
    with Netlink(NETLINK_NETFILTER) as link:
        link.request(DELETE_CONNECTIONS, 0, pack("=BBH", 0, 0, 0))


def fates_under(pod: Pod, dialect: str, wanted: Plan, rows: list[Row], istio: str = "") -> dict[Row, str]:
    try:
        program(pod, dialect, wanted, istio)
        return fates(pod, rows)
    finally:
        clear(pod, dialect)


@contextmanager
def proxy_for(pod: Pod, options: Options) -> Iterator[None]:
    """A proxy with the user and group that the options expect, its resolver included."""
    listeners = [Listener(port, family, transparent=True) for port in (15001, 15006) for family in (4, 6)]
    listeners += [Listener(15053, family, kind=kind) for family in (4, 6) for kind in ("tcp", "udp")]
    with pod.serve("proxy", listeners, uid=options.proxy_uids[0], gid=options.proxy_gids[0]):
        yield


def assert_same_fates(pod: Pod, wanted: Plan, ours: dict[Row, str], dialect: str, istio: str = "") -> None:
    """The dialect treats these connections as our nft rules do; a busy machine gets a second chance."""
    theirs = fates_under(pod, dialect, wanted, list(ours), istio)
    assert theirs.keys() == ours.keys()
    suspects = [row for row, fate in ours.items() if theirs[row] != fate]
    if suspects:
        ours = fates_under(pod, "nftables", wanted, suspects)
        theirs = fates_under(pod, dialect, wanted, suspects, istio)
    report = [f"{row}\n    ours: {ours[row]}\n    {dialect}: {theirs[row]}" for row in suspects if theirs[row] != ours[row]]
    assert not report, "\n".join(["nftables and another dialect disagree:", *report])


def read_case(folder: Path, name: str) -> tuple[Options, str]:
    case = json.loads((folder / "rules" / f"{name}.json").read_text())
    istio = case["nft"]
    environment = dict(case["env"])
    for group, number in GROUPS.items():
        environment = {key: value.replace(group, number) for key, value in environment.items()}
        istio = istio.replace(f"skgid {group} ", f"skgid {number} ").replace(f"skgid != {group} ", f"skgid != {number} ")
    options = Options.from_argv(case["argv"], environment)
    return options.replace(ipv6="on" if case["ipv6"] else "off", dns_servers=tuple(case["dns_servers"])), istio


def check_iptables(pod: Pod, options: Options) -> None:
    """Both variants of iptables do the same as our nft rules."""
    wanted = plan(options)
    with proxy_for(pod, options):
        ours = fates_under(pod, "nftables", wanted, table(options))
        for dialect in IPTABLES:
            assert_same_fates(pod, wanted, ours, dialect)


@pytest.mark.parametrize("name", choose(CASES[::2], CASES))
def test_every_connection_of_istios_cases_meets_the_same_fate_in_every_dialect(pod, conformance, name):
    options, istio = read_case(conformance, name)
    wanted = plan(options)
    with proxy_for(pod, options):
        ours = fates_under(pod, "nftables", wanted, table(options))
        for dialect in IPTABLES:
            assert_same_fates(pod, wanted, ours, dialect)
        if options.ipv6 == "off":  # Istio's inet chains capture IPv6 even then, and so do ours where --ipv6 auto decides so
            wanted = plan(options.replace(ipv6="inet"))
            ours = fates_under(pod, "nftables", wanted, table(options))
        assert_same_fates(pod, wanted, ours, ISTIOS, istio)


@pytest.mark.parametrize("name", choose(list(MORE)[::4], list(MORE)))
def test_every_connection_of_further_cases_meets_the_same_fate_in_every_dialect(pod, name):
    check_iptables(pod, Options.from_argv(MORE[name], ENVIRONMENTS.get(name, {})))


@settings(max_examples=some(4))
@given(options=made_options(interfaces=("eth1", "eth2")))
def test_every_connection_meets_the_same_fate_in_every_dialect_whatever_the_options(pod, options):
    check_iptables(pod, options)


def test_without_a_listening_proxy_tproxy_drops_instead_of_letting_connections_by(pod):
    options = Options.from_argv(["-m", "TPROXY", "-b", "80"])
    wanted = plan(options)
    rows = [Row("client", _probe(host, port)) for host in ("10.77.0.2", "fd77::2") for port in (80, 8080)]
    ours = fates_under(pod, "nftables", wanted, rows)
    assert [fate.split()[0] for fate in ours.values()] == ["timeout", "app:8080", "timeout", "app:8080"]
    for dialect in IPTABLES:
        assert_same_fates(pod, wanted, ours, dialect)
