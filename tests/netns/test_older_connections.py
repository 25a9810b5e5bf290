"""Connections that were there before the rules: counted, left alone, or ended with --reset-existing; all others live on."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys

import pytest

from conversations import converse, make_socket, track
from laboratory import start_servers
from netinit.kernel import conntrack, tcp_sockets
from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.options.interception import NODE_PROXY_MARK
from programming import apply_in, needs, run_tool
from sweeps import in_turn

pytestmark = pytest.mark.usefixtures("judged_by_verify")

POD, CLIENT = {4: "10.77.0.2", 6: "fd77::2"}, {4: "10.77.0.1", 6: "fd77::1"}
OUT, EXCLUDED_OUT, IN, EXCLUDED_IN = 8000, 8001, 9000, 9001
RULES = ["-b", "*", "-d", str(EXCLUDED_IN), "-i", "*", "-o", str(EXCLUDED_OUT), "--ipv6", "on"]
OLD = ("out 4", "in 4", "out 6", "in 6")
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
MODES = ("REDIRECT", "TPROXY")
backends = in_turn("backend", BACKENDS)
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def stack():
    with contextlib.ExitStack() as opened:
        yield opened


def converse_in_every_way(stack, pod):
    found = {}
    for family in (4, 6):
        found[f"out {family}"] = converse(stack, pod.client, CLIENT[family], OUT, pod)
        found[f"in {family}"] = converse(stack, pod, POD[family], IN, pod.client)
        found[f"excluded out {family}"] = converse(stack, pod.client, CLIENT[family], EXCLUDED_OUT, pod)
        found[f"excluded in {family}"] = converse(stack, pod, POD[family], EXCLUDED_IN, pod.client)
        found[f"proxy {family}"] = converse(stack, pod.client, CLIENT[family], 8002, pod, user=PROXY_ID)
        found[f"itself {family}"] = converse(stack, pod, POD[family], 9002, pod)
    return found


def fates(conversations):
    return {name: one.fate for name, one in conversations.items()}


def count(warning, what):
    """How many connections a warning says this of."""
    return sum(int(number) for number, said in re.findall(r"(\d+) connections? older than the rules (.*?) \(", warning) if what in said)


@modes
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "not tracked"])
@backends
def test_old_connections_are_counted_by_what_becomes_of_them_and_none_is_ended(pod, stack, backend, tracked, mode):
    """TPROXY takes packets of peers from applications' sockets also where connection tracking knows the connection."""
    needs(backend)
    if tracked:
        track(pod)
    conversations = converse_in_every_way(stack, pod)
    options = Options.from_argv([*RULES, "-m", mode, "--backend", backend])
    (warning,) = apply_in(pod, options).warnings
    found = fates(conversations)
    assert {found[name] for name in found if name not in OLD} == {("ok", "ok")}, found
    passing = [name for name in OLD if found[name] == ("ok", "ok")]
    assert (count(warning, "the proxy until"), count(warning, "cut off")) == (len(passing), len(OLD) - len(passing)), (warning, found)
    assert {"out 4", "out 6"} <= set(passing) if tracked else not passing
    assert "--reset-existing" in warning
    again = apply_in(pod, options)
    assert (again.changed, again.warnings, again.notes) == (False, (), ()), "a run that changes nothing does not look"


@modes
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "not tracked"])
@backends
def test_with_the_option_exactly_those_are_reset_that_the_rules_would_capture(pod, stack, backend, tracked, mode):
    needs(backend)
    if tracked:
        track(pod)
    conversations = converse_in_every_way(stack, pod)
    done = apply_in(pod, Options.from_argv([*RULES, "-m", mode, "--backend", backend, "--reset-existing"]))
    assert (done.warnings, done.unended) == ((), "")
    assert done.notes[0].startswith("ended 4 connections older than the rules (such as from "), done.notes
    found = fates(conversations)
    ended = {"out": ("ConnectionAbortedError", "ConnectionResetError"), "in": ("ConnectionResetError", "ConnectionAbortedError")}
    assert found == {name: ended[name.split()[0]] if name in OLD else ("ok", "ok") for name in conversations}


