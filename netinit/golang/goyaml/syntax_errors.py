"""Say what is wrong with a text, and where, in words of the text: the parser speaks of its own state."""

from __future__ import annotations

from typing import Any

from netinit.golang.errors import YamlError

_TAB = "a tab stands where YAML wants spaces; indent with spaces"
_UNCLOSED = "the {opening} {where} is not closed before this, or a comma is missing"
_QUOTE = "this quote is not closed"
# the parser's problem -> what is wrong; `where` does the construct begin that the problem is about
_WORDS = {
    "found a tab character that violates indentation": _TAB,
    "found a tab character where an indentation space is expected": _TAB,
    "mapping values are not allowed in this context": (
        "no key is possible here; indent it as its mapping, and quote a text that holds ': '"
    ),
    "mapping keys are not allowed in this context": "no key is possible here; quote a text that begins with '? '",
    "block sequence entries are not allowed in this context": (
        "no list is possible here; begin it on a line of its own, and quote a text that begins with '- '"
    ),
    "could not find expected ':'": "this key has no ':' behind it",
    "did not find expected key": "this is no key of the mapping that begins {where}; check indentation, and quotes before it",
    "did not find expected '-' indicator": "this is no item of the list that begins {where}; check indentation",
    "did not find expected ',' or ']'": _UNCLOSED.replace("{opening}", "["),
    "did not find expected ',' or '}'": _UNCLOSED.replace("{opening}", "{{"),
    "did not find expected node content": "a value is missing here, or a bracket is not closed before this",
    "found unexpected end of stream": _QUOTE,
    "found unexpected document indicator": f"{_QUOTE} before the end of the document",
    "found unknown escape character": "this is no escape of double quotes; write \\\\ for a backslash, or use single quotes",
    "did not find expected hexdecimal number": "\\x, \\u and \\U need 2, 4 and 8 hexadecimal digits",
    "found invalid Unicode character escape code": "this escape is no character",
    "found undefined tag handle": "this tag is not declared; quote a text that begins with !",
    "did not find expected <document start>": "the document ends before this; begin another one with a line of ---",
}
_OF_CONTEXT = {
    "while scanning an alias": "an alias has a name behind its *; quote a text that begins with *",
    "while scanning an anchor": "an anchor has a name behind its &; quote a text that begins with &",
    "while scanning a block scalar": "only the signs of a block (+, -, 1 to 9) and a comment may follow on its first line",
}
_AT_THE_START = ("could not find expected ':'", "found unexpected end of stream", "found unexpected document indicator")


def describe(error: Any, text: str) -> YamlError:
    """Return the error for one of the parser (yaml.MarkedYAMLError); an unusual one keeps the parser's words."""
    problem, start, mark = str(error.problem), error.context_mark, error.problem_mark or error.context_mark
    begun = start is not None and problem in _AT_THE_START
    lines = mark.line - start.line if start else 0
    words = _explain(problem, error.context, text[mark.index : mark.index + 1], lines)
    return error_at(start if begun else mark, words)


def _explain(problem: str, context: str | None, letter: str, lines: int) -> str:
    if problem == "found character that cannot start any token":
        return _TAB if letter == "\t" else f"{letter} cannot begin a value; quote it"
    if words := _WORDS.get(problem):  # not the number of a line: the text may be a part of a file
        where = f"{lines} lines above" if lines > 1 else "in the line above" if lines else "in this line"
        return words.format(where=where)
    return _OF_CONTEXT.get(context or "") or ", ".join(part for part in (context, problem) if part)[:200]


def describe_character(letter: str, text: str) -> YamlError:
    """Return the error for a character that YAML does not have, at its first place in the text."""
    before = text[: text.index(letter)]
    problem = f"the character U+{ord(letter):04X} is not allowed; in double quotes, an escape such as \\t is"
    return YamlError(problem, before.count("\n") + 1, len(before) - before.rfind("\n"))


def error_at(mark: Any, problem: str) -> YamlError:
    """Return an error with the place of a mark of the parser's."""
    return YamlError(problem, mark.line + 1, mark.column + 1)


def place_of(mark: Any) -> str:
    """Format a place in the text, with line and column counted from 1."""
    return f"line {mark.line + 1}, column {mark.column + 1}"
