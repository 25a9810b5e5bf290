"""`netinit node install`, `status` and `uninstall` on a node where another mesh's plugin is, or the list is netinit's own."""

from __future__ import annotations

import json

import pytest

import prefork
from netinit.cli.node import agent
from netinit.node.settings import InstallSettings

LIST = {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}, {"type": "istio-cni"}]}


@pytest.fixture
def run(tmp_path):
    for name in ("bin", "net.d", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugin").write_bytes(b"\x7fELF plugin")
    (tmp_path / "net.d" / "10-net.conflist").write_text(json.dumps(LIST))
    folders = [f"--pluginFile={tmp_path}/plugin", f"--cniBinFolder={tmp_path}/bin", f"--cniConfFolder={tmp_path}/net.d", f"--socket={tmp_path}/run/cni.sock"]
    return lambda *words: prefork.run(["node", *words, *folders])


@pytest.mark.parametrize("more", [[], ["--ownList"]])
def test_another_meshs_plugin_is_said_at_the_installation_and_by_the_status(run, tmp_path, more):
    for first in ("the plugin is in place", "the plugin was in place already"):
        done = run("install", *more)
        assert done.returncode == 0, done.stderr
        line, warning = done.stdout.splitlines()
        assert line == first
        assert warning.startswith(f"warning: {tmp_path}/net.d/10-net.conflist also names istio-cni (Istio): both program the pods")
    done = run("status", *more)
    assert "! " + warning.removeprefix("warning: ") in done.stdout.splitlines()
    assert json.loads(run("status", "--json", *more).stdout)["warnings"] == [warning.removeprefix("warning: ")]
    assert run("uninstall").returncode == 0
    assert json.loads((tmp_path / "net.d" / "10-net.conflist").read_text()) == LIST
    assert [path.name for path in (tmp_path / "net.d").iterdir()] == ["10-net.conflist"]


def test_a_list_of_its_own_that_is_refused_is_an_error_with_the_remedy_and_changes_nothing(run, tmp_path):
    (tmp_path / "net.d" / "x.conflist.cilium_bak").write_text("{}")
    done = run("install", "--ownList")
    assert (done.returncode, done.stdout) == (1, "")
    assert "set cni.exclusive=false in Cilium's values" in done.stderr
    assert list((tmp_path / "bin").iterdir()) == []


def made_in(root, *paths):
    for path in paths:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)


CONTAINER = InstallSettings()


def folders(root, **given):
    found = agent.find_folders(CONTAINER.replace(**given), root)
    return tuple(one.removeprefix(str(root)) for one in (found.bin_folder, found.conf_folder))


def test_in_the_agents_container_its_own_folders_are_looked_into(tmp_path):
    made_in(tmp_path, CONTAINER.bin_folder, "/opt/cni/bin", "/etc/cni/net.d")
    assert folders(tmp_path) == (CONTAINER.bin_folder, CONTAINER.conf_folder)


@pytest.mark.parametrize("pair", agent.FOLDERS.values(), ids=lambda pair: pair[0])
def test_on_a_node_the_folders_that_have_the_plugin_are_looked_into(tmp_path, pair):
    for one in agent.FOLDERS.values():
        made_in(tmp_path, *one)
    (tmp_path / pair[0].lstrip("/") / "netinit-cni.settings").touch()
    assert folders(tmp_path) == pair


def test_on_a_node_without_the_plugin_the_runtimes_folders_are_looked_into(tmp_path):
    assert folders(tmp_path) == ("/opt/cni/bin", "/etc/cni/net.d")
    made_in(tmp_path, *agent.FOLDERS["k3s"])
    assert folders(tmp_path) == agent.FOLDERS["k3s"]


def test_folders_that_are_given_are_taken_everywhere(tmp_path):
    assert folders(tmp_path, bin_folder="/x") == ("/x", CONTAINER.conf_folder)