def test_connections_that_are_reset_come_again_through_the_proxy_from_the_same_port(pod, stack):
    track(pod)
    start_servers(pod)
    old = converse(stack, pod.client, CLIENT[4], OUT, pod)
    port = old.client.getsockname()[1]
    apply_in(pod, Options.from_argv([*RULES, "--backend", "iptables-nft", "--reset-existing"]))
    assert old.fate[0] == "ConnectionAbortedError"
    with pod.entered(), Netlink(NETLINK_NETFILTER) as link:
        ends = [socket.inet_aton(host) for host in (POD[4], CLIENT[4])]
        assert conntrack.find_entry(link, tcp_sockets.IPPROTO_TCP, (ends[0], port), (ends[1], OUT)) is None
    old.client.close()
    anew = stack.enter_context(make_socket(pod, CLIENT[4], APP_ID))
    anew.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    anew.bind((POD[4], port))
    anew.connect((CLIENT[4], OUT))
    assert b'"proxy"' in anew.recv(4096)


@modes
def test_captured_connections_are_not_old_where_rules_are_replaced_while_the_proxy_runs(pod, stack, mode):
    start_servers(pod, app=(80,), **({"transparent": (15006,)} if mode == "TPROXY" else {}))
    options = Options.from_argv([*RULES, "-m", mode, "--backend", "iptables-nft", "--reset-existing"])
    apply_in(pod, options)
    for namespace, hosts in ((pod, CLIENT), (pod.client, POD)):
        for host in hosts.values():
            held = stack.enter_context(make_socket(namespace, host, APP_ID))
            held.connect((host, 80))
            assert b'"proxy"' in held.recv(4096)
    done = apply_in(pod, options.replace(exclude_outbound_cidrs="192.0.2.0/24", reconcile=True))
    assert (done.changed, done.notes, done.warnings, done.unended) == (True, (), (), "")


@backends
@pytest.mark.parametrize("exact", [True, False], ids=["Istio's rules", "default"])
def test_what_classic_tproxy_cuts_off_of_redirected_connections_is_said(pod, stack, backend, exact):
    """Istio's rules for it look for a socket at the address that nat has not translated yet; the default's know what nat redirected."""
    needs(backend)
    start_servers(pod, app=(80,), transparent=(15001, 15006))
    apply_in(pod, Options.from_argv([*RULES, "--backend", backend]))
    held = []
    for host in POD.values():
        held.append(stack.enter_context(make_socket(pod.client, host, 0)))
        held[-1].connect((host, 80))
        assert b'"proxy"' in held[-1].recv(4096)
    classic = ["-b", "*", "-i", "*", "--ipv6", "on", "--layout", "classic", "-m", "TPROXY", "--reconcile", "--backend", backend]
    warnings = apply_in(pod, Options.from_argv([*classic, *(["--istio-exact"] if exact else [])])).warnings
    said = [one for one in warnings if "that nat redirected to the proxy" in one]
    for one in held:
        one.send(b"x")
    assert b'"proxy"' in held[1].recv(4096), "TPROXY of this layout is of IPv4 alone"
    if exact:
        with pytest.raises(ConnectionResetError):
            held[0].recv(4096)
        (warning,) = said
        assert warning.startswith("1 connection that nat redirected to the proxy is reset with its next packet (from 10.77.0.1:"), warning
        assert " to 10.77.0.2:80): " in warning
        assert warning.endswith("without --istio-exact they stay open")
    else:
        assert b'"proxy"' in held[0].recv(4096)
        assert said == []


def test_a_socket_of_ipv6_that_speaks_ipv4_counts_as_ipv4(pod, stack):
    track(pod)
    old = converse(stack, pod.client, CLIENT[4], OUT, pod, mapped=f"::ffff:{CLIENT[4]}")
    done = apply_in(pod, Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "off", "--backend", "iptables-nft", "--reset-existing"]))
    assert done.notes[0].endswith(f"to {CLIENT[4]}:{OUT}, of user {APP_ID})")
    assert old.fate == ("ConnectionAbortedError", "ConnectionResetError")


def test_without_ipv6_in_the_rules_its_connections_are_not_counted(pod, stack):
    track(pod)
    old = converse(stack, pod.client, CLIENT[6], OUT, pod)
    done = apply_in(pod, Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "off", "--backend", "iptables-nft", "--reset-existing"]))
    assert done.notes == ()
    assert old.fate == ("ok", "ok")


