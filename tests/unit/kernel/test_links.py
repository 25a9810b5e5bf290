"""The requests that create devices, addresses and neighbours are those of another program that encodes netlink."""

from __future__ import annotations

import struct

import pytest
from pyroute2 import IPBatch
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from netinit.kernel import links

HERE, THERE = "02:00:00:00:00:01", "02:00:00:00:00:02"


class RecordedLinks(links.Links):
    """Writes requests down in place of sending them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []

    def request(self, kind: int, flags: int, body: bytes) -> None:
        self.sent.append((kind, flags, body))


def recorded(method, *arguments):
    """Kind, flags and body of the request of a method."""
    made = RecordedLinks()
    getattr(made, method)(*arguments)
    (sent,) = made.sent
    return sent


def encoded(subject, **fields):
    """The request of `ip SUBJECT add` as pyroute2 encodes it."""
    with IPBatch() as batch:
        getattr(batch, subject)("add", **fields)
        message = bytes(batch.batch)
    _, kind, flags = struct.unpack_from("=IHH", message)
    return kind, flags & ~0x5, message[16:]  # without NLM_F_REQUEST and NLM_F_ACK, which every request has


def decoded(kind, body):
    """What pyroute2 reads in the body of a request: the struct's fields, and the attributes in any order."""
    message = {16: ifinfmsg, 20: ifaddrmsg, 28: ndmsg}[kind](struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body)
    message.decode()
    return shown(message)


def shown(value):
    if isinstance(value, dict):
        own = {name: shown(one) for name, one in value.items() if name not in {"attrs", "header", "value"}}
        return own | {str(name): shown(one) for name, one in value.get("attrs", ()) if one != {}}
    return value


@pytest.mark.parametrize(("address", "length"), [("10.0.0.1", 24), ("fd00::1", 64), ("192.0.2.202", 30)])
def test_an_address(address, length):
    kind, flags, body = recorded("add_address", 3, address, length)
    wanted = encoded("addr", index=3, address=address, prefixlen=length, flags=0x02 if ":" in address else 0)
    assert (kind, flags) == wanted[:2]
    ours, theirs = decoded(kind, body), decoded(kind, wanted[2])
    assert ours.pop("IFA_LOCAL") == ours["IFA_ADDRESS"]  # the kernel takes one for the other
    theirs.pop("IFA_LOCAL", None)
    assert ours == theirs | {"flags": theirs.pop("IFA_FLAGS", theirs["flags"])}  # flags, in an attribute of 32 bits there


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"])
def test_a_neighbour(address):
    kind, flags, body = recorded("add_neighbour", 7, address, HERE)
    assert (kind, flags, decoded(kind, body)) == read(encoded("neigh", ifindex=7, dst=address, lladdr=HERE, state=0x80))


def read(request):
    kind, flags, body = request
    return kind, flags, decoded(kind, body)


@pytest.mark.parametrize("hardware", [("", ""), (HERE, THERE)], ids=["the kernel's addresses", "given addresses"])
def test_a_veth_pair(hardware):
    kind, flags, body = recorded("add_veth", "ab", "eth0", 9, hardware)
    ours, theirs = [{"address": one} if one else {} for one in hardware]
    wanted = encoded("link", ifname="ab", kind="veth", peer={"ifname": "eth0", "net_ns_fd": 9, **theirs}, **ours)
    assert (kind, flags, decoded(kind, body)) == read(wanted)
