"""What the reader of a snapshot makes of the kernel's messages that name more than one usually sees."""

from __future__ import annotations

import errno
import os
from struct import pack, pack_into, unpack_from

import pytest

from netinit.base.netlink_attributes import write_attribute
from netinit.base.snapshot import NETDEV, NftSet
from netinit.kernel import libc, netlink, nf_tables
from netinit.kernel.snapshot import bpf, legacy_tables, nf_tables_dump, reader

EXACT, PREFIX = 1, 2  # NFTA_DEVICE_NAME, NFTA_DEVICE_PREFIX
ETH0, ETH1 = 2, 3
COUNT_AT = 24  # of programs, in the answer to BPF_PROG_QUERY


def chain_of(*devices):
    listed = write_attribute(4, b"".join([write_attribute(kind, name) for kind, name in devices]))
    hook = write_attribute(4, write_attribute(1, bytes(4)) + write_attribute(2, bytes(4)) + listed)
    names = write_attribute(1, b"t\0") + write_attribute(3, b"c\0")
    return bytes((NETDEV, 0, 0, 0)) + names + hook + write_attribute(7, b"filter\0")


@pytest.mark.parametrize(("devices", "names", "others"), [
    ([(EXACT, b"eth0\0")], ("eth0",), False), ([(PREFIX, b"e\0")], (), True), ([(EXACT, b"lo\0"), (PREFIX, b"e")], ("lo",), True),
    ([(EXACT, b"a\0"), (EXACT, b"b\0")], ("a", "b"), False),
])  # fmt: skip
def test_a_prefix_of_devices_is_no_device(devices, names, others):
    unknown = []
    (chain,) = nf_tables_dump._decode_objects(nf_tables.NFT_MSG_NEWCHAIN, [chain_of(*devices)], unknown)
    assert (chain.devices, chain.has_other_devices, unknown) == (names, others, [])


@pytest.mark.parametrize(("kind", "attribute", "flags", "known"), [
    (nf_tables.NFT_MSG_NEWTABLE, 2, 7, True), (nf_tables.NFT_MSG_NEWTABLE, 2, 9, False), (nf_tables.NFT_MSG_NEWSET, 3, 0x1FF, True),
    (nf_tables.NFT_MSG_NEWSET, 3, 0x200, False),
])  # fmt: skip
def test_a_flag_that_nobody_knows_is_told_with_its_object(kind, attribute, flags, known):
    unknown = []
    body = b"\2\0\0\0" + write_attribute(1, b"t\0") + (write_attribute(2, b"s\0") if kind == nf_tables.NFT_MSG_NEWSET else b"") + write_attribute(attribute, pack(">I", flags))
    assert len(nf_tables_dump._decode_objects(kind, [body], unknown)) == 1
    assert [one.place.startswith("table ip t") for one in unknown] == [True] * (not known)


@pytest.mark.parametrize(("expressions", "complete"), [
    ((), True), ((b"counter\0",), True), ((b"counter\0", b"last\0"), True), ((b"limit\0",), False), ((b"counter\0", b"quota\0"), False),
])  # fmt: skip
def test_a_set_whose_elements_have_a_limit_may_not_match(monkeypatch, expressions, complete):
    each = b"".join([write_attribute(1, write_attribute(1, name) + write_attribute(2, b"")) for name in expressions])
    element = write_attribute(1, write_attribute(1, write_attribute(1, b"\0\x50"))) + b""
    element = write_attribute(1, element[4:] + (write_attribute(11, each) if each else b""))
    body = bytes(4) + write_attribute(1, b"t\0") + write_attribute(2, b"s\0") + write_attribute(3, element)
    monkeypatch.setattr(nf_tables, "dump_elements", lambda *_: [body])
    unknown = []
    found, _ = nf_tables_dump._fill(NftSet(family=1, table="t", name="s"), 1 << 20, unknown)
    assert (found.is_complete, len(found.elements), unknown) == (complete, 1, [])


def rule(*attributes):
    return pack(netlink.ROUTE, 2, 0, 0, 0, 254, 0, 0, 1, 0) + b"".join([write_attribute(kind, value) for kind, value in attributes])


@pytest.mark.parametrize(("attributes", "others", "unnamed"), [
    ([(24, b"\x50\0\x50\0"), (29, b"\xff\xff")], (), ()),  # what `dport 80` is since Linux 6.15
    ([(24, b"\x50\0\x50\0"), (29, b"\xf0\xff")], (29,), ()), ([(12, bytes(8))], (12,), ()), ([(31, b"\1")], (31,), (31,)),
])  # fmt: skip
def test_conditions_of_policy_rules_are_known_even_where_they_are_not_followed(attributes, others, unnamed):
    read = reader._read_rule(rule(*attributes))
    assert (read.others, read.unnamed) == (others, unnamed)


