"""What repositories of manifests use: the GitHub Action, the hooks of pre-commit, and assertions in pytest."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

import prefork
from netinit.base.errors import OptionError, ParseError
from netinit.testing import assert_captured, assert_holds

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FORKED = ROOT / "tests" / "forked_netinit.py"
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


HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
PROGRAMS = Path(sysconfig.get_path("scripts"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
INPUTS = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}


def run_step(step, folder, action, temp, inputs):
    """A step of the action in this working folder, as a runner runs it; `action` has the action's files."""
    facts = {"github.action_path": str(action), **{f"inputs.{name}": value for name, value in inputs.items()}}
    given = {name: re.sub(r"\$\{\{ (\S+) \}\}", lambda found: facts[found[1]], value) for name, value in step["env"].items()}
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "RUNNER_TEMP": str(temp), **given}
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=120, cwd=folder)


def run_action(tmp_path, inputs):
    """The step of the action that looks at files, with this Python; its `python -P -m netinit` is a fork (prefork.py)."""
    (tmp_path / "netinit" / "bin").mkdir(parents=True)
    program = shlex.join([sys.executable, "-IS", str(FORKED)])
    forked = f'NETINIT_DOOR={shlex.quote(str(prefork.door()))} exec {program} "$@"'
    (tmp_path / "netinit" / "bin" / "python").write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "-P -m netinit" ] || exit 99\nshift 3\n{forked}\n')
    (tmp_path / "netinit" / "bin" / "python").chmod(0o755)
    return run_step(STEPS[1], tmp_path, ROOT, tmp_path, {**INPUTS, **inputs})


