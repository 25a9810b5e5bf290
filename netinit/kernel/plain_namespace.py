"""Prove in about 1 ms that nothing in a network namespace but known chains affects packets.

`apply` does so after it has programmed a pod; if it fails, a snapshot is read and simulated, which takes 100 times as long.
BPF programs (bpf(2) needs `_ctypes`) and IPsec policies (listing loads a kernel module) are checked only on demand.
"""

from __future__ import annotations

from _socket import if_indextoname, if_nametoindex, inet_pton
from _struct import pack, unpack_from

from netinit.base.net import FAMILIES, Family
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import LOOPBACK_INDEX, NETLINK_ROUTE, Netlink, read_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    # Expected chains by family, table and name: see `HeldChain.facts`
    KnownChains = dict[tuple[int, str, str], tuple[int, int, str, int]]

# linux/rtnetlink.h, if_link.h, pkt_sched.h
RTM_GETLINK, RTM_GETQDISC = 18, 38
IFLA_XDP, IFLA_XDP_ATTACHED, TCA_KIND = 43, 2, 1
RTA_DST, RTA_MULTIPATH, RTN_UNICAST = 1, 9, 1
SHORT_PREFIX = 8  # 0.0.0.0/1 and 128.0.0.0/1 are a default route, as OpenVPN makes one
_LINK_SIZE, _ADDRESS_SIZE, _ROUTE_SIZE, _CONTROL_SIZE = 16, 8, 12, 20
WITHOUT_FILTERS = (b"noqueue", b"noop", b"mq", b"pfifo_fast")  # qdiscs that accept no filter
_BITS = {family.number: family.bits for family in FAMILIES}
_LOOPBACK = {2: (inet_pton(2, "127.0.0.0")[:1], 8), 10: (inet_pton(10, "::1"), 128)}


def is_plain(
    known: KnownChains, *, tables: Collection[int], excluded: Collection[str], own_legacy: bool, sure: bool
) -> bool:
    """Whether only the `known` chains, each as expected, affect packets here. Raises OSError.

    `tables`: routing tables that may hold local routes. `excluded`: devices that no default route may use. `own_legacy`:
    the caller knows every legacy rule. `sure`: check BPF programs and IPsec policies too.
    """
    return (
        if_nametoindex("lo") == LOOPBACK_INDEX
        and _holds_only(known)
        and (own_legacy or not any(_holds_legacy_rules(family) for family in FAMILIES))
        and _has_plain_host(tables, excluded, sure=sure)
    )


def _holds_only(known: KnownChains) -> bool:
    missing = set(known)
    for chain in detect.nft_chains() or ():
        place = (chain.family, chain.table, chain.name)
        wanted = known.get(place)
        if wanted:
            missing.discard(place)
            if chain.facts != wanted:
                return False
        elif chain.is_base and chain.uses:
            return False
        if not chain.policy:
            return False
    own = {place[:2] for place in known}
    return not missing and not (own and own.intersection(netlink.list_dormant_tables()))


def _holds_legacy_rules(family: Family) -> bool:
    names = detect.legacy_tables(family)
    if not names:
        return names is None
    from netinit.kernel.snapshot import legacy_tables  # rarely needed

    return any(legacy_tables.holds_rules(family, name) for name in names)


def _has_plain_host(tables: Collection[int], excluded: Collection[str], *, sure: bool) -> bool:
    with Netlink(NETLINK_ROUTE) as link:
        devices = []
        for _, body in link.dump(RTM_GETLINK, bytes(_LINK_SIZE)):
            devices.append(unpack_from("=i", body, 4)[0])
            attached = read_attributes(read_attributes(body, _LINK_SIZE).get(IFLA_XDP, b""), 0).get(IFLA_XDP_ATTACHED, b"")
            if attached.strip(b"\0"):
                return False
        for _, body in link.dump(RTM_GETQDISC, bytes(_CONTROL_SIZE)):
            if read_attributes(body, _CONTROL_SIZE).get(TCA_KIND, b"").rstrip(b"\0") not in WITHOUT_FILTERS:
                return False
        own = set()
        for _, body in link.dump(netlink.RTM_GETADDR, bytes(_ADDRESS_SIZE)):
            found = read_attributes(body, _ADDRESS_SIZE)
            own.add(found.get(netlink.IFA_LOCAL) or found.get(netlink.IFA_ADDRESS))
        for _, body in link.dump(netlink.RTM_GETROUTE, bytes(_ROUTE_SIZE)):
            if not _is_plain_route(body, own, tables) or (excluded and _is_default(body, excluded)):
                return False
    if not sure:
        return True
    from netinit.kernel.snapshot import bpf, cgroups, reader

    if bpf.has_any(devices) or reader.count_transforms([]):
        return False
    return all(one.is_of_node for one in cgroups.read([]))


def _is_default(body: bytes, devices: Collection[str]) -> bool:
    """Whether a route to more than 1/256 of all addresses uses one of these devices, or several."""
    device = read_attributes(body, _ROUTE_SIZE).get(netlink.RTA_OIF)
    return body[1] < SHORT_PREFIX and (device is None or if_indextoname(unpack_from("=I", device)[0]) in devices)


def _is_plain_route(body: bytes, own: Collection[bytes | None], tables: Collection[int]) -> bool:
    family, length, _, _, table, _, _, kind, _ = unpack_from("=BBBBBBBBI", body)
    found = read_attributes(body, _ROUTE_SIZE)
    to_loopback = found.get(netlink.RTA_OIF) == pack("=I", LOOPBACK_INDEX)
    if not (kind == netlink.RTN_LOCAL or (kind == RTN_UNICAST and (to_loopback or RTA_MULTIPATH in found))):
        return True
    destination = found.get(RTA_DST, b"")
    first, shortest = _LOOPBACK.get(family, (b"", 0))
    return (
        (destination in own and length == _BITS.get(family))
        or (bool(first) and destination.startswith(first) and length >= shortest)
        or unpack_from("=I", found.get(netlink.RTA_TABLE) or pack("=I", table))[0] in tables
    )
