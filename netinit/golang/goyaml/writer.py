"""Write block YAML in the layout of kubectl and Helm, strings quoted if necessary.

`go_text` quotes what Go or a YAML 1.1 reader would read as another type. `careful_text` quotes everything that readers
disagree about, but not characters beyond the basic multilingual plane.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from netinit.golang.goyaml.scalars import WORDS, is_ambiguous, looks_like_a_number

# What only strange texts need is compiled by the functions of `re`, when the first of them comes.
_UNPRINTED = r"\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
_BEYOND = r"\U00010000-\U0010ffff"
_QUOTED = r'"\\\n\xa0'
"""Printable characters that are escaped between double quotes."""
_SPECIAL = f"[{_UNPRINTED}]"
_ESCAPED = f"[{_UNPRINTED}{_QUOTED}]"
_GO_SPECIAL = f"[{_UNPRINTED}{_BEYOND}]"
_GO_ESCAPED = f"[{_UNPRINTED}{_BEYOND}{_QUOTED}]"
_GO_NEVER_PLAIN = re.compile(r"[#,\[\]{}&*!|>'\"%@`]|[-?:](?:\s|$)|---|\.\.\.|\s|.*(?:\s$|:\s|:$|\s#)", re.DOTALL | re.ASCII)
_PLAIN = re.compile(r"(?:[A-Za-z0-9_./$(]|--?[A-Za-z])[A-Za-z0-9_./@%+=$()~;<>^-]*(?: [A-Za-z0-9_./@%+=$()~;<>^-]+)*\Z")
"""Strings that every reader reads literally, unless they resolve to another type. `:` is handled separately."""
_COLON = r":(?=[^\s:])"
_BLOCK = r"(?s)[^ \n\t].*[^\n]\n?\Z"
_NAMED = {
    "\0": "0", "\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", "\x1b": "e",
    '"': '"', "\\": "\\", "\x85": "N", "\xa0": "_", "\u2028": "L", "\u2029": "P",
}  # fmt: skip
"""What follows the backslash of a character that has an escape of its own."""


def go_text(text: str, indent: str) -> str:
    """Write a string like Go. `indent`: of the lines of a block scalar."""
    if text.startswith("\ufeff"):  # Go escapes everything behind it
        return f'"{re.sub("(?s).", _escape, text)}"'
    special = _holds(text, _GO_SPECIAL)
    if "\n" in text and not special and not text.endswith(" ") and " \n" not in text:
        return _literal(text, indent)
    if special or "\n" in text or is_ambiguous(text):
        return _double_quoted(text, _GO_ESCAPED)
    return _single_quoted(text) if _GO_NEVER_PLAIN.match(text) else text


def careful_text(text: str, indent: str) -> str:
    """Write a string that every reader reads alike. `indent`: of the lines of a block scalar."""
    if "\n" in text and re.match(_BLOCK, text) and " \n" not in text and not _holds(text, _SPECIAL):
        return _literal(text, indent)
    return _on_one_line(text)


@functools.lru_cache(maxsize=16384)
def _on_one_line(text: str) -> str:
    if (
        _PLAIN.match(re.sub(_COLON, "", text) if ":" in text else text)
        and text[-1] != ":"
        and text != "="
        and text.lower() not in WORDS
        and not looks_like_a_number(text)
        and not is_ambiguous(text)
    ):
        return text
    if '"' in text and "\n" not in text and not _holds(text, _SPECIAL):
        return _single_quoted(text)
    return _double_quoted(text, _ESCAPED)


def _holds(text: str, characters: str) -> bool:
    """Whether the text contains one of these characters, which are not printable ASCII."""
    return not _is_simple(text) and re.search(characters, text) is not None


def _is_simple(text: str) -> bool:
    return text.isascii() and text.replace("\n", "").isprintable()


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _double_quoted(text: str, escaped: str) -> str:
    if _is_simple(text):
        inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{inner}"'
    return f'"{re.sub(escaped, _escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMED:
        return f"\\{_NAMED[character]}"
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 - what two digits hold
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"  # noqa: PLR2004 - what four digits hold


def _literal(text: str, indent: str) -> str:
    """Write a block scalar `|`; its header has an indentation if the text starts with a space, and the chomping."""
    hint = "2" if text[0] in " \n" else ""
    body = text.rstrip("\n")
    trailing = len(text) - len(body)
    chomp = "-" if not trailing else "" if trailing == 1 and body else "+"
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f"|{hint}{chomp}\n{shown}"


_BREAKS = "[\n\r\x85\u2028\u2029]"
_MAX_KEY = 128
"""Bytes of a key that is on one line with its value."""
_SHORT = _MAX_KEY // 4  # characters that are never more bytes
_SPECIAL_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_WITHOUT_POINT = r"^([-+]?[0-9]+)e"


def write(value: Any, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> str:
    """Write the value as block YAML with a final line feed.

    `pairs` returns the keys and values of a mapping; empty for anything else. `scalar` writes everything but non-empty
    mappings and lists; it gets the indentation of further lines.
    """
    writer = _Writer(pairs, scalar)
    writer.node(value, "")
    return "".join(writer.parts)


class _Writer:
    def __init__(self, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> None:
        self.pairs, self.scalar = pairs, scalar
        self.parts: list[str] = []

    def node(self, value: Any, indent: str, *, behind_key: bool = False) -> None:
        """Write a node after its indentation, or behind its key, where a mapping or a list begins with a line of its own."""
        if value.__class__ is not str and (found := self.pairs(value)):
            if behind_key:
                indent += "  "
                self.parts.append(f"\n{indent}")
            self.mapping(found, indent)
        elif isinstance(value, (list, tuple)) and value:
            if behind_key:
                self.parts.append(f"\n{indent}")
            self.sequence(value, indent)
        else:
            self.parts.append(f" {self.scalar(value, indent + '  ')}\n" if behind_key else self.scalar(value, indent or "  ") + "\n")

    def mapping(self, found: list[tuple[str, Any]], indent: str) -> None:
        lead, deeper = "", indent + "  "
        for key, item in found:
            shown = self.scalar(key, deeper)
            is_usual = len(shown) <= _SHORT and key.isprintable()
            if not is_usual and ("\n" in shown or re.search(_BREAKS, key) or len(shown.encode()) > _MAX_KEY):
                self.parts.append(f"{lead}? {shown}\n{indent}: ")
                self.node(item, deeper)
            elif item.__class__ is str:
                self.parts.append(f"{lead}{shown}: {self.scalar(item, deeper)}\n")
            else:
                self.parts.append(f"{lead}{shown}:")
                self.node(item, indent, behind_key=True)
            lead = indent

    def sequence(self, items: list[Any] | tuple[Any, ...], indent: str) -> None:
        lead = "- "
        for item in items:
            self.parts.append(lead)
            self.node(item, indent + "  ")
            lead = f"{indent}- "


def dump(tree: Any) -> str:
    """Write a tree as block YAML, keys in their order; ambiguous text is quoted."""
    return write(tree, lambda value: list(value.items()) if isinstance(value, dict) else [], write_scalar)


def write_scalar(value: Any, indent: str) -> str:
    """Write everything but mappings and lists that hold something. `indent`: of further lines."""
    if isinstance(value, str):
        return careful_text(value, indent)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return _SPECIAL_FLOATS.get(text) or re.sub(_WITHOUT_POINT, r"\1.0e", text)
    if isinstance(value, dict):
        return "{}"
    return "[]" if isinstance(value, list) else str(value)
