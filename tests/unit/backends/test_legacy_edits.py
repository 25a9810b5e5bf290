"""Legacy tables of a kernel that has not loaded their module yet."""

from __future__ import annotations

import errno

import pytest

from netinit.backends import legacy_edits
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import extensions, netlink
from netinit.rules.xtables.editing import TableEdit

EDIT = TableEdit(table="nat", chains={}, deleted=(), added={}, removed=())
ICMP = {4: b"icmp\0", 6: b"icmp6\0"}


class ReachedError(Exception):
    """The table can be read."""


@pytest.fixture
def kernel(monkeypatch):
    """A kernel whose modules of legacy tables are loaded when nf_tables asks for their matches of ICMP; `asked`: for what it was asked."""
    asked, loaded = [], set()

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
