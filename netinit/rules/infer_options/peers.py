"""What `netinit.rules.layouts.peers` made rules of."""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family, Network, PortRange, Ports, merge_ports
from netinit.options.user_ports import PortsOfUsers
from netinit.rules.infer_options.reading import WHOLE, Layout, find_match, holds_exactly
from netinit.rules.layouts.clouds import CLOUD_METADATA
from netinit.rules.matches.packet import Owner, Port, Protocol, Source
from netinit.rules.model import (
    FILTER,
    ISTIO_INBOUND,
    ISTIO_LOG,
    ISTIO_OUTPUT,
    ISTIO_QUIC,
    ISTIO_REFUSE_IN,
    MANGLE,
    NAT,
    Rule,
)
from netinit.rules.targets import LogTarget, Return

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def fields(layout: Layout) -> dict[str, Any]:
    """The fields of these options that the rules show."""
    return {
        "exclude_outbound_for_uids": _ports_of_users(layout, "uid"),
        "exclude_outbound_for_gids": _ports_of_users(layout, "gid"),
        "exclude_inbound_cidrs": _sources(layout),
        **_logs(layout),
        "reject_quic": any((FILTER, ISTIO_QUIC) in chains for chains in layout.rules.values()),
    }


def take_metadata(excluded: dict[Family, list[Network]], families: tuple[Family, ...]) -> bool:
    """Whether the excluded networks of each family end in those of the clouds' metadata, which then are taken away."""
    wanted = {family: {network for network in CLOUD_METADATA if network.family is family} for family in families}
    found = all(set(excluded[family][-len(networks) :]) == networks for family, networks in wanted.items())
    if found:
        for family, networks in wanted.items():
            del excluded[family][-len(networks) :]
    return found


def _ports_of_users(layout: Layout, kind: str) -> tuple[PortsOfUsers, ...]:
    found: dict[tuple[str, int, int], Ports] = {}
    for rule in layout.rules_of(NAT, ISTIO_OUTPUT):
        owner = _owner(rule, kind)
        if owner is None:
            continue
        port = next((match for match in rule.matches if isinstance(match, Port)), None)
        protocol = port.protocol if port else find_match(rule, Protocol).name
        key = (protocol, owner.number, owner.number if owner.last is None else owner.last)
        ports = () if port is None else tuple([one if isinstance(one, int) else PortRange(one) for one in port.ports])
        found[key] = merge_ports((*found.get(key, ()), *ports))
    return tuple([PortsOfUsers(protocol=key[0], ports=ports, first=key[1], last=key[2]) for key, ports in found.items()])


def _owner(rule: Rule, kind: str) -> Owner | None:
    """The owner that a rule with a protocol or ports excludes."""
    if not isinstance(rule.target, Return) or not (holds_exactly(rule, (Port, Owner)) or holds_exactly(rule, (Protocol, Owner))):
        return None
    owner = find_match(rule, Owner)
    return owner if owner.kind == kind and not owner.negated else None


def _logs(layout: Layout) -> dict[str, Any]:
    targets = [rule.target for rule in layout.rules_of(NAT, ISTIO_LOG)]
    groups = [target.group for target in targets if isinstance(target, LogTarget)]
    return {"log_rules": True, "log_group": groups[0]} if groups else {"log_rules": False}


def _sources(layout: Layout) -> tuple[Network, ...]:
    found: list[Network] = []
    for family in FAMILIES:
        for place in ((NAT, ISTIO_INBOUND), (MANGLE, ISTIO_INBOUND), (FILTER, ISTIO_REFUSE_IN)):
            rules = [
                rule
                for rule in layout.rules.get(family, {}).get(place, ())
                if isinstance(rule.target, Return) and (not rule.matches or holds_exactly(rule, (Source,)))
            ]
            for rule in rules:
                found += find_match(rule, Source).networks if rule.matches else (WHOLE[family],)
    return tuple(found)
