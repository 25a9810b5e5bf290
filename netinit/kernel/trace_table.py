"""The nf_tables table that makes the kernel trace packets of one connection; it decides nothing about packets.

One rule, before all others, marks the connection's first packets for tracing and reports their sender; chains after all
others show where a path ends. The kernel deletes the table when the socket that owns it is closed (NFT_TABLE_F_OWNER, Linux
5.12). Before 5.12, the next run deletes a leftover.
"""

from __future__ import annotations

from _struct import pack

from netinit.base.net import IPV4, Family
from netinit.base.netlink_attributes import MalformedError, split_attributes
from netinit.base.records import Record
from netinit.kernel import netlink, nf_tables
from netinit.kernel.netlink import attribute, big, list_nft_chains, list_nft_rules, read_attributes, read_name
from netinit.kernel.nf_tables import NfTables, name, raise_first

TABLE = "netinit-trace"
BEFORE_ALL, BEHIND_ALL = -350, 0x7FFFFFFE  # after defragmentation (-400), before raw (-300)
ENDS = {"end-of-input": 1, "end-of-postrouting": 4}  # chains after all others, and their hooks
BEGINNING = "beginning"
_BEGINNINGS = {True: 0, False: 3}  # the hooks of inbound and of locally generated packets
_LOGGER = "logger-"  # prefix of the chain that stores its name
_OWNER = 2  # NFT_TABLE_F_OWNER
_REGISTER = pack(">I", 1)  # NFT_REG_1: loaded, then compared
_LIMIT_RATE, _LIMIT_UNIT, _LIMIT_BURST, _LOG_GROUP, _LOG_QTHRESHOLD = 1, 2, 3, 1, 4  # NFTA_LIMIT_*, NFTA_LOG_*
# What meta knows: NFT_META_* and its size
_META_LENGTHS = {"l4proto": (16, 1), "nfproto": (15, 1), "skuid": (10, 4), "skgid": (11, 4)}
_NFTRACE, _IIF = 12, 4
_HARMLESS = frozenset((b"meta", b"cmp", b"payload", b"bitwise", b"limit", b"immediate", b"log"))
_SYN_ALONE = (13, 0x17, 0x02)  # the byte of TCP's flags; FIN, SYN, RST and ACK; SYN
_NETWORK, _TRANSPORT = 1, 2
ENOENT = 2
NO_OWNERS = (22, 95)  # EINVAL, EOPNOTSUPP: errors of kernels that do not know the flag


class Wanted(Record):
    """The packets to trace: of new connections to a port. None matches anything."""

    family: Family
    protocol: str
    inbound: bool
    port: int
    source: int | None = None
    destination: int | None = None
    uid: int | None = None
    gid: int | None = None


class TraceTable:
    """The table, with its socket. Raises OSError."""

    def __init__(self, wanted: Wanted, *, group: int, rate: int, logger: str = "") -> None:
        """Report at most `rate` packets a second to the NFLOG `group`; store the name `logger` in the table."""
        self._link = NfTables()
        messages = [*_make_chains(wanted, logger), _rule(wanted, group, rate)]
        try:
            try:
                _commit(self._link, [_table(0 if logger else _OWNER), *messages])
            except OSError as error:
                if error.errno not in NO_OWNERS or logger:
                    raise
                self._link.close()
                self._link = NfTables()
                _commit(self._link, [_table(0), *messages])
        except BaseException:
            self._link.close()
            raise

    def remove(self) -> None:
        """Delete the table."""
        try:
            _delete(self._link)
        finally:
            self._link.close()


def remove_leftover() -> str:
    """Delete the table of a killed run; return the logger stored in it, or "". Raises OSError: EPERM while that run is alive."""
    own = [chain.name for chain in list_nft_chains() if (chain.family, chain.table) == (netlink.INET, TABLE)]
    logger = next((name.removeprefix(_LOGGER) for name in own if name.startswith(_LOGGER)), "")
    with NfTables() as link:
        _delete(link)
    return logger


