"""The node's image: the plugin for the host, and the agent with what it imports."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from containers import Image
from engine import Engine

IMPORTS = "import sys; sys.path.insert(0, '/usr/lib/netinit'); import netinit.node.supervisor, netinit.node.server, ssl, httpx2"


@pytest.fixture(scope="module")
def root(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    image: Image = engine.build("localhost/netinit-node", more=["--target=node"])
    return engine.unpack(image, tmp_path_factory.mktemp("node"))


def test_the_plugin_is_static_small_and_runs_on_a_host_without_anything(root: Path, tmp_path: Path):
    plugin = root / "usr" / "lib" / "netinit" / "netinit-cni"
    assert plugin.stat().st_size < 50_000
    (tmp_path / "plugin").write_bytes(plugin.read_bytes())
    (tmp_path / "plugin").chmod(0o755)
    done = subprocess.run(
        [shutil.which("chroot"), tmp_path, "/plugin"], env={"CNI_COMMAND": "VERSION"}, input=b'{"cniVersion": "1.0.0"}', capture_output=True, check=True
    )
    assert json.loads(done.stdout)["supportedVersions"] == ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]


def test_the_agent_and_all_that_it_imports_are_there(root: Path):
    subprocess.run(["chroot", root, "/usr/bin/python3", "-I", "-S", "-c", IMPORTS], check=True)
    done = subprocess.run(["chroot", root, "/usr/bin/netinit", "node", "agent", "--help"], capture_output=True, text=True, check=True)
    assert "--sweepInterval" in done.stdout


def test_it_holds_no_program_of_netfilter_and_no_shell(root: Path):
    names = {path.name for path in root.rglob("*") if path.is_file()}
    assert not names & {"nft", "xtables-nft-multi", "xtables-legacy-multi", "ipset", "sh", "bash", "dash", "apt", "pip", "musl-gcc"}
