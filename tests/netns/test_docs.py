"""What README, docs/ and CONTRIBUTING.md tell people to type works: each block of commands is run, in a pod of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import prefork
from laboratory import NetworkNamespace, start_servers
from reference import find_pages

pytestmark = pytest.mark.netns
ROOT = Path(__file__).parents[2]
FORKED = ROOT / "tests" / "forked_netinit.py"
EXAMPLE_PID, EXAMPLE_NAMESPACE = "4711", "try-netinit"
INSTALLS = "installs into this machine; `make test` installs the package from the same sources"
NOT_RUN = {  # how a block begins -> why it is not run here
    'sudo "$(command -v netinit)" demo': "test_demo.py runs the demonstration",
    "skopeo copy": "wants two registries",
    "make test": "it is what runs this test",
    "docker compose": "wants a registry; tests/e2e/test_compose.py runs the file through podman-compose",
    "pipx ": INSTALLS,
    "uv tool": INSTALLS,
    "python3 -I -m venv": INSTALLS,
    "source <(netinit completion": "changes the shell that it is typed in",
    "kubectl rollout": "wants a cluster",
    "helm upgrade netinit oci": "wants a registry and a cluster; test_upgrade.py upgrades a real one",
    "kubectl patch": "wants a cluster with Istio; test_examples_istio.py renders the pod",
    "kubectl get pods -n shop -o custom-columns": "wants a cluster",
    "debug() { kubectl debug": "wants a kubelet; tests/node/test_kubelet.py runs the image so",
    "debug apply": "wants a kubelet; tests/node/test_kubelet.py runs the image so",
    "kubectl get pod web --output jsonpath='{.metadata.uid}'": "wants a cluster",
    "kubectl debug": "wants a kubelet; tests/e2e/test_situations.py runs the image with what these profiles give",
    "kubectl netinit": "wants a cluster; test_kubectl.py and test_kubectl_fix.py have a kubectl that answers",
    "kubectl krew": "wants krew; test_release.py runs the plugin's archive",
    "helm install": "wants a cluster and helm; test_chart.py renders the chart, and asks helm where it is",
    "netinit node status": "wants a node with the plugin; test_node_sweep.py has one",
    "netinit node uninstall": "wants a node with the plugin; test_node_sweep.py has one",
    "kubectl delete": "wants a cluster; test_node_chart.py has the labels that it selects by",
    "kubectl label": "wants a cluster; `make cluster-test` has one",
    "netinit webhook lint --context": "wants a cluster; test_linting.py looks at manifests",
    "kubectl --namespace istio-system port-forward": "wants Istio's webhook; test_webhook_compare.py has servers",
    "netinit inject -f app.yaml --context": "wants a cluster; the tests of the command have a server of their own",
    "git config diff.netinit": "changes the reader's repository; test_diff.py has one of its own",
    "export NETINIT_ISTIO_INJECT": "wants Istio's own injector",
    ".venv/bin/pytest tests/golden --update-golden": "rewrites the golden files",
    ".venv/bin/python tests/api.py": "rewrites the record; test_api.py compares it",
    ".venv/bin/python tests/reference.py": "rewrites the pages; test_reference.py compares them",
}
STAND_INS = {  # programs of a cluster and of a node, as far as the pages use them
    "kubectl": 'case "$1" in get | kustomize) cat examples/pod.yaml;; apply) cat "${3/#-//dev/stdin}" >applied.yaml; test -s applied.yaml;; *) exit 1;; esac',
    "helm": 'test "$1" = template && cat examples/pod.yaml',
    "curl": 'address=${@: -1}; case "$address" in https://netinit.io/docs/*/examples/*) cat "examples/${address##*/}";; '
    'https://RELEASES/*) cp "release/${address##*/}" .;; *) exec "$(type -ap curl | sed -n 2p)" "$@";; esac',
    "crictl": 'case "$1" in ps) echo 5ac1;; inspect) test "${@: -1}" = 5ac1 && echo "$POD_PID";; *) exit 1;; esac',
}
APP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: shop}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec: {containers: [{name: app, image: app:1}]}
"""


