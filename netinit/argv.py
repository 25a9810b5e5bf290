"""Command lines in the syntax of pflag, which Istio's templates are written in.

`--flag value`, `--flag=value`, `-p 15001`, `-p=15001`, `-p15001`, combined short flags (`-np 15001`), switches with
`=true` or `=false`. The last of several equal flags wins. A word that looks like a flag is never taken for a value.
"""

from __future__ import annotations

from netinit.errors import OptionError
from netinit.options import FLAGS, Flag
from netinit.values import SWITCH, quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LONG = {name: flag for flag in FLAGS if flag.long for name in (flag.long, *flag.aliases)}
_SHORT = {flag.short: flag for flag in FLAGS if flag.short}


class UnknownFlagError(OptionError):
    """A flag that does not exist; `word` is how it was written."""

    def __init__(self, word: str) -> None:
        super().__init__(f"{quote_value(word)} is not an option; --help lists them")
        self.word = word


def parse_flags(arguments: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The texts given as flags: field -> (text, the flag as written).

    UnknownFlagError for a flag that does not exist, OptionError for a missing value or a stray word.
    """
    found: dict[str, tuple[str, str]] = {}
    words = iter(arguments)
    for word in words:
        if word.startswith("--") and word != "--":
            name, equals, text = word[2:].partition("=")
            flag = _LONG.get(name)
            if flag is None:
                raise UnknownFlagError(word.partition("=")[0])
            found[flag.field] = (text if equals else _value(flag, f"--{name}", words), f"--{name}")
        elif word.startswith("-") and len(word) > 1 and word != "--":
            _parse_short(word, words, found)
        else:
            raise OptionError(f"{quote_value(word)} is not an option; quote values that hold blanks or *")
    return found


def _parse_short(word: str, words: Iterator[str], found: dict[str, tuple[str, str]]) -> None:
    """Reads one word of short flags: switches may be combined, the last one may have a value."""
    rest = word[1:]
    while rest:
        flag = _SHORT.get(rest[0])
        if flag is None:
            raise UnknownFlagError(f"-{rest[0]}" if word[1] == rest[0] else f"-{rest[0]} in {word}")
        name, rest = f"-{rest[0]}", rest[1:]
        if rest.startswith("="):
            found[flag.field], rest = (rest[1:], name), ""
        elif flag.kind is SWITCH:
            found[flag.field] = ("true", name)
        elif rest:
            found[flag.field], rest = (rest, name), ""
        else:
            found[flag.field] = (_value(flag, name, words), name)


def _value(flag: Flag, name: str, words: Iterator[str]) -> str:
    if flag.kind is SWITCH:
        return "true"
    text = next(words, None)
    if text is None:
        raise OptionError(f"{name}: the value is missing ({flag.kind.metavar})")
    if text.startswith("-") and len(text) > 1:
        raise OptionError(f"{name}: {quote_value(text)} looks like a flag, not a value; an empty value is written {name}=''")
    return text