def make_hostile_checkout(folder):
    """Manifests of somebody who wants their code to run and their findings to vanish; return the file that the code writes."""
    ran = folder.parent / "ran"
    code = f"open({str(ran)!r}, 'a').write(__file__ + '\\n')\n"
    shadowed = {"venv.py", "ensurepip.py", "yaml.py", "click.py", "json.py", "site.py", "sitecustomize.py", "usercustomize.py", "conftest.py"}
    for name in (*shadowed, "setup.py", "netinit/__init__.py", "netinit/__main__.py", "netinit/cli/start.py", "pip/__init__.py", "pip/__main__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code)
    (folder / "setup.cfg").write_text(f"[install]\nprefix = {folder}/installed\n")
    (folder / "pip.conf").write_text(f"[global]\ntarget = {folder}/installed\n")
    (folder / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "yaml"\nbackend-path = ["."]\n')
    (folder / "p.yaml").write_text(SHARED)
    for name in ("a.yaml", "--ignore-file=a.yaml"):
        (folder / name).write_text("NI104: fine\n")
    return ran


def make_action(folder, wheels):
    """The action's folder, whose requirements are one wheel: what is installed beside this Python."""
    packages = "\n".join(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    info = "needed-1.dist-info"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "needed-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("needed.pth", packages)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"needed.pth,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    digest = hashlib.sha256((wheels / "needed-1-py3-none-any.whl").read_bytes()).hexdigest()
    folder.mkdir()
    (folder / "netinit").symlink_to(ROOT / "netinit")
    (folder / "requirements").mkdir()
    (folder / "requirements" / "webhook.txt").write_text(f"needed==1 --hash=sha256:{digest}\n")
    return folder


def test_the_action_passes_over_our_examples_and_fails_at_a_bypass(tmp_path):
    done = run_action(tmp_path, {"files": f"{EXAMPLES}\n", "fail-on": "bypass:network\nbypass:foreign\n"})
    assert done.returncode == 0, done
    (tmp_path / "a pod.yaml").write_text(SHARED)
    done = run_action(tmp_path / "second", {"files": f"{EXAMPLES}\n{tmp_path}/a pod.yaml\n", "fail-on": "bypass:shared-owner"})
    assert (done.returncode, "title=NI216 shared-owner" in done.stdout) == (4, True), done


def test_the_action_leaves_out_what_it_is_told_to(tmp_path):
    commit(tmp_path, {"repo/broken.yaml": BROKEN, "repo/templates/web.yaml": TEMPLATE, **{f"repo/{name}": text for name, text in WITHOUT_PODS.items()}})
    found = run_action(tmp_path / "one", {"files": f"{tmp_path}/repo"})
    left = run_action(tmp_path / "two", {"files": f"{tmp_path}/repo", "exclude": "templates\n*ken.yaml\n"})
    assert (found.returncode, found.stdout.count("NI110 "), found.stdout.count("NI111 ")) == (1, 2, 2), found
    assert (left.returncode, left.stdout, "2 files excluded" in left.stderr) == (0, "", True), left


def run_hook(hook, folder, *files, in_full=False):
    """A hook in this working folder, as pre-commit runs it; `in_full`: with the program that pip installs, not in a fork (prefork.py)."""
    program, *words = shlex.split(hook["entry"])
    line = [*words, *hook.get("args", ()), *files]
    if in_full:
        return subprocess.run([str(PROGRAMS / program), *line], capture_output=True, text=True, check=False, timeout=60, cwd=folder)
    running = prefork.Running(line, folder=folder)
    printed = running.communicate(60)
    return subprocess.CompletedProcess(line, running.returncode, *printed)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: one["id"])
def test_a_hook_of_pre_commit_runs_our_command_with_files(hook):
    assert shlex.split(hook["entry"])[:2] == ["netinit", hook["id"].removeprefix("netinit-")]
    done = run_hook(hook, ROOT, str(EXAMPLES / "pod.yaml"), str(EXAMPLES / "compose.yaml"), in_full=True)
    assert done.returncode == 0, done


WITHOUT_PODS = {
    "svc.yaml": "{apiVersion: v1, kind: Service, metadata: {name: web}}",
    "values.yaml": "image: {tag: latest}\n",
    "package.json": '{"name": "web"}',
    "tsconfig.json": '{\n  // no JSON\n  "compilerOptions": {"strict": true,},\n}',
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    ".github/workflows/ci.yml": "on: push\njobs: {lint: {runs-on: ubuntu, steps: [{run: 'echo ${{ github.sha }}'}]}}\n",
}
TEMPLATE = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "web.fullname" . }}
spec:
  template:
    spec:
      {{- if .Values.account }}
      serviceAccountName: a
      {{- end }}
      containers: []
"""
BROKEN = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n   labels: {}\n"


def commit(folder, files):
    """The names of changed files, as the hooks get them."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return list(files)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: one["id"])
@pytest.mark.parametrize("names", [[name] for name in WITHOUT_PODS] + [list(WITHOUT_PODS)], ids=" ".join)
def test_a_hook_passes_a_commit_without_pods(hook, names, tmp_path):
    done = run_hook(hook, tmp_path, *commit(tmp_path, {name: WITHOUT_PODS[name] for name in names}))
    assert done.returncode == 0, done
    assert f"no pod in {len(names)} file" in done.stdout + done.stderr


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: one["id"])
def test_a_hook_names_a_template_of_helm_and_checks_the_pod_beside_it(hook, tmp_path):
    alone = run_hook(hook, tmp_path, *commit(tmp_path, {"templates/web.yaml": TEMPLATE}))
    assert (alone.returncode, "render it: helm template … | netinit lint -" in alone.stdout) == (0, True), alone
    beside = run_hook(hook, tmp_path, *commit(tmp_path, {"templates/web.yaml": TEMPLATE, "pod.yaml": SHARED}))
    assert ("render it" in beside.stdout, 'Pod "out"' in beside.stdout) == (True, True), beside


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: one["id"])
def test_a_hook_names_the_line_of_a_manifest_that_cannot_be_read_and_checks_the_others(hook, tmp_path):
    done = run_hook(hook, tmp_path, *commit(tmp_path, {"broken.yaml": BROKEN, "pod.yaml": SHARED, **WITHOUT_PODS}))
    place = "line=5" if "github" in hook["entry"] else "broken.yaml:5"
    assert (done.returncode, done.stdout.count("title=NI110") or done.stdout.count("error NI110"), place in done.stdout, 'Pod "out"' in done.stdout) == (1 if "lint" in hook["id"] else 4, 1, True, True), done