def blocks(language):
    """The blocks of that language on all pages: (page, text)."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    found = [(page.name, block) for page in find_pages(ROOT) for block in pattern.findall(page.read_text("utf-8"))]
    return [pytest.param(block, id=f"{page}: {block.splitlines()[0][:60]}") for page, block in found]


def reason_not_to_run(block):
    return next((reason for start, reason in NOT_RUN.items() if block.startswith(start)), None)


RUN = [param for param in blocks("sh") if not reason_not_to_run(param.values[0])]


@pytest.fixture
def folder(tmp_path):
    """The working folder of a reader: the checkout's examples, an application, the injector's configuration; forks for netinit."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "mesh.yaml").write_text("{}\n")
    shutil.copy(ROOT / "examples" / "report.txt", tmp_path)
    shutil.copy(ROOT / "netinit" / "data" / "injection.yaml", tmp_path / "sidecar-injector.yaml")
    shutil.copy(ROOT / "netinit" / "data" / "injection-values.yaml", tmp_path / "values.yaml")
    (tmp_path / "bin").mkdir()
    for name, script in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    program, door = [sys.executable, "-IS", str(FORKED)], shlex.quote(str(prefork.door()))
    (tmp_path / "bin" / "netinit").write_text(f'#!/bin/sh\nNETINIT_DOOR={door} exec {shlex.join(program)} "$@"\n')
    (tmp_path / "bin" / "netinit").chmod(0o755)
    (tmp_path / "release").mkdir()  # where the page of a release is meant; the tests of the executable start the real one
    program = tmp_path / "release" / "netinit-linux-amd64"
    program.write_text(f'#!/bin/sh\ncase "$0" in */kubectl-netinit) set -- kubectl "$@";; esac\nexec {shlex.quote(str(tmp_path / "bin" / "netinit"))} "$@"\n')
    (program.parent / "SHA256SUMS").write_text(f"{hashlib.sha256(program.read_bytes()).hexdigest()}  {program.name}\n{'0' * 64}  another\n")
    return tmp_path


def run_block(pod, folder, block):
    """In the pod itself; what names the pod by a process stands on the node, in another namespace."""
    from_outside = EXAMPLE_PID in block or "crictl" in block
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    block = block.replace(EXAMPLE_PID, str(pod.pid)).replace(EXAMPLE_NAMESPACE, f"{EXAMPLE_NAMESPACE}-{pod.pid}")
    script = f"set -euo pipefail; cd {shlex.quote(str(folder))}\n{block}"
    with NetworkNamespace("node") as node:
        place = node if from_outside else pod
        return place.run(["bash", "-c", script], env={"PATH": path, "POD_PID": str(pod.pid)})


@pytest.mark.parametrize("block", RUN)
def test_the_commands_of_a_block_work_one_after_the_other_in_a_pod(pod, folder, block):
    if re.search("^curl ", block, re.MULTILINE) and shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    if "netinit verify --pid" in block and "netinit apply" not in block:  # of a pod that its init container has programmed
        flags = re.search(r"netinit verify --pid \d+ (.*?)(?: --live)?(?: *#.*)?$", block, re.MULTILINE)[1]
        assert run_block(pod, folder, f"netinit apply {flags}").returncode == 0
    if "--live" in block:
        start_servers(pod)
    done = run_block(pod, folder, block)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


def test_a_command_that_fails_in_the_middle_of_a_block_is_seen(pod, folder):
    (folder / "bin" / "netinit").unlink()  # here the installed program itself is started
    assert run_block(pod, folder, "netinit version\n").returncode == 0
    assert run_block(pod, folder, "netinit lint --no-such-flag\nnetinit version\n").returncode == 2
    assert run_block(pod, folder, "kubectl get pod web | netinit lint --no-such-flag --pod -\nnetinit version\n").returncode == 2


def test_every_reason_not_to_run_a_block_is_needed():
    every = [param.values[0] for param in blocks("sh")]
    idle = [start for start in NOT_RUN if not any(block.startswith(start) for block in every)]
    assert not idle, f"no block begins with {', '.join(idle)}"
    assert len(RUN) > len(every) / 2


def test_commands_stand_in_shell_blocks_alone():
    others = set(re.findall(r"^```([a-z]+)", "\n".join(page.read_text("utf-8") for page in find_pages(ROOT)), re.MULTILINE))
    assert others == {"json", "python", "sh", "text", "yaml"}


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_examples_run(pod, folder, block):
    if "def test_" in block:
        (folder / "test_example.py").write_text(block)
        script = f"cd {shlex.quote(str(folder))} && exec {shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider --rootdir . test_example.py"
        done = pod.run(["bash", "-c", script])
        assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
        return
    done = pod.run(["bash", "-c", f"cd {shlex.quote(str(folder))} && exec {shlex.quote(sys.executable)} -c {shlex.quote(block)}"])
    assert done.returncode == 0, done.stderr
    assert re.search("ISTIO_INBOUND|as planned|captured|treated differently|SHOP", done.stdout), done.stdout


def test_the_demos_lines_on_the_pages_are_lines_of_the_demo(require_netns):
    done = subprocess.run([sys.executable, "-m", "netinit", "demo"], capture_output=True, text=True, check=True)
    pattern = re.compile(r"^<!-- from the demo -->\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
    quoted = [line for page in find_pages(ROOT) for block in pattern.findall(page.read_text("utf-8")) for line in block.splitlines()]
    assert quoted
    missing = [line for line in quoted if line not in done.stdout.splitlines()]
    assert not missing, "\n".join(missing)
