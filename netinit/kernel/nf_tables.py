"""Change nf_tables over netlink, each change one transaction, and dump tables (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

from _socket import SOL_SOCKET
from _struct import pack, unpack_from

from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel import netlink
from netinit.kernel.netlink import Netlink, attribute, read_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    TableDump = dict[int, tuple[bytes, ...]]  # attributes of each object in the kernel's order, by the message that creates it

Message = tuple[int, int, bytes]  # type, flags, attributes
MSG_DONTWAIT, SUBSYSTEM = 0x40, 10  # of linux/socket.h; NFNL_SUBSYS_NFTABLES of linux/netfilter/nfnetlink.h
NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_BATCH_GENID = 16, 17, 1
NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_DELCHAIN, NFT_MSG_NEWRULE = [
    SUBSYSTEM << 8 | kind for kind in (0, 2, 3, 5, 6)
]
GET = 1  # what the number of the message that dumps objects is higher than that of the one that creates them
NFT_MSG_DELRULE, NFT_MSG_NEWSET, NFT_MSG_NEWSETELEM, NFT_MSG_NEWOBJ, NFT_MSG_NEWFLOWTABLE = [
    SUBSYSTEM << 8 | kind for kind in (8, 9, 12, 18, 22)
]
NLM_F_APPEND = 0x800  # of a rule: after all others; linux/netlink.h
NLM_F_NONREC = 0x100  # for deletions: only if the object is empty; linux/netlink.h
NFTA_TABLE_USE = 3
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
NLMSGERR_ATTR_MSG, NLMSGERR_ATTR_OFFS = 1, 2
SO_SNDBUF, SO_SNDBUFFORCE = 7, 32
EINVAL, ERESTART, EOPNOTSUPP = 22, 85, 95  # the second: the generation is another
TRIES = 20  # of a change, each computed after another program's
RECEIVE_SIZE = 1 << 16
SMALL = 1 << 16  # bytes that any socket accepts at once; net.core.wmem_default is at least twice this
MAX_BYTES = 1 << 26  # of one dump: some 150,000 rules
MAX_ELEMENT_BYTES = 3 << 20  # of all sets' elements: some 75,000 networks, the same limit as for listings


class Refusal(Record):
    """The kernel's error in a transaction: index of the message, and offset in its attributes if known."""

    number: int  # errno(3)
    message: int  # -1: the transaction itself
    offset: int = -1
    text: str = ""  # the kernel's message


class NfTables(Netlink):
    """A netlink socket for changes of nf_tables."""

    def __init__(self) -> None:
        super().__init__(netlink.NETLINK_NETFILTER)
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)

    def commit(self, messages: Sequence[tuple[int, Message]], *, check: bool = False, generation: int = 0) -> tuple[Refusal, ...]:
        """Commit all changes, each to its family, or none; return the errors. `check`: only validate them.

        With a `generation` of nf_tables the kernel refuses them (ERESTART) if another one has begun. Raises OSError: EMSGSIZE
        if they are too large for the socket.
        """
        edge = pack(">BBH", 0, 0, SUBSYSTEM)
        expected = attribute(NFNL_BATCH_GENID, pack(">I", generation)) if generation else b""
        parts = [self._write(NFNL_MSG_BATCH_BEGIN, 0, edge + expected)]
        first = self._sequence + 1
        last = len(messages) - 1
        for index, (family, (kind, flags, attributes)) in enumerate(messages):
            # Errors are always sent; acknowledging the last message proves that the kernel processed it.
            head = pack(">BBH", family, 0, 0)
            parts.append(self._write(kind, flags | (netlink.NLM_F_ACK if index == last else 0), head + attributes))
        if not check:  # without the end of the batch the kernel validates everything and rolls back
            parts.append(self._write(NFNL_MSG_BATCH_END, 0, edge))
        data = b"".join(parts)
        if len(data) > SMALL:
            self._make_room(len(data))
        self._socket.send(data)
        answers = self._answers(first)
        if not answers:
            raise OSError(netlink.EINTR, "the kernel does not answer")
        return tuple([one for one in answers if one.number])

    def _make_room(self, size: int) -> None:
        try:
            self._socket.setsockopt(SOL_SOCKET, SO_SNDBUFFORCE, size)
        except PermissionError:  # in a pod's user namespace: limited to net.core.wmem_max
            self._socket.setsockopt(SOL_SOCKET, SO_SNDBUF, size)

    def _answers(self, first: int) -> list[Refusal]:
        """Return the kernel's errors, which arrive before sending returns; `first`: the first message's sequence number."""
        found: list[Refusal] = []
        while True:
            try:
                data = self._socket.recv(RECEIVE_SIZE, MSG_DONTWAIT)
            except BlockingIOError:
                return found
            found += [_read_answer(body, first) for kind, body, *_ in netlink.split_messages(data) if kind == netlink.NLMSG_ERROR]


def _read_answer(body: bytes, first: int) -> Refusal:
    sequence = unpack_from("=I", body, 4 + 8)[0]
    more = read_attributes(body, 4 + netlink.NLMSG_HEADER)
    headers = netlink.NLMSG_HEADER + netlink.NETFILTER_SIZE
    offset = unpack_from("=I", more[NLMSGERR_ATTR_OFFS])[0] - headers if NLMSGERR_ATTR_OFFS in more else -1
    text = more.get(NLMSGERR_ATTR_MSG, b"").rstrip(b"\0").decode("ascii", "replace")
    return Refusal(number=-unpack_from("=i", body)[0], message=max(-1, sequence - first), offset=offset, text=text)


