"""`netinit watch` in pods: real connections show in the rows of what became of them, on every backend."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess

import pytest

from hostile_texts import commands
from laboratory import start_servers
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID
from netinit.live.verdict_counters import NOTHING_CAPTURES
from netinit.options import Options
from prefork import Running
from programming import REDIRECT, TOOL, TPROXY, apply_in, begin_tool, needs, remove_in, run_tool
from sweeps import fixtures_in_turn

pytestmark = pytest.mark.netns
OUTSIDE, EXCLUDED = "203.0.113.7", "198.51.100.7"
RULES = (*REDIRECT, "-x", f"{EXCLUDED}/32", "-d", "15020,9090")
OTHERS = "all outbound TCP is captured; no exclusion matches"
EVIL = "\x1b]0;pwned\x07\u202eevil"
MOST_LOOKS = 1000  # ten a second, also while this process waits for something else


pytest_generate_tests = fixtures_in_turn(backend=("iptables-nft", "iptables-legacy", "libiptc", "nftables"))


@pytest.fixture
def backend(request) -> str:
    needs(request.param)
    return request.param


@contextlib.contextmanager
def watching(place, *words: str):
    """A running `netinit watch` with an object a line, of which the first has been read."""
    process = begin_tool(place, "watch", "--format", "json", "--interval", "0.1", *words)
    try:
        json.loads(process.stdout.readline())
        yield process
    finally:
        process.kill()
        process.communicate()


def look_until(process: Running, wanted) -> list[dict]:
    """What was seen up to the first look that is as wanted."""
    looks = []
    while len(looks) < MOST_LOOKS:
        looks.append(json.loads(process.stdout.readline()))
        if wanted(looks[-1]):
            return looks
    raise AssertionError(looks[-1])


def since(look: dict, **wanted) -> int:
    """How many the rows with these values have counted."""
    return sum(row["since_start"] for row in look["fates"] if all(row[name] == value for name, value in wanted.items()))


def test_captured_and_bypassing_connections_are_counted_each_in_its_row(pod, backend):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*RULES, "--backend", backend]))
    with watching(pod) as process:
        for _ in range(3):
            assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
        for _ in range(2):
            assert pod.connect(EXCLUDED, 80, uid=APP_ID, gid=APP_ID).server == "outside"
        assert pod.connect(OUTSIDE, 80, uid=PROXY_ID, gid=PROXY_ID).server == "outside"
        assert pod.client.connect(pod.address, 8080).server == "proxy"
        pod.client.connect(pod.address, 9090)
        looks = look_until(process, lambda look: since(look, direction="in", verdict="direct"))
        last = looks[-1]
    assert since(last, verdict="captured", direction="out", port=15001, because=OTHERS, unit="connections") == 3
    assert since(last, verdict="direct", direction="out", option="--istio-service-exclude-cidr") == 2
    assert since(last, verdict="direct", direction="out", option="--proxy-uid", because="the proxy's own traffic goes out: no loops") == 1
    assert since(last, verdict="captured", direction="in", port=15006) == 1
    assert since(last, verdict="direct", direction="in", option="--istio-local-exclude-ports") == 1
    assert since(last, because="no rule captures it") == since(last, verdict="dropped") == 0
    assert not last["replaced"]
    for look in looks:
        for row in look["fates"]:
            assert row["per_second"] * look["seconds"] == pytest.approx(row["added"], abs=0.05)
    assert sum(row["added"] for look in looks for row in look["fates"] if row["port"] == 15001) <= 3


def test_a_datagram_that_no_rule_captures_is_a_bypass_though_it_went_through_the_capturing_chains_jump(pod, backend):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*RULES, "--backend", backend]))
    with watching(pod) as process:
        pod.connect(OUTSIDE, 9, udp=True, uid=APP_ID, gid=APP_ID, timeout=0.2)
        last = look_until(process, lambda look: since(look, because="no rule captures it"))[-1]
    assert since(last, because="no rule captures it", direction="out", verdict="direct") == 1
    assert since(last, verdict="captured", direction="out") == 0


@pytest.mark.parametrize("exact", [False, True], ids=["", "istio-exact"])
def test_tproxy_counts_packets_and_of_an_inbound_connection_one_alone_with_istios_rules(pod, backend, exact):
    """Istio's rules send known connections past TPROXY; without that it sees all packets of the peer."""
    start_servers(pod, transparent=[15006])
    apply_in(pod, Options.from_argv([*TPROXY, "--backend", backend]).replace(istio_exact=exact))
    with watching(pod) as process:
        assert pod.client.connect(pod.address, 8080).server == "proxy"
        last = look_until(process, lambda look: since(look, verdict="captured", direction="in"))[-1]
    counted = since(last, verdict="captured", direction="in", port=15006, unit="packets")
    assert counted == 1 if exact else counted >= 1


