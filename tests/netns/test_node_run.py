"""`netinit node run`: the pod of a node found by its address, and asked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.netns
SIDECAR = ["-b", "*", "-i", "*", "-p", "15001", "-u", "1337"]


def ask(*words):
    command = [sys.executable, "-m", "netinit", "node", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_pod_with_the_address_is_asked_and_no_other(pod, tmp_path):
    (tmp_path / "cni-1").symlink_to(f"/proc/{pod.pid}/ns/net")
    (tmp_path / "cni-2").write_text("no namespace")
    address = f"--address={pod.address}"
    where = (address, f"--netnsFolder={tmp_path}", "--")
    subprocess.run([sys.executable, "-m", "netinit", "apply", *SIDECAR, f"--pid={pod.pid}"], check=True, capture_output=True, timeout=120)
    done = ask(*where, "explain", "--live", *SIDECAR, "--to", "203.0.113.7:443", "--uid", "1000")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == 0
    assert told["answer"].startswith("captured: goes to the proxy on 15001")
    told = json.loads(ask(*where, "verify", *SIDECAR, "-x", "10.0.0.0/8").stdout)
    assert told["code"] == 3, told
    none = ask("--address=203.0.113.99", f"--netnsFolder={tmp_path}", "--", "verify")
    assert (none.returncode, "0 network namespaces" in none.stderr) == (1, True)


@pytest.mark.parametrize("words", [["remove"], ["inject"], ["--netns", "x", "apply"]])
def test_nothing_that_changes_a_pod_is_run(words):
    done = ask("--address=10.0.0.1", "--", *words)
    assert (done.returncode, "is not run for a pod" in done.stderr) == (2, True)


def test_a_command_whose_answer_would_never_come_is_not_run():
    done = ask("--address=10.0.0.1", "--", "verify", "--watch")
    assert (done.returncode, "run netinit verify --watch on the node itself" in done.stderr) == (2, True)


def follow(pod, tmp_path, *words):
    (tmp_path / "cni-1").symlink_to(f"/proc/{pod.pid}/ns/net")
    command = [sys.executable, "-m", "netinit", "node", "run", f"--address={pod.address}", f"--netnsFolder={tmp_path}", "--", *words]
    begun = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(begun.stdout.readline()) == {"following": words[0]}
    return begun


def test_a_watch_goes_on_until_whoever_asked_is_gone(pod, tmp_path):
    subprocess.run([sys.executable, "-m", "netinit", "apply", *SIDECAR, f"--pid={pod.pid}"], check=True, capture_output=True, timeout=120)
    with follow(pod, tmp_path, "watch", "--interval", "0.1", "--format", "json") as begun:
        for _ in range(3):
            assert any(row["verdict"] == "captured" for row in json.loads(begun.stdout.readline())["fates"])
        begun.stdin.close()
        assert begun.wait(30) == 0


def test_a_trace_ends_and_takes_its_table_away_when_its_input_ends(pod, tmp_path):
    with follow(pod, tmp_path, "trace", "--to", "203.0.113.7:443", "--timeout", "600") as begun:
        assert "waiting for a connection" in begun.stderr.readline() + begun.stderr.readline()
        assert "netinit-trace" in pod.run(["nft", "list", "tables"]).stdout
        begun.stdin.write("\n")
        begun.stdin.flush()
        assert begun.wait(30) == 1
        assert "no packet that begins such a connection was seen" in begun.stderr.read()
    assert "netinit-trace" not in pod.run(["nft", "list", "tables"]).stdout


def test_the_rules_of_the_pod_are_repaired_by_its_address(pod, tmp_path):
    (tmp_path / "cni-1").symlink_to(f"/proc/{pod.pid}/ns/net")
    where = (f"--address={pod.address}", f"--netnsFolder={tmp_path}", "--")
    subprocess.run([sys.executable, "-m", "netinit", "apply", *SIDECAR, f"--pid={pod.pid}"], check=True, capture_output=True, timeout=120)
    before = json.loads(ask(*where, "verify", *SIDECAR).stdout)
    assert before["code"] == 0, before
    told = json.loads(ask(*where, "verify", *SIDECAR, "-x", "10.0.0.0/8").stdout)
    assert told["code"] == 3
    done = ask(*where, "apply", *SIDECAR, "-x", "10.0.0.0/8", "--reconcile")
    assert json.loads(done.stdout)["code"] == 0, done
    assert json.loads(ask(*where, "verify", *SIDECAR, "-x", "10.0.0.0/8").stdout)["code"] == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "apply: is run for a pod with --reconcile alone"),
        (("--reconcile", "--cleanup-only"), "--cleanup-only: is not taken"),
        (("--reconcile", "--netns", "/proc/1/ns/net"), "--network-namespace: is not taken"),
        (("--reconcile", "--host-network"), "--host-network: is not taken"),
        (("--reconcile=false",), "with --reconcile alone"),
    ],
)
def test_apply_does_nothing_else_there(words, problem):
    done = ask("--address=10.0.0.1", "--", "apply", *words)
    assert (done.returncode, problem in done.stderr) == (2, True), done


def test_a_variable_does_not_turn_a_repair_into_a_removal():
    done = ask("--address=10.0.0.1", "--env=CLEANUP_ONLY=true", "--", "apply", "--reconcile")
    assert (done.returncode, "--cleanup-only: is not taken" in done.stderr) == (2, True), done
