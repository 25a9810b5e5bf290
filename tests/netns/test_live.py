"""verify --live: packets tell whether the rules do what they are for, and nobody notices."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from lab_state import describe_state
from laboratory import Pod, start_servers
from netinit.base.net import IPV4
from netinit.kernel.conntrack import list_entries
from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.pods.probe import rows as probing
from netinit.pods.probe.peer import Peer
from netinit.pods.probe.rows import probe
from programming import SIDECAR, apply_in, begin_tool, check_same, load, needs, run_tool
from strategies import made_options
from sweeps import crossed

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
REDIRECT = (*SIDECAR, "--ipv6", "on", "-o", "9000", "-x", "10.9.0.0/16,fd09::/64")
TPROXY = (*REDIRECT, "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7,2001:db8::7", "--drop-invalid")
MODES = {"REDIRECT": REDIRECT, "TPROXY": TPROXY}


NO_NEIGHBOUR = "nothing was sent through eth0, as a neighbour does"  # test_live_neighbours.py has one


def probe_in(pod, arguments):
    with pod.entered():
        return probe(Options.from_argv(arguments))


def tell(report):
    return "\n".join(
        f"{row.right} {row.ask.direction} {row.ask.family.name} {row.ask.protocol} {row.ask.who} to {row.ask.target}:"
        f" {row.expected} | {row.observed}"
        for row in report.rows
    )


def wrong_in(report):
    return {f"{row.ask.direction} {row.ask.family.name} {row.ask.protocol} {row.ask.who} to {row.ask.target}" for row in report.wrong}


def tracked(pod):
    """The connections that the pod remembers."""
    with pod.entered(), Netlink(NETLINK_NETFILTER) as link:
        return {entry.original for entry in list_entries(link)}


@crossed(backend=BACKENDS, mode=MODES)
def test_a_good_pod_is_right_in_every_row_and_stays_as_it_was(pod, backend, mode):
    needs(backend)
    arguments = (*MODES[mode], "--backend", backend)
    apply_in(pod, Options.from_argv(arguments))
    for furnished in (False, True):
        if furnished:
            start_servers(pod, transparent=(15006,) if mode == "TPROXY" else ())
        before, remembered = describe_state(pod), tracked(pod)
        report = probe_in(pod, arguments)
        assert not report.wrong, tell(report)
        assert all(NO_NEIGHBOUR in note for note in report.notes), report.notes
        assert all(row.right for row in report.rows), tell(report)
        check_same(describe_state(pod), before, "probing left a trace")
        assert tracked(pod) == remembered, "connections of ours are still remembered"
        expected = {row.expected for row in report.rows}
        assert {"captured on 15001", "captured on 15006", "direct", "direct, out of the pod"} <= expected
        assert ("captured on 15053" in expected) == (mode == "TPROXY")


def test_programs_in_the_pod_see_no_connection_and_lose_none(pod):
    arguments = ("--ipv6", "on", *SIDECAR, "--redirect-dns", "--dns-servers", "203.0.113.7,2001:db8::7")
    apply_in(pod, Options.from_argv(arguments))
    listeners, receivers = [], []
    with pod.entered():
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for port in (15001, 15006, 8080, 15021):
                listener = socket.socket(family)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.settimeout(0)
                listener.bind((host, port))
                listener.listen()
                listeners.append(listener)
            receiver = socket.socket(family, socket.SOCK_DGRAM)
            receiver.settimeout(0)
            receiver.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 15053))
            receivers.append(receiver)
        running = socket.create_connection(("127.0.0.1", 8080))
        accepted = next(one for one in listeners if one.getsockname() == ("0.0.0.0", 8080)).accept()[0]
    report = probe_in(pod, arguments)

    assert not report.wrong, tell(report)
    assert sum("accepted" in row.observed or row.expected.startswith("captured") for row in report.rows) > 10
    for listener in listeners:
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()
    assert [row.right for row in report.rows if row.expected == "captured on 15053" and row.ask.protocol == "udp"] == [True, True], tell(report)
    for receiver in receivers:
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
        receiver.close()
    running.sendall(b"still here")
    accepted.settimeout(60)
    assert accepted.recv(100) == b"still here"
    running.close()
    accepted.close()


def test_what_came_while_others_had_the_processor_is_read_when_the_time_is_over(pod, monkeypatch):
    monkeypatch.setattr(probing, "QUICK", (0.0, 0.05))
    monkeypatch.setattr(probing, "SLOW", (0.0, 0.05))
    apply_in(pod, Options.from_argv(TPROXY))
    before = tracked(pod)
    report = probe_in(pod, TPROXY)
    assert all(row.right for row in report.rows), tell(report)
    assert tracked(pod) == before


def test_connections_of_which_no_event_comes_are_forgotten_too(pod, monkeypatch):
    monkeypatch.setattr(probing.Watch, "read", lambda *_: iter(()))
    monkeypatch.setattr(probing, "QUICK", (0.0, 0.0))
    monkeypatch.setattr(probing, "SLOW", (0.0, 0.0))
    apply_in(pod, Options.from_argv(REDIRECT))
    with pod.entered(), socket.socket(type=socket.SOCK_DGRAM) as own:
        own.sendto(b"x", ("192.0.2.1", 80))  # a connection of the pod's, as probes are
    before = tracked(pod)
    report = probe_in(pod, REDIRECT)
    assert report.wrong
    assert {row.observed for row in report.wrong} == {"dropped (connection tracking never saw it)"}
    assert tracked(pod) == before != set()


CORRUPTIONS = {
    "the last outbound rule deleted": (
        [("-t", "nat", "-D", "ISTIO_OUTPUT", "-j", "ISTIO_REDIRECT")],
        {"outbound IPv4 tcp app to an address outside"},
    ),
    "the proxy's exemption moved behind the capture": (
        [
            ("-t", "nat", "-D", "ISTIO_OUTPUT", "-m", "owner", "--uid-owner", "1337", "-j", "RETURN"),
            ("-t", "nat", "-A", "ISTIO_OUTPUT", "-m", "owner", "--uid-owner", "1337", "-j", "RETURN"),
        ],
        {"outbound IPv4 tcp proxy's uid to an address outside"},
    ),
    "the excluded network forgotten": (
        [("-t", "nat", "-D", "ISTIO_OUTPUT", "-d", "10.9.0.0/16", "-j", "RETURN")],
        {"outbound IPv4 tcp app to an excluded network"},
    ),
    "the inbound jump deleted": (
        [("-t", "nat", "-D", "PREROUTING", "-p", "tcp", "-j", "ISTIO_INBOUND")],
        {"inbound IPv4 tcp a peer to a port of the pod"},
    ),
    "policy DROP on INPUT": (
        [("-t", "filter", "-P", "INPUT", "DROP")],
        {
            "outbound IPv4 tcp app to an address outside",
            "outbound IPv4 tcp app to localhost",
            "inbound IPv4 tcp a peer to a port of the pod",
            "inbound IPv4 tcp a peer to an excluded port of the pod",
        },
    ),
    "policy DROP on OUTPUT": (
        [("-t", "filter", "-P", "OUTPUT", "DROP")],
        {"outbound IPv4 tcp app to an address outside", "outbound IPv4 tcp proxy's uid to an address outside"},
    ),
    "a foreign DNAT in front": (
        [("-t", "nat", "-I", "OUTPUT", "-p", "tcp", "-d", "192.0.2.1", "-j", "DNAT", "--to-destination", "203.0.113.7:443")],
        {"outbound IPv4 tcp app to an address outside", "outbound IPv4 tcp proxy's uid to an address outside"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("variant", ["iptables-nft", "iptables-legacy"])
def test_corrupted_pods_are_wrong_in_the_right_rows_of_the_right_family(pod, variant):
    needs(variant)
    arguments = (*REDIRECT, "--backend", variant)
    for what, (commands, rows) in CORRUPTIONS.items():
        apply_in(pod, Options.from_argv([*arguments, "--reconcile", "--force-apply"]))
        for command in commands:
            pod.run([variant, "-w", *command], check=True)
        report = probe_in(pod, arguments)
        found = wrong_in(report)
        assert rows <= found, f"{what}\n{tell(report)}"
        assert not [row for row in found if "IPv6" in row], f"{what}\n{tell(report)}"
        if "policy" not in what:
            assert len(found) <= len(rows) + 6, f"{what}\n{tell(report)}"
        for command in commands:  # what is not ours goes; ours is made anew
            if "-P" in command:
                pod.run([variant, "-w", *command[:-1], "ACCEPT"], check=True)
            if "DNAT" in command:
                pod.run([variant, "-w", *["-D" if word == "-I" else word for word in command]], check=True)


def test_whatever_the_options_a_good_pod_is_right_in_every_row():
    """What the matrix derives of options is predicted and observed alike, by turns on every dialect."""
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod, transparent=(15001, 15006))
        counted = []

        @seed(4)
        @settings(max_examples=15, database=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
        @given(made_options(interfaces=("eth1",)))
        def hold(options):
            backend = BACKENDS[len(counted) % 3]
            options = options.replace(reconcile=True, backend=backend)
            apply_in(pod, options)
            with pod.entered():
                report = probe(options)
            counted.append(len(report.rows))
            assert not report.wrong, f"{options.to_environ()} {options.to_argv()}\n{tell(report)}"

        hold()
    assert sum(counted) > 250, counted


def test_a_killed_run_takes_its_interface_along(pod):
    apply_in(pod, Options.from_argv(REDIRECT))
    before = describe_state(pod)
    seen = 0
    for number in range(60):
        if number >= 6 and seen > 1:
            break
        process = begin_tool(pod, "verify", "--live", *REDIRECT)
        wait_until(lambda run=process: Peer.NAME in interfaces(pod) or run.poll() is not None, number % 6 * 0.02)
        seen += Peer.NAME in interfaces(pod)
        process.kill()
        process.communicate()
        wait_until(lambda: Peer.NAME not in interfaces(pod))
    check_same(describe_state(pod), before, "a killed run left a trace")
    assert seen > 1, "the kills came at the wrong time"


def interfaces(pod):
    with pod.entered():
        return {name for _, name in socket.if_nameindex()}


def wait_until(holds, more=0.0):
    """Waits until it holds, then as much more."""
    while not holds():
        time.sleep(0.002)
    time.sleep(more)


def test_a_proxy_without_a_transparent_socket_is_found(pod):
    apply_in(pod, Options.from_argv(TPROXY))
    start_servers(pod)
    report = probe_in(pod, TPROXY)
    wrong = [row for row in report.wrong if row.ask.target == "a port of the pod"]
    assert len(wrong) == 2, tell(report)
    assert all("no transparent socket listens on 15006" in row.observed for row in wrong), tell(report)


@pytest.mark.users
def test_a_pod_with_a_user_namespace_is_probed_from_outside(readable):
    with Pod(user_namespace=True) as pod:
        arguments = (*REDIRECT, "--pid", str(pod.pid))
        assert run_tool(pod.client, *arguments, prefix=readable).returncode == 0
        done = run_tool(pod.client, "verify", "--live", *arguments, prefix=readable)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "a peer to a port of the pod" in done.stdout
        assert run_tool(pod.client, "doctor", *arguments, prefix=readable).returncode == 0


def test_without_any_rules_nothing_is_captured_and_that_is_said(pod):
    report = probe_in(pod, REDIRECT)
    assert all(row.right is False for row in report.rows if row.expected.startswith("captured")), tell(report)


def test_a_tproxy_pod_whose_policy_rule_is_gone_is_found_out(pod):
    apply_in(pod, Options.from_argv(TPROXY))
    assert not probe_in(pod, TPROXY).wrong
    load(pod, "iptables-nft", IPV4, "*mangle\n-F ISTIO_INBOUND\nCOMMIT\n")
    report = probe_in(pod, TPROXY)
    assert "inbound IPv4 tcp a peer to a port of the pod" in wrong_in(report), tell(report)


def test_a_tproxied_port_where_a_program_listens_is_not_judged(pod):
    arguments = [word if word != "*" or TPROXY[at - 1] != "-b" else "80" for at, word in enumerate(TPROXY)]
    apply_in(pod, Options.from_argv(arguments))
    start_servers(pod, transparent=(15006,))
    report = probe_in(pod, arguments)
    busy = [row for row in report.rows if row.ask.direction == "inbound" and row.ask.port == 80]
    assert [row.right for row in busy] == [None, None], tell(report)
    assert not report.wrong, tell(report)


def test_the_command_ends_with_0_126_or_3_and_says_why(pod):
    needs("iptables-nft")
    arguments = (*REDIRECT, "--backend", "iptables-nft")
    apply_in(pod, Options.from_argv(arguments))
    good = run_tool(pod, "verify", "--live", *arguments)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "✔  IPv4  tcp  app to an address outside" in good.stdout
    assert "✘" not in good.stdout
    assert "0 did not" in good.stdout
    assert "as planned: " in good.stdout

    pod.run(["iptables-nft", "-A", "INPUT", "-p", "tcp", "--dport", "7", "-j", "ACCEPT"], check=True)
    load(pod, "iptables-nft", IPV4, "*nat\n-D ISTIO_OUTPUT -d 10.9.0.0/16 -j RETURN\nCOMMIT\n")
    bad = run_tool(pod, "verify", "--live", *arguments)
    assert bad.returncode == 126
    assert "must be direct, out of the pod (these networks are not captured), but sent to 127.0.0.1:15001" in bad.stdout
    assert "missing" in bad.stdout

    answer = json.loads(run_tool(pod, "verify", "--live", "--json", *arguments).stdout)
    assert not answer["ok"]
    (row,) = [row for row in answer["probes"] if row["ok"] is False]
    assert {one["direction"] for one in answer["probes"]} == {"inbound", "outbound"}
    assert (row["family"], row["destination"], row["port"]) == ("IPv4", "10.9.255.254", 80)
    assert answer["wrong"] == 1


def test_from_outside_the_pod_by_its_process(pod):
    apply_in(pod, Options.from_argv(REDIRECT))
    with pod.client.entered():
        report = probe(Options.from_argv([*REDIRECT, "--pid", str(pod.pid)]))
    assert report.rows
    assert all(row.right for row in report.rows), tell(report)


def test_without_sys_admin_nobody_probes_from_outside_and_that_is_said(pod):
    apply_in(pod, Options.from_argv(REDIRECT))
    done = run_tool(pod, "verify", "--live", *REDIRECT, without=["sys_admin"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was probed from outside: a peer needs SYS_ADMIN" in done.stderr
    assert "a peer to" not in done.stdout


def test_without_net_raw_the_missing_privilege_is_named(pod):
    refused = run_tool(pod, "verify", "--live", *REDIRECT, without=["net_raw"])
    assert refused.returncode == 1
    assert "probing needs NET_RAW" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_while_the_rules_are_programmed_nothing_is_probed(pod):
    with pod.entered():
        holder = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        refused = run_tool(pod, "verify", "--live", *REDIRECT, "--lock-timeout", "100ms")
    finally:
        os.close(holder)
    assert refused.returncode == 1
    assert f"process {os.getpid()} (" in refused.stderr


def test_in_an_ipv4_pod_what_has_no_route_is_not_judged(pod_v4only):
    arguments = (*SIDECAR, "--ipv6", "auto")
    apply_in(pod_v4only, Options.from_argv(arguments))
    report = probe_in(pod_v4only, arguments)
    assert {row.ask.family for row in report.rows} == {IPV4}
    assert all(row.right for row in report.rows), tell(report)

    apply_in(pod_v4only, Options.from_argv([*arguments[:-1], "on", "--reconcile"]))
    report = probe_in(pod_v4only, [*arguments[:-1], "on"])
    unreachable = [row for row in report.rows if row.observed == f"not made: {os.strerror(errno.ENETUNREACH)}"]
    assert unreachable
    assert not report.wrong, tell(report)


def test_the_proxy_and_the_app_are_who_the_options_say(pod):
    arguments = ("-p", "16001", "-z", "16006", "-u", str(APP_ID), "-g", str(PROXY_ID), "-b", "80,81", "-i", "10.0.0.0/8", "--ipv6", "on")
    apply_in(pod, Options.from_argv(arguments))
    report = probe_in(pod, arguments)
    assert not report.wrong, tell(report)
    captured = {(row.ask.uid, row.ask.destination) for row in report.rows if row.expected == "captured on 16001"}
    assert captured == {(65534, "10.255.255.254")}
