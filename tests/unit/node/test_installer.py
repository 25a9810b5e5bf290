"""The plugin's place on a node: the runtime's list with our entry and without, and what may not be destroyed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.errors import ConfigError, OptionError
from netinit.node import conflist, installer
from netinit.node.conflist import ENTRY, _write, first_of, settings_of, with_entry, without_entry
from netinit.node.installer import Installer
from netinit.node.settings import SECOND, WAIT, InstallSettings

OPTIONS = InstallSettings(namespace="mesh", outside_namespaces=WAIT)
LIST = {
    "name": "k8s", "cniVersion": "0.3.1", "x-unknown": {"b": [1, 2.5, None], "a": "ü"}, "disableCheck": True,
    "plugins": [{"type": "calico", "log_level": "info", "ipam": {"type": "calico-ipam"}}, {"type": "portmap", "capabilities": {"portMappings": True}}],
}  # fmt: skip
SINGLE = {"cniVersion": "0.4.0", "name": "bridge", "type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local"}}


ANOTHER_RELEASE = (
    "the agent of another release, mesh/netinit-node, answers the plugin on this node: uninstall that release, or set node.enabled=false in this one; "
    "injected pods of both are programmed by one agent"
)


@contextlib.contextmanager
def refused(told, kind=ConfigError):
    """Expects an error with this message."""
    with pytest.raises(kind) as raised:
        yield
    assert str(raised.value) == told


@pytest.fixture
def place(tmp_path):
    for name in ("bin", "net.d", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugin").write_bytes(b"\x7fELF plugin")
    return tmp_path


def settings(place, **more):
    places = {"plugin": place / "plugin", "bin_folder": place / "bin", "conf_folder": place / "net.d", "socket": place / "run" / "cni.sock"}
    return OPTIONS.replace(**{name: str(path) for name, path in places.items()}, **more)


def made(place, **more):
    return Installer(settings(place, **more))


def write(place, tree, name="10-net.conflist", mode=0o640):
    path = place / "net.d" / name
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree, indent=4))
    path.chmod(mode)
    return path


def read(path):
    return json.loads(path.read_text())


def everything(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file() and path.name != "install.lock"}


def test_our_entry_is_the_last_and_all_else_stays_with_mode_keys_and_their_order(place):
    path = write(place, LIST)
    assert made(place).install() is True
    found = read(path)
    assert found["plugins"] == [*LIST["plugins"], ENTRY]
    assert {key: value for key, value in found.items() if key != "plugins"} == {key: value for key, value in LIST.items() if key != "plugins"}
    assert list(found) == list(LIST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    target = place / "bin" / "netinit-cni"
    assert target.read_bytes() == b"\x7fELF plugin"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert sorted(everything(place)) == ["bin/netinit-cni", "bin/netinit-cni.settings", "net.d/10-net.conflist", "plugin"]


def test_installing_again_touches_nothing(place):
    path = write(place, LIST)
    made(place).install()
    before = path.stat().st_ino, path.stat().st_mtime_ns, (place / "bin" / "netinit-cni").stat().st_ino
    assert made(place).install() is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns, (place / "bin" / "netinit-cni").stat().st_ino) == before


def test_an_older_entry_is_replaced_and_one_that_is_not_last_is_moved(place):
    old = {**ENTRY, "timeout_seconds": 5}
    path = write(place, {**LIST, "plugins": [LIST["plugins"][0], old, LIST["plugins"][1]]})
    made(place).install()
    assert read(path)["plugins"] == [*LIST["plugins"], ENTRY]


def test_two_agents_of_different_versions_do_not_fight(place):
    path = write(place, LIST)
    old, new = made(place, timeout=5 * SECOND), made(place)
    assert [old.install(), new.install(), old.install(), new.install(), old.install()] == [True, True, False, False, False]
    assert read(path)["plugins"][-1] == ENTRY
    assert (place / "bin" / "netinit-cni.settings").read_text() == settings_of(settings(place))


def owned_by(place, namespace):
    return Installer(settings(place).replace(namespace=namespace))


def answer_at(path):
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    return listening


def test_the_release_that_came_first_has_the_plugin_and_another_is_refused_while_its_agent_answers(place):
    write(place, LIST)
    first, second = owned_by(place, "mesh"), owned_by(place, "mesh-2")
    first.claim()
    first.install()
    before = everything(place)
    with answer_at(second.socket):
        with refused(ANOTHER_RELEASE):
            second.claim()
        first.claim()  # an upgrade of the same release: its earlier agent still answers
        assert (first.find_other_owner(), second.find_other_owner()) == ("", "mesh/netinit-node")
        assert {path: text for path, text in everything(place).items() if path != "run/cni.sock"} == before


def test_what_a_release_left_whose_agent_is_gone_is_taken_over_after_a_while(place):
    write(place, LIST)
    first, second = owned_by(place, "mesh"), owned_by(place, "mesh-2")
    first.claim()
    started = time.monotonic()
    second.claim(seconds=0.5)
    assert time.monotonic() - started >= 0.5
    assert (first.find_other_owner(), second.find_other_owner()) == ("mesh-2/netinit-node", "")


def test_an_agent_that_restarts_meanwhile_keeps_the_plugin(place):
    first, second = owned_by(place, "mesh"), owned_by(place, "mesh-2")
    first.claim()
    ready = []
    threading.Timer(0.5, lambda: ready.append(answer_at(second.socket))).start()
    with refused(ANOTHER_RELEASE):
        second.claim(seconds=60)
    ready[0].close()


def test_an_agent_that_is_told_to_end_claims_nothing(place):
    first, second = owned_by(place, "mesh"), owned_by(place, "mesh-2")
    first.claim()
    stopped = []
    threading.Timer(0.3, lambda: stopped.append(True)).start()
    second.claim(seconds=240, is_stopped=lambda: bool(stopped))
    assert (first.find_other_owner(), second.find_other_owner()) == ("", "mesh/netinit-node")


def test_what_another_deletes_meanwhile_keeps_no_agent_from_clearing_the_run_folder(place, monkeypatch):
    (place / "run" / "status.json").touch()
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: [folder / "gone", *listed(folder)])
    assert made(place).clear_run_folder(None)
    monkeypatch.undo()
    assert [*(place / "run").iterdir()] == []


def test_an_agent_that_leaves_clears_the_run_folder(place):
    first = owned_by(place, "mesh")
    first.claim()
    with answer_at(first.socket):
        (place / "run" / "records").mkdir()
        (place / "run" / "records" / "one").touch()
        first.uninstall()
        assert first.clear_run_folder(installer.identify(first.socket))
    assert list((place / "run").iterdir()) == []
    assert first.clear_run_folder(None), "there is nothing to clear, and nobody to leave it to"


@pytest.mark.parametrize("namespace", ["mesh", "mesh-2"])
@pytest.mark.parametrize("has_socket", [True, False])
def test_an_agent_that_leaves_deletes_nothing_once_a_successor_of_any_release_has_claimed_the_node(place, namespace, has_socket):
    first, second = owned_by(place, "mesh"), owned_by(place, namespace)
    first.claim()
    with answer_at(first.socket):
        own = installer.identify(first.socket)
        first.uninstall()
        second.claim()
        if has_socket:
            (place / "run" / "cni.sock").unlink()
            answer_at(first.socket).close()
            (place / "bin" / "netinit-cni.settings").unlink()  # where its folder could not be written
        before = sorted((place / "run").iterdir())
        assert not first.clear_run_folder(own)
    assert sorted((place / "run").iterdir()) == before


def test_who_waits_for_a_lock_that_is_deleted_takes_the_lock_of_those_who_come_later(place):
    """Otherwise two agents would write at once: one with the deleted lock, the other with the new one."""
    leaving, waiting, later = (owned_by(place, name) for name in ("mesh", "mesh-2", "mesh-2"))
    held, most = [], []

    def hold(installer):
        with installer._locked():
            held.append(installer)
            most.append(len(held))
            time.sleep(0.1)
            held.remove(installer)

    with leaving._locked():
        threads = [threading.Thread(target=hold, args=(waiting,))]
        threads[0].start()
        inode = f":{leaving._lock.stat().st_ino} "
        while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):  # it waits
            time.sleep(0.01)
        leaving._lock.unlink()
        threads += [threading.Thread(target=hold, args=(later,)) for _ in range(5)]
        threads[1].start()
        time.sleep(0.05)
    for thread in threads[2:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * len(threads)


def test_settings_of_an_older_release_and_of_an_installation_by_hand_name_nobody(place):
    for text in ("", "namespace=\ndaemon-set=netinit-node\n", "namespace=mesh\n", "\xff"):
        (place / "bin" / "netinit-cni.settings").write_bytes(text.encode("latin-1"))
        second = owned_by(place, "mesh-2")
        assert second.find_other_owner() == ""
        second.claim()
        (place / "bin" / "netinit-cni.settings").unlink()


def test_what_others_rewrite_gets_the_entry_back(place):
    path = write(place, LIST)
    own = made(place)
    own.install()
    for plugins in (LIST["plugins"], [*LIST["plugins"], ENTRY, {"type": "multus-tail"}]):
        write(place, {**LIST, "plugins": plugins})
        assert any(own.state().values())
        assert own.install() is True
        assert read(path)["plugins"][-1] == ENTRY
        assert own.state() == {"executable": "", "entry": ""}
    (place / "bin" / "netinit-cni").unlink()
    assert own.install() is True
    write(place, {**LIST, "name": "earlier"}, "05-multus.conflist")  # another network is the first now
    assert own.install() is True
    assert read(place / "net.d" / "05-multus.conflist")["plugins"][-1] == ENTRY


def test_uninstalling_gives_back_what_was_there(place):
    path = write(place, LIST)
    made(place).install()
    assert made(place).uninstall() is True
    assert stat.S_IMODE((place / "net.d" / "10-net.conflist").stat().st_mode) == 0o640
    assert read(path) == LIST
    assert not (place / "bin" / "netinit-cni").exists()
    assert made(place).uninstall() is False


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(LIST), json.dumps(LIST, indent=4) + "\n\n", json.dumps(LIST, separators=(",", ":")),
        json.dumps(LIST, indent=1).replace("\n", "\r\n").replace('"disableCheck": true', '"disableCheck": false,\r\n"disableCheck": true'),
        json.dumps({**LIST, "after": [[], "]", {"plugins": []}], "x-odd": "\\ud800 \u00fc"}, ensure_ascii=False, indent="\t"),
        json.dumps({"plugins": [{"type": "bridge", "ipam": {"ranges": [[{"subnet": "10.0.0.0/8"}]]}}], "name": "n", "cniVersion": "1.1.0"}),
    ],
    ids=["plain", "indented", "compact", "carriage returns", "odd members", "other order"],
)  # fmt: skip
def test_what_nobody_changed_since_is_byte_for_byte_as_before(place, text):
    path = write(place, LIST)
    path.write_bytes(text.encode())
    made(place).install()
    assert read(path)["plugins"][-1] == ENTRY
    made(place).uninstall()
    assert path.read_bytes() == text.encode()


def test_a_single_plugin_becomes_a_list_and_one_again(place):
    path = write(place, SINGLE, "10-bridge.conf", mode=0o600)
    before = everything(place)
    made(place).install()
    own = {key: value for key, value in SINGLE.items() if key not in ("cniVersion", "name")}
    assert read(path.with_suffix(".conflist")) == {"cniVersion": "0.4.0", "name": "bridge", "plugins": [own, ENTRY]}
    assert stat.S_IMODE(path.with_suffix(".conflist").stat().st_mode) == 0o600
    assert first_of(one.name for one in (place / "net.d").iterdir()) == "10-bridge.conflist"
    assert made(place).install() is False
    made(place).uninstall()
    assert everything(place) == before


def test_an_entry_that_is_taken_back_is_a_change_where_nothing_else_is_left_of_the_installation(place):
    for tree, name in ((SINGLE, "10-net.conf"), (LIST, "10-net.conflist")):
        write(place, tree, name)
        made(place).install()
        for path in (place / "bin").iterdir():
            path.unlink()
        assert made(place).uninstall()
        assert not made(place).uninstall()
        (place / "net.d" / name).unlink()


@pytest.mark.parametrize(("error", "remedy"), [
    (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"), (OSError(errno.EROFS, "x"), "it is read-only; name the folder that the runtime reads"),
    (OSError(errno.EACCES, "x"), "this process may not write there"), (OSError(errno.ENOENT, "x"), "there is no such folder; mount it, or name another"),
    (OSError(errno.EIO, "Input/output error"), "Input/output error"), (OSError("without a number"), "without a number"),
], ids=repr)  # fmt: skip
def test_what_keeps_a_file_from_being_written_is_told_with_what_to_do(error, remedy):
    def fail(path, *more, **how):
        assert (more, how) == ((1,), {"mode": 2})
        raise error

    with refused(f'"/a\\tb" cannot be written: {remedy}; the old file stays'):
        installer._act(Path("/a\tb"), fail, 1, mode=2)
    assert installer._act(Path("/x"), str) == "/x"


def test_a_list_made_of_a_single_plugin_that_somebody_changed_since_stays_a_list(place):
    path = write(place, SINGLE, "10-bridge.conf").with_suffix(".conflist")
    made(place).install()
    tree = read(path)
    tree["plugins"].insert(1, {"type": "portmap"})
    path.write_text(json.dumps(tree))
    made(place).uninstall()
    assert [one["type"] for one in read(path)["plugins"]] == ["bridge", "portmap"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"), ('{"name": "x"', "not JSON"), ("[]", "not a JSON object"), (json.dumps({**LIST, "cniVersion": "0.9.0"}), "cniVersion"),
        (json.dumps({key: value for key, value in LIST.items() if key != "cniVersion"}), "cniVersion"), (json.dumps({**LIST, "plugins": {}}), "no list of plugins"),
        (json.dumps({**LIST, "plugins": []}), "no plugin that makes a network"), (json.dumps({**LIST, "plugins": ["x"]}), "no list"),
        (json.dumps({**LIST, "name": ""}), "no name"), (json.dumps({**LIST, "plugins": [ENTRY]}), "no plugin that makes a network"), ("[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_a_list_that_is_none_is_left_as_it_is_and_told(place, text, said):
    write(place, text)
    before = everything(place)
    with pytest.raises(ConfigError, match=said) as caught:
        made(place).install()
    assert "10-net.conflist is left as it is" in str(caught.value)
    assert {name: data for name, data in everything(place).items() if not name.startswith("bin/")} == before


def test_a_list_behind_a_link_is_changed_there_and_the_link_stays(place):
    (place / "shared").mkdir()
    real = place / "shared" / "flannel.conflist"
    real.write_text(json.dumps(LIST))
    link = place / "net.d" / "10-net.conflist"
    link.symlink_to("../shared/flannel.conflist")
    assert made(place).install()
    assert link.is_symlink()
    assert read(real)["plugins"][-1] == ENTRY
    assert not made(place).install()
    assert made(place).uninstall()
    assert (link.is_symlink(), read(real)) == (True, LIST)


def test_a_link_that_leads_nowhere_here_is_the_runtimes_network_and_told(place):
    """The runtime sees more than the agent's container; the next file by name would be one that it does not read."""
    (place / "net.d" / "10-net.conflist").symlink_to("/var/lib/flannel/net.conflist")
    other = write(place, LIST, name="20-other.conflist")
    before = everything(place / "net.d")
    told = f"{place}/net.d/10-net.conflist leads to /var/lib/flannel/net.conflist, which this container does not see; mount it, or name another file"
    with refused(told):
        made(place).install()
    assert made(place).state()["entry"] == f"{place}/net.d/10-net.conflist: {told}"
    assert everything(place / "net.d") == before
    assert read(other) == LIST


