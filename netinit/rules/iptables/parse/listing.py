"""Parse files with the output of iptables-save. Live rules are read from the kernel."""

from __future__ import annotations

import re

from netinit.base.errors import ParseError
from netinit.rules.iptables.write import KNOWN_TABLES, ListedTable, Listing

# Text in double quotes as iptables writes it (xtables_save_string), which may contain line breaks
_OPENED = r'"(?:[^"\\]|\\["\'\\])*'
_QUOTED = re.compile(rf'(?<= ){_OPENED}"(?![^ \n])')
_LINE = re.compile(rf'(#[^\n]*|[^"\n]*(?:{_QUOTED.pattern}[^"\n]*)*)(\n?)')
MAX_SHOWN = 80  # characters of foreign text in an error


def parse_listing(text: str, *, counted: bool = False) -> Listing:
    """Parse a listing; `counted`: with counters (-c). Raises ParseError for what iptables-save does not write."""
    listing: Listing = {}
    rules: dict[str, list[str]] = {}
    policies: dict[str, str] | None = None  # of the current table
    declaring = False
    for line in _logical_lines(text):
        if line.startswith("-A " if not counted else "[") and policies is not None:
            declaring = False
            chain, spec = _read_rule(line, counted)
            if chain not in rules:
                raise unsafe("a rule of a chain that is not declared", line)
            rules[chain].append(spec)
        elif line.startswith(":") and declaring and policies is not None:
            chain, policy = _read_chain(line)
            if chain in policies:
                raise unsafe("a chain occurs twice", line)
            policies[chain] = policy
            rules[chain] = []
        elif line.startswith("*") and policies is None:
            name = line[1:]
            if name not in KNOWN_TABLES or name in listing:
                raise unsafe("a table occurs twice" if name in listing else "no table of iptables", line)
            policies, rules, declaring = {}, {}, True
            listing[name] = ListedTable(policies=policies, rules=rules)
        elif line == "COMMIT" and policies is not None:
            policies = None
        elif policies is not None or (line and not line.startswith("#")):
            raise unsafe("this line has no place there", line)
    if policies is not None:
        raise unsafe("a table does not end", f"*{[*listing][-1]}")
    return listing


def _logical_lines(text: str) -> list[str]:
    """Split a listing into lines; text in quotes stays in its line."""
    lines = []
    if text[-1:] not in ("", "\n"):
        raise unsafe("the last line does not end", text.rpartition("\n")[2])
    for found in _LINE.finditer(text):
        line, end = found.groups()
        if found.end() == len(text) and not found[0]:
            break
        if not end:
            raise _refuse_quote(text, found.start(), found.end())
        if not line.isprintable() and not _QUOTED.sub("", line).isprintable():
            raise unsafe("characters outside of quotes that cannot be printed", line)
        lines.append(line)
    return lines


def _refuse_quote(text: str, start: int, at: int) -> ParseError:
    """Return the error for a quote that iptables does not write, in the line that begins at `start`."""
    if text[at - 1 : at] != " ":
        return unsafe("a quote inside of a word", _line_of(text, at))
    end = next(re.finditer(_OPENED, text[at:])).end() + at
    if end == len(text):
        return unsafe("a quote does not close", _line_of(text, start))
    if text[end] == '"':
        return unsafe("letters after a quote", _line_of(text, end))
    return unsafe("a backslash that escapes nothing", text[end:].partition("\n")[0])


def _line_of(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]


def _read_rule(line: str, counted: bool) -> tuple[str, str]:
    counters = ""
    if counted:
        counters, _, line = line.partition(" ")
        if not _are_counters(counters) or not line.startswith("-A "):
            raise unsafe("no rule with counters", line)
        counters += " "
    chain, _, spec = line[3:].partition(" ")
    if spec[:1] not in ("", "-", "!"):
        raise unsafe("a rule that begins with no option", line)
    return chain, counters + spec


def _read_chain(line: str) -> tuple[str, str]:
    words = line[1:].split(" ")
    if len(words) != 3 or not words[0] or not _are_counters(words[2]):  # noqa: PLR2004 - name, policy, counters
        raise unsafe("no chain with its policy and counters", line)
    return words[0], words[1]


def _are_counters(word: str) -> bool:
    packets, colon, octets = word[1:-1].partition(":")
    return word[:1] + colon + word[-1:] == "[:]" and packets.isdecimal() and octets.isdecimal()


def unsafe(what: str, text: str) -> ParseError:
    """Return the error for a text that is no listing, or is ambiguous, with its beginning as one line of ASCII."""
    shown = text[:MAX_SHOWN].encode("unicode_escape").decode() + ("..." if len(text) > MAX_SHOWN else "")
    return ParseError(f"the listing cannot be read safely: {what}: {shown}")
