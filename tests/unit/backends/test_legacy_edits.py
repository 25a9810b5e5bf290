"""Legacy tables of a kernel that has not loaded their module yet."""

from __future__ import annotations

import errno

import pytest

from netinit.backends import legacy_edits
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import extensions, netlink, run
from netinit.rules.xtables.editing import TableEdit

EDIT = TableEdit(table="nat", chains={}, deleted=(), added={}, removed=())
ICMP = {4: b"icmp\0", 6: b"icmp6\0"}


class ReachedError(Exception):
    """The table can be read."""


@pytest.fixture
def kernel(monkeypatch):
    """A kernel whose modules of legacy tables are loaded when nf_tables asks for their matches of ICMP; `asked`: for what it was asked."""
    asked, loaded = [], set()
    monkeypatch.setattr(run, "find", lambda program: "")  # the machine's own modprobe loads nothing here

    def read(family, table):
        if family not in loaded:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        raise ReachedError

    def request(self, kind, flags, body):
        (family,) = [one for one in FAMILIES if one.number == body[0]]
        asked.append(family)
        assert kind == extensions.NFNL_MSG_COMPAT_GET
        if ICMP[family.version] in body:
            loaded.add(family)

    monkeypatch.setattr(legacy_edits, "read_whole", read)
    monkeypatch.setattr(netlink.Netlink, "request", request)
    return asked


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_module_of_legacy_tables_is_loaded_where_nobody_has_used_them(kernel, family):
    with pytest.raises(ReachedError):
        legacy_edits.make_edit(family, EDIT, [])
    assert kernel == [family]


def test_a_kernel_that_cannot_load_it_is_asked_once_and_its_refusal_names_the_table(kernel, monkeypatch):
    monkeypatch.setitem(ICMP, 4, b"nothing")
    with pytest.raises(OSError, match="unable to initialize table 'nat': Protocol not available"):
        legacy_edits.make_edit(IPV4, EDIT, [])
    assert kernel == [IPV4]


def test_without_nf_tables_the_refusal_is_that_of_legacy_tables(kernel, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPROTONOSUPPORT, "no nfnetlink")

    monkeypatch.setattr(netlink.Netlink, "request", refuse)
    with pytest.raises(OSError, match="unable to initialize table 'nat'"):
        legacy_edits.make_edit(IPV4, EDIT, [])


MODULES = {4: "ip_tables", 6: "ip6_tables"}


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("nf_tables", [True, False], ids=["whose match of ICMP is in another module", "without nf_tables"])
def test_a_kernel_that_loads_it_for_no_match_has_modprobe_load_it(kernel, monkeypatch, tmp_path, family, nf_tables):
    monkeypatch.setitem(ICMP, family.version, b"nothing")
    if not nf_tables:
        monkeypatch.setattr(netlink.Netlink, "request", lambda *_: (_ for _ in ()).throw(OSError(errno.EPROTONOSUPPORT, "no nfnetlink")))
    told, modprobe = tmp_path / "told", tmp_path / "modprobe"
    modprobe.write_text(f"#!/bin/sh\necho $* > {told}\n")
    modprobe.chmod(0o755)
    monkeypatch.setattr(run, "find", lambda program: str(tmp_path / program))

    def read(family, table):
        if not told.exists():
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        raise ReachedError

    monkeypatch.setattr(legacy_edits, "read_whole", read)
    with pytest.raises(ReachedError):
        legacy_edits.make_edit(family, EDIT, [])
    assert told.read_text().split() == ["--quiet", MODULES[family.version]]


@pytest.mark.parametrize("refusal", [None, BackendUnavailableError("it cannot be started")], ids=["fails", "cannot be started"])
def test_where_modprobe_cannot_load_it_either_the_refusal_names_the_table(kernel, monkeypatch, refusal):
    def start(*_):
        if refusal:
            raise refusal
        return real("/bin/false")

    real = run.start
    monkeypatch.setitem(ICMP, 4, b"nothing")
    monkeypatch.setattr(run, "find", lambda program: program)
    monkeypatch.setattr(run, "start", start)
    with pytest.raises(OSError, match="unable to initialize table 'nat': Protocol not available"):
        legacy_edits.make_edit(IPV4, EDIT, [])
