"""Read a snapshot of this process's network namespace: netlink, getsockopt(2), /proc/sys/net and bpf(2).

Starts no program, loads no module, changes nothing. nf_tables is read from one generation. A part that the kernel refuses
becomes an Unknown; only those that interception needs (nf_tables, legacy tables, devices, routes) raise OSError.
"""

from __future__ import annotations

from operator import itemgetter
from socket import AF_INET, SOCK_DGRAM, SOL_SOCKET, socket
from struct import Struct, pack, unpack, unpack_from

from netinit.base.net import FAMILIES, FULL_MASK
from netinit.base.netlink_attributes import MalformedError, attributes_of, name
from netinit.base.snapshot import AttachedProgram, Device, RoutingRule, Snapshot, TableRoute, TrafficControl, Unknown
from netinit.base.system import posix
from netinit.kernel import Closing, netlink, read_text
from netinit.kernel.detect import loaded_sets
from netinit.kernel.netlink import (
    ROUTE,
    ROUTE_SIZE,
    RTA_DST,
    RTA_MULTIPATH,
    RTA_OIF,
    RTA_PRIORITY,
    RTA_TABLE,
    Netlink,
    native,
)
from netinit.kernel.snapshot import bpf, legacy_tables, nf_tables_dump
from netinit.kernel.snapshot.address_sets import read_foreign_sets
from netinit.kernel.snapshot.nf_tables_dump import OTHER, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from netinit.kernel.netlink import Fields

    Read = TypeVar("Read")

# linux/rtnetlink.h, if_link.h, pkt_sched.h, fib_rules.h
RTM_GETTCLASS, RTM_GETTFILTER = 42, 46
_LINK, _CONTROL = "=BBHiII", "=BxxxiIII"
IFLA_IFNAME, IFLA_LINKINFO = 3, 18
IFLA_XDP_PROG_IDS = (4, 5, 6, 7)  # IFLA_XDP_PROG_ID; those of the driver, the stack and the hardware, if there are several
CLASSIFIES = ("clsact", "ingress")  # qdiscs that hold inbound filters, and outbound ones
# Usual qdiscs that have no classes, or classes without filters (tcf_block of their Qdisc_class_ops)
WITHOUT_FILTERS_OF_CLASSES = (
    "bfifo", "cake", "codel", "fq", "fq_codel", "fq_pie", "mqprio", "netem", "pfifo", "pie", "prio", "sfq", "tbf",
)  # fmt: skip
MAX_CLASSES = 1000  # of a qdisc, each asked for its filters; shaping a pod takes a handful
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3  # TC_H_MIN_INGRESS and TC_H_MIN_EGRESS of ffff:
NOT_SUPPORTED = (22, 95)  # EINVAL, EOPNOTSUPP: a kernel without traffic control
FRA_DST, FRA_SRC = 1, 2
_PORTS = Struct("=HH")
OF_RULES: Fields = {  # FRA_*, by which a rule's fields are known
    3: ("in_interface", name), 4: ("goes_to", native), 6: ("priority", native), 10: ("mark", native),
    14: ("suppresses_length", lambda value: unpack_from("=i", value)[0]), 15: ("table", native), 16: ("mask", native),
    17: ("out_interface", name), 19: ("is_l3mdev", any), 20: ("users", Struct("=II").unpack_from), 21: ("protocol", itemgetter(0)),
    22: ("ip_protocol", itemgetter(0)), 23: ("source_ports", _PORTS.unpack_from), 24: ("destination_ports", _PORTS.unpack_from),
}  # fmt: skip
KNOWN_OF_RULES = {*OF_RULES, FRA_DST, FRA_SRC, 11, 18}  # FRA_FLOW, FRA_PAD
# FRA_TUN_ID, FRA_SUPPRESS_IFGROUP, FRA_DSCP to FRA_DSCP_MASK: conditions, followed both ways
CONDITIONS_OF_RULES = {12, 13, *range(25, 31)}
FRA_SPORT_MASK, FRA_DPORT_MASK, WHOLE_PORT = 28, 29, b"\xff\xff"  # which Linux 6.15 and newer add to a single port
FIB_RULE_INVERT = 2
RTA_SRC, RTA_ENCAP_TYPE, RTA_ENCAP, RTA_NH_ID = 2, 21, 22, 30
# RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS, RTA_FLOW, RTA_CACHEINFO, RTA_VIA and RTA_PREF besides
KNOWN_OF_ROUTES = {
    RTA_DST, RTA_SRC, RTA_OIF, RTA_PRIORITY, RTA_MULTIPATH, RTA_TABLE, RTA_ENCAP_TYPE, RTA_ENCAP, RTA_NH_ID, 5, 7, 8, 11, 12, 18, 20,
}
RTM_F_CLONED, RTN_UNICAST = 0x200, 1
MAX_BYTES = 1 << 26  # of a dump: some 500,000 routes
# Documentation/networking/ip-sysctl.rst
SYSCTLS = "/proc/sys/net"
OF_NAMESPACE = (
    "ipv4/ip_forward", "ipv4/tcp_l3mdev_accept", "ipv4/udp_l3mdev_accept", "ipv4/raw_l3mdev_accept", "ipv4/fwmark_reflect",
    "ipv4/tcp_fwmark_accept", "ipv4/ip_nonlocal_bind", "ipv6/fwmark_reflect", "ipv6/ip_nonlocal_bind",
    "netfilter/nf_conntrack_tcp_loose", "netfilter/nf_conntrack_tcp_be_liberal",
)  # fmt: skip
OF_DEVICES = (
    "ipv4/conf/{}/forwarding", "ipv4/conf/{}/route_localnet", "ipv4/conf/{}/rp_filter", "ipv4/conf/{}/accept_local",
    "ipv4/conf/{}/src_valid_mark", "ipv6/conf/{}/forwarding", "ipv6/conf/{}/disable_ipv6",
)  # fmt: skip
MAX_DEVICES = 64  # whose own settings are read; a pod has three
BRIDGE_KIND, EBTABLES = "bridge", ("ebtable_broute", "ebtable_filter", "ebtable_nat")
NETLINK_XFRM, XFRM_MSG_GETPOLICY = 6, 0x15
PROTONOSUPPORT = 93
SO_NETNS_COOKIE = 71  # asm-generic/socket.h


