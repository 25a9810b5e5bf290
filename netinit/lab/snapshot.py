"""The whole state of a namespace as text, so that "as before" can be asserted and a difference be read."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netinit.kernel import route_library
from netinit.lab.namespace import NetworkNamespace

__all__ = ["drop_empty_tables", "list_rules", "take_snapshot"]

_SAVES = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
_LEGACY_NAMES = {"iptables-legacy-save": "ip_tables_names", "ip6tables-legacy-save": "ip6_tables_names"}
_XTABLES = {f"{family} {table}" for family in ("ip", "ip6") for table in ("filter", "nat", "mangle", "raw", "security")}
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
_COUNTERS = re.compile(r" \[\d+:\d+\]$| packets \d+ bytes \d+", re.MULTILINE)
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)
_EMPTY_TABLE = re.compile(r"^\*\w+\n(?::[A-Z]+ ACCEPT\n)*COMMIT\n", re.MULTILINE)
_VOLATILE = {"event", "header", "IFA_CACHEINFO", "RTA_CACHEINFO"}


def take_snapshot(namespace: NetworkNamespace) -> str:
    """The rules of both variants and families, other nft tables, addresses, routes and policy rules, a line each.

    Counters and comments are left out, the order of rules is kept, routes and addresses are sorted. A program that is
    not installed is named as such. Nothing is changed by looking: no table is registered.
    """
    parts = [f"# {program}\n{list_rules(namespace, program)}" for program in _SAVES]
    parts.append(f"# nft\n{_list_nft(namespace)}")
    parts.append(f"# addresses, routes, policy rules\n{_list_network(namespace)}")
    return "".join(parts)


def list_rules(namespace: NetworkNamespace, program: str) -> str:
    """What `iptables-nft-save` or one of its sisters prints inside, without counters and comments.

    The legacy programs run only when the kernel has legacy tables registered, because reading them is else reading
    nothing, at the price of a process. Raises LabError when the program fails.
    """
    path = shutil.which(program, path=_PATH)
    if path is None:
        return "(not installed)\n"
    names = _LEGACY_NAMES.get(program)
    if names is not None and not _read_inside(namespace, names):
        return ""
    text = namespace.run([path], check=True).stdout
    return _COUNTERS.sub("", _COMMENT.sub("", text))


def drop_empty_tables(text: str) -> str:
    """The snapshot or listing without built-in tables that hold nothing: the kernel keeps those once they were used.

    A table with a chain of its own, a rule, or a policy other than ACCEPT is kept.
    """
    return _EMPTY_TABLE.sub("", text)


def _read_inside(namespace: NetworkNamespace, name: str) -> str:
    """The file of /proc/net as this namespace sees it; empty where the kernel does not have it."""
    with namespace.entered():
        path = Path("/proc/thread-self/net") / name
        return path.read_text() if path.exists() else ""


def _list_nft(namespace: NetworkNamespace) -> str:
    """The tables that iptables-nft does not list."""
    path = shutil.which("nft", path=_PATH)
    if path is None:
        return "(not installed)\n"
    listing = namespace.run([path, "list", "tables"], check=True).stdout
    tables = [line.removeprefix("table ") for line in listing.splitlines()]
    texts = [
        namespace.run([path, "list", "table", *table.split()], check=True).stdout
        for table in tables
        if table not in _XTABLES
    ]
    return _COUNTERS.sub("", "".join(texts))


def _list_network(namespace: NetworkNamespace) -> str:
    library = route_library.load()
    with namespace.entered():
        socket = library.IPRoute()
    with socket:
        lines = [
            *(f"address {text}" for text in _render(socket.get_addr())),
            *(f"route {text}" for family in (2, 10) for text in _render(socket.get_routes(family=family))),
            *(f"rule {text}" for family in (2, 10) for text in _render(socket.get_rules(family=family))),
        ]
    return "".join(f"{line}\n" for line in lines)


def _render(messages: Any) -> Iterator[str]:
    """Each netlink message as `field=value` pairs, in a stable order and without what changes by itself."""
    return iter(sorted(" ".join(_fields(message)) for message in messages))


def _fields(message: Any) -> Iterator[str]:
    for name, value in sorted(message.items()):
        if name == "attrs":
            pairs = sorted((key, content) for key, content in value if key not in _VOLATILE)
            yield from (f"{key.partition('_')[2].lower()}={_plain(content)}" for key, content in pairs)
        elif name not in _VOLATILE:
            yield f"{name}={value}"


def _plain(content: Any) -> str:
    return "{" + " ".join(_fields(content)) + "}" if isinstance(content, dict) else str(content)
