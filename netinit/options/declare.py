"""Declare options: a field, its flag, variables, default and help in one place; and parse command lines of them.

A class of options has fields made by `istio`, `ours`, `variable` or `plain`. Its constructor, which mypy checks (PEP 681), the
flags, the help and the documentation are derived from these. Command lines have the syntax of pflag, which Istio's templates use:
`--flag value`, `--flag=value`, `-p 15001`, `-p=15001`, `-p15001`, `-np 15001`, switches with `=true` or `=false`, `--`. The last of
equal flags wins; lists collect. A word that looks like a flag is no value: an empty value (`-i -b 80`) is an error.
"""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.records import Record, RecordType
from netinit.options.kinds import FALSE_WORDS, SWITCH, TRUE_WORDS, Flag, Kind, quote_value, suggest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar, Self, dataclass_transform

    from netinit.options.kinds import Text

    FlagWord = tuple[Flag, str, str | None]  # as written, with the value in the same word
else:

    def dataclass_transform(**_: object):  # noqa: ANN201 - a stand-in that type checkers never see
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated


DERIVED: Any = None  # default of a field that is derived from others
OF_ISTIO, OF_OURS, WITHOUT_FLAG = "Options of istio-iptables", "Options of netinit", "Environment variables without a flag"
PLAIN = "Options"
ANNOTATIONS = "netinit.io/"  # the domain of our annotations
NAMESPACE, VALIDATION, LOGGING = "Namespace", "Validation", "Logging"  # topics


def istio(names: str, kind: Kind, *, default: Any, also: tuple[str, ...] = (), has_variable: bool = True, **facts: Any) -> Any:
    """Declare a flag of istio-iptables. `names`: `-p --envoy-port --alias`; its variable is the long name; `also`: more variables.

    `facts`, here and below: `help_text`; `annotated`, whether a pod annotation of netinit sets it too; other fields of `Flag`.
    """
    return _declare(names, kind, OF_ISTIO, (_variable_of(names), *also) if has_variable else (), default, facts=facts)


def ours(names: str, kind: Kind, *, default: Any, **facts: Any) -> Any:
    """Declare a flag that istio-iptables lacks; its variable begins with NETINIT_."""
    return _declare(names, kind, OF_OURS, (f"NETINIT_{_variable_of(names)}",), default, facts=facts)


def variable(name: str, kind: Kind, *, default: Any, **facts: Any) -> Any:
    """Declare an option that only an environment variable sets."""
    return _declare("", kind, WITHOUT_FLAG, (name,), default, facts=facts)


def plain(names: str, kind: Kind, *, default: Any, also: tuple[str, ...] = (), **facts: Any) -> Any:
    """Declare a flag of a command with its own options. `also`: its variables."""
    return _declare(names, kind, PLAIN, also, default, facts=facts)


def _declare(names: str, kind: Kind, group: str, variables: tuple[str, ...], default: Any, *, facts: dict[str, Any]) -> Flag:
    if facts.pop("annotated", False):
        facts["annotation"] = f"{ANNOTATIONS}{names.partition('--')[2].partition(' ')[0]}"
    text = facts.pop("help_text")
    return Flag(names=names, variables=variables, kind=kind, default=default, help=text, group=group, **facts)


def _variable_of(names: str) -> str:
    return names.partition("--")[2].partition(" ")[0].upper().replace("-", "_")


