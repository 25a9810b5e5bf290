"""Shell completion of commands, options and values, for click's shell scripts.

netinit/data/completion.tsv, made by `python tests/reference.py`, has every command's options, so that a keystroke imports
none. Its columns: command, the option's names with commas (empty: an argument), values (empty: none), meaning. A row `@`
stands for the rows of the command `@`, the options of the rules.
"""

from __future__ import annotations

from netinit.base.data import read_data
from netinit.base.errors import NetinitError
from netinit.cli.commands import ALIASES, COMMANDS, is_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE, ANY = "file", "text"  # kinds of values; anything else is an enumeration separated by |
RULES = "@"
HELP = "-h,--help"
ZSH, FISH = "zsh_complete", "fish_complete"
Rows = list[list[str]]


def complete(form: str, environ: Mapping[str, str], program: Sequence[str]) -> str:
    """The reply to a shell. `program` is the command implied by the program's name, if any. Raises NetinitError."""
    words = environ.get("COMP_WORDS", "").split()
    current = environ.get("COMP_CWORD", "")
    if form == FISH:
        before, last = words[1:], current
        if last and before[-1:] == [last]:
            del before[-1]
    elif current.isdigit():
        before, last = words[1 : int(current)], "".join(words[int(current) : int(current) + 1])
    else:
        raise NetinitError("COMP_CWORD: is not a number; the script of `netinit completion` sets it")
    rows = [line.split("\t") for line in read_data("completion.tsv").splitlines()]
    found = propose(rows, [*program, *before], last)
    return "".join([_format(form, kind, value, text) for kind, value, text in found])


def propose(rows: Rows, before: Sequence[str], last: str) -> list[tuple[str, str, str]]:
    """Candidates for the last word after `before`: kind, text, meaning."""
    path, before = _find_command(rows, before)
    own = [row[1:] for row in rows if row[0] == path]
    options = [one for one in own if one[0] != RULES]
    options += [row[1:] for row in rows if row[0] == RULES] if len(options) < len(own) else []
    by_name = {name: kind for names, kind, _ in options for name in names.split(",") if name}
    previous = before[:-1] if before[-1:] == ["="] else before  # bash splits it off as a word
    kind = by_name.get(previous[-1], "") if previous else ""
    if kind:
        return _propose_values(kind, "" if last == "=" else last)
    if last.startswith("-"):
        return [("plain", name, text) for names, _, text in options for name in names.split(",") if name.startswith(last)]
    below = [(row[0].rpartition(" ")[2], row[3]) for row in rows if row[0].rpartition(" ")[0] == path and row[1:3] == [HELP, ""]]
    if not path:
        below = [(name, text) for name, (_, text) in COMMANDS.items() if _is_command(name)]
    if below:
        return [("plain", name, text) for name, text in below if name.startswith(last)]
    return [found for names, kind, _ in options if not names for found in _propose_values(kind, last)]


def _propose_values(kind: str, last: str) -> list[tuple[str, str, str]]:
    if kind in (FILE, ANY):
        return [(FILE, last, "")] if kind == FILE else []
    return [("plain", word, "") for word in kind.split("|") if word.startswith(last)]


def _find_command(rows: Rows, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    known = {row[0] for row in rows}
    path, rest = "", list(words)
    for index, word in enumerate(words):
        below = f"{path} {ALIASES.get(word, word) if not path else word}".strip()
        if below in known and not (not path and not _is_command(below)):
            path, rest = below, list(words[index + 1 :])
    return path, rest


def _is_command(name: str) -> bool:
    return name in COMMANDS and is_there(COMMANDS[name][0])


def _format(form: str, kind: str, value: str, text: str) -> str:
    if form == ZSH:
        escaped = value.replace(":", "\\:") if text else value
        return f"{kind}\n{escaped}\n{text or '_'}\n"
    return f"{kind},{value}\t{text}\n" if form == FISH and text else f"{kind},{value}\n"
