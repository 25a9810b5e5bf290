"""Bits under a mask in nft's JSON: marks compared (`meta mark & 0xfff`) and changed, TCP flags compared."""

from __future__ import annotations

from netinit.base.net import FULL_MASK
from netinit.rules.matches.context import FLAGS, TcpFlags
from netinit.rules.targets import SetMark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK: Any = {"meta": {"key": "mark"}}
TCP_FLAGS: Any = {"payload": {"protocol": "tcp", "field": "flags"}}
CONNECTION_MARK: Any = {"ct": {"key": "mark"}}


def read_masked(left: Any) -> tuple[Any, int] | None:
    """What is compared and the bits of it that count, for `{"&": [{"meta": …}, 4095]}`; None for anything else."""
    if not isinstance(left, dict) or set(left) != {"&"}:
        return None
    inner, mask = left["&"]
    return (inner, mask) if inner in (MARK, CONNECTION_MARK) and _is_number(mask) else None


def read_flags(match: dict[str, Any]) -> TcpFlags | None:
    """A comparison of TCP flags under a mask, as in `{"&": [{"payload": …}, ["fin", "syn"]]}`; None for anything else."""
    left, right = match["left"], match["right"]
    if match["op"] == "!" and left == TCP_FLAGS:  # none of them
        unset = _read_words(right)
        return TcpFlags(mask=unset, flags=()) if unset else None
    if not isinstance(left, dict) or set(left) != {"&"} or left["&"][0] != TCP_FLAGS or match["op"] not in ("==", "!="):
        return None
    mask, flags = (_read_words(value) for value in (left["&"][1], right))
    if mask is None or flags is None or not set(flags) <= set(mask):
        return None
    return TcpFlags(mask=mask, flags=flags, negated=match["op"] == "!=")


def _read_words(value: Any) -> tuple[str, ...] | None:
    """Flags as nft lists them: one, or a list of them, or `{"|": […]}`, in iptables' words and order."""
    while isinstance(value, dict) and set(value) == {"|"}:
        value = value["|"]
    words = [value] if isinstance(value, str) else value
    known = [flag for flag in FLAGS if isinstance(words, list) and flag.lower() in words]
    return tuple(known) if isinstance(words, list) and len(known) == len(words) else None


def read_change(key: Any, value: Any) -> SetMark | None:
    """The change of a mark's bits that an assignment of it to itself means; None for anything else.

    The kernel keeps two numbers, what is kept and what is xored in; nft lists `&` and `|`, or `^`, as fits these.
    """
    if key not in (MARK, CONNECTION_MARK) or not isinstance(value, dict) or len(value) != 1:
        return None
    ((operator, operands),) = value.items()
    if operator not in ("&", "|", "^") or not isinstance(operands, list):
        return None
    kept, changed = operands
    if not _is_number(changed):
        return None
    connection = key == CONNECTION_MARK
    if operator == "&":
        return SetMark(value=0, mask=FULL_MASK & ~changed, connection=connection) if kept == key else None
    masked = read_masked(kept)
    if kept != key and (masked is None or masked[0] != key):
        return None
    left = FULL_MASK if masked is None else masked[1]
    cleared = FULL_MASK & ~(left & ~changed if operator == "|" else left)
    return SetMark(value=changed, mask=cleared, connection=connection)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= FULL_MASK
