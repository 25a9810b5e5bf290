"""The kernel's netlink messages about a pod, as recorded once, so that reading what a newer kernel would add is tested without one.

    python tests/recorded_messages.py    records them again; root, nft and tc are needed
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack, unpack_from
from typing import Self

from netinit.base.netlink_attributes import MalformedError, split_attributes, write_attribute
from netinit.base.snapshot import Snapshot, Unknown
from netinit.kernel import netlink, nf_tables
from netinit.kernel.snapshot import nf_tables_dump, reader

FILE = Path(__file__).parent / "unit" / "live" / "messages.json.gz"
FILTER = f"{reader.RTM_GETTFILTER}"
NFT_KINDS = (
    nf_tables.NFT_MSG_NEWTABLE, nf_tables.NFT_MSG_NEWCHAIN, nf_tables.NFT_MSG_NEWRULE, nf_tables.NFT_MSG_NEWSET, nf_tables.NFT_MSG_NEWOBJ,
    nf_tables.NFT_MSG_NEWFLOWTABLE,
)  # fmt: skip
ELEMENTS = str(nf_tables.NFT_MSG_NEWSETELEM)
# How many bytes precede the attributes
HEADERS = {
    **{str(kind): netlink.NETFILTER_SIZE for kind in (*NFT_KINDS, nf_tables.NFT_MSG_NEWSETELEM)},
    str(netlink.RTM_GETRULE): netlink.ROUTE_SIZE, str(netlink.RTM_GETROUTE): netlink.ROUTE_SIZE, FILTER: netlink.CONTROL_SIZE,
}  # fmt: skip
UNKNOWN_ATTRIBUTE = 0x2FFF  # which no kernel has
MAX_LISTED = 64  # what else the numbers of attributes are below
# Rules that change nothing, with expressions of every kind that is decoded; objects of every kind that this kernel has.
RULES = """
table inet f {
  counter c { }
  quota q { 100 mbytes }
  limit l { rate 400/minute }
  ct helper h { type "ftp" protocol tcp; l3proto ip; }
  ct timeout t { protocol tcp; policy = { established : 100 }; }
  ct expectation e { protocol tcp; dport 9876; timeout 2m; size 12; l3proto ip; }
  synproxy y { mss 1460; wscale 7; }
  set a { type ipv4_addr . inet_service; flags interval; elements = { 203.0.113.0/24 . 80-81 } }
  set k { type inet_service; counter; elements = { 80, 443 } }
  map m { type inet_service : verdict; elements = { 15001 : jump r, 81 : accept } }
  set d { type ipv4_addr; size 1000; flags dynamic,timeout; timeout 1m; }
  chain r { counter name "c"; }
  chain o {
    type filter hook output priority 10; policy accept;
    ip daddr . tcp dport @a counter
    tcp dport @k ct timeout set "t"
    tcp dport vmap @m  # behind the capture, so at the port of the proxy
    tcp dport 80-90 ct helper set "h"
    meta mark and 0xff != 7 log prefix "x" accept
    ct state new limit rate 5/second counter
    ip protocol tcp update @d { ip daddr limit rate 10/second }
    fib daddr type local counter
    meta random <= 5 tcp dport != 9 quota 10 mbytes counter
    socket transparent 1 counter
    jhash ip daddr mod 2 0 counter
    tcp option maxseg size 1460 counter accept
    numgen inc mod 1 0 counter
    rt mtu 1500 counter
    meta priority set 1:1
  }
}
table netdev n {
  chain i { type filter hook ingress device eth0 priority 0; policy accept; tcp dport 80 counter accept; }
}
"""
OTHERS = (
    "ip rule add from 10.77.0.0/16 ipproto tcp dport 80 lookup 254 priority 50",
    "ip -6 route add 2001:db8:9::/64 encap seg6 mode encap segs fd77::9 dev eth0",
    "ip route add 198.51.100.0/24 encap ip id 5 dst 10.77.0.9 dev eth0",
    "ip route add 198.51.101.0/24 nexthop encap ip id 5 dst 10.77.0.9 via 10.77.0.1 dev eth0 nexthop via 10.77.0.1 dev eth0",
    "tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress u32 match u32 0 0 action mirred egress mirror dev eth0",
)

Messages = dict[str, list[bytes]]


def read() -> Messages:
    """The messages by number; those of elements begin with the name of their set."""
    data = json.loads(gzip.decompress(FILE.read_bytes()))
    messages = {kind: [bytes.fromhex(one) for one in bodies] for kind, bodies in data["messages"].items()}
    hook = write_attribute(1, bytes(4)) + write_attribute(2, bytes(4)) + write_attribute(3, write_attribute(1, b"eth0\0"))
    flow_table = b"\1\0\0\0" + write_attribute(1, b"f\0") + write_attribute(2, b"w\0") + write_attribute(3, hook)
    messages[str(nf_tables.NFT_MSG_NEWFLOWTABLE)] = [flow_table]  # made by hand: the kernel that was recorded has none
    return messages


def with_unknown(data: bytes, offset: int) -> Iterator[bytes]:
    """The message once for each list of attributes in it, which has an unknown one at its end."""
    yield data + b"\0" * (-len(data) % 4) + write_attribute(UNKNOWN_ATTRIBUTE, b"\1\0\0\0")
    at = offset
    while at + netlink.HEADER <= len(data):
        length, kind = unpack_from("=HH", data, at)
        payload = data[at + netlink.HEADER : at + length]
        if _is_list(payload):
            for changed in with_unknown(payload, 0):
                whole = pack("=HH", netlink.HEADER + len(changed), kind) + changed
                yield data[:at] + whole + b"\0" * (-len(whole) % 4) + data[at + length + (-length % 4) :]
        at += length + 3 & ~3


def _is_list(payload: bytes) -> bool:
    try:
        found = split_attributes(payload)
    except MalformedError:
        return False
    return bool(found) and all(0 < kind < MAX_LISTED for kind, _ in found)


class Answers:
    """A netlink socket that answers from recorded messages."""

    messages: Messages

    def __init__(self, _: int) -> None:
        """Nothing to connect to."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def dump(self, kind: int, body: bytes, most: int = 0) -> list[bytes]:
        if kind == reader.RTM_GETTFILTER:
            return [one for one in self.messages[FILTER] if one[4:8] == body[4:8] and one[12:16] == body[12:16]]
        return self.messages[str(kind)]


