"""`netinit node run`: the pods of a node found by the runtime's records, and asked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import prefork
from node_agent import record

pytestmark = pytest.mark.netns
SIDECAR = ["-b", "*", "-i", "*", "-p", "15001", "-u", "1337"]


def program(pod):
    assert prefork.run(["apply", *SIDECAR, f"--pid={pod.pid}"]).returncode == 0


def ask(*questions, where=()):
    """How `netinit node run` ended, and its answers."""
    given = "".join(json.dumps(one) + "\n" for one in questions)
    command = [sys.executable, "-m", "netinit", "node", "run", *where]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def question(*words, uid="uid-web", **more):
    return {"uids": [uid], "title": "shop/web", "environ": {}, "words": words, **more}


def test_the_pods_that_the_runtime_has_records_of_are_asked_all_at_once(pod, tmp_path):
    where = record(tmp_path, pod.path, uid="uid-web")
    program(pod)
    done, (explained, verified, unknown) = ask(
        question("explain", "--live", *SIDECAR, "--to", "203.0.113.7:443", "--uid", "1000"),
        question("verify", *SIDECAR, "-x", "10.0.0.0/8"),
        question("verify", uid="uid-other"),
        where=where,
    )
    assert done.returncode == 0, done.stderr
    assert explained["code"] == 0
    assert explained["answer"].startswith("captured: goes to the proxy on 15001")
    assert verified["code"] == 3, verified
    assert "no record of a network namespace of the pod with the uid" in unknown["error"]


@pytest.mark.parametrize("words", [["remove"], ["inject"], ["--netns", "x", "apply"]])
def test_nothing_that_changes_a_pod_is_run(words):
    done, _ = ask(question(*words))
    assert (done.returncode, "is not run for a pod" in done.stderr) == (2, True)


def test_a_command_whose_answer_would_never_come_is_not_run():
    done, _ = ask(question("verify", "--watch"))
    assert (done.returncode, "run netinit verify --watch on the node itself" in done.stderr) == (2, True)


def follow(pod, tmp_path, *words):
    command = [sys.executable, "-m", "netinit", "node", "run", "--uid=uid-web", *record(tmp_path, pod.path, uid="uid-web"), "--", *words]
    begun = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert json.loads(begun.stdout.readline()) == {"following": words[0]}
    return begun


def test_a_watch_goes_on_until_whoever_asked_is_gone(pod, tmp_path):
    program(pod)
    with follow(pod, tmp_path, "watch", "--interval", "0.1", "--format", "json") as begun:
        for _ in range(3):
            assert any(row["verdict"] == "captured" for row in json.loads(begun.stdout.readline())["fates"])
        begun.stdin.close()
        assert begun.wait() == 0


def test_a_trace_ends_and_takes_its_table_away_when_its_input_ends(pod, tmp_path):
    with follow(pod, tmp_path, "trace", "--to", "203.0.113.7:443", "--timeout", "600") as begun:
        assert "waiting for a connection" in begun.stderr.readline() + begun.stderr.readline()
        assert "netinit-trace" in pod.run(["nft", "list", "tables"]).stdout
        begun.stdin.write("\n")
        begun.stdin.flush()
        assert begun.wait() == 1
        assert "no packet that begins such a connection was seen" in begun.stderr.read()
    assert "netinit-trace" not in pod.run(["nft", "list", "tables"]).stdout


def test_the_rules_of_the_pod_are_repaired(pod, tmp_path):
    where = record(tmp_path, pod.path, uid="uid-web")
    program(pod)
    wanted = (*SIDECAR, "-x", "10.0.0.0/8")
    _, (before, different) = ask(question("verify", *SIDECAR), question("verify", *wanted), where=where)
    assert (before["code"], different["code"]) == (0, 3)
    _, (done,) = ask(question("apply", *wanted, "--reconcile"), where=where)
    assert done["code"] == 0, done
    _, (after,) = ask(question("verify", *wanted), where=where)
    assert after["code"] == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "apply: is run for a pod only with --reconcile"),
        (("--reconcile", "--cleanup-only"), "--cleanup-only: is not allowed"),
        (("--reconcile", "--netns", "/proc/1/ns/net"), "--network-namespace: is not allowed"),
        (("--reconcile", "--host-network"), "--host-network: is not allowed"),
        (("--reconcile=false",), "only with --reconcile"),
    ],
)
def test_apply_does_nothing_else_there(words, problem):
    done, _ = ask(question("apply", *words))
    assert (done.returncode, problem in done.stderr) == (2, True), done


def test_a_variable_does_not_turn_a_repair_into_a_removal():
    done, _ = ask(question("apply", "--reconcile", environ={"CLEANUP_ONLY": "true"}))
    assert (done.returncode, "--cleanup-only: is not allowed" in done.stderr) == (2, True), done
