"""The state of a namespace as text, to assert that nothing changed."""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from laboratory import NetworkNamespace
from netinit.base.errors import LabError
from netinit.base.snapshot import FAMILY_NAMES
from netinit.kernel import netlink

_SAVES = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
_LEGACY_NAMES = {"iptables-legacy-save": "ip_tables_names", "ip6tables-legacy-save": "ip6_tables_names"}
_XTABLES = {f"{family} {table}" for family in ("ip", "ip6") for table in ("filter", "nat", "mangle", "raw", "security")}
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
_COUNTERS = re.compile(r" \[\d+:\d+\]$| packets \d+ bytes \d+", re.MULTILINE)
_MASKED = re.compile(r"tcp flags & \(([a-z |]+)\) (==|!=) ([a-z]+(?: \| [a-z]+)*)")  # for nft 1.0: `tcp flags A / B`
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)
_RECORD = re.compile(r"^\tcomment \".*\"\n", re.MULTILINE)
_EMPTY_TABLE = re.compile(r"^\*\w+\n(?::[A-Z]+ ACCEPT\n)*COMMIT\n", re.MULTILINE)
_VOLATILE = {"event", "header", "IFA_CACHEINFO", "RTA_CACHEINFO"}
_NFT_FAMILIES = {"iptables-nft-save": "ip", "ip6tables-nft-save": "ip6"}
_NFT_MSG_GETTABLE, _NFTA_TABLE_NAME = 10 << 8 | 1, 1  # linux/netfilter/nf_tables.h
_HEADER = 12  # bytes that a question for addresses, routes or policy rules has: the family, and zeros
_NETWORK = (  # what is checked: a word for it, the question, the families
    ("address", netlink.RTM_GETADDR, (0,)),
    ("route", netlink.RTM_GETROUTE, (2, 10)),
    ("rule", netlink.RTM_GETRULE, (2, 10)),
)
# pyroute2's names for what answers
_MESSAGES = {netlink.RTM_NEWADDR: "ifaddrmsg", netlink.RTM_NEWROUTE: "rtmsg", netlink.RTM_NEWRULE: "fibmsg"}
_REMEMBERED = 1024  # messages, most of which all pods have


def describe_state(namespace: NetworkNamespace) -> str:
    """Rules of both iptables variants, other nft tables, addresses, routes and policy rules, one line each.

    Without counters and comments; rules in order, addresses and routes sorted. Reading registers no table.
    """
    parts = [f"# {program}\n{list_rules(namespace, program)}" for program in _SAVES]
    parts.append(f"# nft\n{_list_nft(namespace)}")
    parts.append(f"# addresses, routes, policy rules\n{_list_network(namespace)}")
    return "".join(parts)


def list_rules(namespace: NetworkNamespace, program: str) -> str:
    """The output of `iptables-nft-save` or a similar program inside, without counters and comments.

    The program runs only if the kernel has tables of its variant and family. Raises LabError if it fails.
    """
    path = shutil.which(program, path=_PATH)
    if path is None:
        return "(not installed)\n"
    names = _LEGACY_NAMES.get(program)
    if names is not None and not _read_inside(namespace, names):
        return ""
    if names is None and not any(table.startswith(f"{_NFT_FAMILIES[program]} ") for table in _list_tables(namespace)):
        return ""
    text = namespace.run([path], check=True).stdout
    return _COUNTERS.sub("", _COMMENT.sub("", text))


def drop_empty_tables(text: str) -> str:
    """A snapshot or listing without the empty built-in tables, which the kernel keeps once they were used."""
    return _EMPTY_TABLE.sub("", text)


def _read_inside(namespace: NetworkNamespace, name: str) -> str:
    """A file of /proc/net as this namespace sees it; empty if the kernel does not have it."""
    with namespace.entered():
        path = Path("/proc/thread-self/net") / name
        return path.read_text() if path.exists() else ""


def _list_nft(namespace: NetworkNamespace) -> str:
    """The tables that iptables-nft does not list."""
    path = shutil.which("nft", path=_PATH)
    if path is None:
        return "(not installed)\n"
    tables = [table.split(maxsplit=1) for table in _list_tables(namespace)]
    mixed = {family for family, name in tables if f"{family} {name}" in _XTABLES}  # not all tables of these are listed
    others = [(family, name) for family, name in tables if f"{family} {name}" not in _XTABLES]
    wanted = dict.fromkeys(("table", family, name) if family in mixed else ("ruleset", family) for family, name in others)
    texts = [namespace.run([path, "list", *what], check=True).stdout for what in wanted]
    return one_spelling(_COUNTERS.sub("", "".join(texts)))


def one_spelling(listed: str) -> str:
    """What nft lists without comments of tables: several options make the same rules, and a comment says which did.

    nft 1.1 has two spellings for a comparison of some TCP flags, by how it was encoded, 1.0 has one.
    """

    def respell(found: re.Match[str]) -> str:
        mask, operator, flags = found.groups()
        return f"tcp flags {'!= ' if operator == '!=' else ''}{flags.replace(' | ', ',')} / {mask.replace(' | ', ',')}"

    return _MASKED.sub(respell, _RECORD.sub("", listed))


def _list_tables(namespace: NetworkNamespace) -> list[str]:
    """Family and name of each nft table, as in `nft list tables`."""
    try:
        with namespace.entered(), netlink.Netlink(netlink.NETLINK_NETFILTER) as link:
            found = link.dump(_NFT_MSG_GETTABLE, bytes(netlink.NETFILTER_SIZE))
    except OSError as error:
        raise LabError(f"the kernel does not list the nft tables of {namespace.name!r}: {error.strerror}") from error
    names = [netlink.read_attributes(body, netlink.NETFILTER_SIZE)[_NFTA_TABLE_NAME] for body in found]
    return [f"{FAMILY_NAMES[body[0]]} {netlink.read_name(name)}" for body, name in zip(found, names, strict=True)]


def _list_network(namespace: NetworkNamespace) -> str:
    lines = []
    with namespace.entered(), netlink.Netlink(netlink.NETLINK_ROUTE) as link:
        for what, question, families in _NETWORK:
            for family in families:
                messages = link.dump(question, bytes((family,)).ljust(_HEADER, b"\0"))
                lines += [f"{what} {text}\n" for text in sorted(_render(question, message) for message in messages)]
    return "".join(lines)


@functools.lru_cache(_REMEMBERED)
def _render(question: int, body: bytes) -> str:
    """A netlink message as sorted `field=value` pairs, decoded by pyroute2, without volatile fields."""
    kind = question - 2  # RTM_NEW... and RTM_GET...
    name = _MESSAGES[kind]
    header = struct.pack("=IHHII", netlink.NLMSG_HEADER + len(body), kind, 0, 0, 0)
    message = getattr(import_module(f"pyroute2.netlink.rtnl.{name}"), name)(header + body)
    message.decode()
    return " ".join(_fields(message))


def _fields(message: Any) -> Iterator[str]:
    for name, value in sorted(message.items()):
        if name == "attrs":
            pairs = sorted((key, content) for key, content in value if key not in _VOLATILE)
            yield from (f"{key.partition('_')[2].lower()}={_plain(content)}" for key, content in pairs)
        elif name not in _VOLATILE:
            yield f"{name}={value}"


def _plain(content: Any) -> str:
    return "{" + " ".join(_fields(content)) + "}" if isinstance(content, dict) else str(content)
