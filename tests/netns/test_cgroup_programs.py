"""BPF programs at a pod's cgroup redirect connections before any rule sees them: every command says so, by real ones."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import prefork
from bpf import KINDS, attached, cgroup, rewrite_port
from in_force_cases import APP_ID, OPTIONS, OUTSIDE, PORT, programmed
from lab_probes import Probe, send_probes
from programming import TOOL

NFT = "iptables-nft"
EXCLUDES_443 = ("-o", "443")
NAME = f"netinit-test-{os.getpid()}"
AWAY = rewrite_port(PORT, 443)
HARMLESS = ("device", "sysctl", "sock_release")


@pytest.fixture(scope="module")
def node_cgroup():
    """The cgroup below which all of these tests' are."""
    with cgroup(NAME) as folder:
        yield folder


@pytest.fixture(scope="module")
def pod(node_cgroup):
    """A programmed pod, whose process is in a cgroup as the kubelet makes it."""
    made = programmed(NFT, EXCLUDES_443)
    try:
        with cgroup(f"{NAME}/kubepods/podeab2/c1") as folder, resident(made, folder):
            yield made
    finally:
        made.__exit__(None, None, None)


@contextlib.contextmanager
def resident(pod, folder):
    """A process of the pod in this cgroup."""
    with pod.popen(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; echo in; exec sleep 600"]) as process:
        assert process.stdout.readline() == "in\n"
        pod.resident, pod.cgroup = process.pid, folder
        try:
            yield
        finally:
            process.kill()


def connect(pod):
    """Where a connection of the application, from its cgroup, arrives."""
    found = pod.call(send_from, str(pod.cgroup))
    return tuple(found)


def send_from(folder):
    Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    (arrival,) = send_probes((Probe(OUTSIDE, PORT, uid=APP_ID, gid=APP_ID),))
    return [arrival.server or arrival.outcome, arrival.port]


def run(pod, *words, inside=""):
    """The tool on the node, which names the pod by its process; `inside` a cgroup that is the topmost of a node of its own."""
    words = (*words, "--pid", str(pod.resident))
    if not inside:
        return prefork.run(words)
    # The same file system cannot be mounted over itself.
    mount = "! mountpoint -q /sys/fs/cgroup || umount --lazy /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup"
    script = f'echo $$ > {inside}/cgroup.procs; exec unshare -C -m sh -c \'{mount}; exec "$@"\' sh "$@"'
    command = ["sh", "-c", script, "sh", *TOOL, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})


def verify(pod, *words, inside=""):
    return run(pod, "verify", *OPTIONS, *EXCLUDES_443, "--backend", NFT, *words, inside=inside)


def test_a_connection_that_connect4_rewrites_passes_the_proxy_and_every_command_says_so(pod):
    assert (connect(pod), verify(pod).returncode) == (("proxy", 15001), 0)
    with attached(pod.cgroup, "connect4", AWAY, b"take_away"):
        assert connect(pod) == ("outside", 443), "the program does something else here"
        found = verify(pod)
        explained = run(pod, "explain", "--to", f"{OUTSIDE}:{PORT}", "--uid", str(APP_ID))
        audited = run(pod, "audit", "--assert", f"outbound ipv4 tcp to {OUTSIDE} port {PORT} not by proxy is captured")
        compared = run(pod, "diff", "--live", *OPTIONS, *EXCLUDES_443)
        doctor = run(pod, "doctor")
        printed = json.loads(verify(pod, "--json").stdout)
    assert found.returncode == 3, found.stdout
    (line,) = [line for line in found.stdout.splitlines() if "BPF" in line]
    assert "escaping: BPF: program " in line
    assert f' "take_away" (connect4 of the cgroup /{NAME}/kubepods/podeab2/c1)' in line
    assert not explained.stdout.startswith("captured"), explained.stdout
    assert "take_away" in explained.stdout
    assert audited.returncode == 4, audited.stdout
    assert compared.returncode == 3, compared.stdout
    assert "take_away" in doctor.stdout, doctor.stdout
    assert [one["where"] for one in printed["differences"]] == ["BPF"]
    assert verify(pod).returncode == 0, "it was detached"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {*HARMLESS, "xdp"}))
def test_every_kind_that_may_rewrite_is_a_difference(pod, kind):
    with attached(pod.cgroup, kind):
        found = verify(pod)
    assert found.returncode == 3, found.stderr
    assert f"({kind} of the cgroup" in found.stdout


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_cannot_touch_connections_is_none(pod, kind):
    with attached(pod.cgroup, kind):
        found = verify(pod, "--strict")
    assert found.returncode == 0, found.stdout


def test_a_program_between_the_node_and_the_pod_is_a_difference_with_its_place(pod):
    with attached(pod.cgroup.parent.parent, "connect4", AWAY):
        assert connect(pod) == ("outside", 443)
        found = verify(pod)
    assert found.returncode == 3
    assert f"(connect4 of the cgroup /{NAME}/kubepods)" in found.stdout


def test_a_program_of_the_node_is_a_warning_and_with_strict_a_difference(pod, node_cgroup):
    with attached(node_cgroup, "connect4", name=b"cil_sock4_connect"[:15]):
        found, strict = verify(pod, inside=node_cgroup), verify(pod, "--strict", inside=node_cgroup)
        explained = run(pod, "explain", "--to", f"{OUTSIDE}:{PORT}", "--uid", str(APP_ID), inside=node_cgroup)
    assert (found.returncode, strict.returncode) == (0, 3), found.stdout + found.stderr
    assert "cil_sock4_conne" in found.stderr
    assert "acts on every process of the node" in found.stderr
    assert explained.stdout.startswith("captured"), explained.stdout
    assert "cil_sock4_conne" in explained.stderr


def test_a_program_of_another_pod_is_none(pod):
    with cgroup(f"{NAME}/other") as folder, attached(folder, "connect4", AWAY):
        assert verify(pod, "--strict").returncode == 0


def test_a_program_below_the_containers_cgroup_is_found_by_the_process_in_it(pod):
    with cgroup(f"{NAME}/kubepods/podeab2/c1/own") as folder, attached(folder, "sendmsg4"):
        assert verify(pod).returncode == 0  # no process is in it
        with pod.popen(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; echo in; exec sleep 600"]) as process:
            process.stdout.readline()
            found = verify(pod)
            process.kill()
    assert found.returncode == 3
    assert "podeab2/c1/own)" in found.stdout


def test_a_cgroups_hostile_name_forges_nothing(pod):
    name = "x\x1b[2J\u202e) captured"
    waits = "import sys, time; open(sys.argv[1] + '/cgroup.procs', 'w').write('0'); print('in', flush=True); time.sleep(600)"
    with (
        cgroup(f"{NAME}/kubepods/podeab2/c1/{name}") as folder,
        attached(folder, "connect4"),
        pod.popen([sys.executable, "-c", waits, str(folder)]) as process,
    ):
        assert process.stdout.readline() == "in\n"
        found = verify(pod)
        process.kill()
    assert found.returncode == 3
    assert "\x1b" not in found.stdout + found.stderr
    assert "\u202e" not in found.stdout + found.stderr
    assert "\\x1b[2J\\u202e" in found.stdout


def test_where_bpf_may_not_be_used_it_is_one_warning(pod):
    """As in a container whose seccomp profile refuses bpf(2)."""
    words = verify(pod).args
    done = subprocess.run([sys.executable, "-c", REFUSE, *TOOL, *words], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if "BPF" in line][1:] == [], done.stderr


REFUSE = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
held = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code), ctypes.addressof(held)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
