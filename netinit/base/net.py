"""Address families, addresses, networks, ports and intervals.

Only this module converts addresses between text and number. It asks no operating system, so an answer is the same
everywhere: inet_pton(3) and the numbers of families are those of Linux. Text is in the kernel's format (inet_ntop(3)).
"""

from __future__ import annotations

from _struct import unpack  # a builtin; `struct` would add a file to every pod start

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
    number: int  # AF_INET, AF_INET6 of Linux
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
    name="IPv4", version=4, bits=32, number=2, program="iptables", nft="ip", loopback="127.0.0.1/32",
    passthrough="127.0.0.6/32", any_address="0.0.0.0",  # noqa: S104 - how the TPROXY target is listed, nothing is bound
)  # fmt: skip
IPV6 = Family(
    name="IPv6", version=6, bits=128, number=10, program="ip6tables", nft="ip6", loopback="::1/128",
    passthrough="::6/128", any_address="::",
)  # fmt: skip
FAMILIES = (IPV4, IPV6)
_OCTETS = {str(number): number for number in range(256)}
_MAPPED = 0xFFFF  # the upper bits of an IPv4 address as one of IPv6
_GROUPS = 8  # of an IPv6 address
_GROUP = 4  # hexadecimal digits of an IPv6 address between two colons, at most
_HOST_BITS = [(1 << number) - 1 for number in range(IPV6.bits + 1)]  # by their number: a list may have ten thousand networks
_lengths: dict[str, int] = {}  # cache: ten thousand networks have few different prefix lengths


def family_of(address: str) -> Family:
    """The family of an address's text."""
    return IPV6 if ":" in address else IPV4


def parse_address(text: str) -> str:
    """The address in the kernel's format. Raises ValueError if `text` is not an IP address."""
    try:
        return text_of(number_of(text), family_of(text))
    except ValueError:
        raise ValueError("is not an IP address") from None


def read_addresses(texts: Iterable[str]) -> Iterator[str]:
    """Those of the texts that are IP addresses, in the kernel's format."""
    for text in texts:
        try:
            yield parse_address(text)
        except ValueError:
            continue


def number_of(address: str) -> int:
    """The address as a number. Raises ValueError if it is not an IP address."""
    return _read_ipv6(address) if ":" in address else _read_ipv4(address)


def _read_ipv4(text: str) -> int:
    """An IPv4 address as a number: four decimal numbers without leading zeros. Raises ValueError."""
    try:
        first, second, third, fourth = text.split(".")
        return _OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[fourth]
    except KeyError:
        raise ValueError("is not an IPv4 address") from None


def _read_ipv6(text: str) -> int:
    """An IPv6 address as a number: RFC 4291, 2.2, with `::` for at least one group. Raises ValueError."""
    digits = text
    if "." in text:
        head, colon, tail = text.rpartition(":")
        number = _read_ipv4(tail)
        digits = f"{head}{colon}{number >> 16:x}:{number & 0xFFFF:x}"
    if "::" in digits:
        missing = _GROUPS - digits.count(":") + digits.startswith("::") + digits.endswith("::")
        if missing < 1:
            raise ValueError("is not an IPv6 address")
        digits = digits.replace("::", ":0" * missing + ":", 1).removeprefix(":" * digits.startswith("::"))
        digits = digits.removesuffix(":" * text.endswith("::"))
    groups = digits.split(":")
    # fromhex() takes digits of hexadecimal numbers alone, and blanks, which are no alphanumerics.
    padded = "".join([group.zfill(_GROUP) for group in groups])
    if len(groups) != _GROUPS or len(padded) != _GROUPS * _GROUP or "" in groups or not padded.isalnum():
        raise ValueError("is not an IPv6 address")
    return int.from_bytes(bytes.fromhex(padded), "big")


def text_of(number: int, family: Family) -> str:
    """The text of an address."""
    if family.version == 4:  # noqa: PLR2004 - the version's number is its name
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return _ipv6_text(number)


def _ipv6_text(number: int) -> str:
    """The text of an IPv6 address: `::` for the first of the longest rows of zero groups, IPv4 where the kernel writes it."""
    if number < 1 << 48 and (number >> 32 == _MAPPED or number >> 32 == 0 != number >> 16):
        return ("::ffff:" if number >> 32 else "::") + text_of(number & 0xFFFFFFFF, IPV4)
    text = ":%x:%x:%x:%x:%x:%x:%x:%x:" % unpack("!8H", number.to_bytes(16, "big"))  # noqa: UP031 - twice as fast as an f-string
    if ":0:0:" in text:
        for length in range(_GROUPS, 1, -1):
            head, row, tail = text.partition(":0" * length + ":")
            if row:
                return f"{head[1:]}::{tail[:-1]}"
    return text[1:-1]


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
            number = _read_ipv6(address) if family is IPV6 else _read_ipv4(address)
        except ValueError:
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
    ends = {0: ""}  # number of addresses after the first -> prefix length of the network; empty if there is none
    for low, high in intervals:
        more = high - low
        end = ends.get(more)
        if end is None:
            end = ends[more] = "" if more & more + 1 else f"/{family.bits - more.bit_length()}"
        text = text_of(low, family)
        is_network = not low & more and (end or not more)
        texts.append(text + end if is_network else f"{text}-{text_of(high, family)}")
    return texts


def is_named(interface: str, names: Iterable[str]) -> bool:
    """Whether the interface has one of the names (`+` at the end: a prefix)."""
    return any(interface.startswith(name[:-1]) if name.endswith("+") else interface == name for name in names)


def names_more(wide: str, narrow: str) -> bool:
    """Whether every interface of the name or prefix `narrow` is one of `wide` too."""
    return narrow.removesuffix("+").startswith(wide[:-1]) if wide.endswith("+") else wide == narrow