HOLD = """
import socket, sys
held = socket.create_connection((sys.argv[1], int(sys.argv[2])))
held.send(b"1")
sys.stdin.read()
held.send(b"2")
"""


def test_a_proxy_that_runs_as_root_is_known_by_its_group(pod, stack):
    track(pod)
    listener = stack.enter_context(make_socket(pod.client, CLIENT[4], APP_ID))
    listener.bind((CLIENT[4], OUT))
    listener.listen()
    process = stack.enter_context(pod.popen([sys.executable, "-I", "-S", "-c", HOLD, CLIENT[4], str(OUT)], uid=0, gid=PROXY_ID, stdin=subprocess.PIPE))
    accepted = stack.enter_context(listener.accept()[0])
    accepted.settimeout(60)
    assert accepted.recv(1) == b"1"
    done = apply_in(pod, Options.from_argv([*RULES, "-m", "TPROXY", "--backend", "iptables-nft", "--reset-existing"]))
    assert done.notes == ()
    process.stdin.close()
    assert accepted.recv(1) == b"2"


AMBIENT = ["--layout", "ambient", "--redirect-dns", "--ipv6", "on", "--backend", "iptables-nft"]


def test_in_an_ambient_pod_what_the_node_s_proxy_has_open_is_known_by_its_mark(pod, stack):
    track(pod)
    old = converse(stack, pod.client, CLIENT[4], OUT, pod)
    own = converse(stack, pod.client, CLIENT[4], EXCLUDED_OUT, pod, mark=NODE_PROXY_MARK)
    done = apply_in(pod, Options.from_argv([*AMBIENT, "--reset-existing"]))
    assert done.notes[0].startswith("ended 1 connection older than the rules (from "), done.notes
    assert (old.fate, own.fate) == (("ConnectionAbortedError", "ConnectionResetError"), ("ok", "ok"))


def ask(resolver):
    resolver.send(b"x")
    return json.loads(resolver.recv(4096))["name"]


@pytest.mark.parametrize(("arguments", "without"), [([*AMBIENT, "--istio-exact"], "outside"), ([*RULES, "--redirect-dns", "--capture-all-dns"], "proxy")], ids=["ambient", "sidecar"])
def test_a_resolver_that_keeps_its_port_asks_the_proxy_once_its_flow_is_forgotten(pod, stack, arguments, without):
    """In a sidecar's pod the application's queries have a zone of their own, where no older flow is."""
    track(pod)
    start_servers(pod)
    with pod.entered(), creating_as(APP_ID, APP_ID):
        resolver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    resolver.settimeout(60)
    resolver.connect((CLIENT[4], 53))
    assert ask(resolver) == "outside"
    apply_in(pod, Options.from_argv(arguments))
    assert ask(resolver) == without
    apply_in(pod, Options.from_argv([*arguments, "--reset-existing"]))
    assert ask(resolver) == "proxy"


def test_the_command_says_it_and_a_later_run_with_the_option_ends_them(pod, stack):
    track(pod)
    old = converse(stack, pod.client, CLIENT[4], OUT, pod)
    arguments = [*RULES, "--backend", "iptables-nft"]
    first = run_tool(pod, "apply", *arguments)
    assert first.returncode == 0
    assert f"1 connection older than the rules bypasses the proxy until it ends (from {POD[4]}:" in first.stderr
    second = run_tool(pod, "apply", *arguments)
    assert "older than the rules" not in second.stderr
    assert old.fate == ("ok", "ok")
    third = run_tool(pod, "apply", *arguments, env={"NETINIT_RESET_EXISTING": "true"})
    assert (third.returncode, "ended 1 connection older than the rules" in third.stderr) == (0, True)
    assert old.fate == ("ConnectionAbortedError", "ConnectionResetError")


def test_a_kernel_that_cannot_end_them_is_an_error_after_the_rules_are_programmed(pod, stack, monkeypatch):
    track(pod)
    converse(stack, pod.client, CLIENT[4], OUT, pod)

    def refuse(link, found):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("netinit.pods.older_connections.destroy", refuse)
    done = apply_in(pod, Options.from_argv([*RULES, "--backend", "iptables-nft", "--reset-existing"]))
    assert done.changed
    assert done.unended.startswith("1 connection older than the rules could not be ended (from ")
    assert "SOCK_DESTROY: Operation not supported" in done.unended
