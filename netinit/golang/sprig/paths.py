"""Sprig's functions on slash-separated paths, as Go's package path has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import text_cost
from netinit.golang.template.values import Function, typed


def base(path: str) -> str:
    """The last element of the path, "." for an empty one and "/" for one of slashes alone."""
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def clean(path: str) -> str:
    """The shortest path that means the same, read as text alone."""
    kept: list[str] = []
    rooted = path.startswith("/")
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", ".") and not (part == ".." and rooted):
            kept.append(part)
    return "/" * rooted + "/".join(kept) or "."


def directory(path: str) -> str:
    """All but the last element of the path."""
    return clean(path[: path.rfind("/") + 1])


def extension(path: str) -> str:
    """What follows the last point of the last element, with that point."""
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


def is_absolute(path: str) -> bool:
    """Whether the path begins with a slash."""
    return path.startswith("/")


_CALLS: Final = {"Base": base, "Clean": clean, "Dir": directory, "Ext": extension, "IsAbs": is_absolute}
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    name: typed(call, "string", cost=text_cost)
    for word, call in _CALLS.items()
    for name in (word[0].lower() + word[1:], f"os{word}")
}