class _DeclaredOptionsType(RecordType):
    """Turns declarations into defaults and collects the flags."""

    flags: tuple[Flag, ...]
    by_field: dict[str, Flag]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _DeclaredOptionsType:  # noqa: PYI034 - a metaclass
        own = {field: value for field, value in namespace.items() if isinstance(value, Flag)}
        for field, flag in own.items():
            flag.__dict__["field"] = field  # a declaration gets the name of its field here
        namespace |= {field: flag.default for field, flag in own.items()}
        made: Any = super().__new__(mcs, name, bases, namespace)
        made.flags = tuple([flag for base in bases for flag in getattr(base, "flags", ())] + [*own.values()])
        made.by_field = {flag.field: flag for flag in made.flags}
        return made  # type: ignore[no-any-return]


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(istio, ours, variable, plain)
)
class DeclaredOptions(Record, metaclass=_DeclaredOptionsType):
    """A record of declared options. Given and derived values are stored separately, so that `replace` derives again.

    Values may have the flag's syntax (`inbound_ports="80,443"`), lists be any sequence. Raises OptionError with every unknown
    field and invalid value.
    """

    _given: ClassVar[dict[str, Any]]  # of each record; this annotation keeps type checkers from treating it as a field

    def __init__(self, **given: Any) -> None:
        self._settle(self._read(given))

    @classmethod
    def flag(cls, field: str) -> Flag:
        """Return the declaration of a field. Raises KeyError if there is none."""
        return cls.by_field[field]

    @classmethod
    def from_texts(
        cls, texts: Mapping[str, tuple[Text, str]], environ: Mapping[str, str], known_problems: Sequence[str] = (),
        file: Mapping[str, tuple[Text, str]] | None = None,
    ) -> Self:  # fmt: skip
        """Options from flags (field -> (text, flag as written)), the environment, a file and defaults.

        Raises OptionError with `known_problems` and every invalid value, each with its flag, variable or key.
        """
        read: dict[str, Any] = {}
        problems = list(known_problems)
        for flag in cls.flags:
            text: Text
            text, label = texts.get(flag.field) or _from_environment(flag, environ)
            if not label and file:
                text, label = file.get(flag.field, ("", ""))
            if not label:
                continue
            values = []
            for one in text if isinstance(text, tuple) else (text,):
                try:
                    values.append(flag.kind.parse(one))
                except ValueError as error:
                    problems.append(f"{label}: {quote_value(one)} {error}")
            if values:
                read[flag.field] = tuple(values) if flag.repeated else values[0]
        cls._add_environment_defaults(read, environ)
        if problems:
            raise OptionError(*problems)
        return cls._made(read)

    @classmethod
    def from_argv(cls, arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> Self:
        """Options from a command line without the program's name, and an environment. Raises OptionError with every problem."""
        taken = extract_flags(arguments, cls.flags)
        return cls.from_texts(taken.texts, environ or {}, taken.problems + describe_strays(taken.rest))

    def replace(self, **changes: Any) -> Self:
        """A copy with new values; derived ones are computed again. Raises OptionError."""
        return self._made({**self._given, **self._read(changes)})

    def without(self, field: str) -> Self:
        """A copy as if a field had not been given. Raises OptionError if the others then contradict each other."""
        return self._made({name: value for name, value in self._given.items() if name != field})

    def __getstate__(self) -> dict[str, object]:
        return self._given

    def __setstate__(self, state: dict[str, object]) -> None:
        self._settle(dict(state))

    @classmethod
    def _add_environment_defaults(cls, read: dict[str, Any], environ: Mapping[str, str]) -> None:
        """Add defaults that depend on the environment to the parsed values; for command lines only."""

    @classmethod
    def _made(cls, checked: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        made._settle(checked)  # noqa: SLF001 - its own class
        return made

    def _settle(self, given: dict[str, Any]) -> None:
        """Set every field, including derived ones, and check them against each other."""
        every = self._derive(given)
        super().__init__(**every)
        self.__dict__["_given"] = given
        problems = tuple(self._check())
        if problems:
            raise OptionError(*problems)

    def _derive(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the given values and those derived from them."""
        return given

    def _check(self) -> list[str]:
        """Return problems of values that contradict each other."""
        return []

    @classmethod
    def _read(cls, given: dict[str, Any]) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        problems = []
        flags = cls.by_field
        for field, value in given.items():
            if field not in flags:
                hint = suggest(field, flags) or "the fields are those of the flags"
                problems.append(f"{field}: there is no such option; {hint}")
                continue
            flag = flags[field]
            if type(value) is type(flag.default) and value == flag.default:
                if value is not DERIVED:
                    checked[field] = value  # for example `pid` 0, which no command line can express
                continue
            try:
                checked[field] = _read_value(flag, value)
            except ValueError as error:
                shown = value if isinstance(value, str) else f"{value}"
                problems.append(f"{field}: {quote_value(shown)} {error}")
        if problems:
            raise OptionError(*problems)
        return checked


def _from_environment(flag: Flag, environ: Mapping[str, str]) -> tuple[str, str]:
    for name in flag.variables:
        text = environ.get(name)
        if text or (text is not None and flag.kind.is_name):
            return text, f"environment variable {name}"
    return "", ""


def _read_value(flag: Flag, value: Any) -> Any:
    """The value in its own type. Raises ValueError as readers do."""
    if flag.repeated:
        return tuple([flag.kind.parse(one) for one in ((value,) if isinstance(value, str) else value)])
    if isinstance(value, str):
        return flag.kind.parse(value)
    wrong_type = ValueError(f"is of type {type(value).__name__}: use {flag.kind.metavar}, as {flag.label} takes it")
    try:
        text = flag.kind.write(value)
    except (AttributeError, TypeError):
        raise wrong_type from None
    read = flag.kind.read(text)
    if not isinstance(read, tuple) and type(read) is not type(value):
        raise wrong_type
    return read


class ParsedFlags(Record):
    """The parts of a command line: `texts` by field as (text, flag as written), and the rest."""

    texts: dict[str, tuple[Text, str]]
    problems: tuple[str, ...]
    rest: tuple[str, ...]  # words that are neither our flags nor their values, and `--` with everything after it


def parse_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> dict[str, tuple[Text, str]]:
    """The flags: field -> (text, flag as written). Raises OptionError with every missing value, unknown flag and stray word."""
    taken = extract_flags(arguments, flags)
    problems = taken.problems + describe_strays(taken.rest)
    if problems:
        raise OptionError(*problems)
    return taken.texts


def extract_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> ParsedFlags:
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
        parts = _split_word(word, spellings) if is_flag(word) else ()
        if not parts:
            rest.append(word)
        for flag, name, given in parts:
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
    return ParsedFlags(texts=texts, problems=tuple(problems), rest=tuple(rest))


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


def _split_word(word: str, spellings: Mapping[str, Flag]) -> tuple[FlagWord, ...]:
    """Split one word into flags: short switches may be combined, the last may have a value; empty if a name is unknown."""
    if word.startswith("--"):
        name, equals, text = word.partition("=")
        return ((spellings[name], name, text if equals else None),) if name in spellings else ()
    parts: list[FlagWord] = []
    rest = word[1:]
    while rest:
        name, rest = f"-{rest[0]}", rest[1:]
        flag = spellings.get(name)
        if flag is None:
            return ()
        if rest and (rest[0] == "=" or flag.kind is not SWITCH):
            return (*parts, (flag, name, rest.removeprefix("=")))
        parts.append((flag, name, None))
    return tuple(parts)
