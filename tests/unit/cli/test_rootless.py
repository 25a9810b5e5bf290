"""`netinit demo` as a plain user: what keeps it from a user namespace of its own is named with its remedy."""

from __future__ import annotations

import pytest

from netinit.base.errors import LabError
from netinit.cli import rootless


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system on which a plain user may do it: its programs, files of further ids, and settings."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    files = (tmp_path / "subuid", tmp_path / "subgid")
    for file in files:
        file.write_text("somebody:100000:65536\nme:165536:65536\n")
    return tmp_path, files


def missing(system):
    folder, files = system
    return list(rootless.find_missing("me", tuple(map(str, files)), folder))


def test_nothing_is_missing_where_programs_ids_and_settings_are_there(system):
    assert missing(system) == []


def test_a_program_that_is_missing_is_named_with_its_package(system, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None if name == "newuidmap" else name)
    assert missing(system) == ["newuidmap is not installed: run it as root, or install the package uidmap"]


def test_a_user_with_one_id_alone_is_told_how_to_get_more(system):
    system[1][0].write_text("somebody:100000:65536\nmeow:1:65536\n")
    (found,) = missing(system)
    assert "gives me no further ids, and the demonstration needs 1337: run it as root, or `sudo usermod --add-subuids" in found


def test_a_user_with_too_few_ids_is_told_how_many_are_needed(system):
    system[1][1].write_text("me:100000:1000\n")
    (found,) = missing(system)
    assert "gives me 1000 further ids, and the demonstration needs 1337" in found


@pytest.mark.parametrize(("name", "value", "remedy"), [
    ("user/max_user_namespaces", "0\n", "sudo sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0\n", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1\n", "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
])  # fmt: skip
def test_a_setting_that_forbids_it_is_named_with_the_command_that_changes_it(system, name, value, remedy):
    path = system[0] / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(value)
    (found,) = missing(system)
    assert found.startswith("the system forbids it")
    assert remedy in found


def test_all_that_is_missing_is_one_error(monkeypatch):
    monkeypatch.setattr("netinit.cli.rootless._try_namespaces", lambda: "unshare failed")
    monkeypatch.setattr("netinit.cli.rootless.find_missing", lambda: iter(["a is missing", "b is missing"]))
    with pytest.raises(LabError, match=r"without root, the demonstration makes a user namespace, and cannot here: a is missing; b is missing$"):
        rootless.run_again(["demo"])


def test_what_no_check_explains_is_said_in_the_words_of_unshare(system, monkeypatch):
    monkeypatch.setattr("netinit.cli.rootless.find_missing", lambda: iter(()))
    monkeypatch.setattr("shutil.which", lambda name: str(system[0] / name))
    (system[0] / "unshare").write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1\n")
    (system[0] / "unshare").chmod(0o755)
    with pytest.raises(LabError, match=r"here: unshare: unshare failed: Operation not permitted: run it as root$"):
        rootless.run_again(["demo"])


def test_a_system_that_allows_it_is_not_asked_for_its_settings(monkeypatch):
    started = []
    monkeypatch.setattr("netinit.cli.rootless._try_namespaces", lambda: "")
    monkeypatch.setattr("netinit.cli.rootless.find_missing", lambda: iter(["a setting forbids it"]))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("netinit.kernel.run.become", lambda program, words, environ: started.append((program, words)))
    rootless.run_again(["demo", "--backend", "nftables"])
    ((program, words),) = started
    assert program == "/usr/bin/unshare"
    assert words[:5] == ("--user", "--map-root-user", "--map-auto", "--net", "--mount")
    assert words[-3:] == ("demo", "--backend", "nftables")
