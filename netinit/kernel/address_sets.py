"""Create, fill, swap, destroy and read address sets over netlink (linux/netfilter/ipset/ip_set.h)."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from _struct import pack, unpack_from

from netinit.base.netlink_attributes import (
    NLA_F_NESTED,
    NLA_F_NET_BYTEORDER,
    MalformedError,
    attributes_of,
    name,
    split_attributes,
)
from netinit.base.system import posix
from netinit.kernel import netlink
from netinit.kernel.detect import ATTR_DATA, ATTR_ELEMENTS, ATTR_PROTOCOL, ATTR_SETNAME, CMD_LIST, OLDEST_PROTOCOL
from netinit.kernel.netlink import NETFILTER_SIZE, attribute, read_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUBSYSTEM = 6 << 8
CMD_CREATE, CMD_DESTROY, CMD_SWAP, CMD_ADD, CMD_TYPE = [SUBSYSTEM | kind for kind in (2, 3, 6, 9, 13)]
ATTR_TYPENAME, ATTR_SETNAME2, ATTR_REVISION, ATTR_FAMILY, ATTR_ADT, ATTR_LINENO = 3, 3, 4, 5, 8, 9
ATTR_IP, ATTR_CIDR, ATTR_INITVAL, ATTR_HASHSIZE, ATTR_MAXELEM, ATTR_BUCKETSIZE, ATTR_REFERENCES, ATTR_MEMSIZE = (
    1, 3, 17, 18, 19, 21, 25, 26,
)  # fmt: skip
ATTR_CADT_FLAGS, FLAG_WITH_COMMENT, ATTR_COMMENT = 8, 1 << 4, 26
ATTR_IPADDR = {AF_INET: 1, AF_INET6: 2}
TYPE, ADDRESSES = "hash:net", "hash:ip"
REVISION_OF_ADDRESSES = 4  # with comments, and as old as any kernel that netinit supports
# The newest revision that programs of ipset list: a kernel may have newer ones
NEWEST_REVISION = 7
# What a set of ours has beside its elements; another header changes what the set means, such as `timeout` and `netmask`
USUAL_HEADER = {ATTR_HASHSIZE, ATTR_MAXELEM, ATTR_BUCKETSIZE, ATTR_INITVAL, ATTR_ELEMENTS, ATTR_REFERENCES, ATTR_MEMSIZE}
AT_ONCE = 1000  # elements of one message: their list is an attribute, which has at most 65,535 bytes, and one needs at most 44
IN_USE = 4100  # IPSET_ERR_BUSY
ERRORS = {  # of ipset, above errno(3)
    4097: "the kernel has another protocol of ipset", 4098: "the kernel has no sets of this type",
    4099: "the kernel has too many sets", IN_USE: "it is in use by a kernel component", 4101: "the other set is missing",
    4102: "the sets are of different types", 4103: "it is already there", 4104: "the length of a network is not valid",
    4106: "another family", 4112: "it was made without comments", 4352: "the set is full",
}  # fmt: skip
ERROR_AT = 4 + netlink.NLMSG_HEADER + NETFILTER_SIZE  # where the attributes of a refused request begin, in struct nlmsgerr


class AddressSets(netlink.Netlink):
    """A netlink socket for address sets. Methods raise OSError, whose number may be one of `ERRORS`."""

    def __init__(self) -> None:
        super().__init__(netlink.NETLINK_NETFILTER)
        self._revisions: dict[int, int] = {}

    def create(self, set_name: str, elements: Sequence[str], *, family: int, hash_size: int, most: int) -> None:
        """Create a set with these elements: addresses, and networks with their lengths."""
        header = attribute(ATTR_HASHSIZE | NLA_F_NET_BYTEORDER, pack(">I", hash_size))
        header += attribute(ATTR_MAXELEM | NLA_F_NET_BYTEORDER, pack(">I", most))
        self._change(
            CMD_CREATE, set_name,
            _write_type(TYPE, self._revision(family), family) + attribute(ATTR_DATA | NLA_F_NESTED, header),
        )  # fmt: skip
        for first in range(0, len(elements), AT_ONCE):
            some = elements[first : first + AT_ONCE]
            listed = b"".join([_write_element(element, line, family) for line, element in enumerate(some, 1)])
            number = attribute(ATTR_LINENO, pack("=I", 0))  # the kernel writes here which element it refuses
            try:
                self._change(CMD_ADD, set_name, number + attribute(ATTR_ADT | NLA_F_NESTED, listed))
            except OSError as error:
                line = error.line if isinstance(error, SetError) else 0
                where = f"{set_name} {some[line - 1]}" if 0 < line <= len(some) else set_name
                raise SetError(error.errno or 0, where) from None

    def create_for_addresses(self, set_name: str, family: int) -> None:
        """Create an empty set of single addresses with comments."""
        header = attribute(ATTR_CADT_FLAGS | NLA_F_NET_BYTEORDER, pack(">I", FLAG_WITH_COMMENT))
        kind = _write_type(ADDRESSES, REVISION_OF_ADDRESSES, family)
        self._change(CMD_CREATE, set_name, kind + attribute(ATTR_DATA | NLA_F_NESTED, header))

    def put(self, set_name: str, elements: Mapping[str, str], family: int) -> None:
        """Add addresses with their comments, which replace those of addresses that are there."""
        for line, (address, comment) in enumerate(elements.items(), 1):
            element = _write_element(address, line, family, comment)
            try:
                self._change(CMD_ADD, set_name, attribute(ATTR_LINENO, pack("=I", 0)) + element, flags=0)
            except OSError as error:
                raise SetError(error.errno or 0, f"{set_name} {address}") from None

    def swap(self, set_name: str, other: str) -> None:
        """Swap the contents of two sets; rules look up those of the name."""
        self._change(CMD_SWAP, set_name, attribute(ATTR_SETNAME2, name_of(other)))

    def destroy(self, set_name: str) -> None:
        """Destroy a set. Raises OSError: IN_USE while a rule uses it."""
        self._change(CMD_DESTROY, set_name, b"")

    def read(self, set_name: str, most: int) -> list[str] | None:
        """Return the elements of a set as ipset lists them; None if it is no plain set of networks.

        Raises OSError: EFBIG above `most` bytes.
        """
        found: list[str] = []
        is_known = False
        try:
            for body in self.dump(CMD_LIST, _begin(set_name), most):
                attributes = read_attributes(body, NETFILTER_SIZE)
                if name(attributes.get(ATTR_SETNAME, b"\0")) != set_name:
                    return None
                if ATTR_DATA in attributes:
                    is_known = name(attributes.get(ATTR_TYPENAME, b"\0")) == TYPE
                    if not is_known or not attributes_of(attributes[ATTR_DATA]).keys() <= USUAL_HEADER:
                        return None
                found += [_read_element(data) for _, data in split_attributes(attributes.get(ATTR_ADT, b""))]
        except (MalformedError, ValueError, KeyError, IndexError):
            return None
        return found if is_known else None

    def refusal(self, code: int, body: bytes) -> OSError:
        """Return the error, with the number of the refused element."""
        line = read_attributes(body, ERROR_AT).get(ATTR_LINENO, b"")
        return SetError(code, line=unpack_from("=I", line)[0] if len(line) >= 4 else 0)  # noqa: PLR2004 - an int's

    def _change(self, command: int, set_name: str, more: bytes, flags: int = netlink.NLM_F_EXCL) -> None:
        try:
            self.request(command, flags | (netlink.NLM_F_CREATE if command == CMD_CREATE else 0), _begin(set_name) + more)
        except SetError as error:
            raise SetError(error.errno or 0, set_name, line=error.line) from None

    def _revision(self, family: int) -> int:
        """Return the newest revision of the type that the kernel and programs have, which loads its module."""
        if family not in self._revisions:
            asked = attribute(ATTR_PROTOCOL, bytes((OLDEST_PROTOCOL,))) + attribute(ATTR_TYPENAME, name_of(TYPE))
            answers = self.request(CMD_TYPE, 0, bytes(NETFILTER_SIZE) + asked + attribute(ATTR_FAMILY, bytes((family,))))
            found = [read_attributes(body, NETFILTER_SIZE).get(ATTR_REVISION, b"") for body in answers]
            self._revisions[family] = min([NEWEST_REVISION, *[one[0] for one in found if one]])
        return self._revisions[family]


class SetError(OSError):
    """An error about a set, or about one element of those sent: `line`, 0 if none is named."""

    def __init__(self, number: int, what: str = "", *, line: int = 0) -> None:
        said = ERRORS.get(number) or posix.strerror(number)
        super().__init__(number, f"{what}: {said}" if what else said)
        self.line = line


def name_of(text: str) -> bytes:
    """Return a name as the kernel expects it."""
    return text.encode() + b"\0"


def _begin(set_name: str) -> bytes:
    head = bytes(NETFILTER_SIZE) + attribute(ATTR_PROTOCOL, bytes((OLDEST_PROTOCOL,)))
    return head + attribute(ATTR_SETNAME, name_of(set_name))


def _write_type(kind: str, revision: int, family: int) -> bytes:
    named = attribute(ATTR_TYPENAME, name_of(kind)) + attribute(ATTR_REVISION, bytes((revision,)))
    return named + attribute(ATTR_FAMILY, bytes((family,)))


def _write_element(element: str, line: int, family: int, comment: str = "") -> bytes:
    address, _, length = element.partition("/")
    packed = inet_pton(family, address)
    data = attribute(ATTR_IP | NLA_F_NESTED, attribute(ATTR_IPADDR[family] | NLA_F_NET_BYTEORDER, packed))
    data += attribute(ATTR_CIDR, bytes((int(length or len(packed) * 8),))) + attribute(ATTR_LINENO, pack("=I", line))
    data += attribute(ATTR_COMMENT, name_of(comment)) if comment else b""
    return attribute(ATTR_DATA | NLA_F_NESTED, data)


def _read_element(data: bytes) -> str:
    """Return an element's text. Raises ValueError for one with a condition, such as `nomatch`, or a comment."""
    found = attributes_of(data)
    ((kind, packed),) = split_attributes(found[ATTR_IP])
    length = found[ATTR_CIDR][0]
    if found.keys() != {ATTR_IP, ATTR_CIDR}:
        raise ValueError
    family = next(family for family, number in ATTR_IPADDR.items() if number == kind)
    text = inet_ntop(family, packed)
    return text if length == len(packed) * 8 else f"{text}/{length}"