def test_half_of_a_surrogate_pair_stays_as_it_was_spelled(place):
    path = write(place, json.dumps({**LIST, "x-odd": "\ud800 ü"}))
    assert made(place).install()
    assert read(path)["x-odd"] == "\ud800 ü"
    assert made(place).uninstall()
    assert read(path) == {**LIST, "x-odd": "\ud800 ü"}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"// a comment\r\n{}", None], ids=["no UTF-8", "a comment", "a folder"])
def test_files_of_others_that_are_no_lists_keep_nobody_from_uninstalling(place, content):
    path = write(place, LIST)
    made(place).install()
    odd = place / "net.d" / "00-odd.conflist"
    odd.mkdir() if content is None else odd.write_bytes(content)
    assert made(place).uninstall()
    assert read(path) == LIST
    assert not (place / "bin" / "netinit-cni").exists()


def test_a_list_that_is_no_text_is_named(place):
    path = place / "net.d" / "10-odd.conflist"
    path.write_bytes(json.dumps(LIST).encode("utf-16"))
    with pytest.raises(ConfigError, match=r"10-odd\.conflist is not UTF-8$"):
        made(place).install()


def test_a_spoilt_list_that_names_us_keeps_the_executable_and_other_lists_are_cleared(place):
    path = write(place, LIST)
    made(place).install()
    spoilt = write(place, '{"plugins": [{"type": "netinit-cni"}', name="00-spoilt.conflist")
    with pytest.raises(ConfigError, match=r"00-spoilt\.conflist: it is not JSON"):
        made(place).uninstall()
    assert read(path) == LIST
    assert (place / "bin" / "netinit-cni").exists(), "a network that names it would start no pod without"
    spoilt.unlink()
    assert made(place).uninstall()


