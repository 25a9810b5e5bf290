"""IPv4's check of sources: what comes in by one device is dropped where the route back leaves by another (rp_filter, strict).

The kernel looks up the route to the source, with both ends swapped (fib_validate_source in net/ipv4/fib_frontend.c; ip-sysctl.rst).
The higher value of `all` and of the device counts: 0 off, 1 strict, 2 loose. What comes back through lo keeps its route, unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.net import IPV4, number_of
from netinit.base.snapshot import IFF_UP, Snapshot
from netinit.live import host
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet
from netinit.simulate.endpoints import format_endpoint

STRICT = 1
EVERY = "all"  # the settings of every device
FILTER, ACCEPTS_LOCAL, USES_MARK = "rp_filter", "accept_local", "src_valid_mark"


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """Whether the kernel drops a packet for its source; None: not known. `remedy`: a setting that lets it in."""

    drops: bool | None
    reason: str = ""
    remedy: str = ""


PASSES = SourceCheck(drops=False)


def check_source(snapshot: Snapshot, packet: Packet) -> SourceCheck:
    """Judge a packet as it is when it is routed, after PREROUTING. Those from the host's own addresses are not judged."""
    device, source = packet.in_interface, packet.source
    own = any(number_of(one.address) == source for one in snapshot.addresses if one.family == IPV4.number)
    if packet.family is not IPV4 or device in {"", LOOPBACK_DEVICE} or source is None or own:
        return PASSES
    marks = _read(snapshot, USES_MARK, device)
    back = Packet(
        family=IPV4, protocol=packet.protocol, source=packet.destination, destination=source, uid=0,
        source_port=packet.destination_port, destination_port=packet.source_port, mark=packet.mark if any(marks) else 0,
    )  # fmt: skip
    ways = host.find_devices(snapshot, back)
    return _judge(snapshot, device, format_endpoint(IPV4, source, None), ways)


def _judge(snapshot: Snapshot, device: str, source: str, ways: frozenset[str]) -> SourceCheck:
    routing = f"the route back to {source} " + _describe(ways)
    if ways == {LOOPBACK_DEVICE} and not any(_read(snapshot, ACCEPTS_LOCAL, device)):
        marked = _name(snapshot, USES_MARK, device)
        why = f", by its mark ({marked} is set)" if marked else ""
        reason = f"the kernel takes no source of its own from {device}: {routing}{why}"
        return SourceCheck(drops=True, reason=reason, remedy=f"{marked}=0" if marked else "")
    if device in ways and (len(ways) == 1 or not _depends_on_more(snapshot)):  # several hops of one route
        return PASSES
    values = _read(snapshot, FILTER, device)
    if None in values:
        return SourceCheck(drops=None, reason=f"{routing}, and whether rp_filter is strict on {device} is not known")
    strictness = max([one or 0 for one in values])
    addressed = any(one.family == IPV4.number and snapshot.name_of(one.index) == device for one in snapshot.addresses)
    if not strictness or (strictness != STRICT and addressed and host.LOST not in ways):
        return PASSES
    setting = f"{_name(snapshot, FILTER, device)}={strictness}"
    if device in ways or (strictness != STRICT and len(ways) > 1):
        return SourceCheck(drops=None, reason=f"{routing}, by more than a packet shows, and {setting}")
    reason = f"reverse path filtering ({setting}) drops what comes in through {device}: {routing}"
    helps = strictness == STRICT and addressed and host.LOST not in ways
    return SourceCheck(drops=True, reason=reason, remedy=f"net.ipv4.conf.{device}.{FILTER}=2" if helps else "")


def _describe(ways: frozenset[str]) -> str:
    named = [one for one in sorted(ways) if one not in {host.LOST, LOOPBACK_DEVICE}]
    found = [f"leaves through {' or '.join(named)}"] if named else []
    found += ["is missing"] if host.LOST in ways else []
    found += ["stays in this pod"] if LOOPBACK_DEVICE in ways else []
    return " or ".join(found)


def _depends_on_more(snapshot: Snapshot) -> bool:
    """Whether a policy rule asks for what netinit does not read."""
    return any(one.others or one.is_l3mdev for one in snapshot.routing_rules if one.family == IPV4.number)


def _read(snapshot: Snapshot, setting: str, device: str) -> list[int | None]:
    """The values for all devices and for one; None where it was not read."""
    found = [snapshot.setting(f"ipv4/conf/{name}/{setting}") for name in (EVERY, device)]
    return [int(one) if one.isdecimal() else None for one in found]


def _name(snapshot: Snapshot, setting: str, device: str) -> str:
    """The name of the setting that counts, which is the higher one; empty if none is set."""
    values = dict(zip((EVERY, device), _read(snapshot, setting, device), strict=True))
    highest = max(values, key=lambda name: values[name] or 0)
    return f"net.ipv4.conf.{highest}.{setting}" if values[highest] else ""


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
                in_interface=link.name, mark=mark,
            )  # fmt: skip
            if (found := check_source(snapshot, packet)).drops is not False:
                what = "are dropped" if found.drops else "may be dropped"
                remedy = f"; set {found.remedy}" if found.remedy else ""
                yield f"IPv4: packets that come in through {link.name}, for example from {sample}, {what}: {found.reason}{remedy}"
                break
