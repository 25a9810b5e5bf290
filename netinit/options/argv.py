"""Parse command lines in the syntax of pflag, which Istio's templates use.

`--flag value`, `--flag=value`, `-p 15001`, `-p=15001`, `-p15001`, `-np 15001`, switches with `=true` or `=false`, `--`. The last
of equal flags wins; lists collect. A word that looks like a flag is no value: an empty value (`-i -b 80`) is an error.
"""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.records import Record
from netinit.options.kinds import FALSE_WORDS, SWITCH, TRUE_WORDS, quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netinit.options.kinds import Flag, Text

    Spelled = tuple[Flag, str, str | None]  # as written, with the value in the same word


class Taken(Record):
    """The parts of a command line: `texts` by field as (text, flag as written), and the rest."""

    texts: dict[str, tuple[Text, str]]
    problems: tuple[str, ...]
    rest: tuple[str, ...]  # words that are neither our flags nor their values, and `--` with everything after it


def parse_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> dict[str, tuple[Text, str]]:
    """The flags: field -> (text, flag as written). Raises OptionError with every missing value, unknown flag and stray word."""
    taken = take_flags(arguments, flags)
    problems = taken.problems + describe_strays(taken.rest)
    if problems:
        raise OptionError(*problems)
    return taken.texts


def take_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> Taken:
    """Extract these flags from a command line that may contain other words."""
    spellings = {name: flag for flag in flags for name in flag.names.split()}
    texts: dict[str, tuple[Text, str]] = {}
    problems: list[str] = []
    rest: list[str] = []
    waiting = list(reversed(arguments))  # a stack: the next word is the last
    while waiting:
        word = waiting.pop()
        if word == "--":
            rest += [word, *reversed(waiting)]
            break
        spelled = _format_long(word, spellings) if word.startswith("--") else _format_short(word, spellings) if is_flag(word) else ()
        if not spelled:
            rest.append(word)
        for flag, name, given in spelled:
            if given is not None:
                _keep(texts, flag, given, name)
            elif flag.kind is SWITCH:
                _keep(texts, flag, "true", name)
            elif not waiting:
                problems.append(f"{name}: the value is missing ({flag.kind.metavar})")
            elif is_flag(waiting[-1]):
                following = quote_value(waiting[-1])
                problems.append(f"{name}: {following} looks like a flag; an empty value is written {name}=''")
            else:
                _keep(texts, flag, waiting.pop(), name)
    return Taken(texts=texts, problems=tuple(problems), rest=tuple(rest))


def is_flag(word: str) -> bool:
    """Whether a word must be a flag (a single dash is not)."""
    return len(word) > 1 and word[0] == "-"


def describe_strays(rest: Sequence[str], hint: str = "quote values that hold blanks or *") -> tuple[str, ...]:
    """Return a problem for each unknown word, with the hint; the word after an unknown flag counts as its value."""
    problems = []
    previous = ""
    for word in rest:
        if word == "--":
            previous = ""
            continue
        if is_flag(word):
            problems.append(f"{quote_value(word.partition('=')[0])} is not an option; --help lists them")
        elif word.isalpha() and word in TRUE_WORDS + FALSE_WORDS:
            problems.append(f"{quote_value(word)} is not an option; a switch and its value are one word, --switch={word}")
        elif not is_flag(previous) or "=" in previous:
            problems.append(f"{quote_value(word)} is not an option; {hint}")
        previous = word
    return tuple(problems)


def _keep(texts: dict[str, tuple[Text, str]], flag: Flag, text: str, name: str) -> None:
    before = texts.get(flag.field, ((), name))[0]
    texts[flag.field] = ((*before, text) if flag.repeated else text, name)


def _format_long(word: str, spellings: Mapping[str, Flag]) -> tuple[Spelled, ...]:
    name, equals, text = word.partition("=")
    flag = spellings.get(name)
    return ((flag, name, text if equals else None),) if flag else ()


def _format_short(word: str, spellings: Mapping[str, Flag]) -> tuple[Spelled, ...]:
    """Split one word into short flags: switches may be combined, the last may have a value; empty if a letter is unknown."""
    spelled: list[Spelled] = []
    rest = word[1:]
    while rest:
        name, rest = f"-{rest[0]}", rest[1:]
        flag = spellings.get(name)
        if flag is None:
            return ()
        if rest.startswith("="):
            spelled.append((flag, name, rest[1:]))
            break
        if rest and flag.kind is not SWITCH:
            spelled.append((flag, name, rest))
            break
        spelled.append((flag, name, None))
    return tuple(spelled)
