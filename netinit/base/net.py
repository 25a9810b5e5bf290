"""Address families, addresses, networks, ports and intervals.

Only this module converts addresses between text and number. Text is in the kernel's format (inet_ntop(3)).
"""

from __future__ import annotations

# A builtin; `socket` would cost 5 ms at every pod start.
from _socket import AF_INET, AF_INET6, inet_ntoa, inet_ntop, inet_pton

from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_PORT = 65535
FULL_MASK = 0xFFFFFFFF  # all bits of a firewall mark
Interval = tuple[int, int]  # lowest and highest address, both included


class HostAddress(Record):
    """An address: family (AF_INET, AF_INET6), text, prefix length, the interface's index and RT_SCOPE_*."""

    family: int
    address: str
    length: int
    index: int
    scope: int = 0


class Family(Record):
    """An address family and its names."""

    name: str  # as in messages: IPv4, IPv6
    version: int  # 4 or 6
    bits: int  # of an address
    number: int  # AF_INET, AF_INET6
    program: str  # the prefix of the iptables programs
    nft: str  # nft's keyword for addresses of the family
    loopback: str  # traffic to it never leaves the pod
    passthrough: str  # the proxy's source address for connections that it passes to the application
    any_address: str

    @property
    def passthrough_address(self) -> str:
        """The proxy's source address, without a prefix length."""
        return self.passthrough.partition("/")[0]

    @property
    def loopback_network(self) -> Network:
        """Addresses that the kernel accepts only from lo."""
        return Network.parse(self.loopback if self.version == 6 else "127.0.0.0/8")  # noqa: PLR2004

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Family) and self.version == other.version  # there are two; comparing all fields is slow

    def __hash__(self) -> int:
        return self.version

    def __repr__(self) -> str:
        return self.name


IPV4 = Family(
    name="IPv4", version=4, bits=32, number=int(AF_INET), program="iptables", nft="ip", loopback="127.0.0.1/32",
    passthrough="127.0.0.6/32", any_address="0.0.0.0",  # noqa: S104 - how the TPROXY target is listed, nothing is bound
)  # fmt: skip
IPV6 = Family(
    name="IPv6", version=6, bits=128, number=int(AF_INET6), program="ip6tables", nft="ip6", loopback="::1/128",
    passthrough="::6/128", any_address="::",
)  # fmt: skip
FAMILIES = (IPV4, IPV6)
_HOST_BITS = [(1 << number) - 1 for number in range(IPV6.bits + 1)]  # by their number: a list may have ten thousand networks
_lengths: dict[str, int] = {}  # cache: ten thousand networks have few different prefix lengths


def family_of(address: str) -> Family:
    """The family of an address's text."""
    return IPV6 if ":" in address else IPV4


def parse_address(text: str) -> str:
    """The address in the kernel's format. Raises ValueError if `text` is not an IP address."""
    try:
        return text_of(number_of(text), family_of(text))
    except (OSError, ValueError):  # NUL bytes are ValueErrors
        raise ValueError("is not an IP address") from None


def read_addresses(texts: Iterable[str]) -> Iterator[str]:
    """Those of the texts that are IP addresses, in the kernel's format."""
    for text in texts:
        try:
            yield parse_address(text)
        except ValueError:
            continue


def number_of(address: str) -> int:
    """The address as a number. Raises OSError or ValueError if it is not an IP address."""
    return int.from_bytes(inet_pton(family_of(address).number, address), "big")


