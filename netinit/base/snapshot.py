"""A snapshot: everything in a network namespace that affects packets, as one immutable value.

netinit.kernel.snapshot reads it; netinit.rules decodes expressions and legacy entries, which stay bytes here. What
could not be read is an Unknown, never left out.
"""

from __future__ import annotations

from netinit.base.net import HostAddress
from netinit.base.netlink_attributes import NftChain as NftChain  # noqa: PLC0414 - a part of snapshots too
from netinit.base.records import Record
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, quote, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.listeners import Listeners
# Families of nf_tables: NFPROTO_* of linux/netfilter.h
INET, IP, ARP, NETDEV, BRIDGE, IP6 = 1, 2, 3, 5, 7, 10
FAMILY_NAMES = {INET: "inet", IP: "ip", ARP: "arp", NETDEV: "netdev", BRIDGE: "bridge", IP6: "ip6"}
# NFT_TABLE_F_*, NFT_SET_* and NFT_SET_ELEM_* of linux/netfilter/nf_tables.h
DORMANT, OWNED = 1, 2  # OWNED: the table ends with the socket that created it (NFT_TABLE_F_OWNER)
SET_ANONYMOUS, SET_CONSTANT, SET_INTERVAL, SET_MAP, SET_DYNAMIC = 1, 2, 4, 8, 32  # SET_DYNAMIC: packets add elements (NFT_SET_EVAL)
ELEMENT_INTERVAL_END, ELEMENT_CATCHALL = 1, 2
IFF_UP, IFF_LOOPBACK = 1, 8  # linux/if.h


EINTR, EFBIG, EMSGSIZE = 4, 27, 90


def explain_unread(error: OSError) -> str:
    """Why a snapshot could not be read: our own limits are not the kernel's refusal."""
    if error.errno in (EFBIG, EMSGSIZE):
        return "there is more here that affects packets than netinit reads; delete what fills it (nft list ruleset, ip route)"
    if error.errno == EINTR:
        return "what affects packets here changes faster than it can be read; try again"
    return f"the kernel does not report what affects packets here: {error.strerror or error}"


class Unknown(Record):
    """Something that could not be read, and why.

    `is_forbidden`: not permitted, so it may not exist at all; `may_capture`: nor is it known, then, that nothing captures packets.
    """

    place: str
    reason: str
    is_forbidden: bool = False
    may_capture: bool = False


class NftTable(Record):
    """A table of nf_tables. `flags`: DORMANT and others; `handle` increases with each table created; `userdata`: comments."""

    family: int
    name: str
    flags: int = 0
    handle: int = 0
    userdata: bytes = b""

    def __str__(self) -> str:
        return f"{FAMILY_NAMES.get(self.family, self.family)} {self.name}"


class NftRule(Record):
    """A rule: the payload of NFTA_RULE_EXPRESSIONS, and `userdata` (comments) of the program that made it."""

    family: int
    table: str
    chain: str
    handle: int = 0
    expressions: bytes = b""
    userdata: bytes = b""


class NftElement(Record):
    """An element of a set or map: key, end of its interval if any, and a map's value or NFTA_DATA_VERDICT.

    `is_conditional`: it has a limit, a quota or the like, so that a lookup may not find it.
    """

    key: bytes
    key_end: bytes = b""
    value: bytes = b""
    verdict: bytes = b""
    flags: int = 0
    is_conditional: bool = False


class NftSet(Record):
    """A set or map. `is_complete` is False if elements are left out, as too many or unreadable, or are conditional."""

    family: int
    table: str
    name: str
    flags: int = 0
    key_type: int = 0
    key_length: int = 0
    elements: tuple[NftElement, ...] = ()
    is_complete: bool = True


class AddressSetElement(Record):
    """An element of a set of ipset(8), with what its type has of these: up to two networks, protocol and port, device, member.

    Addresses are as in packets; a `length` of -1 is the whole address.
    """

    address: bytes = b""
    length: int = -1
    second: bytes = b""
    second_length: int = -1
    protocol: int = 0
    port: int = 0
    device: str = ""
    member: str = ""  # of a list: the name of another set


class AddressSet(Record):
    """A set of ipset(8) that is not netinit's; `family`: AF_* of its addresses, 0 without any.

    `is_complete` is False if elements are left out, as too many or of properties that netinit does not know.
    """

    number: int
    name: str
    kind: str = ""
    family: int = 0
    elements: tuple[AddressSetElement, ...] = ()
    is_complete: bool = True


