"""What is said of where rules come from: who listens on the port that they leave to the proxy's tunnel."""

from __future__ import annotations

import pytest

from core import Options
from netinit.base.listeners import Listener, Listeners
from netinit.questions.rule_sources import _describe_tunnel_listener

LEFT = "port 15008 is left to the proxy's tunnel (HBONE): "


def listeners(*users, protocol="tcp", port=15008, unread=()):
    return Listeners(sockets=tuple([Listener(protocol=protocol, family=2, address=bytes(4), port=port, uid=uid) for uid in users]), unread=unread)


@pytest.mark.parametrize(
    ("found", "who"),
    [
        (None, "the kernel does not report who listens there"), (listeners(7, unread=(("tcp", "Forbidden"),)), "the kernel does not report who listens there"),
        (listeners(7, unread=(("udp", "Forbidden"),)), "user 7 listens there"), (listeners(1337), "user 1337 listens there"), (listeners(1337, 7, 7), "user 7, 1337 listens there"),
        (listeners(), "no process listens there now"), (listeners(7, port=15009), "no process listens there now"), (listeners(7, protocol="udp"), "no process listens there now"),
    ],
)  # fmt: skip
def test_who_listens_on_the_tunnel_s_port_is_said_where_rules_leave_it_alone(found, who):
    assert _describe_tunnel_listener(Options(inbound_ports="*"), found) == (LEFT + who,)
    for options in (Options(), Options(inbound_ports="*", tunnel_port=0)):
        assert _describe_tunnel_listener(options, found) == ()
