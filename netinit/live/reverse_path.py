"""IPv4's check of sources: what comes in by one device is dropped where the route back leaves by another (rp_filter, strict).

The kernel looks up the route to the source, with both ends swapped (fib_validate_source in net/ipv4/fib_frontend.c; ip-sysctl.rst).
The higher value of `all` and of the device counts: 0 off, 1 strict, 2 loose. What comes back through lo keeps its route, unchecked.
A source that is routed to this host itself needs accept_local as well. Where several routes are possible, all must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netinit.base.net import IPV4, number_of
from netinit.base.snapshot import IFF_UP, Device, RoutingRule, Snapshot, TableRoute
from netinit.live import host
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet
from netinit.simulate.endpoints import ELSEWHERE, EPHEMERAL_PORT, format_endpoint

STRICT = 1
EVERY = "all"  # the settings of every device
FILTER, ACCEPTS_LOCAL, USES_MARK, TAKES_LOOPBACK = "rp_filter", "accept_local", "src_valid_mark", "route_localnet"
RTPROT_KERNEL = 2  # the origin of routes that addresses bring with them
SERVER_PORT = 8080  # of examples


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """Whether the kernel drops a packet for its source; None: not known. `remedy`: a setting that lets it in."""

    drops: bool | None
    reason: str = ""
    remedy: str = ""


PASSES = SourceCheck(drops=False)
Routes = Sequence[TableRoute | None]  # None: no route


def check_source(snapshot: Snapshot, packet: Packet, *, is_mark_known: bool = True) -> SourceCheck:
    """Judge a packet as it is when it is routed, after PREROUTING; `out_interface` is empty unless it is forwarded."""
    device, source = packet.in_interface, packet.source
    if packet.family is not IPV4 or device in {"", LOOPBACK_DEVICE}:
        return PASSES
    if source is None:
        return SourceCheck(drops=None, reason="its source, which the kernel checks, is not known")
    is_loopback = IPV4.loopback_network.first <= source <= IPV4.loopback_network.last
    if is_loopback and not (accepted := _is_on(snapshot, TAKES_LOOPBACK, device)):
        why = f"the kernel takes nothing from 127.0.0.0/8 that comes in through {device}"
        open_end = f", unless {TAKES_LOOPBACK} is set there, which is not known"
        return SourceCheck(drops=None, reason=why + open_end) if accepted is None else SourceCheck(drops=True, reason=why)
    unmarked, routes = _find_routes(snapshot, packet, is_mark_known=is_mark_known)
    found = [_judge(snapshot, device, source, route) for route in routes]
    outcomes = {one.drops for one in found}
    if outcomes == {False}:
        return PASSES
    routing = f"the route back to {format_endpoint(IPV4, source, None)} {_describe(snapshot, routes)}"
    marking = _list_set(snapshot, USES_MARK, device)
    by_mark = set(routes) != set(unmarked)
    if by_mark:
        routing += f", by its mark ({marking[0]} is set)" if marking else f", by its mark if {USES_MARK} is set, which is not known"
    if None in outcomes:
        return SourceCheck(drops=None, reason=f"{routing}, and {next(one.reason for one in found if one.drops is None)}")
    dropped = next(one for one in found if one.drops)
    if False in outcomes:
        return SourceCheck(drops=None, reason=f"{dropped.reason}, or not: {routing}, by more than a packet shows")
    helps = by_mark and all(_judge(snapshot, device, source, route).drops is False for route in unmarked)
    unmark = " ".join([f"{name}=0" for name in marking]) if helps else ""
    return SourceCheck(drops=True, reason=f"{dropped.reason}: {routing}", remedy=unmark or dropped.remedy)


def check_marked(snapshot: Snapshot, link: Device) -> SourceCheck:
    """Judge what comes in by a device as if only its mark, which a policy rule routes to this host, could keep it out."""
    marked, others = (RoutingRule(family=IPV4.number, action=host.LOOK_UP, table=at, mark=at, mask=at) for at in (1, 0))
    back = TableRoute(family=IPV4.number, table=others.table, kind=host.UNICAST, destination=(0, 0), hops=(link.index,))
    here = back.replace(table=marked.table, kind=host.DELIVERED_HERE, hops=(host.LOOPBACK_INDEX,))
    far = number_of(ELSEWHERE[IPV4.version])
    packet = Packet(family=IPV4, protocol="tcp", source=far, destination=0, in_interface=link.name, mark=marked.mark)
    return check_source(snapshot.replace(routing_rules=(marked, others), routes=(here, back)), packet)


def _find_routes(snapshot: Snapshot, packet: Packet, *, is_mark_known: bool) -> tuple[Routes, Routes]:
    """The routes that may lead back to the source of a packet: without its mark, and with the mark as far as that counts."""
    is_marked = _is_on(snapshot, USES_MARK, packet.in_interface)
    marks = [0] if is_marked is False else [packet.mark] if is_marked else [0, packet.mark]
    if is_marked is not False and not is_mark_known:
        marks += [0, *[rule.mark for rule in snapshot.routing_rules]]
    back = Packet(
        family=IPV4, protocol=packet.protocol, source=packet.destination, destination=packet.source, uid=0,
        source_port=packet.destination_port, destination_port=packet.source_port, in_interface=packet.out_interface,
    )  # fmt: skip
    found = [route for mark in marks for route in host.find_routes(snapshot, back.replace(mark=mark))]
    return tuple(host.find_routes(snapshot, back)), tuple(dict.fromkeys(found))


def _judge(snapshot: Snapshot, device: str, source: int, route: TableRoute | None) -> SourceCheck:
    """Judge a packet by a route that may lead back to its source."""
    accepts, values = _is_on(snapshot, ACCEPTS_LOCAL, device), _read(snapshot, FILTER, device)
    if accepts and values == [0, 0]:
        return PASSES
    is_own = route is not None and route.kind == host.DELIVERED_HERE
    if route is None or route.kind in {host.UNICAST, *host.DROPPING} or (is_own and accepts):
        return _filter(snapshot, device, route)
    if is_own and accepts is None:
        return SourceCheck(drops=None, reason=f"whether {ACCEPTS_LOCAL} is set on {device} is not known")
    # Until rp_filter, a policy rule or a local route is added, the kernel looks for the source among its addresses alone.
    addresses = {number_of(one.address) for one in snapshot.addresses if one.family == IPV4.number}
    if any(values) or source in addresses or (is_own and route.protocol != RTPROT_KERNEL):
        what = "source of its own" if is_own else "broadcast or multicast address as a source"
        return SourceCheck(drops=True, reason=f"the kernel takes no {what} from {device}")
    return SourceCheck(drops=None, reason=f"whether the kernel looks for routes to sources from {device} is not known")


def _filter(snapshot: Snapshot, device: str, route: TableRoute | None) -> SourceCheck:
    """What rp_filter does to a packet from a source that has this route."""
    kept = route if route and route.kind not in host.DROPPING else None
    if kept and device in map(snapshot.name_of, kept.hops):  # one of several hops is enough
        return PASSES
    values = _read(snapshot, FILTER, device)
    if None in values:
        return SourceCheck(drops=None, reason=f"whether rp_filter is strict on {device} is not known")
    strictness = max([one or 0 for one in values])
    if not strictness:
        return PASSES
    if kept and not kept.hops:
        return SourceCheck(drops=None, reason=f"whether that is {device} is not known")
    addressed = any(one.family == IPV4.number and snapshot.name_of(one.index) == device for one in snapshot.addresses)
    passes_loose = bool(kept) and addressed
    if passes_loose and strictness != STRICT:
        return PASSES
    reason = f"reverse path filtering ({_name(snapshot, FILTER, device)}={strictness}) drops what comes in through {device}"
    return SourceCheck(drops=True, reason=reason, remedy=f"net.ipv4.conf.{device}.{FILTER}=2" if passes_loose else "")


def _describe(snapshot: Snapshot, routes: Routes) -> str:
    kept = [one for one in routes if one and one.kind not in host.DROPPING]
    leaving = [one for one in kept if one.kind != host.DELIVERED_HERE]
    named = sorted({snapshot.name_of(hop) for one in leaving for hop in one.hops})
    named += ["a device that is not known"] if any(not one.hops for one in leaving) else []
    found = [f"leaves through {' or '.join(named)}"] if named else []
    found += ["is missing"] if len(kept) < len(routes) else []
    found += ["stays in this pod"] if len(leaving) < len(kept) else []
    return " or ".join(found)


def _read(snapshot: Snapshot, setting: str, device: str) -> list[int | None]:
    """The values for all devices and for one; None where it was not read."""
    found = [snapshot.setting(f"ipv4/conf/{name}/{setting}") for name in (EVERY, device)]
    return [int(one) if one.isdecimal() else None for one in found]


def _is_on(snapshot: Snapshot, setting: str, device: str) -> bool | None:
    """Whether a setting is on, for all devices or for one; None if that was not read."""
    values = _read(snapshot, setting, device)
    return True if any(values) else None if None in values else False


def _list_set(snapshot: Snapshot, setting: str, device: str) -> list[str]:
    """The names of a setting where it is on, for all devices and for one."""
    values = zip((EVERY, device), _read(snapshot, setting, device), strict=True)
    return [f"net.ipv4.conf.{name}.{setting}" for name, value in values if value]


def _name(snapshot: Snapshot, setting: str, device: str) -> str:
    """The name of the setting that counts, which is the higher one."""
    every, own = [one or 0 for one in _read(snapshot, setting, device)]
    return f"net.ipv4.conf.{device if own > every else EVERY}.{setting}"


def warn_of_refused(snapshot: Snapshot) -> Iterator[str]:
    """Yield a warning for each device with a default route by which nothing comes in from far away, connections and answers alike.

    A device without one serves its own network alone.
    """
    marks = (0, *[rule.mark for rule in host.rules_to_lo(snapshot, IPV4)])
    for link in snapshot.links:
        addresses = [one.address for one in snapshot.addresses if (one.family, one.index) == (IPV4.number, link.index)]
        leads_out = any(one.family == IPV4.number and link.index in one.hops and one.destination[1] == 0 for one in snapshot.routes)
        if link.name == LOOPBACK_DEVICE or not link.flags & IFF_UP or not addresses or not leads_out:
            continue
        for sample, mark in [(sample, mark) for mark in marks for sample in host.SAMPLES[IPV4.version]]:
            packet = Packet(
                family=IPV4, protocol="tcp", source=number_of(sample), destination=number_of(addresses[0]),
                source_port=EPHEMERAL_PORT, destination_port=SERVER_PORT, in_interface=link.name, mark=mark,
            )  # fmt: skip
            if (found := check_source(snapshot, packet)).drops is not False:
                what = "are dropped" if found.drops else "may be dropped"
                remedy = f"; set {found.remedy}" if found.remedy else ""
                yield f"IPv4: packets that come in through {link.name}, for example from {sample}, {what}: {found.reason}{remedy}"
                break
