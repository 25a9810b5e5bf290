"""What repositories of manifests use: the GitHub Action, the hooks of pre-commit, and assertions in pytest."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from netinit.base.errors import OptionError, ParseError
from netinit.testing import assert_captured, assert_holds

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WITHOUT_PLUGINS = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of our own tests take half of a session's start
SHARED = """
apiVersion: v1
kind: Pod
metadata: {name: out}
spec:
  initContainers:
  - {name: istio-init, image: i, args: [istio-iptables, -u, "1337", -i, "*", -b, "*"]}
  containers: [{name: app, image: a, securityContext: {runAsUser: 1337}}, {name: istio-proxy, image: p}]
"""


def run_action(tmp_path, **inputs):
    """The step of the action that looks at files, as a runner runs it, with this Python."""
    (_, step) = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (tmp_path / "netinit" / "bin").mkdir(parents=True)
    (tmp_path / "netinit" / "bin" / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (tmp_path / "netinit" / "bin" / "python").chmod(0o755)
    given = {"FILES": "", "STRICT": "false", "FAIL_ON": "", "IGNORE_FILE": "", **inputs}
    assert step["env"].keys() == {"PYTHONPATH", *given}
    env = {**os.environ, **given, "RUNNER_TEMP": str(tmp_path), "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=env, capture_output=True, text=True, check=False, timeout=120)


def test_the_action_passes_over_our_examples_and_fails_at_a_bypass(tmp_path):
    done = run_action(tmp_path, FILES=f"{EXAMPLES}\n", FAIL_ON="bypass:network\nbypass:foreign\n")
    assert done.returncode == 0, done
    (tmp_path / "a pod.yaml").write_text(SHARED)
    done = run_action(tmp_path / "second", FILES=f"{EXAMPLES}\n{tmp_path}/a pod.yaml\n", FAIL_ON="bypass:shared-owner")
    assert (done.returncode, "title=NI216 shared-owner" in done.stdout) == (4, True), done


def test_the_hooks_of_pre_commit_run_our_commands_with_files(tmp_path):
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [one["id"] for one in hooks] == ["netinit-lint", "netinit-audit"]
    for hook in hooks:
        program, *words = shlex.split(hook["entry"])
        assert program == "netinit"
        files = [str(EXAMPLES / "pod.yaml"), str(EXAMPLES / "compose.yaml")]
        done = subprocess.run([sys.executable, "-m", program, *words, *files], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
        assert done.returncode == 0, done


def test_the_example_repository_passes_its_own_gates(tmp_path):
    repository = EXAMPLES / "repository"
    (job,) = yaml.safe_load((repository / ".github/workflows/pods.yml").read_text())["jobs"].values()
    given = job["steps"][1]["with"]
    inputs = {
        "FILES": f"{repository}/{given['files']}", "STRICT": given["strict"], "FAIL_ON": given["fail-on"],
        "IGNORE_FILE": f"{repository}/{given['ignore-file']}",
    }  # fmt: skip
    done = run_action(tmp_path, **inputs)
    assert done.returncode == 0, done
    shop = (repository / "manifests/shop.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(shop.replace("runAsUser: 1000", "runAsUser: 1337"))
    done = run_action(tmp_path / "bad", **inputs | {"FILES": f"{tmp_path}/bad.yaml"})
    assert (done.returncode, "shared-owner" in done.stdout) == (4, True), done
    (hooks,) = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())["repos"]
    known = {one["id"]: one for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    for hook in hooks["hooks"]:
        _, *words = shlex.split(known[hook["id"]]["entry"])
        line = [sys.executable, "-m", "netinit", *words, *hook.get("args", ()), "manifests/shop.yaml"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, cwd=repository)
        assert done.returncode == 0, done
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(repository), "-c", os.devnull, str(repository / "test_pods.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd=repository, env=WITHOUT_PLUGINS)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done


def test_an_assertion_of_a_test_names_the_packet_that_refutes_it(tmp_path):
    (tmp_path / "out.yaml").write_text(SHARED)
    assert_captured(tmp_path / "out.yaml", "outbound ipv4 tcp not by proxy not to pod")
    assert_holds(yaml.safe_load(SHARED), "outbound tcp by proxy not to pod is direct")
    with pytest.raises(AssertionError, match=r'(?s)does not hold\nPod "out": TCP from .* sent by uid 1337, .*direct'):
        assert_captured(tmp_path, "outbound ipv4 tcp not to pod")


def test_an_assertion_that_cannot_be_read_or_is_about_no_pod_is_an_error(tmp_path):
    with pytest.raises(OptionError):
        assert_captured(EXAMPLES / "pod.yaml", "outbound trousers")
    (tmp_path / "none.yaml").write_text("kind: ConfigMap")
    with pytest.raises(ParseError):
        assert_captured(tmp_path, "outbound tcp")


def test_the_example_of_a_platform_teams_tests_passes():
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLES), "-c", os.devnull, str(EXAMPLES / "test_pods.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=WITHOUT_PLUGINS)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done
