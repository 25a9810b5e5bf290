"""Read devices, addresses and traffic control (tc(8)) over rtnetlink(7)."""

from __future__ import annotations

import posix
from _struct import pack, unpack_from

from netinit.base.netlink_attributes import MalformedError, attributes_of, name
from netinit.base.snapshot import Device, TrafficControl, Unknown
from netinit.kernel.netlink import Netlink, native, read_attributes

RTM_NEWLINK, RTM_GETLINK = 16, 18
RTM_NEWQDISC, RTM_GETQDISC, RTM_NEWTFILTER, RTM_GETTFILTER = 36, 38, 44, 46
_LINK, _LINK_SIZE = "=BBHiII", 16  # struct ifinfomsg
_CONTROL, _CONTROL_SIZE = "=BxxxiIII", 20  # struct tcmsg
IFLA_IFNAME, IFLA_MASTER, IFLA_LINKINFO, IFLA_XDP = 3, 10, 18, 43
IFLA_XDP_PROG_ID, TCA_KIND = 4, 1
CLASSIFIES = ("clsact", "ingress")  # qdiscs that hold filters for what comes in, and what goes out
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3  # TC_H_MIN_INGRESS and TC_H_MIN_EGRESS of ffff:
WITHOUT_HANDLES = ("noqueue", "noop", "mq", "pfifo_fast")  # default qdiscs: no filter can be attached
MAX_BYTES = 1 << 24  # of a dump: some 10,000 devices
NOT_SUPPORTED = (22, 95)  # EINVAL, EOPNOTSUPP: a kernel without traffic control


def read_links(link: Netlink, unknown: list[Unknown]) -> tuple[Device, ...]:
    """Return all devices by index. Raises OSError."""
    found = []
    for kind, body in link.dump(RTM_GETLINK, pack(_LINK, 0, 0, 0, 0, 0, 0), MAX_BYTES):
        if kind != RTM_NEWLINK:
            continue
        _, _, _, index, flags, _ = unpack_from(_LINK, body)
        try:
            attributes = attributes_of(body, _LINK_SIZE)
            found.append(
                Device(
                    index=index, name=name(attributes[IFLA_IFNAME]), flags=flags,
                    kind=name(attributes_of(attributes.get(IFLA_LINKINFO, b"")).get(1, b"")),
                    master=native(attributes.get(IFLA_MASTER)),
                    xdp=native(attributes_of(attributes.get(IFLA_XDP, b"")).get(IFLA_XDP_PROG_ID)),
                )
            )  # fmt: skip
        except (MalformedError, KeyError) as error:
            unknown.append(Unknown(place=f"device {index}", reason=f"the kernel's message is not understood: {error}"))
    return tuple(sorted(found, key=lambda link: link.index))


def read_traffic_control(link: Netlink, links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[TrafficControl, ...]:
    """Return the queueing disciplines and their filters. Raises OSError."""
    disciplines = _dump_control(link, RTM_GETQDISC, "qdisc", 0, 0, unknown)
    known = {one.index for one in links}
    found = list(disciplines)
    for one in disciplines:
        if one.index in known and one.kind not in WITHOUT_HANDLES:
            parents = (INGRESS, EGRESS) if one.kind in CLASSIFIES else (one.handle,)
            for parent in parents:
                found += _dump_control(link, RTM_GETTFILTER, "filter", one.index, parent, unknown)
    return tuple(found)


def _dump_control(  # noqa: PLR0917 - what tcmsg has
    link: Netlink, kind: int, what: str, index: int, parent: int, unknown: list[Unknown]
) -> list[TrafficControl]:
    try:
        messages = link.dump(kind, pack(_CONTROL, 0, index, 0, parent, 0), MAX_BYTES)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            unknown.append(Unknown(place=f"tc {what}s of device {index}", reason=posix.strerror(error.errno or 0)))
        return []
    found = []
    for got, body in messages:
        if got in (RTM_NEWQDISC, RTM_NEWTFILTER):
            _, at, handle, above, _ = unpack_from(_CONTROL, body)
            attributes = read_attributes(body, _CONTROL_SIZE)  # not strictly: filters have several of one type
            found.append(TrafficControl(what=what, index=at, kind=name(attributes.get(TCA_KIND, b"")), parent=above, handle=handle))
    return found