def read_snapshot(messages: Messages, patch: Callable[..., None]) -> Snapshot:
    """What the reader makes of the messages; `patch` is monkeypatch's setattr."""

    class Recorded(Answers):
        pass

    Recorded.messages = messages
    for module in (nf_tables_dump, reader):
        patch(module, "Netlink", Recorded)
    patch(netlink, "read_nft_generation", lambda: 1)
    patch(nf_tables, "dump_objects", lambda _, __, kind, *___: messages[str(kind)])
    patch(nf_tables, "dump_elements", lambda _, table, name, __: [
        one for one in messages[ELEMENTS] if _of_set(one) == (table.rstrip(b"\0"), name.rstrip(b"\0"))
    ])  # fmt: skip
    patch(reader, "_read_settings", lambda _: ())
    unknown: list[Unknown] = []
    filtering = nf_tables_dump.read(unknown)
    return reader.read_host(unknown).replace(**filtering, unknown=tuple(unknown))


def _of_set(body: bytes) -> tuple[bytes, bytes]:
    found = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
    return found[1].rstrip(b"\0"), found[2].rstrip(b"\0")


def record() -> None:
    """Write down what this kernel says of a pod with rules of ours and all of the above."""
    from laboratory import Pod
    from netinit.options import Options
    from netinit.pods.apply import apply

    with Pod() as pod:
        with pod.entered():
            apply(Options.from_argv(("-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off", "--backend", "nftables"), {}), final=False)
        pod.run(["nft", "-f", "-"], stdin=RULES, check=True)
        for command in OTHERS:
            pod.run(["sh", "-ec", command], check=True)
        with pod.entered():
            messages = _dump()
    data = {"kernel": Path("/proc/sys/kernel/osrelease").read_text().split("-")[0], "messages": {
        kind: [body.hex() for body in bodies] for kind, bodies in messages.items()
    }}  # fmt: skip
    FILE.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))


def _dump() -> Messages:
    found: Messages = {}
    with netlink.Netlink(netlink.NETLINK_NETFILTER) as link:
        for kind in NFT_KINDS:
            found[str(kind)] = nf_tables.dump_objects(link, 0, kind)
    found[ELEMENTS] = []
    for body in found[str(nf_tables.NFT_MSG_NEWSET)]:
        attributes = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
        found[ELEMENTS] += nf_tables.dump_elements(body[0], attributes[1], attributes[2], 1 << 20)
    with netlink.Netlink(netlink.NETLINK_ROUTE) as link:
        sizes = {
            netlink.RTM_GETLINK: netlink.LINK_SIZE, netlink.RTM_GETADDR: netlink.ADDRESS_SIZE, netlink.RTM_GETRULE: netlink.ROUTE_SIZE,
            netlink.RTM_GETROUTE: netlink.ROUTE_SIZE, netlink.RTM_GETQDISC: netlink.CONTROL_SIZE,
        }  # fmt: skip
        for kind, size in sizes.items():
            found[str(kind)] = link.dump(kind, bytes(size))
        found[FILTER] = []
        for body in found[str(netlink.RTM_GETLINK)]:
            index = unpack_from("=i", body, 4)[0]
            for parent in (reader.INGRESS, reader.EGRESS):
                try:
                    found[FILTER] += link.dump(reader.RTM_GETTFILTER, pack("=BxxxiIII", 0, index, 0, parent, 0))
                except OSError:  # a device without such a qdisc
                    continue
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    record()
