"""macOS and Windows: what asks no kernel answers as on Linux, and the rest says in one line where to run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from netinit.base.errors import OptionError
from netinit.cli.commands import COMMANDS as SHOWN
from netinit.cli.other_systems import refuse
from offline_commands import CODES, COMMANDS, KUBECTL
from sweeps import choose

ROOT = Path(__file__).parents[3]
SYSTEMS = ("darwin", "win32")
REFUSED = ("apply -b 80", "-p 15001", "remove", "remove --dry-run", "remove -n", "node install -n mesh", "verify", "watch", "trace", "doctor", "demo", "node status", "explain --live --to 10.1.1.1:80", "why --pid 1 x.yaml", "diff --pid 1", "audit --all-pods")


def start(*words, given="", environ=None):
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}, input=given, capture_output=True,
        check=False, timeout=300, text=True, encoding="utf-8", errors="replace",
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def ask(system, lines, environ=None):
    given = json.dumps([shlex.split(line) for line in lines])
    code, out, err = start(str(ROOT / "tests" / "another_system.py"), system, given=given, environ=environ)
    assert code == 0, err
    return {line: tuple(answer) for line, answer in zip(lines, json.loads(out), strict=True)}


def without_clock(answer):
    code, out, err = answer
    return code, re.sub(r"\d\d:\d\d(:\d\d)?", "", out), err


@pytest.mark.parametrize("system", SYSTEMS)
def test_offline_commands_answer_as_on_linux_and_others_say_where_to_run_them(system):
    commands = choose(COMMANDS[SYSTEMS.index(system) :: 2], COMMANDS)
    here, there = ask("linux", commands), ask(system, (*commands, *REFUSED[:2]))
    for line in commands:
        assert without_clock(there[line]) == without_clock(here[line]), line
        assert here[line][0] == CODES.get(line, 0), line
    for line in REFUSED[:2]:
        code, out, err = there[line]
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "needs Linux, and this is " in err


HELP = [f"{name} --help" for name in SHOWN] + [f"node {name} -h" for name in ("agent", "install", "status", "uninstall")] + ["webhook serve -h", "--version", "-h", "help doctor"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_help_and_version_are_told_everywhere(system):
    here, there = ask("linux", HELP), ask(system, HELP)
    assert {line: there[line] for line in HELP} == here
    assert all(code == 0 and not err for code, _, err in here.values())


@pytest.fixture
def path_with_kubectl(tmp_path):
    """A PATH with a kubectl that knows one pod, by the names that it has on each system."""
    pod = next(one for one in yaml.safe_load_all((ROOT / "examples" / "pod.yaml").read_text("utf-8")) if one["kind"] == "Pod")
    pod["metadata"] = {"name": "web", "namespace": "default"}
    pod["status"] = {"phase": "Running", "podIPs": [{"ip": "10.2.2.2"}]}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    for name in ("kubectl", "kubectl.EXE"):
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "$*" in *"get pod"*) cat {tmp_path}/pod.json;; *) echo none >&2; exit 1;; esac\n')
        (tmp_path / name).chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PATHEXT": ".EXE"}


@pytest.mark.parametrize("system", choose(SYSTEMS[1:], SYSTEMS))
def test_the_plugin_of_kubectl_asks_the_cluster_and_answers_as_on_linux(system, path_with_kubectl):
    here, there = ask("linux", KUBECTL[:3], path_with_kubectl), ask(system, KUBECTL[:3], path_with_kubectl)
    for line in KUBECTL[:3]:
        assert there[line] == here[line], line
        assert "10.1.1.1" in here[line][1] or line != KUBECTL[0]
        assert here[line][0] == 0


@pytest.mark.parametrize("words", REFUSED)
def test_each_command_of_a_kernel_is_refused_on_other_systems(words):
    with pytest.raises(OptionError, match=r"needs Linux, and this is macOS: run it on the node"):
        refuse(["apply", "-p", "15001"] if words == "-p 15001" else shlex.split(words), "darwin")


@pytest.mark.parametrize("words", [*COMMANDS, "verify --rules dump", "apply --help", "apply --dry-run", "apply -n -b 80", "-n", "--version", "node agent --help", "explain --live -h"])
def test_no_other_command_is_refused(words):
    refuse(shlex.split(words), "win32")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_program_itself_starts_there(system):
    begin = f"import another_system, sys; another_system.become({system!r}); sys.argv = ['netinit', 'explain', '-b', '80', '--to', '10.1.1.1:80']"
    code, out, err = start("-c", f"{begin}; from netinit.cli.start import main; main()", environ={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"})
    assert (code, err) == (0, "")
    assert "10.1.1.1:80" in out


def test_a_stream_without_a_sign_gets_another_one_for_it():
    code, out, err = start("-m", "netinit", "explain", "-b", "80", "-i", "*", "--to", "10.1.1.1:80", environ={"PYTHONIOENCODING": "cp1252"})
    assert (code, err) == (0, "")
    assert "? OUTPUT 1" in out


def test_a_manifest_with_line_ends_of_windows_is_read_alike(tmp_path):
    text = (ROOT / "examples" / "pod.yaml").read_bytes()
    (tmp_path / "unix.yaml").write_bytes(text)
    (tmp_path / "dos.yaml").write_bytes(text.replace(b"\n", b"\r\n"))
    one, other = (start("-m", "netinit", "audit", "--json", "--pod", str(tmp_path / name)) for name in ("unix.yaml", "dos.yaml"))
    code, out, err = other
    assert one == (code, out.replace("dos.yaml", "unix.yaml"), err)
