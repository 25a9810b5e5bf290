"""The nf_tables table that makes the kernel trace packets of one connection; it decides nothing about packets.

One rule, before all others, marks the connection's first packets for tracing and reports their sender; chains after all
others show where a path ends. The kernel deletes the table when the socket that owns it is closed (NFT_TABLE_F_OWNER, Linux
5.12). Before 5.12, the next run deletes a leftover.
"""

from __future__ import annotations

from _struct import pack

from netinit.kernel import netlink, nf_tables
from netinit.kernel.netlink import attribute, list_nft_chains
from netinit.kernel.nf_tables import NfTables, create_chain, name, raise_first

TABLE = "netinit-trace"
BEFORE_ALL, BEHIND_ALL = -350, 0x7FFFFFFE  # after defragmentation (-400), before raw (-300)
ENDS = {"end-of-input": 1, "end-of-postrouting": 4}  # chains after all others, and their hooks
BEGINNING = "beginning"
_BEGINNINGS = {True: 0, False: 3}  # the hooks of inbound and of locally generated packets
_LOGGER = "logger-"  # prefix of the chain that stores its name
_OWNER = 2  # NFT_TABLE_F_OWNER
ENOENT = 2
NO_OWNERS = (22, 95)  # EINVAL, EOPNOTSUPP: errors of kernels that do not know the flag


def make_table(rule: bytes, *, inbound: bool, logger: str) -> NfTables:
    """Add the rule with these expressions to the hook of such packets; return the socket that owns the table. Raises OSError.

    The name `logger`, if any, is stored in the table.
    """
    messages = [*_make_chains(logger, inbound=inbound), _rule(rule)]
    for flags in (0,) if logger else (_OWNER, 0):
        link = NfTables()
        try:
            _commit(link, [_table(flags), *messages])
        except BaseException as error:
            link.close()
            if flags and isinstance(error, OSError) and error.errno in NO_OWNERS:
                continue
            raise
        break
    return link


def remove_leftover() -> str:
    """Delete the table of a killed run; return the logger stored in it, or "". Raises OSError: EPERM while that run is alive."""
    own = [chain.name for chain in list_nft_chains() if (chain.family, chain.table) == (netlink.INET, TABLE)]
    logger = next((name.removeprefix(_LOGGER) for name in own if name.startswith(_LOGGER)), "")
    with NfTables() as link:
        delete_table(link)
    return logger


def _commit(link: NfTables, messages: list[tuple[int, int, bytes]]) -> None:
    raise_first(link.commit(netlink.INET, messages))


def delete_table(link: NfTables) -> None:
    """Delete the table, if it exists. Raises OSError: EPERM if another socket owns it."""
    try:
        _commit(link, [(nf_tables.NFT_MSG_DELTABLE, 0, attribute(netlink.NFTA_TABLE_NAME, name(TABLE)))])
    except OSError as error:
        if error.errno != ENOENT:
            raise


def _table(flags: int) -> tuple[int, int, bytes]:
    body = attribute(netlink.NFTA_TABLE_NAME, name(TABLE)) + attribute(netlink.NFTA_TABLE_FLAGS, pack(">I", flags))
    return nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, body


def _make_chains(logger: str, *, inbound: bool) -> list[tuple[int, int, bytes]]:
    chains = [create_chain(TABLE, BEGINNING, ("filter", _BEGINNINGS[inbound], BEFORE_ALL))]
    chains += [create_chain(TABLE, end, ("filter", hook, BEHIND_ALL)) for end, hook in ENDS.items()]
    return [*chains, create_chain(TABLE, _LOGGER + logger, None)] if logger else chains


def _rule(expressions: bytes) -> tuple[int, int, bytes]:
    body = attribute(netlink.NFTA_RULE_TABLE, name(TABLE)) + attribute(netlink.NFTA_RULE_CHAIN, name(BEGINNING))
    return nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE, body + attribute(netlink.NFTA_RULE_EXPRESSIONS, expressions)
