"""The question of `explain` and `draw`: which connection, under whose rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import FAMILIES, IPV4, Family, family_of, number_of, parse_address
from netinit.cli.flags import read_value
from netinit.options import Options
from netinit.options.kinds import quote_value, read_gid, read_interface, read_port, read_uid
from netinit.rules.layouts import plan
from netinit.rules.packet import Packet, Surroundings
from netinit.simulate.endpoints import SOMEBODY, make_inbound, make_outbound, parse_endpoint
from netinit.simulate.ruleset import Ruleset, load_plan

DIRECTIONS = ("outbound", "inbound")
POD_ADDRESSES = ("192.0.2.10", "2001:db8::10")  # of a pod whose own are not given
APPLICATION = 1000


@dataclass(frozen=True, slots=True)
class Ground:
    """Rules and surroundings by family, and what they are: `plan`, or a place of live rules."""

    rulesets: dict[str, dict[Family, Ruleset]]
    surroundings: dict[Family, Surroundings]
    options: Options | None  # None: not these options' rules
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A connection as the command line names it; texts are checked when it is made into a packet."""

    direction: str
    to: str
    source: str
    to_port: str
    udp: bool
    uid: str
    gid: str
    interface: str
    mark: int


def question_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a connection."""
    for decorate in reversed((
        click.option("--to", default="", metavar="ADDRESS[:PORT]", help="Where the connection goes."),
        click.option("--from", "source", default="", metavar="ADDRESS", help="Where it comes from (inbound, unless --uid is given)."),
        click.option("--to-port", default="", metavar="PORT", help="The port, where --to has none."),
        click.option("--udp", is_flag=True, help="UDP instead of TCP."),
        click.option("--uid", default="", metavar="USER", help=f"The user who connects: number or name (default: {APPLICATION})."),
        click.option("--gid", default="", metavar="GROUP", help="The group that connects (default: the number of --uid)."),
        click.option("--interface", default="", metavar="NAME", help="Inbound: the interface (default: that of the default route)."),
        click.option("--mark", default=0, metavar="MARK", help="The firewall mark of the socket.", type=click.IntRange(0, 2**32 - 1)),
    )):  # fmt: skip
        function = decorate(function)
    return function


def ground_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say whose rules are meant."""
    for decorate in reversed((
        click.option("--pod", default="", metavar="FILE|-", help="Use the rules of this pod's init container (YAML or JSON)."),
        click.option("--pod-ip", multiple=True, metavar="ADDRESS", help="The pod's address (default: that of --pod, or an example)."),
        click.option("--live", is_flag=True, help="Use the live rules of this namespace; implied by --pid and --netns."),
    )):  # fmt: skip
        function = decorate(function)
    return function


def find_ground(options: Options, pod: str, pod_ip: tuple[str, ...], live: bool) -> Ground:
    """Whose rules are meant: live ones, those of a pod's manifest, or those that the options plan."""
    if live or options.pid or options.netns:
        if pod:
            raise OptionError("--pod: live rules are asked for with --pid, --netns or --live; give one of them")
        from netinit.pods.live import read_live

        found = read_live(options)
        return Ground(found.rulesets, found.surroundings, None, warnings=found.warnings)
    origins: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    addresses = tuple(read_value(address, parse_address, "--pod-ip") for address in pod_ip)
    if pod:
        from netinit.inject.podfile import read_pod

        facts = read_pod(read_file(pod), pod)
        options, origins, warnings = facts.options, facts.origins, (f"{facts.name}: {'; '.join(facts.notes)}",)
        addresses = addresses or facts.addresses
    if options.ipv6 == "auto":  # without a pod its addresses say, and without these both families count
        options = options.replace(
            ipv6="off" if addresses and all(family_of(one) is IPV4 for one in addresses) else "on"
        )
    made = plan(options)
    return Ground(
        {"plan": {family: load_plan(made, family) for family in FAMILIES}},
        {family: _stand_in(family, addresses or POD_ADDRESSES) for family in FAMILIES},
        options, origins, warnings + made.warnings,
    )  # fmt: skip


def _stand_in(family: Family, addresses: tuple[str, ...]) -> Surroundings:
    own = [number_of(address) for address in addresses if family_of(address) is family]
    return Surroundings(family=family, addresses=tuple(("eth0", address) for address in own))


def make_packet(question: Question, surroundings: Mapping[Family, Surroundings]) -> Packet:
    """The first packet of the connection in question. OptionError says what is missing or wrong."""
    inbound = question.direction == "inbound" or (not question.direction and bool(question.source) and not question.uid)
    host, port = parse_endpoint(question.to, "--to") if question.to else ("", 0)
    source = read_value(question.source, parse_address, "--from") if question.source else ""
    port = port or (read_value(question.to_port, read_port, "--to-port") if question.to_port else 0)
    if not port:
        raise OptionError("--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT")
    family = family_of(host or source) if host or source else IPV4
    if host and source and family_of(source) is not family:
        raise OptionError(f"--from: {quote_value(source)} is of another address family than {quote_value(host)}")
    around = surroundings.get(family)
    if around is None:
        raise OptionError(f"--to: {family.name} is off in this namespace")
    protocol = "udp" if question.udp else "tcp"
    if inbound:
        interface = read_value(question.interface, read_interface, "--interface") if question.interface else ""
        packet = make_inbound(
            around, source or SOMEBODY[family.version], host, port, protocol=protocol, interface=interface
        )
        if packet.destination is None:
            raise OptionError(
                f"--to: the pod has no {family.name} address on {packet.in_interface}; give --to or --pod-ip"
            )
        return packet.replace(mark=question.mark)
    if not host:
        raise OptionError(
            "--to: the destination is missing; give --to ADDRESS:PORT, or --from for an inbound connection"
        )
    uid = read_value(question.uid, read_uid, "--uid") if question.uid else APPLICATION
    gid = read_value(question.gid, read_gid, "--gid") if question.gid else uid
    return make_outbound(around, host, port, protocol=protocol, uid=uid, gid=gid, source=source, mark=question.mark)


def read_file(name: str) -> str:
    """The text of a file, or of stdin for -. OptionError, ParseError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"--pod: {quote_value(name)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ParseError(f"--pod: {name} is not text in UTF-8") from None


__all__ = [
    "DIRECTIONS",
    "Ground",
    "Question",
    "find_ground",
    "ground_options",
    "make_packet",
    "question_options",
    "read_file",
]
