"""The images' entry point, as a user other than root starts it: with capabilities of its file it programs a pod, without them it changes nothing."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from laboratory import NetworkNamespace
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW
from netinit.lab import PROXY_ID
from node_agent import FLAGS
from programming import needs, state

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "netinit" / "bin" / "launcher.c"
INTERPRETER, PLACE = '"/usr/bin/python3"', '"/usr/lib/netinit/"'  # of the images
PERMITTED = 0x02000000  # VFS_CAP_REVISION_2 of linux/capability.h, not effective
WORDS = ("apply", "--backend", "nftables", "-b", "*", "-i", "*", "--ipv6", "on")

pytestmark = pytest.mark.netns


def compile_launcher(target):
    """The launcher of this checkout and interpreter."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    text = SOURCE.read_text()
    for constant, here in ((INTERPRETER, sys.executable), (PLACE, f"{ROOT}/")):
        assert text.count(constant) == 1
        text = text.replace(constant, f'"{here}"')
    subprocess.run(["gcc", *FLAGS, "-O2", "-x", "c", "-o", target, "-"], input=text, text=True, check=True)


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


def permit(path, *capabilities):
    """What `setcap cap_…=p` writes beside the file."""
    bits = sum(1 << one for one in capabilities)
    try:
        os.setxattr(path, "security.capability", struct.pack("<5I", PERMITTED, bits, 0, 0, 0))
    except OSError as error:
        pytest.skip(f"files have no capabilities here: {error.strerror}")


def start(namespace, launcher, **environ):
    env = {"PATH": os.environ["PATH"], **environ}
    return namespace.run([launcher, *WORDS], uid=PROXY_ID, gid=PROXY_ID, env=env, timeout=120)


def test_with_the_capabilities_of_its_file_a_user_programs_a_pod_and_without_them_changes_nothing(launcher):
    needs("nftables")
    with NetworkNamespace("launcher") as namespace:
        before = state(namespace)
        refused = start(namespace, launcher)
        assert refused.returncode == 1
        assert "NET_ADMIN is missing" in refused.stderr
        assert state(namespace) == before

        permit(launcher, CAP_NET_ADMIN, CAP_NET_RAW)
        done = start(namespace, launcher, PYTHONPATH="/nowhere", LD_PRELOAD="/nowhere.so", GCONV_PATH="/nowhere")
        assert done.returncode == 0, done.stderr
        assert "istio-inbound" in state(namespace)
        again = start(namespace, launcher)
        assert (again.returncode, "nothing to do" in again.stderr) == (0, True), again.stderr
