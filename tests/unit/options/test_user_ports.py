"""Exceptions by user and port: what is read, in which form it is kept, what is refused and why."""

from __future__ import annotations

import pytest

from netinit.base.net import PortRange
from netinit.options import Options
from netinit.options.interception import PORTS_OF_GIDS, PORTS_OF_UIDS
from netinit.options.user_ports import PortsOfUsers, find_same
from sweeps import together


def item(protocol, ports, first, last=None):
    return PortsOfUsers(protocol=protocol, ports=ports, first=first, last=first if last is None else last)


@together(
    ("text", "items"),
    [
        ("", ()),
        ("tcp:22:1000", (item("tcp", (22,), 1000),)),
        ("tcp:22,80:1000-2000;udp:53:3000", (item("tcp", (22, 80), 1000, 2000), item("udp", (53,), 3000))),
        ("udp:53,8000-8100:7", (item("udp", (53, PortRange((8000, 8100))), 7),)),
        ("53:7", (item("tcp", (53,), 7), item("udp", (53,), 7))),
        ("*:53:7", (item("tcp", (53,), 7), item("udp", (53,), 7))),
        (":53:7", (item("tcp", (53,), 7), item("udp", (53,), 7))),
        ("7", (item("tcp", (), 7), item("udp", (), 7))),
        ("tcp:*:1-3,9", (item("tcp", (), 1, 3), item("tcp", (), 9))),
        ("tcp:0-65535:1", (item("tcp", (), 1),)),
        ("tcp:80:1;tcp:22:1;tcp:70-90:1", (item("tcp", (PortRange((70, 90)), 22), 1),)),
        ("tcp:*:1;tcp:22:1", (item("tcp", (), 1),)),
        ("tcp:22:1;tcp:*:1", (item("tcp", (), 1),)),
        (" tcp : 22 : 1 ; ", (item("tcp", (22,), 1),)),
        ("tcp:22:root", (item("tcp", (22,), 0),)),
        ("tcp:22:5-5", (item("tcp", (22,), 5),)),
    ],
)
def test_a_list_is_read_into_one_item_for_each_protocol_and_span_of_users(text, items):
    assert PORTS_OF_UIDS.read(text) == items
    assert PORTS_OF_GIDS.read(text) == items
    assert PORTS_OF_UIDS.read(PORTS_OF_UIDS.write(items)) == items


@together(
    ("text", "why"),
    [
        ("icmp:22:1", "begins with neither tcp nor udp nor *"),
        ("tcp:22:1:2", "has more than three parts"),
        ("tcp:22:", "names no user"),
        ("tcp::1", "names no ports; all are written as *"),
        ("tcp:90-80:1", "is an empty range of ports"),
        ("tcp:22:*", "means every user: exclude the ports themselves"),
        ("tcp:22:9-1", "names an empty range of users: write 1-9"),
        ("tcp:22:1-4294967295", "is not a user id"),
        ("tcp:22:1-", "holds '1-', which is not a range of users"),
        ("tcp:22:-1", "holds '-1', which is not a range of users"),
        ("tcp:22:nobody-here", "holds 'nobody-here', which is not a user here"),
        ("tcp:x:3", "holds 'x', which is not a port"),
        ("nobody-here", "is not a user here"),
    ],
)
def test_what_is_no_such_list_is_refused_with_the_reason(text, why):
    with pytest.raises(ValueError) as caught:
        PORTS_OF_UIDS.read(text)
    assert why in str(caught.value)


def test_lists_are_the_same_in_whatever_order_their_ports_stand():
    one, other = PORTS_OF_UIDS.read("tcp:22,80:1;udp:53:2"), PORTS_OF_UIDS.read("udp:53:2;tcp:80,22:1")
    assert one != other
    assert find_same(one) == find_same(other) != find_same(PORTS_OF_UIDS.read("tcp:22:1;udp:53:2"))


def test_options_are_made_again_from_their_command_line():
    options = Options.from_argv(["--exclude-outbound-for-uids", "tcp:22,80-90:1000-2000;53:7", "--exclude-outbound-for-gids", "*:*:5"])
    assert Options.from_argv(options.to_argv()) == options
    assert Options(exclude_outbound_for_uids="tcp:22:1").exclude_outbound_for_uids == (item("tcp", (22,), 1),)


def test_every_wrong_item_is_named_with_its_own_reason():
    with pytest.raises(ValueError) as caught:
        PORTS_OF_UIDS.read("tcp:22:1000;udp:x:3;icmp:1:2;tcp:3:4-1")
    told = str(caught.value)
    for part in ("'udp:x:3', which holds 'x', which is not a port", "'icmp:1:2', which begins with", "'tcp:3:4-1', which names an empty"):
        assert part in told
    assert "tcp:22:1000" not in told.replace("such as tcp:22,80:1000-2000", "")
