"""The connection in question, and its first packet. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from netinit.base.errors import OptionError
from netinit.base.net import IPV4, Family, family_of, number_of, parse_address
from netinit.base.sanitize import shorten
from netinit.options.command_line import read_value
from netinit.options.kinds import PORT, quote_value, read_gid, read_interface, read_uid
from netinit.questions.rule_sources import RuleSource
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.stand_ins import make_inbound

DIRECTIONS = ("outbound", "inbound")
APPLICATION = 1000  # the user who connects, if nobody is named
MAX_MARK = 2**32 - 1
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://(?:[^/?#]*@)?(\[[^\]/]+\]|[^/:?#@]+)(?::(\d+))?")
_PORTS_OF_SCHEMES = {
    "http": "80", "https": "443", "ws": "80", "wss": "443", "postgres": "5432", "postgresql": "5432", "mysql": "3306", "redis": "6379",
    "mongodb": "27017", "amqp": "5672", "amqps": "5671", "nats": "4222", "ldap": "389", "ldaps": "636", "ftp": "21",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A connection as it is asked about; its texts are validated when the packet is built."""

    direction: str | None = None
    to: str = ""
    source: str = ""
    to_port: str = ""
    udp: bool = False
    uid: str = ""
    gid: str = ""
    interface: str = ""
    mark: int = 0

    @property
    def names_an_end(self) -> bool:
        """Whether it names where the connection goes or comes from."""
        return bool(self.to or self.source)


def make_packet(question: Question, surroundings: Mapping[Family, Surroundings], *, is_dump: bool = False) -> Packet:
    """The first packet of the connection in question. Raises OptionError for missing or invalid values.

    `is_dump`: a family without surroundings is one that the dump does not have.
    """
    inbound = question.direction == "inbound" or (not question.direction and bool(question.source) and not question.uid)
    _refuse_options_of_other_direction(question, inbound=inbound)
    host, port = parse_endpoint(question.to, "--to") if question.to else ("", 0)
    source = read_value(question.source, parse_address, "--from") if question.source else ""
    named = read_value(question.to_port, PORT.read, "--to-port") if question.to_port else 0
    if port and named and port != named:
        raise OptionError(
            f"--to-port: {quote_value(question.to_port)} contradicts --to {quote_value(question.to)}; give one port"
        )
    port = port or named
    if not host and not inbound:
        raise OptionError("--to: the destination is missing; give --to ADDRESS:PORT, or --from for an inbound connection")
    if not port:
        start, _, end = host.rpartition(":")
        unclear = f"; is {end} the port? write [{start}]:{end}" if start else ""
        raise OptionError(f"--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT{unclear}")
    usual = IPV4 if IPV4 in surroundings else next(iter(surroundings), IPV4)
    family = family_of(host or source) if host or source else usual
    if host and source and family_of(source) is not family:
        raise OptionError(f"--from: {quote_value(source)} is not of the address family of {quote_value(host)}")
    around = surroundings.get(family)
    if around is None:
        there = " and ".join([one.name for one in surroundings])
        of_dump = f"the rules are those of {there} alone; give those of {family.name} too"
        raise OptionError(f"--to: {of_dump if is_dump else f'{family.name} is off in this namespace'}")
    protocol = "udp" if question.udp else "tcp"
    if inbound:
        interface = read_value(question.interface, read_interface, "--interface") if question.interface else ""
        if source and not interface:  # where the answers leave, which is where a strict rp_filter wants the connection
            interface = around.leaving_interface(number_of(source), question.mark)
        packet = make_inbound(around, source, host, port, protocol=protocol, interface=interface)
        if packet.destination is None:
            raise OptionError(f"--to: the pod has no {family.name} address on {packet.in_interface}; give --to or --pod-ip")
        return packet.replace(mark=question.mark)
    uid = read_value(question.uid, read_uid, "--uid") if question.uid else APPLICATION
    gid = read_value(question.gid, read_gid, "--gid") if question.gid else uid
    return make_outbound(around, host, port, protocol=protocol, uid=uid, gid=gid, source=source, mark=question.mark)


def _refuse_options_of_other_direction(question: Question, *, inbound: bool) -> None:
    owner = [name for name, value in (("--uid", question.uid), ("--gid", question.gid)) if value]
    if inbound and owner:
        raise OptionError(f"{owner[0]}: a connection that comes in has no sender in the pod; remove it, or give outbound")
    if not inbound and question.interface:
        raise OptionError("--interface: is where a connection comes in; remove it, or give inbound")


def make_packets(question: Question, rule_source: RuleSource) -> list[tuple[tuple[str, ...], Packet]]:
    """The packets in question with their containers: one for each user of --pod unless --uid or --gid is given."""
    packet = make_packet(question, rule_source.rules.surroundings, is_dump=rule_source.rules.snapshot is None)
    if packet.in_interface or question.uid or question.gid or not (rule_source.facts and rule_source.facts.users):
        return [((), packet)]
    senders: dict[tuple[int, int], list[str]] = {}
    for user in rule_source.facts.users:
        uid = APPLICATION if user.uid is None else user.uid
        senders.setdefault((uid, uid if user.gid is None else user.gid), []).append(user.container)
    return [(tuple(names), packet.replace(uid=uid, gid=gid)) for (uid, gid), names in senders.items()]


def refuse_url(text: str, label: str) -> None:
    """Refuse a URL, and name its host and port; not the whole, which may hold a password. Raises OptionError."""
    if found := _URL.match(text):
        port = found[3] or _PORTS_OF_SCHEMES.get(found[1].lower(), "PORT")
        raise OptionError(f"{label}: it is a URL; give its host and port: {shorten(found[2])}:{port}")


def unbracket(host: str, label: str) -> str:
    """The host without the brackets of an IPv6 address. Raises OptionError for brackets around anything else."""
    if not host.startswith("["):
        return host
    try:
        return parse_address(host[1:-1]) if host.endswith("]") else parse_address("")
    except ValueError:
        zone = "; an address has no zone here, leave out what begins with %" if "%" in host else ""
        raise OptionError(
            f"{label}: {quote_value(host)} is not an address in brackets; write [fd00::1]:443, or a name without brackets{zone}"
        ) from None


def parse_endpoint(text: str, label: str) -> tuple[str, int]:
    """Parse 10.1.2.3, 10.1.2.3:443, fd00::1 or [fd00::1]:443 into address and port (0: none).

    Raises OptionError, which names `label`.
    """
    refuse_url(text, label)
    address, port = text, ""
    if text.startswith("["):
        inside, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise OptionError(f"{label}: {quote_value(text)} is not an endpoint: use 10.1.2.3:443 or [fd00::1]:443")
        address, port = unbracket(f"{inside}]", label), rest[1:]
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        return parse_address(address), PORT.read(port) if port else 0
    except ValueError as error:
        named = "; rules know no names: give its address (netinit kubectl explain knows those of Services)"
        hint = named if any(letter in "ghijklmnopqrstuvwxyz" for letter in address.lower()) else ""
        raise OptionError(f"{label}: {quote_value(text)} {error}; use 10.1.2.3:443 or [fd00::1]:443{hint}") from None