def raise_first(refusals: Iterable[Refusal]) -> None:
    """Raise OSError with the first error, if any."""
    for one in refusals:
        raise OSError(one.number, posix.strerror(one.number))


def set_dormant(family: int, table: str, *, dormant: bool) -> None:
    """Set or clear the dormant flag of a table. Raises OSError."""
    flags = attribute(netlink.NFTA_TABLE_FLAGS, pack(">I", netlink.NFT_TABLE_F_DORMANT if dormant else 0))
    with NfTables() as link:
        raise_first(link.commit([(family, (NFT_MSG_NEWTABLE, 0, attribute(netlink.NFTA_TABLE_NAME, name(table)) + flags))]))


def create_chain(table: str, chain: str, base: tuple[str, int, int] | None) -> Message:
    """Return the message that creates a chain, which must not exist; `base`: type, hook's number, priority. Its policy accepts."""
    body = attribute(netlink.NFTA_CHAIN_TABLE, name(table)) + attribute(netlink.NFTA_CHAIN_NAME, name(chain))
    if base:
        kind, hook, priority = base
        place = attribute(netlink.NFTA_HOOK_HOOKNUM, pack(">I", hook)) + attribute(netlink.NFTA_HOOK_PRIORITY, pack(">i", priority))
        body += attribute(netlink.NFTA_CHAIN_HOOK, place) + attribute(netlink.NFTA_CHAIN_POLICY, pack(">I", netlink.NF_ACCEPT))
        body += attribute(netlink.NFTA_CHAIN_TYPE, name(kind))
    return NFT_MSG_NEWCHAIN, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, body


def rule_place(table: str, chain: str) -> bytes:
    """Return the attributes that say which chain a rule is in."""
    return attribute(netlink.NFTA_RULE_TABLE, name(table)) + attribute(netlink.NFTA_RULE_CHAIN, name(chain))


def name(text: str) -> bytes:
    """Return a name as the kernel expects it."""
    return text.encode("utf-8", "surrogateescape") + b"\0"


def dump_tables(family: int, names: Collection[str], *, whole: bool) -> TableDump:
    """Dump tables of a family with rules and sets, each object's attributes; `whole`: with everything else in them too.

    Raises OSError: EFBIG above the limits, EINTR if they keep changing.
    """
    wanted = {name(one) for one in names}
    with Netlink(netlink.NETLINK_NETFILTER) as link:
        return netlink.read_unchanged(lambda: _dump(link, family, wanted, whole=whole))[1]


def _dump(link: Netlink, family: int, names: Collection[bytes], *, whole: bool) -> TableDump:
    def read(kind: int, more: bytes = b"") -> tuple[bytes, ...]:
        """Return all objects of a kind in these tables; the first attribute is the table's name."""
        found = [body[netlink.NETFILTER_SIZE :] for body in dump_objects(link, family, kind, more)]
        return tuple([body for body in found if _first(body) in names])

    made = {kind: read(kind) for kind in (NFT_MSG_NEWTABLE, NFT_MSG_NEWSET)}
    tables = [attribute(netlink.NFTA_TABLE_NAME, one) for one in names]
    made[NFT_MSG_NEWRULE] = tuple([body for one in tables for body in read(NFT_MSG_NEWRULE, one)])
    elements: list[bytes] = []
    left = MAX_ELEMENT_BYTES
    for one in made[NFT_MSG_NEWSET]:
        found = read_attributes(one, 0)
        bodies = [body[netlink.NETFILTER_SIZE :] for body in dump_elements(family, found[1], found[2], left)]
        left -= sum([len(body) for body in bodies])
        elements += bodies
    if left < 0:
        raise OSError(netlink.EFBIG, posix.strerror(netlink.EFBIG))
    made[NFT_MSG_NEWSETELEM] = tuple(elements)
    return made | ({kind: read(kind) for kind in (NFT_MSG_NEWCHAIN, NFT_MSG_NEWOBJ, NFT_MSG_NEWFLOWTABLE)} if whole else {})


def dump_objects(link: Netlink, family: int, kind: int, more: bytes = b"") -> list[bytes]:
    """Return the objects that messages of this kind (NFT_MSG_NEW...) create; `more`: attributes that restrict them. Raises OSError."""
    try:
        return link.dump(kind + GET, pack("=BBH", family, 0, 0) + more, MAX_BYTES)
    except OSError as error:
        if kind in (NFT_MSG_NEWOBJ, NFT_MSG_NEWFLOWTABLE) and error.errno in (EINVAL, EOPNOTSUPP):  # older kernels
            return []
        raise


def dump_elements(family: int, table: bytes, named: bytes, most: int) -> list[bytes]:
    """Return the elements of a set, in messages; names as the kernel has them. Raises OSError: EFBIG above `most` bytes.

    Uses a new socket: an abandoned dump continues in the kernel, which refuses another one on the same socket.
    """
    body = pack("=BBH", family, 0, 0) + attribute(1, table) + attribute(2, named)  # NFTA_SET_ELEM_LIST_TABLE, _SET
    return netlink.dump(netlink.NETLINK_NETFILTER, NFT_MSG_NEWSETELEM + GET, body, most)


def _first(body: bytes) -> bytes:
    return body[4 : unpack_from("=H", body)[0]]