def test_a_list_with_carriage_returns_and_a_key_that_stands_twice_is_what_the_runtime_takes_it_for(place):
    text = json.dumps(LIST, indent=1).replace("\n", "\r\n").replace('"disableCheck": true', '"disableCheck": false,\r\n"disableCheck": true')
    path = write(place, text)
    assert made(place).install()
    assert read(path) == {**LIST, "plugins": [*LIST["plugins"], ENTRY]}


def test_a_folder_without_a_network_is_waited_for(place):
    told = f"{place}/net.d: there is no network yet; the cluster's CNI writes it"
    with refused(f"--cniConfFolder: {told}"):
        made(place).install()
    write(place, LIST, "README")
    write(place, LIST, ".10-half.conflist123")
    with refused(f"--cniConfFolder: {told}"):
        made(place).install()
    assert made(place).state()["entry"] == f"{place}/net.d has no network yet"
    with refused(f"--cniConfFolder: {place}/net.d/x.conflist: there is no network yet; the cluster's CNI writes it"):
        made(place, conf_name="x.conflist").install()


def test_a_network_that_is_named_is_taken_and_no_other(place):
    first, second = write(place, LIST, "00-a.conflist"), write(place, LIST, "50-b.conflist")
    made(place, conf_name="50-b.conflist").install()
    with pytest.raises(ConfigError) as caught:
        made(place, conf_name="60-c.conflist").install()
    assert str(caught.value) == f"--cniConfFolder: {place}/net.d/60-c.conflist: there is no network yet; the cluster's CNI writes it"
    assert read(first) == LIST
    assert read(second)["plugins"][-1] == ENTRY