def is_harmless() -> bool:
    """Whether the table of this name decides nothing; False for a foreign one that does."""
    try:
        chains = [chain for chain in list_nft_chains() if (chain.family, chain.table) == (netlink.INET, TABLE)]
        rules = [read_attributes(body, netlink.NETFILTER_SIZE) for body in list_nft_rules(netlink.INET)]
        return all(chain.accepts for chain in chains) and all(
            _only_looks(rule.get(netlink.NFTA_RULE_EXPRESSIONS, b""))
            for rule in rules
            if read_name(rule[netlink.NFTA_RULE_TABLE]) == TABLE
        )
    except (OSError, MalformedError):
        return False


def _only_looks(expressions: bytes) -> bool:
    for _, element in split_attributes(expressions):
        parts = read_attributes(element, 0)
        named, data = parts.get(netlink.NFTA_EXPR_NAME, b"").rstrip(b"\0"), read_attributes(parts.get(netlink.NFTA_EXPR_DATA, b""), 0)
        if named not in _HARMLESS:
            return False
        marks = named == b"meta" and nf_tables.NFTA_META_SREG in data and big(data.get(netlink.NFTA_META_KEY)) != _NFTRACE
        decides = named == b"immediate" and big(data.get(nf_tables.NFTA_IMMEDIATE_DREG)) == nf_tables.NFT_REG_VERDICT
        if marks or decides or (named == b"payload" and nf_tables.NFTA_PAYLOAD_SREG in data):
            return False
    return True


def _commit(link: NfTables, messages: list[tuple[int, int, bytes]]) -> None:
    raise_first(link.commit(netlink.INET, messages))


def _delete(link: NfTables) -> None:
    try:
        _commit(link, [(nf_tables.NFT_MSG_DELTABLE, 0, attribute(netlink.NFTA_TABLE_NAME, name(TABLE)))])
    except OSError as error:
        if error.errno != ENOENT:
            raise


def _table(flags: int) -> tuple[int, int, bytes]:
    body = attribute(netlink.NFTA_TABLE_NAME, name(TABLE)) + attribute(netlink.NFTA_TABLE_FLAGS, pack(">I", flags))
    return nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, body


def _make_chains(wanted: Wanted, logger: str) -> list[tuple[int, int, bytes]]:
    chains = [_chain(BEGINNING, _BEGINNINGS[wanted.inbound], BEFORE_ALL)]
    chains += [_chain(end, hook, BEHIND_ALL) for end, hook in ENDS.items()]
    return [*chains, _chain(_LOGGER + logger, None, 0)] if logger else chains


def _chain(chain: str, hook: int | None, priority: int) -> tuple[int, int, bytes]:
    body = attribute(netlink.NFTA_CHAIN_TABLE, name(TABLE)) + attribute(netlink.NFTA_CHAIN_NAME, name(chain))
    if hook is not None:
        place = attribute(netlink.NFTA_HOOK_HOOKNUM, pack(">I", hook)) + attribute(netlink.NFTA_HOOK_PRIORITY, pack(">i", priority))
        body += _nest(netlink.NFTA_CHAIN_HOOK, place) + attribute(netlink.NFTA_CHAIN_POLICY, pack(">I", netlink.NF_ACCEPT))
        body += attribute(netlink.NFTA_CHAIN_TYPE, name("filter"))
    return nf_tables.NFT_MSG_NEWCHAIN, netlink.NLM_F_CREATE, body


