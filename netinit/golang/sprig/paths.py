"""Sprig's functions on slash-separated paths, as Go's package path defines them."""

from __future__ import annotations

from typing import Final

from netinit.golang.template.limits import text_cost
from netinit.golang.template.values import typed


def clean(path: str) -> str:
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


_CALLS: Final = {
    "Base": lambda path: (path.rstrip("/").rpartition("/")[2] or "/") if path else ".",
    "Clean": clean,
    "Dir": lambda path: clean(path[: path.rfind("/") + 1]),
    "Ext": extension,
    "IsAbs": lambda path: path.startswith("/"),
}
FUNCTIONS: Final = {
    name: typed(call, "string", cost=text_cost)
    for word, call in _CALLS.items()
    for name in (word[0].lower() + word[1:], f"os{word}")
}