def text_of(number: int, family: Family) -> str:
    """The text of an address."""
    return inet_ntop(family.number, number.to_bytes(family.bits // 8, "big"))


def join_host(host: str, port: int | str) -> str:
    """Return `10.1.2.3:443` or `[fd00::1]:443`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Network(tuple[int, int, int]):
    """A network (CIDR) without host bits: IP version, address as a number, prefix length.

    A tuple for speed: a pod's start may parse ten thousand.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse `address/length`, clearing host bits. Raises ValueError if either part is invalid."""
        address, slash, length = text.partition("/")
        if not slash:
            raise ValueError("has no prefix length; write it as a CIDR, for example 10.0.0.0/8")
        family = IPV6 if ":" in address else IPV4
        try:
            number = int.from_bytes(inet_pton(family.number, address), "big")
        except (OSError, ValueError):
            raise ValueError(f"is not an {family.name} network") from None
        bits = _lengths.get(length)
        if bits is None or bits > family.bits:
            bits = _lengths[length] = _read_length(length, family)
        free = family.bits - bits
        return cls((family.version, number >> free << free, bits))

    @property
    def family(self) -> Family:
        """IPv4 or IPv6."""
        return IPV4 if self[0] == 4 else IPV6  # noqa: PLR2004 - the version's number is its name

    @property
    def length(self) -> int:
        """The prefix length in bits."""
        return self[2]

    @property
    def first(self) -> int:
        """The lowest address of the network, as a number."""
        return self[1]

    @property
    def last(self) -> int:
        """The highest address of the network, as a number."""
        return self[1] | ((1 << self.family.bits - self[2]) - 1)

    @property
    def text(self) -> str:
        """The network as the kernel lists it: shortest address, slash, length."""
        return f"{text_of(self[1], self.family)}/{self[2]}"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Network({self.text})"


def _read_length(text: str, family: Family) -> int:
    """Parse a prefix length of the family. Raises ValueError."""
    length = int(text) if text.isdigit() and text.isascii() and len(text) < 4 else -1  # noqa: PLR2004
    if not 0 <= length <= family.bits:
        raise ValueError(f"has a prefix length that is not a number from 0 to {family.bits}")
    if text[0] == "0" != text:
        raise ValueError("has a prefix length with a leading zero")
    return length


class PortRange(tuple[int, int]):
    """A range of ports: the first and the last."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self[0]}-{self[1]}"

    def __repr__(self) -> str:
        return f"PortRange({self})"


Ports = tuple[int | PortRange, ...]


def bounds_of(port: int | tuple[int, int]) -> tuple[int, int]:
    """The first and last port of a port or range."""
    return port if isinstance(port, tuple) else (port, port)


def join_ranges(ranges: Iterable[Interval]) -> list[Interval]:
    """Merge ranges, given in ascending order, that touch or overlap."""
    joined: list[Interval] = []
    end = -2  # of the last range
    for one in ranges:
        if one[0] > end + 1:
            joined.append(one)
        elif one[1] > end:
            joined[-1] = (joined[-1][0], one[1])
        else:
            continue
        end = one[1]
    return joined


def lists_port(ports: Iterable[int | tuple[int, int]], port: int) -> bool:
    """Whether a list of ports and ranges contains a port."""
    return any(low <= port <= high for low, high in map(bounds_of, ports))


def merge_ports(ports: Ports) -> Ports:
    """Merge ranges that overlap or touch, and ports within them; a result takes the place of its first part."""
    ranges = [port for port in ports if isinstance(port, PortRange)]
    if not ranges:
        return tuple(dict.fromkeys(ports))
    from bisect import bisect_right

    merged = [PortRange(one) for one in join_ranges(sorted(ranges))]
    kept: dict[int | PortRange, None] = {}
    for port in ports:
        first = port[0] if isinstance(port, PortRange) else port
        place = bisect_right(merged, (first, MAX_PORT)) - 1
        inside = place >= 0 and first <= merged[place][1]
        kept[merged[place] if inside else port] = None
    return tuple(kept)


def find_common_ports(one: Iterable[int | PortRange], other: Iterable[int | PortRange]) -> list[int | PortRange]:
    """The ports in both lists, ascending."""
    ours, theirs = [join_ranges(sorted(map(bounds_of, ports)))[::-1] for ports in (one, other)]
    found: list[int | PortRange] = []
    while ours and theirs:
        lowest, highest = max(ours[-1][0], theirs[-1][0]), min(ours[-1][1], theirs[-1][1])
        if lowest <= highest:
            found.append(lowest if lowest == highest else PortRange((lowest, highest)))
        (ours if ours[-1][1] == highest else theirs).pop()
    return found


def covers(wide: Network, narrow: Network) -> bool:
    """Whether every address of `narrow` is in `wide`."""
    return wide[0] == narrow[0] and wide.first <= narrow.first and narrow.last <= wide.last


def merge_networks(networks: Iterable[Network], family: Family) -> list[Interval]:
    """Merge networks of one family into ascending intervals that do not touch: nft refuses overlapping elements of a set."""
    bits = family.bits
    return join_ranges(sorted([(first, first | _HOST_BITS[bits - length]) for _, first, length in networks]))


def split_range(first: int, last: int, family: Family) -> tuple[Network, ...]:
    """The fewest networks that cover exactly the addresses from `first` to `last`."""
    found = []
    while first <= last:
        aligned = (first & -first).bit_length() - 1 if first else family.bits
        free = min(aligned, (last - first + 1).bit_length() - 1)
        found.append(Network((family.version, first, family.bits - free)))
        first += 1 << free
    return tuple(found)


def format_intervals(intervals: Iterable[Interval], family: Family) -> list[str]:
    """Format intervals as nft does: an address, a network if it equals the interval, else two addresses."""
    texts = []
    size = family.bits // 8
    # For IPv4 both give the same, inet_ntoa in a third of the time.
    to_text = inet_ntoa if family is IPV4 else lambda packed: inet_ntop(AF_INET6, packed)
    ends = {0: ""}  # number of addresses after the first -> prefix length of the network; empty if there is none
    for low, high in intervals:
        more = high - low
        end = ends.get(more)
        if end is None:
            end = ends[more] = "" if more & more + 1 else f"/{family.bits - more.bit_length()}"
        text = to_text(low.to_bytes(size, "big"))
        is_network = not low & more and (end or not more)
        texts.append(text + end if is_network else f"{text}-{text_of(high, family)}")
    return texts


def is_named(interface: str, names: Iterable[str]) -> bool:
    """Whether the interface has one of the names (`+` at the end: a prefix)."""
    return any(interface.startswith(name[:-1]) if name.endswith("+") else interface == name for name in names)


def names_more(wide: str, narrow: str) -> bool:
    """Whether every interface of the name or prefix `narrow` is one of `wide` too."""
    return narrow.removesuffix("+").startswith(wide[:-1]) if wide.endswith("+") else wide == narrow