def route(*attributes):
    return pack(netlink.ROUTE, 2, 0, 0, 0, 254, 0, 0, 1, 0) + b"".join([write_attribute(kind, value) for kind, value in attributes])


def nexthop(device, *attributes):
    body = b"".join([write_attribute(kind, value) for kind, value in attributes])
    return pack("=HxxI", 8 + len(body), device) + body


DEVICE, SEG6_LOCAL = (4, pack("=I", ETH0)), (21, pack("=H", 7))


@pytest.mark.parametrize(("attributes", "hops", "encapsulations", "others"), [
    ([DEVICE], (ETH0,), (), ()), ([DEVICE, SEG6_LOCAL, (22, b"")], (ETH0,), (7,), ()),
    ([(9, nexthop(ETH0) + nexthop(ETH1, SEG6_LOCAL))], (ETH0, ETH1), (7,), ()), ([(9, nexthop(ETH0, (77, b"")))], (ETH0,), (), (77,)),
    ([DEVICE, (30, pack("=I", 5))], (ETH0,), (), ()), ([(30, pack("=I", 5))], (), (), (30,)),  # nexthop objects that are not repeated
])  # fmt: skip
def test_encapsulations_are_read_of_each_nexthop(attributes, hops, encapsulations, others):
    read = reader._read_route(route(*attributes))
    assert (read.hops, read.encapsulations, read.others) == (hops, encapsulations, others)


@pytest.mark.parametrize(("programs", "number"), [([(2, b"\2"), (4, pack("=I", 9))], 9), ([(2, b"\4"), (5, pack("=I", 8)), (7, pack("=I", 7))], 8), ([(2, b"\0")], 0)])
def test_xdp_programs_of_several_modes_are_seen(programs, number):
    xdp = b"".join([write_attribute(kind, value) for kind, value in programs])
    body = pack("=BxHiII", 0, 1, ETH0, 1, 0) + write_attribute(3, b"eth0\0") + write_attribute(netlink.IFLA_XDP, xdp)
    assert reader._read_link(body).xdp == number


def test_addresses_of_other_families_than_ip_are_no_addresses_of_the_pod():
    def address(family, packed):
        return pack(netlink.ADDRESS, family, 8, 0, 0, ETH0) + write_attribute(netlink.IFA_LOCAL, packed)

    class Link:
        def dump(self, *_):
            return [address(45, b"\x08"), address(2, b"\x0a\0\0\2")]  # AF_MCTP, AF_INET

    assert [one.address for one in netlink.list_addresses(Link())] == ["10.0.0.2"]


@pytest.mark.parametrize(("modules", "tables"), [
    ("", []), ("ebtable_nat 16384 0 - Live 0x0\n", []), ("ebtables 45056 1 ebtable_nat, Live 0x0\nebtable_nat 16384 2 - Live 0x0\n", ["ebtable_nat"]),
    ("ebtable_broute 1 - - Live 0x0\nebtable_filter 1 1 - Live 0x0\n", ["ebtable_broute", "ebtable_filter"]),  # "-": cannot be unloaded, so not counted
])  # fmt: skip
def test_legacy_tables_of_bridges_are_known_by_the_use_of_their_modules(monkeypatch, modules, tables):
    monkeypatch.setattr(reader, "read_text", lambda _: modules)
    found = reader._find_bridge_tables()
    assert [one.place for one in found] == [f"the legacy table {one} of bridges" for one in tables]
    assert all(one.is_forbidden for one in found)


@pytest.mark.parametrize(("holders", "unknown"), [([], []), (["iptable_nat"], ["IPv4", "IPv6"]), (None, ["IPv4", "IPv6"])])
def test_legacy_tables_that_may_not_be_listed_are_none_where_no_module_makes_any_and_unknown_elsewhere(tmp_path, monkeypatch, holders, unknown):
    for module in ("ip_tables", "ip6_tables"):
        for name in [] if holders is None else ["holders", *[f"holders/{one}" for one in holders]]:
            (tmp_path / module / name).mkdir(parents=True)
    monkeypatch.setattr(legacy_tables.detect, "MODULES", str(tmp_path))
    monkeypatch.setattr(legacy_tables.detect, "legacy_tables", lambda _: None)
    found = []
    assert legacy_tables.read(found) == ()
    assert [(one.place, one.is_forbidden, one.may_capture) for one in found] == [(f"legacy tables of {one}", True, True) for one in unknown]


