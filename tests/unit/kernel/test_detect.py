"""What is read without programs: names of legacy tables, address sets, capabilities, name servers; and where programs are."""

from __future__ import annotations

import posix

import pytest

from netinit.base.net import IPV4, IPV6
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import attribute


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.setattr(detect, "_TABLE_NAMES", {IPV4: str(tmp_path / "names"), IPV6: str(tmp_path)})
    return tmp_path / "names"


def test_legacy_tables_are_those_that_the_kernel_names(names):
    assert detect.legacy_tables(IPV4) == ()  # no such file: no module of legacy tables
    names.write_text("")
    assert detect.legacy_tables(IPV4) == ()
    names.write_text("nat\nfilter\n")
    assert detect.legacy_tables(IPV4) == ("nat", "filter")


def test_legacy_tables_whose_names_cannot_be_read_are_not_known(names, monkeypatch):
    assert detect.legacy_tables(IPV6) is None  # a folder
    names.write_text("nat\n")

    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(posix, "open", refuse)
    assert detect.legacy_tables(IPV4) is None


def test_name_servers_are_named_once_without_zones_and_without_what_is_no_address():
    text = "search a.b\nnameserver 10.0.0.10\n nameserver fe80::1%eth0 more\nnameserver\n#nameserver 1.1.1.1\nnameserver x\nnameserver 10.0.0.10\n"
    assert detect.name_servers(text) == ["10.0.0.10", "fe80::1"]


def test_a_capability_counts_where_it_is_effective(monkeypatch):
    monkeypatch.setattr(detect, "read_text", lambda path: {"/proc/self/status": "CapPrm:\tffff\nCapEff:\t0000000000001000\nCapBnd:\t2000\n"}[path])
    assert [number for number in range(64) if detect.has_capability(number)] == [detect.CAP_NET_ADMIN]
    assert (detect.read_capabilities("CapPrm"), detect.read_capabilities("CapBnd")) == (0xFFFF, 1 << detect.CAP_NET_RAW)
    monkeypatch.setattr(detect, "read_text", lambda _: "")
    assert (detect.has_capability(0), detect.read_capabilities("CapPrm")) == (False, 0)


@pytest.mark.parametrize(("number", "chains"), [(22, ()), (93, ()), (1, None), (105, None)])
def test_a_kernel_without_nf_tables_has_no_chains_and_of_one_that_refuses_none_are_known(number, chains, monkeypatch):
    def refuse():
        raise OSError(number, "refused")

    monkeypatch.setattr(netlink, "list_nft_chains", refuse)
    assert detect.nft_chains() == chains


def test_ipv6_is_there_where_the_kernel_shows_its_addresses(monkeypatch):
    shown = []
    monkeypatch.setattr(posix, "access", lambda path, mode: (path, mode) in shown)
    assert detect.kernel_families() == (IPV4,)
    shown.append(("/proc/net/if_inet6", posix.F_OK))
    assert detect.kernel_families() == (IPV4, IPV6)


@pytest.mark.parametrize(("there", "may"), [((), True), (("/sys/module",), False), (("/sys/module", "/sys/module/ip_set"), True)])
def test_there_may_be_address_sets_where_their_module_is_loaded_or_none_is_shown(there, may, monkeypatch):
    monkeypatch.setattr(posix, "access", lambda path, _: path in there)
    assert detect.has_address_sets() is may


def encode_set(name, size, number=None):
    data = attribute(detect.ATTR_DATA, attribute(detect.ATTR_ELEMENTS, size.to_bytes(4, "big")))
    index = b"" if number is None else attribute(detect.ATTR_INDEX, number.to_bytes(2, "big"))
    return bytes(4) + attribute(detect.ATTR_SETNAME, name.encode() + b"\0") + data + index


def test_sets_are_read_with_the_newest_protocol_that_the_kernel_speaks(monkeypatch):
    asked = []

    def dump(family, kind, body):
        asked.append((family, kind, body[8:9] + body[12:]))
        if body[8] == detect.NEWEST_PROTOCOL:
            raise OSError(22, "Invalid argument")
        return [encode_set("netinit-a4", 3), encode_set("other", 258, 40000), encode_set("netinit-a b", 1, 0), encode_set("netinit-ä", 1, 7)]

    monkeypatch.setattr(netlink, "dump", dump)
    monkeypatch.setattr(detect, "has_address_sets", lambda: True)
    assert [(one.name, one.size, one.number) for one in detect.loaded_sets()] == [
        ("netinit-a4", 3, -1), ("other", 258, 40000), ("netinit-a b", 1, 0), ("netinit-ä", 1, 7),
    ]  # fmt: skip
    flags = b"\x08\x00\x06\x40" + b"\x00\x00\x00\x04"  # IPSET_ATTR_FLAGS: headers only
    assert asked == [(12, 0x607, b"\x07" + flags), (12, 0x607, b"\x06" + flags)]
    assert detect.owned_sets() == {"netinit-a4": 3}
    assert detect.set_names() == {40000: "other", 0: "netinit-a b", 7: "netinit-ä"}
    monkeypatch.setattr(netlink, "dump", lambda *_: fail())
    assert detect.loaded_sets() == ()
    monkeypatch.setattr(netlink, "dump", dump)
    monkeypatch.setattr(detect, "has_address_sets", lambda: False)
    assert detect.loaded_sets() == (), "a question would load the module"


def fail():
    raise OSError(1, "Operation not permitted")
