"""Connections by the thousand for the second oracle, from the same small world as the options."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from core import Options
from policy import Connection
from strategies import PORTS, USERS, made_ambient_options, made_options

CARD, NEIGHBOUR = "eth0", "eth1"
OWN = {4: ("10.77.0.2", "10.78.0.2"), 6: ("fd77::2", "fd78::2")}  # the pod's addresses on CARD and NEIGHBOUR
LOOPBACK = {4: ("127.0.0.1", "127.0.0.2", "127.0.0.6"), 6: ("::1", "::6")}
OUTSIDE = {
    4: ("198.51.100.7", "203.0.113.7", "203.0.113.200", "10.77.0.1"),
    6: ("2001:db8::7", "2001:db8:1::8", "fd77::1"),
}
BEHIND = {4: "10.78.0.1", 6: "fd78::1"}  # a VM behind the pod, on NEIGHBOUR


def made_connections(count: int, seed: int) -> list[Connection]:
    """Connections of the pod to somebody or to itself, and some that come in from a client or a VM."""
    random = Random(seed)
    return [_made_connection(random.choice) for _ in range(count)]


def _made_connection(one_of) -> Connection:
    version = one_of((4, 6))
    protocol, ports = one_of((("tcp", PORTS), ("tcp", (53, 80, 15008)), ("udp", (53, 53, 443))))
    port = one_of(ports)
    start = one_of(("pod", "pod", "pod", CARD, NEIGHBOUR))
    if start == CARD:
        return Connection(protocol, OUTSIDE[version][-1], one_of(OWN[version]), port, interface=CARD)
    if start == NEIGHBOUR:
        to = one_of(OWN[version] + OUTSIDE[version])
        return Connection(protocol, BEHIND[version], to, port, interface=NEIGHBOUR, passes=to in OUTSIDE[version])
    to = one_of(one_of((OUTSIDE[version], OWN[version], OWN[version], LOOPBACK[version])))
    uid, gid = one_of((*USERS, 1000)), one_of(USERS)
    if to in OUTSIDE[version]:
        return Connection(protocol, OWN[version][0], to, port, uid, gid, device=CARD)
    source = one_of((to, to, LOOPBACK[version][-1], LOOPBACK[version][0]))
    return Connection(protocol, source, to, port, uid, gid, device="lo")


@st.composite
def made_policies(draw: st.DrawFn) -> Options:
    """Options whose ports, too, are not always the defaults."""
    options = draw(made_options(interfaces=(NEIGHBOUR,)))
    others = {"outbound_port": 15002, "inbound_port": 15007}
    if options.layout != "classic":
        others |= {"tunnel_port": 8080, "loopback_cidr": "127.0.0.0/16"}
    return options.replace(**{field: other for field, other in others.items() if draw(st.integers(0, 3)) == 0})


@st.composite
def made_ambient_policies(draw: st.DrawFn) -> Options:
    """The same for the ambient layout."""
    options = draw(made_ambient_options(interfaces=(NEIGHBOUR,)))
    others = {"outbound_port": 15002, "inbound_port": 15007}
    return options.replace(**{field: other for field, other in others.items() if draw(st.integers(0, 3)) == 0})