def test_the_list_in_the_place_of_a_single_plugin_is_not_overwritten(place):
    write(place, SINGLE, "10-bridge.conf")
    write(place, LIST, "10-bridge.conflist")
    before = everything(place)
    with refused(f"{place}/net.d/10-bridge.conf would become 10-bridge.conflist, which exists; remove one of the two"):
        made(place).install()
    assert {name: data for name, data in everything(place).items() if not name.startswith("bin/")} == before


def test_a_configuration_that_is_made_anew_keeps_half_of_a_surrogate_pair_escaped():
    text = _write({"x": "\ud800 ü"})
    assert json.loads(text.encode()) == {"x": "\ud800 ü"}
    assert '"\\ud800 ü"' in text, "anything else is as it was spelled"


def test_a_single_plugin_that_its_owner_writes_anew_becomes_a_list_again(place):
    path = write(place, SINGLE, "10-bridge.conf")
    own = made(place)
    own.install()
    write(place, {**SINGLE, "bridge": "cni1"}, "10-bridge.conf")
    assert any(own.state().values())
    assert own.install() is True
    assert read(path.with_suffix(".conflist"))["plugins"][0]["bridge"] == "cni1"
    assert not path.exists()
    own.uninstall()
    assert read(path)["bridge"] == "cni1"


