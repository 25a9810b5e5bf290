"""The entry point of the images with Python: it starts netinit, whatever the environment says of libraries and modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from laboratory import NetworkNamespace
from node_agent import FLAGS
from programming import needs, state

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "netinit" / "bin" / "launcher.c"
INTERPRETER, PLACE = '"/usr/bin/python3"', '"/usr/lib/netinit/netinit/__main__.py"'  # of the images
WORDS = ("apply", "--backend", "nftables", "-b", "*", "-i", "*", "--ipv6", "on")

pytestmark = pytest.mark.netns


def compile_launcher(target):
    """The launcher of this checkout and interpreter."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    text = SOURCE.read_text()
    for constant, here in ((INTERPRETER, sys.executable), (PLACE, f"{ROOT}/netinit/__main__.py")):
        assert text.count(constant) == 1
        text = text.replace(constant, f'"{here}"')
    subprocess.run(["gcc", *FLAGS, "-O2", "-static", "-x", "c", "-o", target, "-"], input=text, text=True, check=True)


@pytest.fixture
def launcher(require_netns):
    """Its path, where any user may start it; NETINIT_LAUNCHER names one that was compiled elsewhere, for this machine and /usr/lib/netinit."""
    with tempfile.TemporaryDirectory(prefix="netinit-launcher-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "netinit"
        if built := os.environ.get("NETINIT_LAUNCHER"):
            shutil.copy(built, path)
        else:
            compile_launcher(path)
        yield path


def test_it_programs_a_pod_and_follows_no_variable_that_loads_code(launcher, tmp_path):
    needs("nftables")
    (tmp_path / "encodings.py").write_text("raise SystemExit(66)\n")
    evil = {"PYTHONHOME": str(tmp_path), "PYTHONPATH": str(tmp_path), "LD_PRELOAD": "/nowhere.so", "GCONV_PATH": "/nowhere", "PATH": "/nowhere"}
    followed = subprocess.run([sys.executable, "-c", "pass"], env=evil, capture_output=True, text=True, check=False)
    assert followed.returncode != 0, "so that this test can fail"
    assert "/nowhere.so" in followed.stderr
    with NetworkNamespace("launcher") as namespace:
        done = namespace.run(["env", *[f"{name}={text}" for name, text in evil.items()], launcher, *WORDS])
        assert (done.returncode, "/nowhere" in done.stderr) == (0, False), done.stderr
        assert "istio-inbound" in state(namespace)