@pytest.mark.parametrize(("number", "told"), [
    (errno.ENXIO, []), (errno.ENODEV, []), (errno.EINVAL, []), (errno.EIO, ["netkit on eth0", "netkit peer on eth0"]), (errno.EACCES, ["BPF programs"]),
])  # fmt: skip
def test_a_device_of_another_kind_has_no_programs_of_netkit_and_other_refusals_are_unknown(monkeypatch, number, told):
    """Kernels with netkit (6.7 and later) answer so for every other device: netkit_dev_fetch in drivers/net/netkit.c."""
    kinds = {kind: label for kind, label in bpf.OF_DEVICES.items() if label.startswith("netkit")}

    def call(name, number_of_call, command, request, size):
        if unpack_from("=II", request)[1] in kinds:
            raise OSError(number, os.strerror(number))
        pack_into("=I", request, COUNT_AT, 0)
        return 0

    monkeypatch.setattr(libc, "call", call)
    unknown = []
    assert bpf.read_devices({2: "eth0"}, unknown) == ()
    assert [one.place for one in unknown] == told


class TrafficControl:
    """A pretended socket: qdiscs, and the classes and filters of each device and parent; an error in the place of messages is raised."""

    def __init__(self, qdiscs, more):
        self.answers = {(netlink.RTM_GETQDISC, 0, 0): qdiscs, **more}
        self.asked = []

    def dump(self, kind, request, limit):
        family, index, handle, parent, info = unpack_from(reader._CONTROL, request)
        assert (family, handle, info, len(request), limit) == (0, 0, 0, 20, reader.MAX_BYTES)
        self.asked.append((kind, index, parent))
        found = self.answers.get((kind, index, parent), [])
        if isinstance(found, OSError):
            raise found
        return [pack(reader._CONTROL, 0, at, number, above, 0) + write_attribute(netlink.TCA_KIND, word) for at, number, above, word in found]


ROOT, CLASS, FILTER = 0xFFFFFFFF, reader.RTM_GETTCLASS, reader.RTM_GETTFILTER


def test_filters_are_asked_for_of_each_qdisc_that_may_have_some_and_of_its_classes():
    qdiscs = [(ETH0, 0, ROOT, b"noqueue\0"), (ETH0, 0xFFFF0000, 0xFFFFFFF1, b"clsact\0"), (ETH1, 0x10000, ROOT, b"htb\0"), (9, 0x20000, ROOT, b"htb\0")]
    inward, outward, of_class = (ETH0, reader.INGRESS), (ETH0, reader.EGRESS), (ETH1, 0x10001)
    link = TrafficControl(qdiscs, {
        (CLASS, ETH1, 0): [(ETH1, 0x10001, 0x10000, b"htb\0"), (ETH1, 0x20001, 0x20000, b"htb\0")],
        (FILTER, *inward): [(0, 1, reader.INGRESS, b"bpf\0")], (FILTER, *of_class): [(ETH1, 2, 0x10001, b"u32\0")],
    })  # fmt: skip
    unknown = []
    found = reader._read_traffic_control(link, tuple([reader.Device(index=index, name="x", flags=0) for index in (ETH0, ETH1)]), unknown)
    assert [(one.what, one.index, one.kind, one.parent, one.handle) for one in found] == [
        *[("qdisc", index, word.rstrip(b"\0").decode(), above, handle) for index, handle, above, word in qdiscs],
        ("filter", ETH0, "bpf", reader.INGRESS, 1), ("filter", ETH1, "u32", 0x10001, 2),
    ]  # fmt: skip
    assert link.asked == [
        (netlink.RTM_GETQDISC, 0, 0), (FILTER, *inward), (FILTER, *outward), (CLASS, ETH1, 0), (FILTER, ETH1, 0x10000), (FILTER, *of_class),
    ]  # fmt: skip
    assert unknown == []


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, False), (errno.EOPNOTSUPP, False), (errno.EACCES, True)])
def test_filters_that_cannot_be_read_are_unknown_unless_the_kernel_has_none(number, told):
    link = TrafficControl([(ETH0, 0x10000, ROOT, b"htb\0")], {(FILTER, ETH0, 0x10000): OSError(number, "x"), (CLASS, ETH0, 0): OSError(number, "x")})
    unknown = []
    found = reader._read_traffic_control(link, (reader.Device(index=ETH0, name="x", flags=0),), unknown)
    assert [one.what for one in found] == ["qdisc"]
    places = [f"tc, each class of device {ETH0}", f"tc, each filter of device {ETH0}"] if told else []
    assert [(one.place, one.reason) for one in unknown] == [(place, "Permission denied") for place in places]


@pytest.mark.parametrize(("count", "told"), [(1000, []), (1001, [("tc, each class of device 2", "only 1,000 are read")])])
def test_as_many_classes_are_asked_as_the_limit_says(count, told):
    link = TrafficControl([(ETH0, 0x10000, ROOT, b"htb\0")], {(CLASS, ETH0, 0): [(ETH0, 0x10000 + at, 0x10000, b"htb\0") for at in range(1, count + 1)]})
    unknown = []
    reader._read_traffic_control(link, (reader.Device(index=ETH0, name="x", flags=0),), unknown)
    assert sum(kind == FILTER for kind, *_ in link.asked) == 1 + 1000
    assert [(one.place, one.reason) for one in unknown] == told
