"""Options that accept findings of `lint` and `audit`, and formats for pipelines: JSON, SARIF, JUnit XML, GitHub's commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_xml  # that of xml.sax imports a client of HTTP
from typing import Any

import click

from netinit.base.errors import OptionError
from netinit.base.json_answers import to_json, with_version
from netinit.base.sanitize import escape
from netinit.base.version import __version__
from netinit.cli.config import load_file
from netinit.cli.flags import Decorator, add_value, json_option
from netinit.cli.rule_options import find_settings
from netinit.cli.values import OneOf, takes
from netinit.options.kinds import quote_value
from netinit.questions.finding_codes import read_accepted_codes, read_code
from netinit.questions.findings import (
    ERROR,
    NOTE,
    STDIN,
    WARNING,
    Issue,
    explain,
    link,
    to_object,
)

LABEL, FILE = "--ignore", "--ignore-file"


def read_ignored(codes: Iterable[str] = (), file: str = "") -> dict[str, str]:
    """The codes of --ignore and --ignore-file with their reasons. Raises OptionError."""
    found = {read_code(text, LABEL): f"ignored by {LABEL}" for text in codes}
    if not file:
        return found
    tree = load_file(file, FILE)
    if not isinstance(tree, dict):
        raise OptionError(f"{FILE}: {quote_value(file)} is not a mapping; write `CODE: reason`, a line each")
    return found | read_accepted_codes(tree, FILE)


ignore_options = add_value(
    "accepted", lambda codes, file: {**find_settings().accepted, **read_ignored(codes, file)},
    click.option(LABEL, "codes", multiple=True, **takes("CODE"), help="Leave out findings of this code (NI012); repeatable."),
    click.option(FILE, "file", default="", **takes("FILE"), help="Leave out those of a file: `CODE: reason` in YAML."),
)  # fmt: skip


TEXT, JSON, SARIF, JUNIT, GITHUB = "text", "json", "sarif", "junit", "github"
FORMATS = (SARIF, JUNIT, GITHUB)
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}
_OPTIONS = "the options"


def render(form: str, command: str, issues: Sequence[Issue], looked_at: Sequence[str]) -> str:
    """Render a command's issues in one of FORMATS or as JSON. `looked_at` names all pods, also those without issues."""
    if form == JSON:
        return to_json(with_version({"findings": [to_object(one) for one in issues]}))
    if form == SARIF:
        return to_json(_sarif(issues))
    if form == JUNIT:
        return _junit(command, issues, looked_at)
    return "".join([f"{_annotation(one)}\n" for one in issues if not one.accepted])


def choose_format(form: str, as_json: bool) -> str:
    """The format that --format and --json ask for. Raises OptionError if they contradict each other."""
    if as_json and form not in {TEXT, JSON}:
        raise OptionError(f"--json: contradicts --format {form}; give one of the two")
    return JSON if as_json else form


def format_options(schema: str, *others: str) -> Decorator:
    """Add --format with text, `others` and FORMATS, and --json; the function gets `form`."""
    forms = OneOf((TEXT, *others, *FORMATS))
    choice = click.option("--format", "form", type=forms, default=TEXT, show_default=True, help="The format.")
    return add_value("form", choose_format, choice, json_option(schema))


def _sarif(issues: Sequence[Issue]) -> dict[str, Any]:
    rules = [
        {
            "id": kind.code, "shortDescription": {"text": kind.meaning}, "help": {"text": f"{kind.meaning} ({explain(kind.code)})"},
            "helpUri": link(kind.code),
        }
        for kind in sorted({one.kind for one in issues}, key=lambda kind: kind.code)
    ]
    driver = {"name": "netinit", "semanticVersion": __version__, "rules": rules}
    results = [_result(one) for one in issues]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}


def _result(one: Issue) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if one.pod or not one.file:
        place["logicalLocations"] = [{"fullyQualifiedName": escape(one.pod or _OPTIONS)}]
    if one.file:
        region = {"startLine": one.line or 1, **({"startColumn": one.column} if one.column else {})}
        place["physicalLocation"] = {"artifactLocation": {"uri": _address(one.file)}, "region": region}
    found = {"ruleId": one.code, "level": one.severity, "message": {"text": escape(one.text)}, "locations": [place]}
    if one.accepted:
        found["suppressions"] = [{"kind": "external", "justification": escape(one.accepted)}]
    return found


def _address(file: str) -> str:
    """Return a file's name as the reference that SARIF wants: blanks, colons and the like encoded."""
    from urllib.parse import quote as encode  # rarely needed

    return encode(escape(STDIN if file == "-" else file), safe="/!$&'()*+,;=@~")


def _junit(command: str, issues: Sequence[Issue], looked_at: Sequence[str]) -> str:
    """A test case per pod, and per file with findings of its own: findings are failures, accepted ones and notes on files output."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    of_files = [one.file for one in issues if one.file and not one.pod]
    told = [one for one in issues if one.accepted or _is_note_about_a_file(one)]
    cases = [*looked_at, *dict.fromkeys(of_files)]
    lines.append(f'<testsuite name="netinit {command}" tests="{len(cases)}" failures="{len(issues) - len(told)}">')
    for name in dict.fromkeys(cases):
        own = [one for one in issues if (one.pod or one.file) == name]
        file = f' file="{escape_xml(escape(own[0].file))}"' if own and own[0].file else ""
        line = f' line="{own[0].line}"' if file and own[0].line else ""
        lines.append(f'  <testcase name="{escape_xml(escape(name or _OPTIONS))}"{file}{line}>')
        for one in own:
            text = escape_xml(escape(f"{one.place + ': ' if one.file else ''}{one.text} ({link(one.code)})"), quote=False)
            if one.accepted:
                reason = escape_xml(escape(one.accepted), quote=False)
                lines.append(f"    <system-out>{one.code} accepted ({reason}): {text}</system-out>")
            elif _is_note_about_a_file(one):
                lines.append(f"    <system-out>{one.code}: {text}</system-out>")
            else:
                lines.append(f'    <failure type="{one.code}" message="{one.severity}">{text}</failure>')
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _is_note_about_a_file(one: Issue) -> bool:
    return one.severity == NOTE and not one.pod and bool(one.file)


def _annotation(one: Issue) -> str:
    message = _encode(escape(f"{one.pod + ': ' if one.pod else ''}{one.text} ({link(one.code)})"))
    line = "".join([f"{name}={number}," for name, number in (("line", one.line), ("col", one.column)) if number])
    file = f"file={_encode(escape(one.file), ':,')},{line}" if one.file and one.file != "-" else ""
    return f"::{_COMMANDS[one.severity]} {file}title={one.code} {one.kind}::{message}"


def _encode(text: str, more: str = "") -> str:
    return text.translate({ord(sign): f"%{ord(sign):02X}" for sign in f"%\r\n{more}"})
