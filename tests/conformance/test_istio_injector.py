"""Istio's own injector beside ours, on any folder of manifests: what each makes of a file is compared as values.

Run where these variables are set, and skipped elsewhere:

- NETINIT_ISTIO_INJECT: the command of Istio's injector, with kube-inject's flags: `istioctl kube-inject`.
- NETINIT_MANIFESTS: the folder of manifests, read with its folders (default: the conformance cases, and examples/).
- NETINIT_ISTIO_SETTINGS: a folder with config.yaml, values.json and mesh.yaml for both (default: those of the
  conformance data; without them the templates that ship with netinit).

A file that differs fails, and its differences are listed. What differs on purpose (see "Differences from Istio" in the
documentation) and can be told from the manifest alone is left out: workloads of system namespaces, and those without a
pod spec.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from inject_data import CURRENT, comparable, differences
from netinit.base.errors import NetinitError
from netinit.golang import goyaml
from netinit.inject.deciding.manifests import workloads
from netinit.inject.deciding.webhooks import SYSTEM_NAMESPACES

ROOT = Path(__file__).parents[2]
COMMAND = shlex.split(os.environ.get("NETINIT_ISTIO_INJECT", ""))
pytestmark = pytest.mark.skipif(not COMMAND, reason="NETINIT_ISTIO_INJECT names no injector of Istio")
DEADLINE = 120  # seconds
LARGEST = 1 << 20


def manifests():
    """The files to compare on, each with the folder that it is named from."""
    if not COMMAND:
        return []
    named = os.environ.get("NETINIT_MANIFESTS")
    folders = [Path(named)] if named else [CURRENT / "cases", ROOT / "examples"]
    found = [
        (folder, path)
        for folder in folders
        for pattern in ("*.yaml", "*.yml", "*.json")
        for path in sorted(folder.rglob(pattern))
        if path.is_file() and path.stat().st_size <= LARGEST
    ]
    return [pytest.param(path, id=str(path.relative_to(folder))) for folder, path in found]


def settings(tmp_path):
    """The flags that give both injectors the same configuration."""
    named = os.environ.get("NETINIT_ISTIO_SETTINGS")
    folder = Path(named) if named else CURRENT / "settings" / "default"
    if folder.is_dir():
        files = {"--injectConfigFile": "config.yaml", "--valuesFile": "values.json", "--meshConfigFile": "mesh.yaml"}
        return [word for flag, name in files.items() for word in (flag, str(folder / name))]
    (tmp_path / "mesh.yaml").write_text("{}\n")
    data = ROOT / "netinit" / "data"
    return [
        *("--injectConfigFile", str(data / "injection.yaml")),
        *("--valuesFile", str(data / "injection-values.yaml")),
        *("--meshConfigFile", str(tmp_path / "mesh.yaml")),
    ]


def run(command, path, tmp_path):
    """The documents that an injector prints, or its error as text."""
    done = subprocess.run(
        [*command, "-f", str(path), *settings(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "ENABLE_NATIVE_SIDECARS": "true"},
        check=False,
    )
    if done.returncode:
        return None, done.stderr.strip() or f"exit code {done.returncode}"
    return [item for tree in goyaml.load_all(done.stdout) if tree for item in items(tree)], done.stderr.strip()


def items(tree):
    """The objects of a List, else the object itself."""
    return tree["items"] if tree.get("kind") == "List" and isinstance(tree.get("items"), list) else [tree]


def is_comparable(path):
    """Whether the file can be read, has workloads, and none that is treated differently on purpose."""
    try:
        trees = goyaml.load_all(path.read_text())
        found = [(tree, one) for tree in trees for one in workloads(tree)]
    except (NetinitError, UnicodeError):
        return False
    system = SYSTEM_NAMESPACES
    return bool(found) and not any(one.bare or one.namespace in system for _, one in found)


@pytest.mark.parametrize("path", manifests())
def test_istios_injector_and_ours_agree(path, tmp_path):
    if not is_comparable(path):
        pytest.skip("no workload, not readable, or different on purpose")
    ours, our_error = run([sys.executable, "-m", "netinit", "inject"], path, tmp_path)
    theirs, their_error = run(COMMAND, path, tmp_path)
    if ours is None and theirs is None:
        return  # both refuse it
    assert ours is not None, f"only ours refuses it:\n{our_error}"
    assert theirs is not None, f"only Istio's refuses it:\n{their_error}"
    lines = [
        f"document {number}{line}"
        for number, pair in enumerate(zip(ours, theirs, strict=True), 1)
        for line in differences(*map(comparable, pair))
    ]
    # Go leaves these out where it writes the pod anew; to the API server they are what is not there.
    lines = [line for line in lines if not line.endswith((": unwanted false", ": unwanted 0"))]
    assert not lines, "\n".join(lines)
