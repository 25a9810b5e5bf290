"""Builds packets from user input: an endpoint, a direction, a user."""

from __future__ import annotations

from netinit.base.net import Family, join_host, number_of, text_of
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings

EPHEMERAL_PORT = 40000  # stands for the port the kernel would choose
CLIENT_PORTS = (32768, 60999)  # from which it chooses, unless net.ipv4.ip_local_port_range says otherwise
# A caller and a server where none is known, from the documentation ranges (RFC 5737, RFC 3849).
DEFAULT_CALLER = {4: "192.0.2.1", 6: "2001:db8:ffff::1"}
ELSEWHERE = {4: "198.51.100.7", 6: "2001:db8:ffff::7"}


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
