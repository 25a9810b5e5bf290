"""Go values as YAML, to the letter of sigs.k8s.io/yaml, which Helm's and Istio's toYaml use.

Keys are sorted naturally (a2 before a10), lists stand at the indentation of their key, text that a YAML 1.1 reader
would take for something else is quoted, text of several lines becomes a literal block.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

from netinit.golang.json_values import json_float, json_name
from netinit.golang.template.floats import format_float
from netinit.golang.template.limits import measure
from netinit.golang.template.values import NO_VALUE, FunctionError, Struct, to_bytes, type_name

__all__ = ["to_yaml"]

_WORDS: Final = frozenset(
    [
        "y",
        "Y",
        "yes",
        "Yes",
        "YES",
        "true",
        "True",
        "TRUE",
        "on",
        "On",
        "ON",
        "n",
        "N",
        "no",
        "No",
        "NO",
        "false",
        "False",
        "FALSE",
        "off",
        "Off",
        "OFF",
        "~",
        "null",
        "Null",
        "NULL",
        ".nan",
        ".NaN",
        ".NAN",
        ".inf",
        ".Inf",
        ".INF",
        "+.inf",
        "+.Inf",
        "+.INF",
        "-.inf",
        "-.Inf",
        "-.INF",
        "<<",
    ]
)
_NUMBER: Final = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|[0-9][0-9_]*|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)"
    r"(?:[eE][-+]?[0-9_]+)?|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)"
)
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?)?"
)
_NEVER_PLAIN: Final = re.compile(r"[#,\[\]{}&*!|>'\"%@`]|[-?:](?:\s|$)|---|\.\.\.|\s|.*(?:\s$|:\s|:$|\s#)", re.DOTALL)
_UNPRINTABLE: Final = r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]"
_UNPRINTABLE_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")
_DOUBLE: Final = {
    "\0": "\\0",
    "\x07": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    "\x1b": "\\e",
    '"': '\\"',
    "\\": "\\\\",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
}
_TO_ESCAPE: Final = r"[^\x20\x21\x23-\x5b\x5d-\x7e\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]"
_TO_ESCAPE_ASCII: Final = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""Beside each class a narrow one for ASCII: the wide ones, compiled when they are needed, take 2 ms each."""
_LONGEST_KEY: Final = 128
"""Bytes of a key that may stand on one line with its value."""
_DIGITS: Final = re.compile(r"[0-9]+")
_BEGUN: Final = re.compile(r"[1-9][0-9]*\Z")
_REFUSED: Final = re.compile("[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
"""Characters that no YAML reader takes and JSON does not escape: Go's way through JSON ends here."""


def to_yaml(value: Any) -> str:
    """The value as YAML with a line feed at the end; raises FunctionError where Go refuses."""
    measure(value)
    return "".join(_write(value, ""))


def _write(value: Any, indent: str) -> Iterable[str]:
    """The node as it stands at the start of a line, its first line not indented."""
    pairs = _pairs(value)
    if pairs:
        lead = ""
        for key, item in pairs:
            shown = _text(key, indent + "  ")
            if "\n" in shown or "\r" in key or len(to_bytes(shown)) > _LONGEST_KEY:
                yield f"{lead}? {shown}\n{indent}: "
                yield from _write(item, indent + "  ")
            else:
                yield f"{lead}{shown}:"
                yield from _write_value(item, indent)
            lead = indent
    elif isinstance(value, list | tuple) and value:
        lead = ""
        for item in value:
            yield f"{lead}- "
            yield from _write(item, indent + "  ")
            lead = indent
    else:
        yield _scalar(value, indent or "  ") + "\n"


def _write_value(value: Any, indent: str) -> Iterable[str]:
    """The node behind the colon of its key."""
    if _pairs(value):
        yield f"\n{indent}  "
        yield from _write(value, indent + "  ")
    elif isinstance(value, list | tuple) and value:
        yield f"\n{indent}"
        yield from _write(value, indent)
    else:
        yield f" {_scalar(value, indent + '  ')}\n"


def _pairs(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        found = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Struct) and not value.nil:
        found = [(json_name(name), item) for name, item in value.fields.items() if item]
    else:
        return []
    return sorted(found, key=lambda pair: _order(pair[0]))


def _compare(left: str, right: str) -> int:
    """The order of two different keys: runs of digits count as numbers, letters stand behind other characters."""
    shorter = min(len(left), len(right))
    at = next((place for place in range(shorter) if left[place] != right[place]), shorter)
    if at == shorter:
        return len(left) - len(right)
    a, b = left[at], right[at]
    if a.isalpha() and b.isalpha():
        return 1 if a > b else -1
    if a.isalpha() or b.isalpha():
        return 1 if a.isalpha() else -1
    return _compare_numbers(left, right, at)


_order = functools.cmp_to_key(_compare)


def _compare_numbers(left: str, right: str, at: int) -> int:
    one, other = _DIGITS.match(left, at), _DIGITS.match(right, at)
    digits, other_digits = one[0] if one else "", other[0] if other else ""
    begun = _BEGUN.search(left, 0, at) if "0" in (left[at], right[at]) else None
    prefix = "1" if begun else ""
    number, other_number = int(prefix + digits or "0"), int(prefix + other_digits or "0")
    if number != other_number:
        return 1 if number > other_number else -1
    return len(digits) - len(other_digits) or (1 if left[at] > right[at] else -1)


def _scalar(value: Any, indent: str) -> str:
    if value is None or value is NO_VALUE or (isinstance(value, Struct) and value.nil):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        # the way through JSON makes whole numbers integers
        text = json_float(value)
        whole = text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < 1 << 64
        return text if whole else format_float(value, "g", -1)
    if isinstance(value, str):
        return _text(value, indent)
    if isinstance(value, dict | Struct):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    raise FunctionError(f"json: unsupported type: {type_name(value)}")


def _text(text: str, indent: str) -> str:
    if ("\x7f" in text) if text.isascii() else _REFUSED.search(text):
        raise FunctionError("yaml: control characters are not allowed")
    special = (_UNPRINTABLE_ASCII if text.isascii() else re.compile(_UNPRINTABLE)).search(text)
    if "\n" in text and not special and not text.endswith(" ") and " \n" not in text:
        return _literal(text, indent)
    if not text or text in _WORDS or special or "\n" in text or _NUMBER.fullmatch(text) or _TIMESTAMP.fullmatch(text):
        escaped = _TO_ESCAPE_ASCII if text.isascii() else re.compile(_TO_ESCAPE)
        return f'"{escaped.sub(_escape, text)}"'
    if _NEVER_PLAIN.match(text):
        return "'" + text.replace("'", "''") + "'"
    return text


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _DOUBLE:
        return _DOUBLE[character]
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 - what two digits hold
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"  # noqa: PLR2004 - what four digits hold


def _literal(text: str, indent: str) -> str:
    hint = "2" if text[0] in " \n" else ""
    body = text.rstrip("\n")
    trailing = len(text) - len(body)
    chomp = "-" if not trailing else "" if trailing == 1 and body else "+"
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f"|{hint}{chomp}\n{shown}"
