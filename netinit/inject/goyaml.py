"""YAML as kubectl reads it: Go's scalar types, bounded aliases, and a writer whose output no reader misunderstands.

Laws:

- Plain scalars are typed as sigs.k8s.io/yaml types them (YAML 1.1 booleans such as `y` and `off`, `010` and `0o10`
  are octal, timestamps and base-60 numbers stay strings); keys become strings.
- `load(dump(tree)) == tree`, for PyYAML's reader as well: what either of them would take for another type is quoted.
- No input takes more than the limits allow: depth, nodes, and nodes made by aliases ("billion laughs").

libyaml does the scanning where PyYAML has it (ten times as quick); without it the pure Python scanner is used.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
import re

import yaml

from netinit.errors import ParseError
from netinit.inject.tree import clone
from netinit.patterns import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MAX_ALIASED_NODES", "MAX_DEPTH", "MAX_NODES", "dump", "load", "load_all", "load_reporting", "shape"]

MAX_DEPTH = 200
"""Nesting of a document. Real ones stay below 40; the deepest CustomResourceDefinitions reach about 60."""
MAX_NODES = 2_000_000
"""Nodes of a stream, about 60 MB of YAML."""
MAX_ALIASED_NODES = 100_000
"""Nodes that aliases may add to a document."""

_Reader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML_TAG = "tag:yaml.org,2002:"


class _Merge:
    """The type of the key `<<`, which copies the keys of other mappings."""


_MERGE = _Merge()
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    "<<": _MERGE,
}
_FIRST_OF_NUMBER = frozenset("0123456789+-.")
_INTEGER = pattern(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z")
_FLOAT = pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TIMESTAMP = pattern(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:\Z|[Tt ])")
_MAX_DIGITS = 400


@functools.lru_cache(maxsize=8192)
def _resolve(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in _FIRST_OF_NUMBER or len(text) > _MAX_DIGITS:
        return text
    plain = text.replace("_", "") if text[0] != "." else text
    if _TIMESTAMP.match(text):
        return text
    if whole := _INTEGER.match(plain):
        sign, hexadecimal, binary, octal, decimal = whole.groups()
        digits, base = next((d, b) for d, b in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if d)
        return int(sign + digits, base)
    if _FLOAT.match(plain) and not math.isinf(number := float(plain)):
        return number
    return text


def _tagged(tag: str, text: str, mark: Any) -> Any:
    """The value of a scalar with an explicit tag."""
    name = tag.removeprefix(_YAML_TAG)
    if name == "binary":
        try:
            return base64.b64decode(text, validate=False).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise ParseError(f"{_at(mark)}: !!binary holds no base64: {error}") from error
    wanted: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "null": (type(None),), "float": (float, int)}
    if tag.startswith(_YAML_TAG) and name in wanted:
        value = _resolve(text)
        if not isinstance(value, wanted[name]):
            raise ParseError(f"{_at(mark)}: {text!r} cannot be read as !!{name}")
        return float(text) if name == "float" and isinstance(value, int) else value
    return text


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "at its end"


class _Frame:
    """A mapping or sequence that is being read."""

    __slots__ = ("anchor", "key", "keyed", "merges", "start", "value")

    def __init__(self, value: Any, anchor: str | None, start: int) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.keyed = False
        self.key: Any = None
        self.merges: list[Any] | None = None


class _Anchor:
    __slots__ = ("size", "value")

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size


_UNFINISHED = object()


class _Builder:
    """Builds the trees of a stream from the parser's events, without recursion."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self.duplicates: list[str] = []
        self.nodes = 0
        self.aliased = 0
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Any] = {}

    def feed(self, event: Any) -> None:
        kind = event.__class__
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent:
            self._open({}, event)
        elif kind is yaml.SequenceStartEvent:
            self._open([], event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._anchors = {}
            self.aliased = 0

    def _scalar(self, event: Any) -> None:
        self._count(event)
        if event.implicit[0] and not event.style:
            value = _resolve(event.value)
            if value is _MERGE and not self._expects_key():
                value = "<<"
        elif event.tag is None or event.implicit[1] or event.tag == "!":
            value = event.value
        else:
            value = _tagged(event.tag, event.value, event.start_mark)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(value, 1)
        self._add(value, event)

    def _open(self, value: Any, event: Any) -> None:
        self._count(event)
        if len(self._stack) >= MAX_DEPTH:
            raise ParseError(f"{_at(event.start_mark)}: nested deeper than {MAX_DEPTH} levels")
        if self._expects_key():
            raise ParseError(f"{_at(event.start_mark)}: a key must be a scalar, not a mapping or a list")
        if event.anchor:
            self._anchors[event.anchor] = _UNFINISHED
        self._stack.append(_Frame(value, event.anchor, self.nodes))

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if frame.merges:
            for merged in frame.merges:
                for key, value in merged.items():
                    frame.value.setdefault(key, value)
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(frame.value, self.nodes - frame.start + 1)
        self._add(frame.value, event)

    def _alias(self, event: Any) -> None:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise ParseError(f"{_at(event.start_mark)}: the alias *{event.anchor} names no anchor before it")
        if anchor is _UNFINISHED:
            raise ParseError(f"{_at(event.start_mark)}: the alias *{event.anchor} lies inside its own anchor")
        self.aliased += anchor.size
        self.nodes += anchor.size
        if self.aliased > MAX_ALIASED_NODES:
            raise ParseError(
                f"{_at(event.start_mark)}: aliases expand to more than {MAX_ALIASED_NODES} nodes; write the values out"
            )
        self._add(clone(anchor.value), event)

    def _count(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ParseError(f"{_at(event.start_mark)}: more than {MAX_NODES} nodes")

    def _expects_key(self) -> bool:
        if not self._stack:
            return False
        top = self._stack[-1]
        return not top.keyed and top.value.__class__ is dict

    def _add(self, value: Any, event: Any) -> None:
        if not self._stack:
            self.documents.append(value)
            return
        top = self._stack[-1]
        if top.value.__class__ is list:
            top.value.append(value)
        elif not top.keyed:
            top.key = self._key(value, event)
            top.keyed = True
        else:
            top.keyed = False
            if top.key is _MERGE:
                top.merges = (top.merges or []) + self._sources(value, event)
            else:
                if top.key in top.value:
                    self.duplicates.append(f"{_at(event.start_mark)}: the key {top.key!r} stands twice in one mapping")
                top.value[top.key] = value

    def _key(self, value: Any, event: Any) -> Any:
        if value.__class__ is str or value is _MERGE:
            return value
        if value is None or isinstance(value, (dict, list)):
            raise ParseError(f"{_at(event.start_mark)}: a key must be a string, not {json.dumps(value)[:40]}")
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    def _sources(self, value: Any, event: Any) -> list[Any]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise ParseError(f"{_at(event.start_mark)}: << must name a mapping or a list of mappings")
        return [clone(source) for source in sources]


def _events(text: str) -> Any:
    """The parser's events; scanner errors become ParseError with their place."""
    reader = None
    try:
        reader = _Reader(text)
        while (event := reader.get_event()) is not None:
            yield event
    except yaml.MarkedYAMLError as error:
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ParseError(f"{_at(error.problem_mark or error.context_mark)}: {what}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise ParseError(f"not YAML: {' '.join(str(error).split())}") from None
    finally:
        if reader is not None:
            reader.dispose()


def _build(text: str) -> _Builder:
    builder = _Builder()
    feed = builder.feed
    for event in _events(text):
        feed(event)
    return builder


def load_all(text: str) -> list[Any]:
    """The trees of every document of the stream. Raises ParseError with line and column, or when a limit is passed."""
    return _build(text).documents


def load(text: str) -> Any:
    """The tree of the only document; None for an empty text. Raises ParseError, also for a second document."""
    return load_reporting(text)[0]


def load_reporting(text: str) -> tuple[Any, tuple[str, ...]]:
    """`load`, and a sentence for every key that stands twice in its mapping (the last one counts, as in Go)."""
    builder = _build(text)
    if len(builder.documents) > 1:
        raise ParseError(f"{len(builder.documents)} documents where one is expected; separate them by lines of ---")
    return (builder.documents[0] if builder.documents else None), tuple(builder.duplicates)


def shape(text: str) -> tuple[str, ...]:
    """The kinds of the text's nodes in order, without their values: equal for texts of equal structure.

    Duplicate keys count, so that a value cannot hide a second key behind the first one.
    """
    return tuple([event.__class__.__name__[:-5] for event in _events(text)])


# --- writing -----------------------------------------------------------------------------------------------------

_PLAIN = pattern(r"(?:[A-Za-z0-9_./$(]|--?[A-Za-z])[A-Za-z0-9_./@%+=$()~;<>^-]*(?: [A-Za-z0-9_./@%+=$()~;<>^-]+)*\Z")
"""Strings that every reader takes as they stand, if they do not resolve to something else. `:` is added below."""
_COLON = pattern(r":(?=[^\s:])")
_NOT_PRINTABLE = "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
_NOT_PRINTABLE_ASCII = pattern("[^\t\n\x20-\x7e]")
_SEXAGESIMAL = pattern(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_LITERAL = pattern(r"[^ \n\t].*[^\n]\n?\Z", re.DOTALL)
_NUMERIC_START = pattern(r"[-+.0-9]")
_NUMBERISH = pattern(r"[-+]?[.0-9][0-9A-Fa-f_xXoO.:+eE-]*\Z")


@functools.lru_cache(maxsize=16384)
def _quoted(text: str) -> str:
    """The string on one line: plain where no reader can err, else in quotes (single ones around JSON)."""
    bare = _COLON.sub("", text)
    if (
        _PLAIN.match(bare)
        and text[-1:] != ":"
        and not isinstance(_resolve(text), (bool, int, float, type(None), _Merge))
        and not (_NUMERIC_START.match(text) and (_NUMBERISH.match(text) or _TIMESTAMP.match(text)))
        and text.lower() not in _WORDS
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
