"""The machine's own network namespace is changed only by name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from hostile import stranger, tool
from laboratory import Pod
from netinit.backends.machine import Machine
from netinit.kernel import children, namespaces
from netinit.options import Options
from programming import REDIRECT, SIDECAR, TOOL, needs, run_tool

MACHINE = "this is the machine's own network namespace"


@pytest.fixture
def on_the_machine():
    """These tests run where the machine's own namespace can be told, and must never change it."""
    if not namespaces.is_machine():
        pytest.skip("this test run is not in the network namespace that the kernel began with")
    before = rules_here()
    yield
    assert rules_here() == before, "the machine's own rules were changed"


def rules_here():
    return [subprocess.run([f"{name}-save"], capture_output=True, text=True, check=False).stdout.count("ISTIO") for name in ("iptables-nft", "ip6tables-nft")]


@pytest.mark.parametrize("words", [["apply", *REDIRECT], ["istio-iptables", *REDIRECT], [*REDIRECT], ["remove"], ["apply", *REDIRECT, "--cleanup-only"], ["apply", *REDIRECT, "--force-apply", "--reconcile"]])
def test_on_a_laptop_or_in_a_pod_of_the_hosts_network_nothing_is_changed(on_the_machine, words):
    refused = tool(*words)
    assert refused.returncode == 1, refused.stderr
    assert MACHINE in refused.stderr
    assert "--host-network" in refused.stderr
    assert re.search(r"name it with --pid .*or --netns", refused.stderr), refused.stderr


def test_an_init_container_is_refused_without_any_privilege_or_proc_of_its_own(on_the_machine, readable):
    prefix = [*readable, "unshare", "-m", "-p", "-f", "--mount-proc", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    refused = subprocess.run([*prefix, *TOOL, *REDIRECT], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert MACHINE in refused.stderr, refused.stderr


def test_a_dry_run_and_readers_work_on_the_machine_and_readers_say_where_they_look(on_the_machine):
    assert tool("apply", "-n", *REDIRECT).returncode == 0
    for command in (["verify", *REDIRECT], ["explain", "--live", "--to", "10.0.0.1:80", *REDIRECT]):
        said = tool(*command)
        assert f"{MACHINE}, not a pod's: apply and remove change it only with --host-network" in said.stderr, said.stderr
    assert MACHINE in tool("doctor", *SIDECAR).stdout


def test_a_process_of_the_hosts_network_is_refused_from_outside(on_the_machine):
    with stranger("unshare(NEWNS)") as pod:
        for words in (["apply", *REDIRECT], ["remove"]):
            for place in (["--pid", str(pod.pid)], ["--netns", f"/proc/{pod.pid}/ns/net"]):
                refused = tool(*words, *place)
                assert refused.returncode == 1
                assert f"/proc/{pod.pid}/ns/net leads to the machine's own network namespace" in refused.stderr or "this command itself" in refused.stderr, refused.stderr
                assert "--host-network" in refused.stderr
        said = tool("verify", *REDIRECT, "--pid", str(pod.pid))
        assert "leads to the" in said.stderr, said.stderr
        assert "not a pod's: apply and remove change it only with --host-network" in said.stderr


def test_a_process_in_the_callers_own_namespace_is_refused_on_a_node_that_is_a_container_too(pod):
    needs("iptables-nft")
    with pod.entered():
        neighbour = subprocess.Popen(["sleep", "infinity"])
    try:
        for words in (["apply", *REDIRECT], ["remove"]):
            refused = run_tool(pod, *words, "--pid", str(neighbour.pid))
            assert refused.returncode == 1
            assert "leads to the network namespace of this command itself" in refused.stderr, refused.stderr
        meant = run_tool(pod, "apply", *REDIRECT, "--pid", str(neighbour.pid), "--host-network")
        assert meant.returncode == 0, meant.stderr
        assert run_tool(pod, "verify", *REDIRECT).returncode == 0
    finally:
        neighbour.kill()
        neighbour.wait()


def test_process_1_of_a_node_is_refused_from_elsewhere_on_it(require_netns):
    """In a process namespace of its own: process 1 is in one network namespace, the command in another."""
    script = (
        "ip link set lo up; sleep infinity & P=$!; "
        f"unshare -n env PATH=$PATH {shlex.join([*TOOL, 'apply', *REDIRECT])} --pid $P; echo status $?; kill $P"
    )
    done = subprocess.run(["unshare", "-n", "-m", "-p", "-f", "--mount-proc", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert "leads to the network namespace of process 1" in done.stderr, done.stderr
    assert "status 1" in done.stdout


def test_a_pods_namespace_is_not_taken_for_the_machines(pod):
    with pod.entered():
        assert not namespaces.is_machine()
    assert os.fstat(pod.descriptor).st_ino != namespaces.FIRST


@pytest.mark.parametrize("sign", ["OF_THE_FIRST", "FIRST"])
def test_each_sign_of_the_machines_namespace_is_enough(on_the_machine, monkeypatch, sign):
    """Kernels before 6.18 have the setting alone; without /proc/sys the number alone is there."""
    if sign == "FIRST" and Path("/proc/self/ns/net").stat().st_ino != namespaces.FIRST:
        pytest.skip("a kernel before 6.18 numbers its first namespace like any other")
    other = {"OF_THE_FIRST": ("FIRST", 0), "FIRST": ("OF_THE_FIRST", "/nonexistent")}[sign]
    monkeypatch.setattr(namespaces, *other)
    assert namespaces.is_machine()


def test_what_is_no_network_namespace_is_refused(tmp_path):
    for path in ("/proc/self/ns/mnt", str(tmp_path / "file")):
        (tmp_path / "file").touch()
        refused = tool("verify", *SIDECAR, "--netns", path)
        assert refused.returncode == 1
        assert f"{path}: is not a network namespace" in refused.stderr, refused.stderr
    os.mkfifo(tmp_path / "fifo")
    assert "is not a network namespace" in tool("remove", "--netns", str(tmp_path / "fifo")).stderr


@pytest.mark.parametrize("stays", [True, False])
def test_a_process_that_stays_in_the_pod_acts_there_itself_and_any_other_by_a_child(require_netns, stays):
    def act(path):
        machine = Machine()
        machine.stays = stays
        return machine.inside(Options(netns=path), lambda *_: os.getpid()) == os.getpid()

    with Pod() as pod:
        path = pod.path  # through this process's descriptor
        assert children.ask(lambda: act(path), seconds=30.0, what="the visit") is stays
