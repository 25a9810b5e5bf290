"""Where modprobe can help, and where it cannot."""

from __future__ import annotations

import os

import pytest

from netinit.kernel import modules

RELEASE = os.uname().release


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine with modules: its files below a folder."""
    for name, text in {"modules": "", "disabled": "0\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "sys").mkdir()
    monkeypatch.setattr(modules, "LOADED", str(tmp_path / "modules"))
    monkeypatch.setattr(modules, "DISABLED", str(tmp_path / "disabled"))
    monkeypatch.setattr(modules, "MODULES", str(tmp_path / "sys"))
    monkeypatch.setattr(modules, "FOLDER", str(tmp_path / "lib"))
    return tmp_path


def install(place, *files):
    folder = place / "lib" / RELEASE
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("".join([f"kernel/net/netfilter/{file}: kernel/net/x.ko\n" for file in files]))


def test_it_may_help_where_modules_cannot_be_listed(place):
    assert modules.can_help("xt_owner, xt_mark and the like")


def test_it_helps_where_a_module_is_there_and_not_loaded(place):
    install(place, "xt_owner.ko.xz", "xt_addrtype.ko")
    assert modules.can_help("xt_owner")
    assert modules.can_help("xt_none xt_addrtype")
    assert not modules.can_help("xt_conntrack")


def test_it_does_not_help_where_the_module_is_loaded_already(place):
    (place / "sys" / "xt_owner").mkdir()
    assert not modules.can_help("xt_owner")
    assert modules.can_help("xt_owner, xt_mark")


@pytest.mark.parametrize("name", ["modules", "disabled"])
def test_it_does_not_help_a_kernel_that_loads_none(place, name):
    if name == "modules":
        (place / name).unlink()
    else:
        (place / name).write_text("1\n")
    assert not modules.can_help("xt_owner")
