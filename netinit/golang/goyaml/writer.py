"""Trees -> YAML that no reader misunderstands: what another one would take for another type is quoted."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from netinit.golang.goyaml.scalars import TIMESTAMP, WORDS, Merge, resolve

__all__ = ["dump"]

_PLAIN = re.compile(r"(?:[A-Za-z0-9_./$(]|--?[A-Za-z])[A-Za-z0-9_./@%+=$()~;<>^-]*(?: [A-Za-z0-9_./@%+=$()~;<>^-]+)*\Z")
"""Strings that every reader takes as they stand, if they do not resolve to something else. `:` is added below."""
_COLON = re.compile(r":(?=[^\s:])")
_NOT_PRINTABLE = "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
_NOT_PRINTABLE_ASCII = re.compile("[^\t\n\x20-\x7e]")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_LITERAL = re.compile(r"[^ \n\t].*[^\n]\n?\Z", re.DOTALL)
_NUMERIC_START = re.compile(r"[-+.0-9]")
_NUMBERISH = re.compile(r"[-+]?[.0-9][0-9A-Fa-f_xXoO.:+eE-]*\Z")


@functools.lru_cache(maxsize=16384)
def _quoted(text: str) -> str:
    """The string on one line: plain where no reader can err, else in quotes (single ones around JSON)."""
    bare = _COLON.sub("", text)
    if (
        _PLAIN.match(bare)
        and text[-1:] != ":"
        and not isinstance(resolve(text), (bool, int, float, type(None), Merge))
        and not (_NUMERIC_START.match(text) and (_NUMBERISH.match(text) or TIMESTAMP.match(text)))
        and text.lower() not in WORDS
        and text != "="
        and not _SEXAGESIMAL.match(text)
    ):
        return text
    if '"' in text and "\n" not in text and "\t" not in text and not _not_printable(text).search(text):
        return "'" + text.replace("'", "''") + "'"
    return _not_printable(text).sub(_escape, json.dumps(text, ensure_ascii=False))


def _not_printable(text: str) -> re.Pattern[str]:
    """What finds the characters that YAML does not take; the wide pattern takes 1 ms to compile, ASCII needs it not."""
    return _NOT_PRINTABLE_ASCII if text.isascii() else re.compile(_NOT_PRINTABLE)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"  # noqa: PLR2004 - the basic plane


def _literal(text: str, indent: str) -> str | None:
    """The block scalar `|` of a string of several lines, or None where it would not come back as it is."""
    if not _LITERAL.match(text) or _not_printable(text).search(text) or "\t" in text or " \n" in text:
        return None
    body = text.removesuffix("\n")
    lines = "\n".join(indent + line if line else "" for line in body.split("\n"))
    return f"{'|' if text.endswith(chr(10)) else '|-'}\n{lines}"


def _scalar(value: Any, indent: str) -> str:
    if value.__class__ is str:
        if "\n" in value and (block := _literal(value, indent)) is not None:
            return block
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value)


def _float(value: float) -> str:
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    text = repr(value)
    if text in special:
        return special[text]
    return re.sub(r"^([-+]?[0-9]+)e", r"\1.0e", text)


def _write(value: Any, indent: str, out: list[str]) -> None:
    """Append the lines of a non-empty mapping or sequence at the indentation."""
    deeper = indent + "  "
    if isinstance(value, dict):
        for key, item in value.items():
            _write_item(f"{indent}{_quoted(key)}:", item, indent if isinstance(item, list) else deeper, deeper, out)
        return
    for item in value:
        if isinstance(item, (dict, list)) and item:
            start = len(out)
            _write(item, deeper, out)
            out[start] = f"{indent}- {out[start][len(deeper) :]}"
        else:
            _write_item(f"{indent}-", item, deeper, deeper, out)


def _write_item(head: str, item: Any, nested: str, scalar: str, out: list[str]) -> None:
    if isinstance(item, (dict, list)):
        if item:
            out.append(head)
            _write(item, nested, out)
        else:
            out.append(head + (" {}" if isinstance(item, dict) else " []"))
    else:
        out.append(f"{head} {_scalar(item, scalar)}")


def dump(tree: Any) -> str:
    """The tree as block YAML in the order of its keys, ending in a newline."""
    if not isinstance(tree, (dict, list)) or not tree:
        return (_scalar(tree, "  ") if not isinstance(tree, (dict, list)) else "{}" if tree == {} else "[]") + "\n"
    out: list[str] = []
    _write(tree, "", out)
    return "\n".join(out) + "\n"
