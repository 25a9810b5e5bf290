"""Prove in about 1 ms that nothing in a network namespace but known chains affects packets.

`apply` does so after it has programmed a pod; if it fails, a snapshot is read and simulated, which takes 100 times as long.
BPF programs (bpf(2) needs `_ctypes`) and IPsec policies (listing loads a kernel module) are checked only on demand.
"""

from __future__ import annotations

from _socket import if_indextoname, if_nametoindex, inet_pton
from _struct import pack, unpack_from

from netinit.base.net import FAMILIES, Family, is_named
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import LOOPBACK_INDEX, NETLINK_ROUTE, Netlink, read_attributes, read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from netinit.base.snapshot import Unknown

    # Expected chains by family, table and name: see `NftChain.facts`
    KnownChains = dict[tuple[int, str, str], tuple[int, int, str, int]]

IFLA_LINKINFO, IFLA_XDP_ATTACHED, RTN_UNICAST, RTA_ENCAP_TYPE = 18, 2, 1, 21  # linux/if_link.h, rtnetlink.h
# Kinds of a usual pod's devices: its own, and the tunnels that each namespace has. The snapshot is asked about others.
USUAL_KINDS = (
    b"", b"veth", b"macvlan", b"ipvlan", b"netkit",
    b"ipip", b"sit", b"gre", b"gretap", b"erspan", b"ip6tnl", b"ip6gre", b"vti", b"vti6",
)  # fmt: skip
IFF_UP = 1  # linux/if.h
FORWARDED = 2  # NF_INET_FORWARD, the hook of packets for other hosts: what a plan captures is none of these
SHORT_PREFIX = 8  # 0.0.0.0/1 and 128.0.0.0/1 are a default route, as OpenVPN makes one
_BITS = {family.number: family.bits for family in FAMILIES}
_LOOPBACK = {2: (inet_pton(2, "127.0.0.0")[:1], 8), 10: (inet_pton(10, "::1"), 128)}


def is_plain(
    known: KnownChains, *, tables: Collection[int], addresses: Collection[str], excluded: Collection[str], own_legacy: bool, sure: bool
) -> bool:
    """Whether only the `known` chains, each as expected, affect packets that are not forwarded. Raises OSError.

    `tables`: routing tables that may hold local routes. `addresses`: those that the loopback device may have. `excluded`:
    devices that no default route may use. `own_legacy`: the caller knows every legacy rule. `sure`: check BPF programs and
    IPsec policies too.
    """
    return (
        if_nametoindex("lo") == LOOPBACK_INDEX
        and _holds_only(known)
        and (own_legacy or not any(_holds_legacy_rules(family) for family in FAMILIES))
        and _has_plain_host(tables, [inet_pton(10 if ":" in one else 2, one) for one in addresses], excluded, sure=sure)
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
        elif chain.hook == FORWARDED and chain.family in (netlink.INET, *netlink.OF_IPTABLES):
            continue
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


def _has_plain_host(tables: Collection[int], addresses: Collection[bytes], excluded: Collection[str], *, sure: bool) -> bool:
    with Netlink(NETLINK_ROUTE) as link:
        devices = []
        for body in link.dump(netlink.RTM_GETLINK, bytes(netlink.LINK_SIZE)):
            index, flags = unpack_from("=iI", body, 4)
            devices.append(index)
            if index == LOOPBACK_INDEX and not flags & IFF_UP:
                return False
            found = read_attributes(body, netlink.LINK_SIZE)
            xdp = read_attributes(found.get(netlink.IFLA_XDP, b""), 0)
            kind = read_attributes(found.get(IFLA_LINKINFO, b""), 0).get(1, b"").rstrip(b"\0")
            if xdp.get(IFLA_XDP_ATTACHED, b"").strip(b"\0") or kind not in USUAL_KINDS:
                return False
        for body in link.dump(netlink.RTM_GETQDISC, bytes(netlink.CONTROL_SIZE)):
            if read_name(read_attributes(body, netlink.CONTROL_SIZE).get(netlink.TCA_KIND, b"")) not in netlink.WITHOUT_FILTERS:
                return False
        own = set()
        for body in link.dump(netlink.RTM_GETADDR, bytes(netlink.ADDRESS_SIZE)):
            found = read_attributes(body, netlink.ADDRESS_SIZE)
            address = found.get(netlink.IFA_LOCAL) or found.get(netlink.IFA_ADDRESS)
            if unpack_from("=I", body, 4)[0] != LOOPBACK_INDEX or address in addresses:
                own.add(address)
        for body in link.dump(netlink.RTM_GETROUTE, bytes(netlink.ROUTE_SIZE)):
            if not _is_plain_route(body, own, tables) or (excluded and _is_default(body, excluded)):
                return False
    if not sure:
        return True
    from netinit.kernel.snapshot import bpf, nf_tables_dump, reader

    unknown: list[Unknown] = []
    nf_tables_dump.read(unknown)
    if any(one.unnamed for one in reader.read_host(unknown).routing_rules):
        return False
    programs = bpf.read_devices(dict.fromkeys(devices, ""), unknown) + bpf.read_cgroups([])
    # Most containers may not list programs, and cannot attach any either.
    all_read = all(one.place == bpf.PLACE for one in unknown)
    return all_read and all(one.is_of_node for one in programs) and not reader.count_transforms([])


def _is_default(body: bytes, devices: Collection[str]) -> bool:
    """Whether a route to more than 1/256 of all addresses uses one of these devices, or several."""
    device = read_attributes(body, netlink.ROUTE_SIZE).get(netlink.RTA_OIF)
    return body[1] < SHORT_PREFIX and (device is None or is_named(if_indextoname(unpack_from("=I", device)[0]), devices))


def _is_plain_route(body: bytes, own: Collection[bytes | None], tables: Collection[int]) -> bool:
    family, length, _, _, table, _, _, kind, _ = unpack_from(netlink.ROUTE, body)
    found = read_attributes(body, netlink.ROUTE_SIZE)
    if RTA_ENCAP_TYPE in found:
        return False
    to_loopback = found.get(netlink.RTA_OIF) == pack("=I", LOOPBACK_INDEX)
    if not (kind == netlink.RTN_LOCAL or (kind == RTN_UNICAST and (to_loopback or netlink.RTA_MULTIPATH in found))):
        return True
    destination = found.get(netlink.RTA_DST, b"")
    first, shortest = _LOOPBACK.get(family, (b"", 0))
    return (
        (destination in own and length == _BITS.get(family))
        or (bool(first) and destination.startswith(first) and length >= shortest)
        or unpack_from("=I", found.get(netlink.RTA_TABLE) or pack("=I", table))[0] in tables
    )
