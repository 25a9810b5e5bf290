"""Builds packets from user input: an endpoint, a direction, a user."""

from __future__ import annotations

from collections.abc import Iterable

from netinit.base.errors import OptionError
from netinit.base.net import Family, Network, family_of, join_host, number_of, parse_address, text_of
from netinit.options.kinds import PORT, quote_value
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.model import Plan

EPHEMERAL_PORT = 40000  # stands for the port the kernel would choose
# A pod, a caller and a server where none is known, from the documentation ranges (RFC 5737, RFC 3849).
EXAMPLE_POD = {4: "192.0.2.10", 6: "2001:db8::10"}
DEFAULT_CALLER = {4: "192.0.2.1", 6: "2001:db8:ffff::1"}
ELSEWHERE = {4: "198.51.100.7", 6: "2001:db8:ffff::7"}


def stand_in(family: Family, addresses: Iterable[str] = (), plans: Iterable[Plan] = ()) -> Surroundings:
    """Surroundings of a pod of which at most the addresses are known, with those that `plans` add to its loopback device."""
    own = [("eth0", number_of(address)) for address in addresses or EXAMPLE_POD.values() if family_of(address) is family]
    added = {Network.parse(one.cidr).first: None for made in plans for one in made.addresses if one.family is family}
    return Surroundings(family=family, addresses=(*own, *[(LOOPBACK_DEVICE, address) for address in added]))


def format_endpoint(family: Family, address: int | None, port: int | None) -> str:
    """`10.1.2.3:443` or `[fd00::1]:443`; a question mark stands for an unknown address or port."""
    if address is None:
        return f"?:{port}" if port else "?"
    text = text_of(address, family)
    return join_host(text, port) if port else text


def format_packet(packet: Packet, *, source_port: int | None = None) -> str:
    """Format a packet in one line with everything that rules may match."""
    mark = f", mark {packet.mark}" if packet.mark else ""
    if packet.connection_mark:
        mark += f", connection mark {packet.connection_mark}"
    source = format_endpoint(packet.family, packet.source, source_port)
    target = format_endpoint(packet.family, packet.destination, packet.destination_port)
    ends = f"{packet.protocol.upper()} from {source} to {target}"
    if packet.in_interface:
        sender = f"coming in through {packet.in_interface}" + (" for an open socket" if packet.socket else "")
    else:
        sender = f"sent by uid {packet.uid}, gid {packet.gid}" if packet.has_socket else "sent by no socket"
    return f"{ends}, {sender}{_format_state(packet)}{mark}"


def format_example(packet: Packet, around: Surroundings, *, with_source_port: bool = False) -> str:
    """Format a packet in one line, with outgoing interface and source port if they are unusual, or asked for."""
    port = packet.source_port if with_source_port or packet.source_port != EPHEMERAL_PORT else None
    way = "" if packet.in_interface else around.leaving_interface(packet.destination, packet.mark)
    usual = way in ("", LOOPBACK_DEVICE, around.default_interface)
    return format_packet(packet, source_port=port) + ("" if usual else f", leaving through {way}")


def _format_state(packet: Packet) -> str:
    """Format the conntrack state of a packet that does not open a connection."""
    if not packet.state:
        return ""
    if packet.flags == BARE_SYN.flags:
        return f", a SYN on an old conntrack entry ({packet.state})"
    words = [f"in the state {packet.state}"]
    words += ["with FIN or RST"] * bool(packet.flags and {"FIN", "RST"} & {*packet.flags})
    words += ["an answer"] * bool(packet.is_answer) + ["of a translated connection"] * bool(packet.destination_translated)
    return f", {', '.join(words)}"


def parse_endpoint(text: str, label: str) -> tuple[str, int]:
    """Parse 10.1.2.3, 10.1.2.3:443, fd00::1 or [fd00::1]:443 into address and port (0: none).

    Raises OptionError, which names `label`.
    """
    address, port = text, ""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise OptionError(f"{label}: {quote_value(text)} is not an endpoint: use 10.1.2.3:443 or [fd00::1]:443")
        port = rest[1:]
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        return parse_address(address), PORT.read(port) if port else 0
    except ValueError as error:
        named = "; rules know no names: give its address (netinit kubectl explain knows those of Services)"
        hint = named if any(letter in "ghijklmnopqrstuvwxyz" for letter in address.lower()) else ""
        raise OptionError(f"{label}: {quote_value(text)} {error}; use 10.1.2.3:443 or [fd00::1]:443{hint}") from None


def make_outbound(
    surroundings: Surroundings, destination: str, port: int, *, protocol: str = "tcp", uid: int | None, gid: int | None,
    source: str = "", mark: int = 0, source_port: int = EPHEMERAL_PORT,
) -> Packet:  # fmt: skip
    """The first packet of a connection from a socket of this user; without `source`, the kernel chooses."""
    family = surroundings.family
    target = number_of(destination)
    if source:
        start: int | None = number_of(source)
    elif surroundings.is_local(target):
        own = {address for _, address in surroundings.addresses}
        start = target if target in own else number_of(family.loopback.partition("/")[0])
    else:
        start = surroundings.primary_address(surroundings.leaving_interface(target, 0))
    return Packet(
        family=family, protocol=protocol, source=start, source_port=source_port, destination=target, destination_port=port,
        has_socket=True, uid=uid, gid=gid, mark=mark,
    )  # fmt: skip


def make_inbound(
    surroundings: Surroundings, source: str, destination: str, port: int, *, protocol: str = "tcp", interface: str = "",
    source_port: int = EPHEMERAL_PORT,
) -> Packet:  # fmt: skip
    """The first packet of a connection from `source` (empty: an example), by default to the interface's own address."""
    source = source or DEFAULT_CALLER[surroundings.family.version]
    interface = interface or (LOOPBACK_DEVICE if surroundings.is_local(number_of(source)) else surroundings.default_interface)
    target = number_of(destination) if destination else surroundings.primary_address(interface)
    return Packet(
        family=surroundings.family, protocol=protocol, source=number_of(source), source_port=source_port,
        destination=target, destination_port=port, in_interface=interface,
    )  # fmt: skip
