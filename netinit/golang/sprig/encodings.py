"""Sprig's encodings and checksums: JSON, base32, base64, SHA and Adler-32."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.gojson import from_json, to_json
from netinit.golang.sprig.text import unless
from netinit.golang.template.limits import measure_all, text_cost
from netinit.golang.template.values import Function, FunctionError, OwnMap, Shaped, from_bytes, to_bytes

_HTML: Final = {"\\u003c": "<", "\\u003e": ">", "\\u0026": "&"}
_BASE32: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def must_parse_json(text: str) -> Any:
    """Decode JSON. Raises FunctionError for an invalid text."""
    try:
        return from_json(text, OwnMap)
    except ValueError as error:
        raise FunctionError(f"the text is not JSON: {error}") from None


def must_json(value: Any, indent: str = "") -> str:
    """Encode the value as JSON. Raises FunctionError if Go cannot encode it."""
    return Shaped(to_json(value, indent=indent), form="json", tree=value)


def raw_json(value: Any) -> str:
    """Encode the value as JSON without escapes for HTML. Raises FunctionError if Go cannot encode it."""
    parts = to_json(value).split("\\\\")  # a backslash that is itself escaped starts no escape
    for escape, character in _HTML.items():
        parts = [part.replace(escape, character) for part in parts]
    return Shaped("\\\\".join(parts), form="json", tree=value)


def _decoded(text: str, name: str, decode: Callable[[str], bytes], alphabet: frozenset[str], group: int) -> str:
    """Decode the text; for an invalid one return Go's error message, as sprig does."""
    raw = text.replace("\r", "").replace("\n", "")
    try:
        return from_bytes(decode(raw))
    except (binascii.Error, ValueError):
        # Go reports the first byte outside the alphabet, or the start of the last group
        invalid = (place for place, character in enumerate(text) if character not in alphabet and character not in "\r\n")
        first = next((len(to_bytes(text[:place])) for place in invalid), len(text) - len(raw) % group)
        return f"illegal {name} data at input byte {first}"


def _digest(name: str) -> Function:
    def digest(text: str) -> str:
        import hashlib  # slow to import (OpenSSL), and Istio's templates do not need it

        return hashlib.new(name, to_bytes(text), usedforsecurity=False).hexdigest()

    return Function.of(digest)


_JSON_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "mustToJson": must_json,
    "mustToPrettyJson": lambda value: must_json(value, "  "),
    "mustToRawJson": raw_json,
    "toJson": lambda value: unless("json: unsupported", "", must_json, value),
    "toPrettyJson": lambda value: unless("json: unsupported", "", must_json, value, "  "),
    "toRawJson": raw_json,
}
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name: Function.of(call, cost=measure_all) for name, call in _JSON_WRITERS.items()},
    "adler32sum": Function(lambda text: str(zlib.adler32(to_bytes(text))), "string"),
    "b32dec": Function(lambda text: _decoded(text, "base32", base64.b32decode, _BASE32, 8), "string"),
    "b32enc": Function(lambda text: base64.b32encode(to_bytes(text)).decode(), "string"),
    "b64dec": Function(
        lambda text: _decoded(text, "base64", lambda raw: binascii.a2b_base64(raw, strict_mode=True), _BASE64, 4), "string"
    ),
    "b64enc": Function(lambda text: binascii.b2a_base64(to_bytes(text), newline=False).decode(), "string"),
    "fromJson": Function(lambda text: unless("the text is not JSON", None, must_parse_json, text), "string", cost=text_cost),
    "mustFromJson": Function.of(must_parse_json, cost=text_cost),
    "sha1sum": _digest("sha1"),
    "sha256sum": _digest("sha256"),
    "sha512sum": _digest("sha512"),
}
