"""Sprig's functions on URLs and on slash-separated paths, as Go's packages net/url and path define them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.collections import go_kind
from netinit.golang.template.limits import text_cost
from netinit.golang.template.literals import quote
from netinit.golang.template.values import Function, FunctionError, OwnMap, from_bytes, kind_of, to_bytes

_PLAIN: Final = r"A-Za-z0-9_.~\-"
_KEPT: Final = {
    "path": rf"{_PLAIN}$&+,/:;=@",
    "user": rf"{_PLAIN}$&+,;=",
    "host": rf"{_PLAIN}!$&'()*+,;=:\[\]<>\"",
    "fragment": rf"{_PLAIN}$&+,/:;=?@!()*",
}
"""The characters of each part of a URL that are not escaped."""
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def _escape(text: str, part: str) -> str:
    escaped = re.sub(
        rf"[^{_KEPT[part]}]".encode(), lambda found: f"%{found[0][0]:02X}".encode(), to_bytes(text), flags=re.DOTALL
    )
    return from_bytes(escaped)


def _unescape(text: str, part: str) -> str:
    raw = to_bytes(text)
    for found in re.finditer(rb"%(.{0,2})", raw, re.DOTALL):
        is_escape = re.fullmatch(rb"[0-9A-Fa-f]{2}", found[1])
        if not is_escape or (part == "host" and found[1][0] < ord("8") and found[1] != b"25"):
            raise ValueError(f"invalid URL escape {quote(from_bytes(found[0]))}")
    if part == "host" and (bad := re.search(rf"[^{_KEPT['host']}%\x80-\xff]".encode(), raw)):
        raise ValueError(f"invalid character {quote(from_bytes(bad[0]))} in host name")
    return from_bytes(re.sub(rb"%(..)", lambda found: bytes.fromhex(found[1].decode()), raw))


def parse_url(text: str) -> OwnMap:
    """Split a URL into its parts, by name. Raises FunctionError for an invalid one."""
    try:
        return OwnMap(_parsed(text))
    except ValueError as problem:
        raise FunctionError(f"unable to parse url: parse {quote(text)}: {problem}") from None


def _parsed(text: str) -> dict[str, Any]:
    parts = dict.fromkeys(("scheme", "host", "hostname", "path", "query", "opaque", "fragment", "userinfo"), "")
    before, _, fragment = text.partition("#")
    if _CONTROL.search(before):
        raise ValueError("net/url: invalid control character in URL")
    if before.startswith(":"):
        raise ValueError("missing protocol scheme")
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", before)
    rest = before[found.end() :] if found else before
    parts["scheme"] = scheme = found[1].lower() if found else ""
    rest, _, parts["query"] = rest.partition("?")
    parts["fragment"] = _unescape(fragment, "fragment")
    if not rest.startswith("/"):
        if scheme:
            return {**parts, "opaque": rest}
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        parts["userinfo"], parts["host"] = _authority(authority)
        host = parts["host"]
        parts["hostname"] = host[1 : host.index("]")] if host.startswith("[") else host[: host.rfind(":")] if ":" in host else host
    parts["path"] = _unescape(rest, "path")
    return parts


def _authority(text: str) -> tuple[str, str]:
    user, at, host = text.rpartition("@")
    port = host[host.rfind("]") + 1 :] if host.startswith("[") else host[host.rfind(":") :] if ":" in host else ""
    if host.startswith("[") and "]" not in host:
        raise ValueError("missing ']' in host")
    if not _PORT.fullmatch(port):
        raise ValueError(f"invalid port {quote(port)} after host")
    host = _unescape(host, "host")
    if not at:
        return "", host
    if not _USER.fullmatch(user):
        raise ValueError("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    return _escape(_unescape(name, "user"), "user") + colon + _escape(_unescape(password, "user"), "user"), host


def join_url(parts: dict[str, Any] | None) -> str:
    """Join a URL from the parts that `parse_url` returns. Raises FunctionError."""
    scheme, host, path, query, opaque, fragment, userinfo = (
        _text(parts or {}, name) for name in ("scheme", "host", "path", "query", "opaque", "fragment", "userinfo")
    )
    user = ""
    if userinfo:
        try:
            user = _authority(f"{userinfo}@host")[0] + "@"
        except ValueError as problem:
            whole = quote(f"proto://{userinfo}@host")
            raise FunctionError(f"unable to parse userinfo in dict: parse {whole}: {problem}") from None
    text = f"{scheme}:" if scheme else ""
    if opaque:
        text += opaque
    else:
        if host or user or (scheme and path):
            text += f"//{user}{_escape(host, 'host')}"
        escaped = path if path == "*" else _escape(path, "path")
        if escaped and not escaped.startswith("/") and host:
            text += "/"
        if not text and ":" in escaped.partition("/")[0]:
            text = "./"
        text += escaped
    return text + (f"?{query}" if query else "") + (f"#{_escape(fragment, 'fragment')}" if fragment else "")


def _text(parts: dict[str, Any], name: str) -> str:
    value = parts.get(name, "")
    if kind_of(value) != "string":
        raise FunctionError(f"unable to parse {name} key, must be of type string, but {go_kind(value)} found")
    return str(value)


def clean_path(path: str) -> str:
    """Return the shortest equivalent path, without reading the file system."""
    kept: list[str] = []
    rooted = path.startswith("/")
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", ".") and not (part == ".." and rooted):
            kept.append(part)
    return "/" * rooted + "/".join(kept) or "."


def extension(path: str) -> str:
    """Return the last element from its last point on."""
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


_OF_PATHS: Final = {
    "Base": lambda path: (path.rstrip("/").rpartition("/")[2] or "/") if path else ".",
    "Clean": clean_path,
    "Dir": lambda path: clean_path(path[: path.rfind("/") + 1]),
    "Ext": extension,
    "IsAbs": lambda path: path.startswith("/"),
}
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "urlJoin": Function.of(join_url, cost=lambda parts: text_cost(*(parts or {}).values())),
    "urlParse": Function.of(parse_url, cost=text_cost),
    **{
        name: Function(call, "string", cost=text_cost)
        for word, call in _OF_PATHS.items()
        for name in (word[0].lower() + word[1:], f"os{word}")
    },
}
