"""Sprig's regular expressions, by the library RE2, whose syntax Go has and whose time is linear in the text.

The text comes from a pod, so Python's backtracking engine could be made to hang. Without the package google-re2 (extra
`webhook`) the functions fail when they are called.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from netinit.golang.sprig.text import unless
from netinit.golang.template.limits import check_size
from netinit.golang.template.values import Function, FunctionError, TypedList, from_bytes, to_bytes

_TEXT: Final = "string"
_MAX_MEMORY: Final = 1 << 20
"""Bytes that RE2 may use for one expression; RE2's default is eight times as much."""
_MAX_WORK: Final = 1 << 26
"""Weighted bytes that one call may search: a tenth of a second with RE2's compiled automaton."""
_WORK_PER_STEP: Final = 7
_PLAIN_SIZE: Final = 8
"""Instructions of a simple expression; the weight of a byte grows with the size beyond it."""
_INSIDE: Final = frozenset(bytes([code]) for code in range(0x80, 0xC0))
"""The second and later bytes of a character in UTF-8."""
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_WORDS: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "pattern too large": "expression too large",
}
"""RE2's error messages, and Go's."""
_REFERENCE: Final = rb"\$(?:\$|\{(\w+)\}|(\w+))"
"""A reference to a group in a replacement; $$ is a dollar."""


@functools.lru_cache(maxsize=128)
def _compiled(expression: str) -> Any:
    """Compile the expression. Raises FunctionError with Go's message."""
    try:
        import re2
    except ImportError:
        raise FunctionError("regular expressions need the package google-re2: pip install google-re2") from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(to_bytes(expression), options)
    except re2.error as error:
        raise FunctionError(f"error parsing regexp: {_in_go(from_bytes(error.args[0]))}") from None


def _in_go(message: str) -> str:
    if message.startswith("trailing \\"):
        return "trailing backslash at end of expression: ``"
    words, _, part = message.partition(": ")
    return f"{_WORDS.get(words, words)}: `{part}`"


def _must_compile(expression: str) -> Any:
    """Compile the expression. Raises FunctionError with the message of Go's MustCompile."""
    try:
        return _compiled(expression)
    except FunctionError as error:
        if not str(error).startswith("error parsing"):
            raise
        quoted = f"`{expression}`" if "`" not in expression else f'"{expression}"'
        raise FunctionError(f"regexp: Compile({quoted}): {error}") from None


def _matches(pattern: Any, text: bytes) -> Iterator[Any]:
    """Yield all matches, except empty ones directly after another match or within a character, as in Go."""
    work, end, weight = 0, -1, _weight(pattern)
    for match in pattern.finditer(text):
        work += (len(text) - match.start()) * weight
        if work > _MAX_WORK:
            raise FunctionError("the text is too long for so many matches of a regular expression")
        if match.end() > end and not (
            match.start() == match.end() and text[match.start() : match.end() + 1] in _INSIDE
        ):
            yield match
        end = match.end()


def must_match(expression: str, text: str) -> bool:
    """Whether the expression matches anywhere in the text. Raises FunctionError for an invalid expression."""
    return _compiled(expression).search(to_bytes(text)) is not None


def _find(pattern: Any, text: str) -> str:
    found = pattern.search(to_bytes(text))
    return from_bytes(found[0]) if found else ""


def _find_all(pattern: Any, text: str, count: int) -> TypedList:
    found: list[str] = []
    for match in _matches(pattern, to_bytes(text)):
        if len(found) == count:
            break
        found.append(from_bytes(match[0]))
    return TypedList(found, go_type="[]string")


def _replace(pattern: Any, text: str, replacement: str) -> str:
    raw = to_bytes(replacement)

    def expand(match: Any) -> bytes:
        def group(reference: re.Match[bytes]) -> bytes:
            name = reference[1] or reference[2]
            if not name:
                return b"$"
            number = int(name) if name.isdigit() else pattern.groupindex.get(name, -1)
            return (match[number] if 0 <= number <= pattern.groups else None) or b""

        return re.sub(_REFERENCE, group, raw, flags=re.ASCII)

    return _substituted(pattern, to_bytes(text), expand)


def _replace_literal(pattern: Any, text: str, replacement: str) -> str:
    raw = to_bytes(replacement)
    return _substituted(pattern, to_bytes(text), lambda _match: raw)


def _substituted(pattern: Any, text: bytes, expand: Callable[[Any], bytes]) -> str:
    parts, at, size = [], 0, len(text)
    for match in _matches(pattern, text):
        put = expand(match)
        size += len(put)
        check_size(size)
        parts += [text[at : match.start()], put]
        at = match.end()
    return from_bytes(b"".join([*parts, text[at:]]))


def _split(pattern: Any, text: str, count: int) -> TypedList:
    raw = to_bytes(text)
    parts: list[bytes] = []
    begin = end = 0
    if count != 0 and pattern.pattern and not raw:
        parts = [b""]
    elif count != 0:
        for match in _matches(pattern, raw):
            if 0 < count == len(parts) + 1:
                break
            end = match.start()
            if match.end():
                parts.append(raw[begin:end])
            begin = match.end()
        if end != len(raw):
            parts.append(raw[begin:])
    return TypedList(map(from_bytes, parts), go_type="[]string")


def _cost(expression: str, text: str, *_: Any) -> int:
    """Return the steps of one search, which reads each character once."""
    return _cost_of_pattern(expression) + (len(text) * _weight_of(expression) >> _WORK_PER_STEP)


def _cost_of_pattern(expression: str) -> int:
    """Return the steps of compiling an expression, some 30 microseconds for a small one."""
    return 32 + len(expression) + 2 * _weight_of(expression)


def _cost_of_all(expression: str, text: str, *_: Any) -> int:
    """Return the steps of a search for all matches, each of which may read the whole text."""
    work = len(text) * len(text) * _weight_of(expression) >> 1
    return _cost_of_pattern(expression) + (min(work, _MAX_WORK) >> _WORK_PER_STEP)


def _weight(pattern: Any) -> int:
    return 1 + int(pattern.programsize) // _PLAIN_SIZE


def _weight_of(expression: str) -> int:
    return int(unless("", 1, lambda: _weight(_compiled(expression))))  # the call will fail, too


def _both(name: str, call: Callable[..., Any], *more: str, cost: Callable[..., int]) -> dict[str, Function]:
    """Return the function and its form with must, which reports an invalid expression in other words."""

    def using(compiled: Callable[[str], Any]) -> Function:
        return Function(lambda expression, *rest: call(compiled(expression), *rest), _TEXT, _TEXT, *more, cost=cost)

    return {f"regex{name}": using(_must_compile), f"mustRegex{name}": using(_compiled)}


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **_both("Find", _find, cost=_cost),
    **_both("FindAll", _find_all, "int", cost=_cost_of_all),
    **_both("ReplaceAll", _replace, _TEXT, cost=_cost_of_all),
    **_both("ReplaceAllLiteral", _replace_literal, _TEXT, cost=_cost_of_all),
    **_both("Split", _split, "int", cost=_cost_of_all),
    "mustRegexMatch": Function.of(must_match, cost=_cost),
    "regexMatch": Function(
        lambda expression, text: bool(unless("error parsing", None, must_match, expression, text)),
        *(_TEXT, _TEXT),
        cost=_cost,
    ),
    "regexQuoteMeta": Function(lambda text: _SPECIAL.sub(r"\\\g<0>", text), _TEXT),
}