def test_a_network_of_its_own_is_written_for_multus_and_removed(place):
    path = place / "net.d" / "netinit-cni.conf"
    own = made(place, conf_name=path.name, standalone=True)
    assert own.install() is True
    assert read(path) == {"cniVersion": "1.0.0", "name": "netinit-cni", **ENTRY}
    assert (own.install(), own.state()) == (False, {"executable": "", "entry": ""})
    path.unlink()
    assert own.state()["entry"]
    assert own.install() is True
    assert own.uninstall() is True
    assert list((place / "net.d").iterdir()) == []
    assert own.uninstall() is False
    path.write_text("{}")
    assert own.uninstall() is True, "the network alone was there"
    assert list((place / "net.d").iterdir()) == []


@pytest.mark.parametrize("own_list", [False, True])
def test_a_runtime_s_folder_in_which_another_program_keeps_writing_is_told(place, monkeypatch, own_list):
    write(place, LIST)
    tried = []
    monkeypatch.setattr(installer, "_act", lambda path, action, *given, **more: tried.append(path.name) is not None and None if action is installer.replace_file and path.parent.name == "net.d" else action(path, *given, **more))
    with refused(f"{place / 'net.d'}: another program keeps writing there"):
        made(place, own_list=own_list).install()
    assert tried == ["00-netinit.conflist" if own_list else "10-net.conflist"] * 5


def test_what_changes_between_reading_and_renaming_is_read_again(place, monkeypatch):
    path = write(place, LIST)
    real, count = installer.conflist.with_entry, []

    def meanwhile(text, *, single):
        new = real(text, single=single)
        if not count:
            count.append(1)
            write(place, {**LIST, "name": "rewritten"})
        return new

    monkeypatch.setattr(installer.conflist, "with_entry", meanwhile)
    made(place).install()
    assert (read(path)["name"], read(path)["plugins"][-1]) == ("rewritten", ENTRY)