def _rule(wanted: Wanted, group: int, rate: int) -> tuple[int, int, bytes]:
    protocol = {"tcp": 6, "udp": 17}[wanted.protocol]
    parts = _meta_is("nfproto", bytes((wanted.family.number,))) + _meta_is("l4proto", bytes((protocol,)))
    source, destination, size = (12, 16, 4) if wanted.family is IPV4 else (8, 24, 16)
    for address, offset in ((wanted.source, source), (wanted.destination, destination)):
        if address is not None:
            parts += _load(_NETWORK, offset, size) + _compare(address.to_bytes(size, "big"))
    parts += _load(_TRANSPORT, 2, 2) + _compare(pack(">H", wanted.port))
    if wanted.inbound:  # packets from this host to itself are traced on output
        parts += _load_meta(_IIF) + _compare(pack("=I", netlink.LOOPBACK_INDEX), equal=False)
    if wanted.protocol == "tcp":
        offset, mask, value = _SYN_ALONE
        parts += _load(_TRANSPORT, offset, 1) + _mask(bytes((mask,))) + _compare(bytes((value,)))
    for owner, number in (("skuid", wanted.uid), ("skgid", wanted.gid)):
        if number is not None:
            parts += _meta_is(owner, pack("=I", number))
    limit = ((_LIMIT_RATE, pack(">Q", rate)), (_LIMIT_UNIT, pack(">Q", 1)), (_LIMIT_BURST, pack(">I", rate)))
    parts += _expression("limit", *[attribute(kind, figure) for kind, figure in limit])
    one = _nest(nf_tables.NFTA_IMMEDIATE_DATA, attribute(netlink.NFTA_DATA_VALUE, b"\1"))
    parts += _expression("immediate", attribute(nf_tables.NFTA_IMMEDIATE_DREG, _REGISTER), one)
    parts += _expression(
        "meta", attribute(netlink.NFTA_META_KEY, pack(">I", _NFTRACE)), attribute(nf_tables.NFTA_META_SREG, _REGISTER)
    )
    parts += _expression("log", attribute(_LOG_GROUP, pack(">H", group)), attribute(_LOG_QTHRESHOLD, pack(">H", 1)))
    body = attribute(netlink.NFTA_RULE_TABLE, name(TABLE)) + attribute(netlink.NFTA_RULE_CHAIN, name(BEGINNING))
    return nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE, body + _nest(netlink.NFTA_RULE_EXPRESSIONS, parts)


def _meta_is(what: str, value: bytes) -> bytes:
    key, size = _META_LENGTHS[what]
    return _load_meta(key) + _compare(value[:size])


def _load_meta(key: int) -> bytes:
    return _expression("meta", attribute(netlink.NFTA_META_KEY, pack(">I", key)), attribute(netlink.NFTA_META_DREG, _REGISTER))


def _load(base: int, offset: int, size: int) -> bytes:
    place = ((nf_tables.NFTA_PAYLOAD_BASE, base), (nf_tables.NFTA_PAYLOAD_OFFSET, offset), (nf_tables.NFTA_PAYLOAD_LEN, size))
    numbers = [attribute(kind, pack(">I", number)) for kind, number in place]
    return _expression("payload", attribute(nf_tables.NFTA_PAYLOAD_DREG, _REGISTER), *numbers)


def _mask(mask: bytes) -> bytes:
    return _expression(
        "bitwise",
        attribute(netlink.NFTA_BITWISE_SREG, _REGISTER),
        attribute(netlink.NFTA_BITWISE_DREG, _REGISTER),
        attribute(nf_tables.NFTA_BITWISE_LEN, pack(">I", len(mask))),
        _nest(nf_tables.NFTA_BITWISE_MASK, attribute(netlink.NFTA_DATA_VALUE, mask)),
        _nest(nf_tables.NFTA_BITWISE_XOR, attribute(netlink.NFTA_DATA_VALUE, bytes(len(mask)))),
    )


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    data = _nest(netlink.NFTA_CMP_DATA, attribute(netlink.NFTA_DATA_VALUE, value))
    return _expression(
        "cmp", attribute(netlink.NFTA_CMP_SREG, _REGISTER), attribute(nf_tables.NFTA_CMP_OP, pack(">I", not equal)), data
    )


def _expression(kind: str, *data: bytes) -> bytes:
    return _nest(
        nf_tables.NFTA_LIST_ELEM, attribute(netlink.NFTA_EXPR_NAME, name(kind)) + _nest(netlink.NFTA_EXPR_DATA, b"".join(data))
    )


def _nest(kind: int, value: bytes) -> bytes:
    return attribute(kind | netlink.NLA_F_NESTED, value)
