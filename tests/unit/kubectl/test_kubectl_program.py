"""Programs whose output is read as it comes: they get the end of their input, end by themselves, or are killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netinit.base.errors import BackendUnavailableError, ClusterError
from netinit.kernel import run
from netinit.kube.resources import PODS
from netinit.kubectl import program as kubectl_program
from netinit.kubectl.program import Kubectl, StreamingProgram

SLEEP, SHELL = run.find("sleep"), run.find("sh")


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    yield
    assert run._running == set()
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_lines_are_read_as_they_come_and_its_input_ends_it():
    with StreamingProgram(SHELL, ("-c", "echo first; read word; echo last"), {}) as program:
        lines = program.lines()
        assert next(lines) == "first"
        program.request_end()
        assert list(lines) == ["last"]
    assert (program.status, program.errors) == (0, "")


def test_one_that_has_ended_already_has_its_own_status_and_errors():
    with StreamingProgram(SHELL, ("-c", "echo broken >&2; exit 7"), {}) as program:
        assert list(program.lines()) == []
    assert (program.status, program.errors) == (7, "broken")


def test_one_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(kubectl_program, "_ENDING", 0.05)
    with StreamingProgram(SLEEP, ("60",), {}) as program:
        pid = program._program._running.pid
    assert program.status == -9
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_cannot_be_started_is_an_error_that_names_it():
    with pytest.raises(BackendUnavailableError, match="/nowhere/nft cannot be started: No such file or directory"):
        StreamingProgram("/nowhere/nft", (), {})


@pytest.fixture
def make_kubectl(tmp_path):
    """A kubectl that is a shell script, and the words of its calls."""

    def make(script):
        path = tmp_path / "kubectl"
        path.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n{script}\n')
        path.chmod(0o755)
        return Kubectl(str(path), ("--context=c",)), lambda: (tmp_path / "calls").read_text().splitlines()

    return make


def test_a_list_is_read_page_by_page(make_kubectl):
    pages = '{"metadata": {"continue": "a+b="}, "items": [{"a": 1}, "no object"]}', '{"metadata": {}, "items": [{"b": 2}]}'
    kubectl, asked = make_kubectl(f"case $* in *continue*) echo '{pages[1]}' ;; *) echo '{pages[0]}' ;; esac")
    found, first, second = kubectl.list_pages(PODS), [PODS.typed({"a": 1})], [PODS.typed({"b": 2})]
    assert next(found) == first == [{"apiVersion": "v1", "kind": "Pod", "a": 1}], "with its type, which the API leaves out in lists"
    assert asked() == ["get --context=c --raw /api/v1/pods?limit=500"], "the second one is not asked for before the first is used"
    assert list(found) == [second]
    assert asked()[1:] == ["get --context=c --raw /api/v1/pods?limit=500&continue=a%2Bb%3D"]
    assert list(kubectl.list_pages(PODS, "shop")) == [first, second]
    assert asked()[2] == "get --context=c --raw /api/v1/namespaces/shop/pods?limit=500"


def test_a_page_that_is_refused_ends_the_list_with_the_reason(make_kubectl):
    kubectl, _ = make_kubectl("case $* in *continue*) echo 'Error from server (Expired): too old' >&2; exit 1 ;; *) echo '{\"metadata\": {\"continue\": \"a\"}}' ;; esac")
    found = kubectl.list_pages(PODS)
    assert next(found) == []
    with pytest.raises(ClusterError, match=r"kubectl get --raw /api/v1/pods\?limit=500&continue=a: Error from server \(Expired\): too old"):
        next(found)


def test_only_some_commands_run_at_once(make_kubectl, tmp_path, monkeypatch):
    monkeypatch.setattr(kubectl_program, "_MAX_AT_ONCE", 2)
    running = tmp_path / "running"
    running.mkdir()
    kubectl, _ = make_kubectl(f"touch {running}/$$; sleep 0.1; ls {running} | wc -l; rm {running}/$$")
    done = kubectl.ask_all([(("get", str(number)), "") for number in range(5)])
    assert [one.status for one in done] == [0] * 5
    assert max(int(one.output) for one in done) <= 2