HEALTHY = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {sidecar.istio.io/inject: "true"}}
spec: {containers: [{name: app, image: a}]}
"""


@pytest.mark.parametrize("hook", [one for one in HOOKS if one["id"] != "netinit-lint"], ids=lambda one: one["id"])
def test_a_hook_fails_for_a_bypass_and_passes_an_untouched_pod(hook, tmp_path):
    excluded = HEALTHY.replace("}}", '}, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432"}}', 1)
    (healthy,), (bypass,) = (commit(tmp_path, {name: text}) for name, text in (("web.yaml", HEALTHY), ("by.yaml", excluded)))
    passes, fails = run_hook(hook, tmp_path, healthy), run_hook(hook, tmp_path, healthy, bypass)
    assert (passes.returncode, fails.returncode, "NI212" in fails.stdout) == (0, 4, True), (passes, fails)


def test_the_hook_of_check_obeys_the_repositorys_settings(tmp_path):
    (hook,) = [one for one in HOOKS if one["id"] == "netinit-check"]
    excluded = HEALTHY.replace("}}", '}, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432"}}', 1)
    files = commit(tmp_path, {"by.yaml": excluded})
    for settings, code in (("failOn: [bypass:network]", 0), ("accept: {NI212: TLS of its own}", 0), ("failOn: [bypass:port]", 4)):
        commit(tmp_path, {"netinit.yaml": settings})
        done = run_hook(hook, tmp_path, *files)
        assert done.returncode == code, done


@pytest.fixture
def hostile(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    return folder, make_hostile_checkout(folder)


def test_the_action_runs_nothing_of_the_checkout_and_finds_what_is_wrong_with_it(hostile, tmp_path, monkeypatch):
    folder, ran = hostile
    action = make_action(tmp_path / "action", tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    inputs = {**INPUTS, "files": "p.yaml\na.yaml\n--ignore-file=a.yaml\n"}
    (tmp_path / "temp").mkdir()
    done = [run_step(step, folder, action, tmp_path / "temp", inputs) for step in STEPS]
    assert not ran.exists(), ran.read_text()
    assert [one.returncode for one in done] == [0, 1], done
    assert "title=NI104" in done[1].stdout
    assert not (folder / "installed").exists()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda one: one["id"])
def test_a_hook_runs_nothing_of_the_checkout_and_takes_no_file_for_an_option(hook, hostile):
    folder, ran = hostile
    done = [run_hook(hook, folder, *names, in_full=True) for names in (("--ignore-file=a.yaml", "p.yaml"), ("--help", "p.yaml"), ("p.yaml",))]
    assert not ran.exists(), ran.read_text()
    mistaken, missing, alone = done
    assert (mistaken.stdout.replace("; no pod in 1 file", ""), mistaken.returncode) == (alone.stdout, alone.returncode)
    assert (missing.returncode, "'--help' does not exist; options are given before --" in missing.stderr) == (2, True)


def test_a_hook_with_options_of_its_own_refuses_a_file_that_is_named_as_one(hostile):
    folder, _ = hostile
    done = run_hook({"entry": "netinit lint --strict"}, folder, "--ignore-file=a.yaml", "p.yaml", in_full=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'--ignore-file=a.yaml': is an option and also the name of a file here; put -- before the files" in done.stderr


@pytest.mark.parametrize("name", ["kubectl-netinit", "kubectl_complete-netinit"])
@pytest.mark.parametrize("beside", [True, False], ids=["with an interpreter beside it", "with the interpreter of the path"])
def test_the_plugin_of_kubectl_runs_nothing_of_the_working_directory(name, beside, hostile, tmp_path):
    folder, ran = hostile
    bin_folder = tmp_path / "bin"
    shutil.copytree(ROOT / "netinit" / "bin", bin_folder)
    interpreter = bin_folder / "python3" if beside else tmp_path / "python3"
    interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    interpreter.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(folder)}
    words = ["fix", "--help"] if name == "kubectl-netinit" else ["fi"]
    done = subprocess.run([str(bin_folder / name), *words], capture_output=True, text=True, check=False, timeout=60, cwd=folder, env=env)
    assert not ran.exists(), ran.read_text()
    assert (done.returncode, "fix" in done.stdout) == (0, True), done


def test_no_module_that_is_started_by_its_name_can_be_the_working_directorys():
    """Python puts the working directory first on its path for -m; with -I and -P it does not."""
    shipped = [ROOT / "action.yml", ROOT / "README.md"]
    shipped += [path for name in ("docs", "examples", ".github", "charts") for path in (ROOT / name).rglob("*") if path.is_file()]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in shipped
        for line in path.read_text("utf-8", "replace").splitlines()
        if re.search(r"python[0-9.]*[\"']? (?!.*-[A-Za-z]*[IP]).*-m ", line)
    ]
    assert not found


ASKING = """apiVersion: v1
kind: Pod
metadata: {name: web, labels: {sidecar.istio.io/inject: "true"}, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "443"}}
spec: {containers: [{name: app, image: a}]}
"""


@pytest.mark.parametrize(("inputs", "code", "words"), [
    ({"files": ""}, 2, "files: is empty"), ({"files": " \n\t\n"}, 2, "files: is empty"), ({"files": "", "check": "true"}, 2, "files: is empty"),
    ({"files": "  web.yaml\t\r\n"}, 0, ""), ({"files": "a b.yaml\r\nweb.yaml\r\n", "fail-on": " bypass:port \r\n"}, 4, "file=a b.yaml"),
    ({"files": ".", "exclude": " web.yaml\r\n\ta b.yaml ", "fail-on": "bypass:port"}, 0, "2 files excluded"),
    ({"files": "web.yaml", "check": "True", "fail-on": "bypass:port"}, 4, ""), ({"files": "nothing.yaml", "strict": "TRUE"}, 1, ""),
    ({"files": "web.yaml", "strict": "yes"}, 2, "strict: is neither true nor false"), ({"files": "web.yaml", "check": "1"}, 2, "check: is neither true nor false"),
    ({"files": "web.yaml", "strict": ""}, 0, ""),
])  # fmt: skip
def test_inputs_of_the_action_are_taken_as_workflows_write_them_or_refused(tmp_path, inputs, code, words):
    for name in ("web.yaml", "a b.yaml"):
        (tmp_path / name).write_text(ASKING)
    (tmp_path / "nothing.yaml").write_text(ASKING.replace("excludeOutboundPorts", "excludeOutboundPort"))  # a warning
    done = run_action(tmp_path, inputs)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done


def test_the_example_repository_passes_its_own_gates(tmp_path):
    repository = EXAMPLES / "repository"
    (job,) = yaml.safe_load((repository / ".github/workflows/pods.yml").read_text())["jobs"].values()
    given = job["steps"][1]["with"]
    inputs = {**given, "files": f"{repository}/{given['files']}", "ignore-file": f"{repository}/{given['ignore-file']}"}
    done = run_action(tmp_path, inputs)
    assert done.returncode == 0, done
    shop = (repository / "manifests/shop.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(shop.replace("runAsUser: 1000", "runAsUser: 1337"))
    done = run_action(tmp_path / "bad", {**inputs, "files": f"{tmp_path}/bad.yaml"})
    assert (done.returncode, "shared-owner" in done.stdout) == (4, True), done
    (hooks,) = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())["repos"]
    known = {one["id"]: one for one in HOOKS}
    for hook in hooks["hooks"]:
        done = run_hook(known[hook["id"]] | hook, repository, "manifests/shop.yaml")
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