def test_a_foreign_rule_is_a_row_of_its_own_and_its_comment_commands_nobody(pod):
    needs("iptables-nft")
    start_servers(pod)
    apply_in(pod, Options.from_argv([*RULES, "--backend", "iptables-nft"]))
    rule = ["-p", "tcp", "--dport", "81", "-m", "comment", "--comment", EVIL]
    pod.run(["iptables-nft", "-w", "-t", "nat", "-I", "OUTPUT", *rule, "-j", "ACCEPT"], check=True)
    pod.run(["iptables-nft", "-w", "-A", "OUTPUT", "-p", "tcp", "--dport", "82", "-j", "DROP"], check=True)
    with watching(pod) as process:
        pod.connect(OUTSIDE, 81, uid=PROXY_ID, gid=PROXY_ID, timeout=0.2)
        pod.connect(OUTSIDE, 82, uid=PROXY_ID, gid=PROXY_ID, timeout=0.2)
        last = look_until(process, lambda look: since(look, verdict="dropped"))[-1]
    assert since(last, verdict="direct", foreign=True) == 1
    assert since(last, verdict="dropped", foreign=True, unit="packets") >= 1
    for form in ("lines", "table"):
        done = run_tool(pod, "watch", "--format", form, "--count", "1", "--interval", "0.1", "--all", env={"LINES": "60"})
        assert done.returncode == 0
        text = done.stdout.rpartition("\x1b[J")[2]
        assert "--dport 82" in text
        assert not commands(text + done.stderr)


def test_rules_that_are_replaced_are_said_to_be_and_what_was_counted_stays(pod, backend):
    start_servers(pod)
    options = Options.from_argv([*RULES, "--backend", backend])
    apply_in(pod, options)
    with watching(pod) as process:
        for _ in range(3):
            assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
        look_until(process, lambda look: since(look, port=15001) == 3)
        remove_in(pod, options)
        apply_in(pod, options)
        look_until(process, lambda look: look["replaced"])
        assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
        looks = look_until(process, lambda look: since(look, port=15001) > 3)
    assert since(looks[-1], port=15001) == 4


def test_the_node_watches_a_pod_by_a_process_of_it_and_ctrl_c_ends_it_cleanly(pod):
    apply_in(pod, Options.from_argv([*RULES, "--backend", "nftables"]))
    with watching(pod.client, "--pid", str(pod.pid)) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        assert process.returncode == 0
        assert "Traceback" not in err


def test_a_terminal_gets_one_table_that_is_written_over(pod):
    apply_in(pod, Options.from_argv([*RULES, "--backend", "nftables"]))
    ours, theirs = pty.openpty()
    with pod.entered():
        words = [*TOOL, "watch", "--count", "3", "--interval", "0.1"]
        process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", "COLUMNS": "70", "LINES": "30"})
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while part := os.read(ours, 1 << 16):
            seen += part
    os.close(ours)
    assert process.wait() == 0
    frames = seen.decode().split("\x1b[J")[1:]
    assert len(frames) == 3
    height = frames[0].count("\n")
    assert frames[0].endswith(f"\x1b[{height}A\r")
    assert all("captured" in frame and max(map(len, frame.splitlines())) < 100 for frame in frames)


def test_a_namespace_without_rules_has_nothing_that_decides(pod):
    done = run_tool(pod, "watch", "--format", "table", "--count", "1", "--interval", "0.1")
    assert done.returncode == 0
    assert "no rule here decides anything" in done.stdout
    assert "there are no rules at all" in done.stderr


def test_a_count_that_is_none_is_refused_by_name(pod):
    done = run_tool(pod, "watch", "--interval", "0")
    assert done.returncode == 2
    assert "--interval" in done.stderr


def test_a_datagram_that_is_refused_counts_once(pod, backend):
    apply_in(pod, Options.from_argv([*RULES, "--reject-quic", "--backend", backend]))
    with watching(pod, "--all") as process:
        with pod.entered(), creating_as(APP_ID, APP_ID):
            quic, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with quic, other:
            for _ in range(8):
                with contextlib.suppress(OSError):  # the refusal of the one before
                    quic.sendto(b"?", (OUTSIDE, 443))
            other.sendto(b"?", (OUTSIDE, 9999))
        last = look_until(process, lambda look: since(look, verdict="dropped", direction="out") and since(look, verdict="direct", because=NOTHING_CAPTURES, direction="out"))[-1]
        sent = since(last, verdict="dropped", direction="out")
        assert 4 <= sent <= 8
        assert since(last, verdict="direct", because=NOTHING_CAPTURES, direction="out") == 1
