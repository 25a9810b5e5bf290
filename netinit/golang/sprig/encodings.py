"""Sprig's encodings and checksums: JSON, base32, base64, SHA and Adler-32."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.gojson import from_json, to_json
from netinit.golang.template.limits import measure_all, text_cost
from netinit.golang.template.values import Function, FunctionError, OwnMap, Shaped, from_bytes, to_bytes, typed

_ANY: Final = "interface {}"
_TEXT: Final = "string"
_HTML: Final = {"\\u003c": "<", "\\u003e": ">", "\\u0026": "&"}
_BASE32: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def parse_json(text: str) -> Any:
    """The value of the JSON text, or nil where it is none."""
    try:
        return _owned(from_json(text))
    except ValueError:
        return None


def must_parse_json(text: str) -> Any:
    """The value of the JSON text. Raises FunctionError where it is none."""
    try:
        return _owned(from_json(text))
    except ValueError as error:
        raise FunctionError(f"the text is not JSON: {error}") from None


def _owned(value: Any) -> Any:
    """The value with maps that the template may change."""
    if isinstance(value, dict):
        return OwnMap((key, _owned(item)) for key, item in value.items())
    return [_owned(item) for item in value] if isinstance(value, list) else value


def must_json(value: Any) -> str:
    """The value as JSON. Raises FunctionError where it has none."""
    return Shaped(to_json(value), form="json", tree=value)


def must_pretty_json(value: Any) -> str:
    """The value as JSON, an element a line. Raises FunctionError where it has none."""
    return Shaped(to_json(value, indent="  "), form="json", tree=value)


def raw_json(value: Any) -> str:
    """The value as JSON in which HTML's special characters stand as they are. Raises FunctionError where it has none."""
    return Shaped(_unescaped(to_json(value)), form="json", tree=value)


def _unescaped(text: str) -> str:
    """The JSON text without the escapes for HTML; a backslash that is itself escaped begins none."""
    parts = text.split("\\\\")
    for escape, character in _HTML.items():
        parts = [part.replace(escape, character) for part in parts]
    return "\\\\".join(parts)


def compact_json(value: Any) -> str:
    """The value as JSON, "" where it has none."""
    return _or_nothing(must_json, value)


def pretty_json(value: Any) -> str:
    """The value as JSON, an element a line, "" where it has none."""
    return _or_nothing(must_pretty_json, value)


def _or_nothing(write: Callable[[Any], str], value: Any) -> str:
    try:
        return write(value)
    except FunctionError as error:
        if str(error).startswith("json: unsupported"):
            return ""
        raise


def encode_base32(text: str) -> str:
    """The text in base32."""
    import base64  # takes 2 ms, and templates seldom ask for it

    return base64.b32encode(to_bytes(text)).decode()


def decode_base32(text: str) -> str:
    """What the base32 text says; where it is none, the text of Go's complaint."""
    import base64

    raw = text.replace("\r", "").replace("\n", "")
    try:
        return from_bytes(base64.b32decode(raw))
    except (binascii.Error, ValueError):
        return f"illegal base32 data at input byte {_first_bad_byte(text, _BASE32, 8)}"


def encode_base64(text: str) -> str:
    """The text in base64."""
    return binascii.b2a_base64(to_bytes(text), newline=False).decode()


def decode_base64(text: str) -> str:
    """What the base64 text says; where it is none, the text of Go's complaint."""
    raw = text.replace("\r", "").replace("\n", "")
    try:
        return from_bytes(binascii.a2b_base64(raw, strict_mode=True))
    except (binascii.Error, ValueError):
        return f"illegal base64 data at input byte {_first_bad_byte(text, _BASE64, 4)}"


def _first_bad_byte(text: str, alphabet: frozenset[str], group: int) -> int:
    """Where Go finds that the text is not encoded: at a foreign character, or where the last group begins."""
    for place, character in enumerate(text):
        if character not in alphabet and character not in "\r\n":
            return len(to_bytes(text[:place]))
    return len(text) - len(text.replace("\r", "").replace("\n", "")) % group


def _digest(name: str) -> Function:
    def digest(text: str) -> str:
        import hashlib  # OpenSSL behind it takes its time, and Istio's templates need none

        return hashlib.new(name, to_bytes(text), usedforsecurity=False).hexdigest()

    return typed(digest, _TEXT)


def adler32sum(text: str) -> str:
    """The Adler-32 checksum of the text in decimal."""
    import zlib

    return str(zlib.adler32(to_bytes(text)))


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "adler32sum": typed(adler32sum, _TEXT),
    "b32dec": typed(decode_base32, _TEXT),
    "b32enc": typed(encode_base32, _TEXT),
    "b64dec": typed(decode_base64, _TEXT),
    "b64enc": typed(encode_base64, _TEXT),
    "fromJson": typed(parse_json, _TEXT, cost=text_cost),
    "mustFromJson": typed(must_parse_json, _TEXT, cost=text_cost),
    "mustToJson": typed(must_json, _ANY, cost=measure_all),
    "mustToPrettyJson": typed(must_pretty_json, _ANY, cost=measure_all),
    "mustToRawJson": typed(raw_json, _ANY, cost=measure_all),
    "sha1sum": _digest("sha1"),
    "sha256sum": _digest("sha256"),
    "sha512sum": _digest("sha512"),
    "toJson": typed(compact_json, _ANY, cost=measure_all),
    "toPrettyJson": typed(pretty_json, _ANY, cost=measure_all),
    "toRawJson": typed(raw_json, _ANY, cost=measure_all),
}