def read_snapshot() -> Snapshot:
    """Read everything that affects packets. Raises OSError: EPERM without NET_ADMIN, EFBIG, EINTR if it keeps changing."""
    unknown: list[Unknown] = []
    filtering = nf_tables_dump.read(unknown)
    return read_beside_nf_tables(unknown).replace(**filtering)


def read_beside_nf_tables(unknown: list[Unknown]) -> Snapshot:
    """Read everything that affects packets but nf_tables. Raises OSError."""
    legacy = legacy_tables.read(unknown)
    host = read_host(unknown)
    sets = loaded_sets()
    return host.replace(
        legacy=legacy,
        programs=read_programs(host.links, unknown),
        transforms=count_transforms(unknown),
        address_sets=tuple([(one.number, one.name) for one in sets if one.number >= 0]),
        foreign_sets=tuple(read_foreign_sets(sets)),
        unknown=tuple(unknown),
    )


def read_numbers() -> tuple[int, int]:
    """Return this namespace's cookie (Linux 5.14) and nf_tables' generation. Raises OSError where the kernel has none."""
    with socket(AF_INET, SOCK_DGRAM) as own:
        (cookie,) = unpack("=Q", own.getsockopt(SOL_SOCKET, SO_NETNS_COOKIE, 8))
    return cookie, netlink.read_nft_generation()