def test_twenty_agents_at_once_leave_one_entry(place):
    path = write(place, LIST)
    threads = [threading.Thread(target=made(place).install) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(path)["plugins"] == [*LIST["plugins"], ENTRY]


FULL = """
import sys
from netinit.base.errors import ConfigError
from netinit.node.installer import Installer
from netinit.node.settings import InstallSettings
try:
    Installer(InstallSettings.from_argv(sys.argv[1:])).install()
except ConfigError as error:
    print(error)
"""


def run_mounted(place, prepare, folder="net.d"):
    """What an installer says in a mount namespace in which a folder was prepared by these commands of a shell."""
    words = ["unshare", "--mount", "sh", "-ec", f'cd "$1/{folder}"; {prepare}; shift; exec "$@"', "sh", place, sys.executable, "-c", FULL]
    words += ["--pluginFile", place / "plugin", "--cniBinFolder", place / "bin", "--cniConfFolder", place / "net.d", "--socket", place / "run" / "cni.sock"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.mounts
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting needs root")
def test_a_full_disk_and_a_read_only_folder_are_told_and_nothing_is_destroyed(place):
    write(place, LIST)
    before = everything(place)
    said = run_mounted(place, "mkdir ../full; mount -t tmpfs -o size=16k tmpfs ../full; cp -p * ../full/; mount --move ../full .; cd .;"
                       " dd if=/dev/zero of=fill bs=1k 2>/dev/null || true")  # fmt: skip
    assert "the disk is full; the old file stays" in said
    said = run_mounted(place, "mount --bind . .; mount -o remount,bind,ro .")
    assert "it is read-only" in said
    said = run_mounted(place, "mount --bind . .; mount -o remount,bind,ro .; echo newer >../plugin", "bin")
    assert "it is read-only" in said
    assert (place / "bin" / "netinit-cni").read_bytes() == before["plugin"], "the one before is still there"
    (place / "full").rmdir()
    assert {name: data for name, data in everything(place).items() if name.startswith("net.d")} == {"net.d/10-net.conflist": before["net.d/10-net.conflist"]}


PLUGIN = st.fixed_dictionaries({"type": st.sampled_from(["bridge", "x", "portmap"])}, optional={"a": st.integers() | st.text(max_size=5)})


@given(st.lists(PLUGIN, min_size=1, max_size=4), st.sampled_from(["0.3.1", "1.0.0"]))
def test_adding_and_removing_are_each_others_inverse_and_adding_is_idempotent(plugins, version):
    text = json.dumps({"cniVersion": version, "name": "n", "plugins": plugins})
    added = with_entry(text, single=False)
    assert with_entry(added, single=False) == added
    assert json.loads(without_entry(added)) == json.loads(text)
    assert without_entry(text) == text
    assert conflist.is_last(added)


def test_the_first_network_is_the_first_by_name():
    assert first_of(["99-z.conf", "10-b.conflist", "10-a.conf", "00.txt", ".00.conf.tmp1"]) == "10-a.conf"
    assert first_of(["10-b.conflist", ".99-z.conf"]) == ".99-z.conf", "libcni (ConfFiles) looks at the end of the name alone"
    assert first_of([]) == ""


def test_a_hidden_file_that_the_runtime_takes_gets_the_entry_and_gives_it_back(place):
    hidden = write(place, LIST, ".05-new.conflist")
    other = write(place, LIST)
    before = everything(place)
    made(place).install()
    assert (ENTRY in read(hidden)["plugins"], ENTRY in read(other)["plugins"]) == (True, False)
    assert set(made(place).state().values()) == {""}
    made(place).uninstall()
    assert {name: data for name, data in everything(place).items() if name in before} == before


@pytest.mark.parametrize(("more", "is_told"), [({}, True), ({"loadOnlyInlinedPlugins": True}, False), ({"loadOnlyInlinedPlugins": "TRUE"}, False), ({"name": "other"}, False)])
def test_plugins_that_a_runtime_adds_from_a_folder_come_after_ours_and_are_told(place, more, is_told):
    path = write(place, {**LIST, **more})
    (place / "net.d" / "k8s").mkdir()
    behind = place / "net.d" / "k8s" / "90-other.conf"
    behind.write_text('{"type": "other"}')
    made(place).install()
    told = made(place).warnings().get("PluginsBehind", "")
    assert told.startswith(f"after {path}, and so after netinit's plugin, runtimes with libcni 1.3 or later run {behind}: ") is is_told
    assert bool(told) is is_told


def test_the_plugins_own_file_is_missing(place):
    write(place, LIST)
    (place / "plugin").unlink()
    with pytest.raises(ConfigError, match="--pluginFile"):
        made(place).install()
    assert Path(place / "net.d" / "10-net.conflist").exists()


def test_the_state_says_what_is_missing(place):
    path = write(place, LIST)
    made(place).install()
    assert made(place).state() == {"executable": "", "entry": ""}
    path.write_text(json.dumps(LIST))
    assert made(place).state()["entry"] == f"{path} has no entry of netinit"
    path.write_text(json.dumps({**LIST, "plugins": [*LIST["plugins"][:1], ENTRY, LIST["plugins"][1]]}))
    assert made(place).state()["entry"] == f"in {path} another plugin comes after netinit's"
    path.write_text("[]")
    assert made(place).state()["entry"] == f"{path}: it is not a JSON object"
    path.unlink()
    assert made(place).state()["entry"] == f"{place}/net.d has no network yet"
    assert made(place, standalone=True, conf_name="x").state()["entry"] == f"{place}/net.d/x is missing"
    (place / "bin" / "netinit-cni.settings").unlink()
    assert made(place).state()["executable"] == f"{place}/bin/netinit-cni.settings is missing"
    (place / "bin" / "netinit-cni").chmod(0o644)
    assert made(place).state()["executable"] == f"{place}/bin/netinit-cni is missing, or another"


@pytest.mark.parametrize("linked", [False, True], ids=["itself", "behind a link"])
def test_a_fifo_in_the_place_of_a_list_is_told_and_never_waited_for(place, linked):
    path = place / "net.d" / "10-net.conflist"
    os.mkfifo(place / "fifo")
    path.symlink_to(place / "fifo") if linked else os.mkfifo(path)
    with pytest.raises(ConfigError, match="a FIFO" if linked else "no network yet"):
        made(place).install()
    made(place).state()
    made(place).uninstall()


def test_a_fifo_in_the_place_of_the_executable_is_replaced(place):
    write(place, LIST)
    os.mkfifo(place / "bin" / "netinit-cni")
    assert made(place).state()["executable"]
    assert made(place).install()
    assert (place / "bin" / "netinit-cni").is_file()


# ---- a list of our own

NAME = "00-netinit.conflist"


def networks(place):
    return {path.name: path.read_bytes() for path in sorted((place / "net.d").iterdir())}


def test_a_list_of_our_own_sorts_first_and_the_clusters_is_not_touched(place):
    path = write(place, LIST)
    before = path.read_bytes()
    own = made(place, own_list=True)
    assert own.state()["entry"] == f"{place}/net.d/{NAME} is missing"
    assert own.install() is True
    assert path.read_bytes() == before
    copy = place / "net.d" / NAME
    assert read(copy) == {**LIST, "plugins": [*LIST["plugins"], {**ENTRY, "copyOf": "10-net.conflist"}]}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert first_of(networks(place)) == NAME
    assert (own.install(), own.state(), own.warnings()) == (False, {"executable": "", "entry": ""}, {})
    assert own.uninstall() is True
    assert networks(place) == {"10-net.conflist": before}


def test_a_list_of_our_own_follows_the_clusters_and_stays_while_that_is_away(place):
    path = write(place, LIST)
    own = made(place, own_list=True)
    own.install()
    write(place, {**LIST, "name": "renamed"})
    assert "is not" in own.state()["entry"]
    assert own.install() is True
    assert read(place / "net.d" / NAME)["name"] == "renamed"
    path.unlink()
    told = f"{place}/net.d: there is no network; {NAME}, a copy of the last one, stays, so that no pod escapes"
    with refused(f"--cniConfFolder: {told}"):
        own.install()
    assert own.state()["entry"] == told
    assert list(networks(place)) == [NAME]
    write(place, {**LIST, "name": "other"}, "20-other.conflist")
    assert own.install() is True
    assert read(place / "net.d" / NAME)["plugins"][-1]["copyOf"] == "20-other.conflist"


@pytest.mark.parametrize("spoilt", ["{", "", json.dumps(LIST), json.dumps({**LIST, "plugins": [*LIST["plugins"], {**ENTRY, "copyOf": "10-net.conflist"}, {"type": "x"}]})],
                         ids=["half", "empty", "without the entry", "with a plugin behind it"])  # fmt: skip
def test_what_others_do_to_a_list_of_our_own_is_put_right(place, spoilt):
    write(place, LIST)
    own = made(place, own_list=True)
    own.install()
    good = networks(place)
    (place / "net.d" / NAME).write_text(spoilt)
    assert own.state()["entry"]
    assert own.install() is True
    assert networks(place) == good


def test_a_list_of_our_own_is_made_of_a_single_plugin_and_of_a_list_with_our_entry(place):
    single = write(place, SINGLE, "10-bridge.conf")
    before = single.read_bytes()
    own = made(place, own_list=True)
    own.install()
    assert [one["type"] for one in read(place / "net.d" / NAME)["plugins"]] == ["bridge", "netinit-cni"]
    assert (single.read_bytes(), own.state()["entry"]) == (before, "")
    own.uninstall()
    made(place).install()  # an agent without such a list, whose entry stays in the other until the uninstall
    own = made(place, own_list=True)
    own.install()
    assert [one["type"] for one in read(place / "net.d" / NAME)["plugins"]] == ["bridge", "netinit-cni"]
    own.uninstall()
    assert networks(place) == {"10-bridge.conf": before}


def test_an_agent_without_the_option_and_one_with_another_name_remove_the_list(place):
    path = write(place, LIST)
    made(place, own_list=True).install()
    made(place, own_list=True, own_list_name="01-other.conflist").install()
    assert sorted(networks(place)) == ["01-other.conflist", "10-net.conflist"]
    plain = made(place)
    assert "is a list of an agent with --ownList" in plain.state()["entry"]
    assert plain.install() is True
    assert (sorted(networks(place)), read(path)["plugins"][-1]) == (["10-net.conflist"], ENTRY)
    assert (plain.install(), plain.state()["entry"]) == (False, "")


CILIUM = (
    "--ownList: Cilium takes other lists away (its cni.exclusive made PATH): set cni.exclusive=false in Cilium's values and delete the files *.cilium_bak, or leave out"
    " --ownList (node.ownList)"
)
MULTUS = (
    "--ownList: PATH is Multus' list, which must be the first: leave out --ownList (node.ownList), and name the network that Multus delegates to by --cniConfName"
    " (node.confName)"
)


@pytest.mark.parametrize(("name", "tree", "said"), [
    ("05-cilium.conflist.cilium_bak", LIST, CILIUM),
    ("00-multus.conf", {**SINGLE, "type": "multus"}, MULTUS), ("99-multus.conflist", {**LIST, "plugins": [{"type": "multus-shim"}]}, MULTUS),
])  # fmt: skip
def test_a_list_of_our_own_is_refused_where_another_wants_to_be_alone_and_nothing_is_changed(place, name, tree, said):
    write(place, LIST)
    write(place, tree, name)
    before = everything(place)
    own = made(place, own_list=True)
    said = said.replace("PATH", f"{place}/net.d/{name}")
    with refused(said):
        own.install()
    assert everything(place) == before
    assert own.state()["entry"] == said


def test_a_list_of_our_own_that_cilium_renames_is_told_and_removed_with_the_rest(place):
    write(place, LIST)
    own = made(place, own_list=True)
    own.install()
    (place / "net.d" / NAME).rename(place / "net.d" / f"{NAME}.cilium_bak")
    with pytest.raises(ConfigError, match=r"00-netinit\.conflist\.cilium_bak"):
        own.install()
    own.uninstall()
    assert list(networks(place)) == ["10-net.conflist"]


def test_where_another_list_sorts_before_ours_both_have_the_entry_and_it_is_told(place):
    write(place, LIST)
    own = made(place, own_list=True)
    own.install()
    other = write(place, {**LIST, "name": "early"}, "00-early.conflist")
    assert "is not" in own.state()["entry"]
    assert own.install() is True
    assert own.state()["entry"] == ""
    assert read(other)["plugins"][-1] == ENTRY
    assert read(place / "net.d" / NAME)["name"] == "early"
    told = f"{other} sorts before {NAME}, so the runtime uses that one, where its owner may drop netinit's entry"
    assert own.warnings() == {"OwnListPreceded": f"{told}: choose --ownListName (node.ownListName) so that it sorts first"}
    own.uninstall()
    assert read(other) == {**LIST, "name": "early"}


def test_the_list_that_sorts_before_ours_gets_the_entry_where_another_network_is_named(place):
    named, first = write(place, LIST), write(place, LIST, "00-a.conflist")
    before = named.read_text()
    own = made(place, own_list=True, conf_name=named.name)
    assert own.install()
    assert (named.read_text(), read(first)["plugins"][-1]) == (before, ENTRY)
    assert read(place / "net.d" / "00-netinit.conflist")["plugins"][-1] == {**ENTRY, "copyOf": named.name}
    assert not own.install()
    assert own.state() == {"executable": "", "entry": ""}


def test_a_file_of_others_with_the_name_of_our_list_is_not_overwritten(place):
    write(place, LIST)
    foreign = write(place, LIST, NAME)
    before = foreign.read_bytes()
    with refused(f"--ownListName: {place}/net.d/{NAME} exists and is not netinit's; choose another name"):
        made(place, own_list=True).install()
    assert foreign.read_bytes() == before


@pytest.mark.parametrize(("words", "said"), [
    *[(["--ownListName", name], f"--ownListName: '{name}' must be a file name with .conflist at its end: 00-netinit.conflist") for name in ("a/b.conflist", "netinit.conf", ".x.conflist")],
    (["--standalone"], "--standalone: needs --cniConfName, the network's file"),
    (["--ownList", "--standalone", "--cniConfName", "x.conf"], "--ownList: contradicts --standalone; give one of the two"),
    (["--ownList", "--cniConfName", NAME], f"--ownListName: {NAME} is --cniConfName too, the list that is copied; give another name"),
])  # fmt: skip
def test_names_and_modes_that_cannot_be_are_refused_by_their_option(words, said):
    with refused(said, OptionError):
        InstallSettings.from_argv(words)


@pytest.mark.parametrize(("types", "named"), [
    (["istio-cni"], "istio-cni (Istio)"), (["linkerd-cni", "istio-cni"], "istio-cni (Istio) and linkerd-cni (Linkerd)"), (["portmap"], None),
])  # fmt: skip
@pytest.mark.parametrize("own_list", [False, True])
def test_another_meshs_plugin_in_the_list_is_said_before_and_after_the_installation(place, types, named, own_list):
    path = write(place, {**LIST, "plugins": [*LIST["plugins"], *({"type": one} for one in types)]})
    own = made(place, own_list=own_list)
    for _ in range(2):
        found = own.warnings().get("OtherMeshPlugin", "")
        both = "both program the pods that both take for theirs, netinit last; remove the other's release when all nodes have netinit's agent"
        assert found == (f"{path} also names {named}: {both}" if named else "")
        own.install()


@given(st.lists(PLUGIN, min_size=1, max_size=4), st.sampled_from(["0.3.1", "1.0.0"]))
def test_a_copy_is_one_of_its_source_and_of_no_other(plugins, version):
    text = json.dumps({"cniVersion": version, "name": "n", "plugins": plugins})
    copy = conflist.make_copy(text, "10-n.conflist", single=False)
    assert conflist.is_copy(copy, text, "10-n.conflist", single=False)
    assert conflist.is_copy(copy, with_entry(text, single=False), "10-n.conflist", single=False)
    assert conflist.source_of(copy) == "10-n.conflist"
    assert not conflist.source_of(with_entry(text, single=False))
    more = json.dumps({"cniVersion": version, "name": "n", "plugins": [*plugins, {"type": "more"}]})
    assert not conflist.is_copy(copy, more, "10-n.conflist", single=False)
    assert not conflist.is_copy(copy, text, "11-n.conflist", single=False)
