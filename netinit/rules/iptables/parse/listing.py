"""Parse files with the output of iptables-save. Live rules are read from the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.errors import ParseError
from netinit.rules.iptables.write import KNOWN_TABLES, ListedTable, Listing

_ESCAPED = ('"', "\\", "'")
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
                raise unsafe("a chain stands twice", line)
            policies[chain] = policy
            rules[chain] = []
        elif line.startswith("*") and policies is None:
            name = line[1:]
            if name not in KNOWN_TABLES or name in listing:
                raise unsafe("a table stands twice" if name in listing else "no table of iptables", line)
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
    """Split a listing into lines; text in double quotes may contain line breaks (xtables_save_string of iptables)."""
    lines = text.split("\n")
    if lines.pop():
        raise unsafe("the last line does not end", text.rpartition("\n")[2])
    if '"' in text:
        lines = list(_join_quoted(lines))
    for line in lines:
        if not line.isprintable() and ('"' not in line or not unquoted(line).isprintable()):
            raise unsafe("characters outside of quotes that cannot be printed", line)
    return lines


def _join_quoted(lines: list[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        if '"' not in line or line.startswith("#"):
            yield line
            continue
        parts, closed = [line], _closes(line, quoted=False)
        while not closed:
            more = next(rest, None)
            if more is None:
                raise unsafe("a quote does not close", parts[0])
            parts.append(more)
            closed = _closes(more, quoted=True)
        yield "\n".join(parts)


def _closes(line: str, *, quoted: bool) -> bool:
    """Whether no quote is open at the line's end; `quoted`: one is open at its beginning."""
    at = 0
    while quoted or (at := line.find('"', at)) >= 0:
        if not quoted:
            if line[at - 1 : at] != " ":
                raise unsafe("a quote inside of a word", line)
            at += 1
        at, quoted = end_of_quoted(line, at), False
        if at < 0:
            return False
        if line[at : at + 1] not in ("", " "):
            raise unsafe("letters behind a quote", line)
    return True


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


def end_of_quoted(line: str, at: int) -> int:
    """Return the position after the quote that closes the text at `at`; -1 if none does."""
    while True:
        end = line.find('"', at)
        slash = line.find("\\", at, end if end >= 0 else None)
        if slash < 0:
            return end + 1 if end >= 0 else -1
        if line[slash + 1 : slash + 2] not in _ESCAPED:
            raise unsafe("a backslash that stands before nothing to be escaped", line[slash:])
        at = slash + 2


def unquoted(text: str) -> str:
    """Return a line without the text in quotes."""
    kept, at = [], 0
    while (start := text.find(' "', at)) >= 0:
        kept.append(text[at : start + 2])
        at = end_of_quoted(text, start + 2) - 1
    return "".join(kept) + text[at:]


def unsafe(what: str, text: str) -> ParseError:
    """Return the error for a text that is no listing, or is ambiguous, with its beginning as one line of ASCII."""
    shown = text[:MAX_SHOWN].encode("unicode_escape").decode() + ("..." if len(text) > MAX_SHOWN else "")
    return ParseError(f"the listing cannot be read safely: {what}: {shown}")