def read_programs(links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """Read the BPF programs of this namespace, its devices and its processes' cgroups. Raises OSError without /proc."""
    of_drivers = tuple([AttachedProgram(where=f"XDP on {link.name}", number=link.xdp) for link in links if link.xdp])
    return of_drivers + bpf.read_devices({link.index: link.name for link in links}, unknown) + bpf.read_cgroups(unknown)


def read_host(unknown: list[Unknown] | None = None) -> Snapshot:
    """Read devices, addresses, routes and settings; needs no privilege. Raises OSError."""
    unknown = [] if unknown is None else unknown
    with Netlink(netlink.NETLINK_ROUTE) as link:
        found = link.dump(netlink.RTM_GETLINK, bytes(netlink.LINK_SIZE), MAX_BYTES)
        links = tuple(sorted(decode(found, _read_link, {OTHER: "a device"}, unknown), key=lambda one: one.index))
        if any(one.kind == BRIDGE_KIND for one in links):
            unknown += _find_bridge_tables()
        return Snapshot(
            links=links,
            addresses=netlink.list_addresses(link),
            traffic_control=_read_traffic_control(link, links, unknown),
            routing_rules=_read_both(link, netlink.RTM_GETRULE, "policy rule", _read_rule, unknown),
            routes=tuple(filter(None, _read_both(link, netlink.RTM_GETROUTE, "route", _read_route, unknown))),
            settings=_read_settings([one.name for one in links]),
            unknown=tuple(unknown),
        )


def _find_bridge_tables() -> list[Unknown]:
    """Return the tables of legacy ebtables that hold rules in some namespace of the node.

    Listing one creates it, so this asks how often its module is in use: once for each namespace where it has rules (ebtables.c).
    """
    modules = [line.split() for line in read_text("/proc/modules").splitlines()]
    used = sorted([words[0] for words in modules if words[0] in EBTABLES and words[2:3] != ["0"]])
    reason = "the node's kernel has rules in it, and does not say in which namespace"
    return [Unknown(place=f"the legacy table {one} of bridges", reason=reason, is_forbidden=True) for one in used]


def _read_both(
    link: Netlink, kind: int, what: str, reader: Callable[[bytes], Read], unknown: list[Unknown]
) -> tuple[Read, ...]:
    """Return the objects of both families in the kernel's order."""
    found: tuple[Read, ...] = ()
    for family in FAMILIES:
        messages = link.dump(kind, pack(ROUTE, family.number, 0, 0, 0, 0, 0, 0, 0, 0), MAX_BYTES)
        bodies = [body for body in messages if body[:1] == bytes((family.number,))]  # others where IPv6 is missing
        found += decode(bodies, reader, {OTHER: f"a {what} of {family.name}"}, unknown)
    return found


def _read_link(body: bytes) -> Device:
    _, _, _, index, flags, _ = unpack_from(_LINK, body)
    found = attributes_of(body, netlink.LINK_SIZE)
    programs = attributes_of(found.get(netlink.IFLA_XDP, b""))
    return Device(
        index=index, name=name(found[IFLA_IFNAME]), flags=flags,
        kind=name(attributes_of(found.get(IFLA_LINKINFO, b"")).get(1, b"")),
        xdp=next((native(programs[one]) for one in IFLA_XDP_PROG_IDS if one in programs), 0),
    )  # fmt: skip


def _read_traffic_control(link: Netlink, links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[TrafficControl, ...]:
    disciplines = _dump_control(link, netlink.RTM_GETQDISC, "qdisc", 0, 0, unknown)
    known = {one.index for one in links}
    found = list(disciplines)
    for one in disciplines:
        if one.index in known and one.kind not in netlink.WITHOUT_FILTERS:
            parents = [INGRESS, EGRESS] if one.kind in CLASSIFIES else [one.handle]
            if one.kind not in (*CLASSIFIES, *WITHOUT_FILTERS_OF_CLASSES):
                parents += _list_classes(link, one, unknown)
            for parent in parents:
                found += _dump_control(link, RTM_GETTFILTER, "filter", one.index, parent, unknown)
    return tuple(found)


def _list_classes(link: Netlink, discipline: TrafficControl, unknown: list[Unknown]) -> list[int]:
    """Return the classes of a qdisc, each of which may have filters of its own."""
    found = _dump_control(link, RTM_GETTCLASS, "class", discipline.index, 0, unknown)
    own = [one.handle for one in found if one.handle >> 16 == discipline.handle >> 16]
    if len(own) > MAX_CLASSES:
        unknown.append(Unknown(place=f"tc, each class of device {discipline.index}", reason=f"only {MAX_CLASSES:,} are read"))
    return own[:MAX_CLASSES]


def _dump_control(  # noqa: PLR0917 - what tcmsg has
    link: Netlink, kind: int, what: str, index: int, parent: int, unknown: list[Unknown]
) -> list[TrafficControl]:
    try:
        messages = link.dump(kind, pack(_CONTROL, 0, index, 0, parent, 0), MAX_BYTES)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            unknown.append(Unknown(place=f"tc, each {what} of device {index}", reason=posix.strerror(error.errno or 0)))
        return []
    found = []
    for body in messages:
        _, at, handle, above, _ = unpack_from(_CONTROL, body)
        at = index or at  # filters of a block that several devices share have the block's number
        attributes = netlink.read_attributes(body, netlink.CONTROL_SIZE)  # not strictly: filters have several of one type
        label = name(attributes.get(netlink.TCA_KIND, b""))
        found.append(TrafficControl(what=what, index=at, kind=label, parent=above, handle=handle))
    return found


def _read_rule(body: bytes) -> RoutingRule:
    found = attributes_of(body, ROUTE_SIZE)
    others = found.keys() - KNOWN_OF_RULES - {one for one in (FRA_SPORT_MASK, FRA_DPORT_MASK) if found.get(one) == WHOLE_PORT}
    family, to_length, from_length, tos, table, _, _, action, flags = unpack_from(ROUTE, body)
    fields = {"table": table, **netlink.fields_of(found, OF_RULES)}
    return RoutingRule(
        family=family, action=action, source=_prefix(found.get(FRA_SRC), from_length),
        destination=_prefix(found.get(FRA_DST), to_length), tos=tos, is_inverted=bool(flags & FIB_RULE_INVERT),
        others=tuple(sorted(others)), unnamed=tuple(sorted(others - CONDITIONS_OF_RULES)),
        **{"mask": FULL_MASK if fields.get("mark") else 0, **fields},
    )  # fmt: skip


def _read_route(body: bytes) -> TableRoute | None:
    family, to_length, from_length, tos, table, protocol, scope, kind, flags = unpack_from(ROUTE, body)
    if flags & RTM_F_CLONED:  # an entry of a cache
        return None
    found = attributes_of(body, ROUTE_SIZE)
    nexthops = _split_nexthops(found.get(RTA_MULTIPATH, b""))
    hops = tuple([index for index, _ in nexthops])
    if RTA_OIF in found:
        hops = (native(found[RTA_OIF]), *hops)
    others = found.keys() - KNOWN_OF_ROUTES
    if RTA_NH_ID in found and not hops and kind == RTN_UNICAST:  # an object of its own, with net.ipv4.nexthop_compat_mode=0
        others |= {RTA_NH_ID}
    for _, inner in nexthops:
        others |= inner.keys() - KNOWN_OF_ROUTES
    encapsulations = [one[RTA_ENCAP_TYPE] for one in (found, *[inner for _, inner in nexthops]) if RTA_ENCAP_TYPE in one]
    return TableRoute(
        family=family, table=native(found.get(RTA_TABLE), table), kind=kind,
        destination=_prefix(found.get(RTA_DST), to_length) or (0, to_length),
        source=_prefix(found.get(RTA_SRC), from_length) or (0, from_length), tos=tos, scope=scope, protocol=protocol,
        metric=native(found.get(RTA_PRIORITY)), hops=hops,
        encapsulations=tuple([unpack_from("=H", one)[0] for one in encapsulations]), others=tuple(sorted(others)),
    )  # fmt: skip


def _split_nexthops(data: bytes) -> list[tuple[int, dict[int, bytes]]]:
    """Return device and attributes of each struct rtnexthop in RTA_MULTIPATH. Raises MalformedError."""
    hops = []
    offset = 0
    while offset < len(data):
        length, index = unpack_from("=HxxI", data.ljust(offset + 8, b"\0"), offset)
        if length < 8 or offset + length > len(data):  # noqa: PLR2004 - of the struct itself
            raise MalformedError("a multipath route's way is cut off")
        hops.append((index, attributes_of(data[offset : offset + length], 8)))
        offset += length + 3 & ~3
    return hops


def _prefix(value: bytes | None, length: int) -> tuple[int, int] | None:
    return (int.from_bytes(value, "big"), length) if value is not None else None


def _read_settings(devices: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings that the kernel has, by path."""
    paths = [*OF_NAMESPACE, *[path.format(device) for device in ("all", *devices[:MAX_DEVICES]) for path in OF_DEVICES]]
    found: dict[str, str] = {}
    for folder in {path.partition("/")[0]: None for path in paths}:
        try:  # from there: for a whole path the kernel goes through those of all namespaces
            with Closing(posix.open(f"{SYSCTLS}/{folder}", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)) as opened:
                own = [path for path in paths if path.startswith(f"{folder}/")]
                found |= {path: read_text(path.removeprefix(f"{folder}/"), opened).strip() for path in own}
        except OSError:  # without IPv6, or connection tracking
            continue
    return tuple([(path, found[path]) for path in paths if found.get(path)])


def count_transforms(unknown: list[Unknown]) -> int:
    """Return the number of IPsec policies, which can drop or encapsulate packets."""
    try:
        return len(netlink.dump(NETLINK_XFRM, XFRM_MSG_GETPOLICY, b"\0" * 4, 1 << 20))
    except OSError as error:
        if error.errno != PROTONOSUPPORT:
            unknown.append(Unknown(place="xfrm policies", reason=posix.strerror(error.errno or 0)))
        return 0