class NftObject(Record):
    """A named object (counter, quota, ...) by its NFT_OBJECT_* number, or a flow table; `devices` are names or prefixes of names."""

    family: int
    table: str
    name: str
    kind: str
    priority: int = 0
    devices: tuple[str, ...] = ()


class LegacyTable(Record):
    """A table of legacy iptables: offsets of its hooks' first entries, and the entries as bytes."""

    version: int  # 4 or 6
    name: str
    valid_hooks: int
    hook_entries: tuple[int, ...]
    entries: bytes


class Device(Record):
    """A network device. `kind` is empty for hardware and lo. `xdp` is the attached program's number, or 0."""

    index: int
    name: str
    flags: int = 0
    kind: str = ""
    xdp: int = 0


class TrafficControl(Record):
    """A queueing discipline or filter of tc(8); `what` is qdisc or filter. `index`: that of the device that was asked."""

    what: str
    index: int
    kind: str
    parent: int = 0
    handle: int = 0


class RoutingRule(Record):
    """A policy rule; empty or None matches anything. `others` are unsupported attributes, and `unnamed` those of unknown meaning."""

    family: int
    priority: int = 0
    action: int = 0  # FR_ACT_*: 1 look up a table, 6 blackhole, ...
    table: int = 0
    source: tuple[int, int] | None = None  # address and prefix length
    destination: tuple[int, int] | None = None
    tos: int = 0
    mark: int = 0
    mask: int = 0
    in_interface: str = ""
    out_interface: str = ""
    users: tuple[int, int] | None = None
    is_inverted: bool = False
    is_l3mdev: bool = False
    goes_to: int = 0
    suppresses_length: int = -1
    protocol: int = 0  # its origin
    ip_protocol: int = 0
    source_ports: tuple[int, int] | None = None
    destination_ports: tuple[int, int] | None = None
    others: tuple[int, ...] = ()
    unnamed: tuple[int, ...] = ()


class TableRoute(Record):
    """A route of any table. `kind` is RTN_*: 1 unicast, 2 local, 3 broadcast, 6 blackhole, 7 unreachable, 8 prohibit.

    `encapsulations`: LWTUNNEL_ENCAP_* of its nexthops; a program or a header of segment routing may be among them.
    """

    family: int
    table: int
    kind: int
    destination: tuple[int, int]
    source: tuple[int, int] = (0, 0)
    tos: int = 0
    scope: int = 0
    protocol: int = 0
    metric: int = 0
    hops: tuple[int, ...] = ()  # the device of each nexthop
    encapsulations: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


class AttachedProgram(Record):
    """A BPF program attached to the namespace, a device, or a cgroup of its processes.

    `is_of_node`: attached to the topmost cgroup, so it acts on every process of the node.
    """

    where: str
    number: int
    name: str = ""
    is_of_node: bool = False

    def __str__(self) -> str:
        name = f" {quote(self.name)}" if self.name else ""
        return escape(f"program {self.number}{name} ({shorten(self.where, MAX_RULE_LENGTH)})")


class Snapshot(Record):
    """The state that was read. `generation` is nf_tables' generation id; `unknown` lists what was not readable."""

    generation: int = 0
    tables: tuple[NftTable, ...] = ()
    chains: tuple[NftChain, ...] = ()
    rules: tuple[NftRule, ...] = ()
    sets: tuple[NftSet, ...] = ()
    objects: tuple[NftObject, ...] = ()
    legacy: tuple[LegacyTable, ...] = ()
    links: tuple[Device, ...] = ()
    addresses: tuple[HostAddress, ...] = ()
    traffic_control: tuple[TrafficControl, ...] = ()
    routing_rules: tuple[RoutingRule, ...] = ()
    routes: tuple[TableRoute, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()  # sysctl by its path below /proc/sys/net
    programs: tuple[AttachedProgram, ...] = ()
    transforms: int = 0  # number of IPsec policies (xfrm)
    address_sets: tuple[tuple[int, str], ...] = ()  # ids that rules use, and names (ipset(8))
    foreign_sets: tuple[AddressSet, ...] = ()  # their contents, as far as they are read
    listeners: Listeners | None = None  # None: not asked for
    unknown: tuple[Unknown, ...] = ()

    def name_of(self, index: int) -> str:
        """The name of the device with this index, or ""."""
        return next((link.name for link in self.links if link.index == index), "")

    def setting(self, path: str) -> str:
        """The value of a sysctl, or "" if the kernel has none."""
        return dict(self.settings).get(path, "")
