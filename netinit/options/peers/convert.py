"""Convert a peer's command line, variables and file to our options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from netinit.base.documentation import address_of
from netinit.base.errors import OptionError
from netinit.base.records import Record
from netinit.options.declare import ParsedFlags, describe_strays, extract_flags, is_flag
from netinit.options.kinds import quote_value
from netinit.options.peers.consul import Consul
from netinit.options.peers.declare import Conversion, PeerOptions, Remark, hint
from netinit.options.peers.istio import Istio
from netinit.options.peers.kuma import Kuma
from netinit.options.peers.linkerd import Linkerd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netinit.options.kinds import Text

PEERS: dict[str, type[PeerOptions]] = {"kuma": Kuma, "linkerd": Linkerd, "consul": Consul, "istio": Istio}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class CommandLine(Record):
    """A peer's command line in parts: `files` are those of its --config, `program` and `words` the command itself."""

    taken: ParsedFlags
    program: tuple[str, ...]
    words: tuple[str, ...]
    variables: Mapping[str, str]
    files: tuple[str, ...]


def part(peer: str, words: Sequence[str]) -> CommandLine:
    """Split a command line; variables (`NAME=value`) and the program may come before the flags, as in a shell."""
    cls = PEERS[peer]
    rest = list(words)
    variables: dict[str, str] = {}
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    program, rest = _split_program(cls, rest)
    flags = tuple(rest)
    rest = _join_negative(rest)
    if cls.single_dash:
        rest = [f"-{word}" if is_flag(word) and word[1] != "-" else word for word in rest]
    taken = extract_flags(rest, cls.flags)
    files = taken.texts.get("config", ((), ""))[0]  # repeated: a tuple
    return CommandLine(
        taken=taken, program=program, words=flags, variables=variables,
        files=tuple(one for text in files for one in text.split(",")),
    )  # fmt: skip


def convert(peer: str, line: CommandLine, trees: Sequence[tuple[str, Any]] = ()) -> Conversion:
    """Convert a peer's options; `trees` are its files with their names, later ones first. Raises OptionError with every problem."""
    cls = PEERS[peer]
    problems = [*line.taken.problems, *_describe_rest(cls, line.taken.rest)]
    file: dict[str, tuple[Text, str]] = {}
    for path, tree in trees:
        texts_of_it, wrong = cls.read_tree(tree, path)
        file |= texts_of_it
        problems += wrong
    known = cls.variables()
    unknown = [name for name in line.variables if name not in known]
    problems += [f"{quote_value(name)} is not a variable of {cls.peer}{hint(name, known)}" for name in unknown]
    given = [(name, value) for name, value in line.variables.items() if value and name in known]
    ignored = [] if trees or not cls.variables_of_file else [name for name, _ in given]
    file |= {known[name].field: (value, f"environment variable {name}") for name, value in given if name not in ignored}
    texts = line.taken.texts
    for one, other in cls.exclusive:
        if one in texts and other in texts:
            problems.append(f"{cls.format_flag(one)}: {cls.peer} refuses it with {cls.format_flag(other)}; give one of the two")
    for field in cls.required:
        if field not in texts and field not in file:
            problems.append(f"{cls.format_flag(field)}: is missing, and {cls.peer} does not start without it; add it")
    try:
        found = cls.from_texts(texts, {}, problems, file).convert(peer)
    except OptionError as error:
        problems = [text[1:] if cls.single_dash and text.startswith("--") else text for text in error.problems]  # as the peer's flags
        raise OptionError(*[f"{peer}: {text}" for text in problems]) from None
    without_file = f"{cls.peer} reads its variables only with --config"
    found.needless += [Remark(flag=name, value="", text=without_file) for name in ignored]
    return found


def _split_program(cls: type[PeerOptions], words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The words that name the peer's program (else its usual name), and the rest."""
    if words and not is_flag(words[0]):
        named = [words[0].rpartition("/")[2], *words[1:]]
        for program in cls.programs:
            names = program.split()
            if named[: len(names)] == names:
                return tuple(names), words[len(names) :]
    return tuple(cls.programs[0].split()), words


def _join_negative(words: list[str]) -> list[str]:
    """Join negative numbers, which Go accepts as values, with their flags (`-g -1` as `-g=-1`)."""
    joined: list[str] = []
    for word in words:
        if joined and is_flag(joined[-1]) and word[:1] == "-" and word[1:].isdigit() and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _describe_rest(cls: type[PeerOptions], rest: Sequence[str]) -> list[str]:
    """A problem for each unknown word; the one after an unknown flag counts as its value."""
    known = [f"--{name}" for flag in cls.flags if flag.names for name in (flag.long, *flag.aliases)]
    problems = []
    loose = []
    previous = ""
    for word in rest:
        if is_flag(word) and word != "--":
            name = word.partition("=")[0]
            more = hint(name, known) or f"; its flags are listed in {address_of('meshes')}"
            shown, more = (name[1:], more.replace("--", "-")) if cls.single_dash else (name, more)
            problems.append(f"{quote_value(shown)} is not a flag of {cls.peer}{more}")
        elif not is_flag(previous) or "=" in previous:
            loose.append(word)
        previous = word
    return [*problems, *describe_strays(loose, "give the peer's command line, without other words")]
