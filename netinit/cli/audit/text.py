"""Formats an audit for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netinit.base.sanitize import Lines, escape, lines
from netinit.cli.audit.report import summarise

SIGNS = {"foreign": "✘", "unknown": "?", "configuration": "!", "design": "·", "covered": "✔"}
RESULTS = {"proved": "✔", "refuted": "✘", "unknown": "?"}
_MARKUP = str.maketrans({one: f"\\{one}" for one in "\\`*_{}[]<>()#+-.!|~"})


def render_text(pods: list[dict[str, Any]]) -> Lines:
    """Format each pod's bypasses and assertions."""
    printed: list[str] = []
    for number, pod in enumerate(pods):
        printed += [""] * bool(number) + [f"{pod['name']}: {summarise(pod)}"]
        for row in pod["traffic"]:
            printed += _row(row)
        for ruling in pod["assertions"]:
            printed += _ruling(ruling)
    return lines(printed)


def heading(row: dict[str, Any]) -> str:
    """The cause, the kind and, if captured, the proxy's port."""
    port = f" {row['port']}" if row["port"] else ""
    return f"{row['title']}{port}"


def _row(row: dict[str, Any]) -> Iterator[str]:
    by = "" if row["by"] == "covered" else f" ({row['by']}, {row['kind']})"
    yield f"{SIGNS[row['by']]} {heading(row)}{by}"
    for who in row["who"]:
        yield f"    {who}"
    for reason in row["because"]:
        yield f"    because: {reason}"
    if row["closes"]:
        yield f"    to close it: {row['closes']}"
        yield f"    example: {row['example']}"


def _ruling(ruling: dict[str, Any]) -> Iterator[str]:
    name = f"{ruling['name']}: " if ruling["name"] else ""
    yield f"{RESULTS[ruling['result']]} {ruling['result']}: {name}{ruling['assertion']}"
    if ruling["result"] == "proved" and ruling["about"] == "0":
        yield "    it is about no packet at all: this pod has none of these"
    shown = ruling["counterexample"]
    if shown:
        yield f"    counterexample: {shown['packet']}"
        yield f"    {shown['sentence']}"
        yield from [f"      {step}" for step in shown["path"]]
    for cure in ruling["cures"]:
        yield f"    what would change it: {cure['change']}: {cure['verdict']}"


def _plain(text: str) -> str:
    return escape(text).translate(_MARKUP)


def render_markdown(pods: list[dict[str, Any]]) -> str:
    """Format a section with tables per pod."""
    parts = ["# Audit of traffic", ""]
    for pod in pods:
        parts += [f"## {_plain(pod['name'])}", "", f"{_plain(summarise(pod))}.", ""]
        parts += [f"> Warning: {_plain(warning)}\n" for warning in pod["warnings"]]
        parts += ["| by | traffic | who | because | to close it |", "| --- | --- | --- | --- | --- |"]
        for row in pod["traffic"]:
            who, because = ("<br>".join(map(_plain, row[name])) for name in ("who", "because"))
            parts.append(f"| {row['by']} | {heading(row)} | {who} | {because} | {_plain(row['closes'])} |")
        parts.append("")
        if pod["assertions"]:
            parts += ["| assertion | result | counterexample | what would change it |", "| --- | --- | --- | --- |"]
            for one in pod["assertions"]:
                shown = one["counterexample"]
                sentence = f"{shown['packet']}: {shown['sentence']}" if shown else ""
                cures = "; ".join(cure["change"] for cure in one["cures"])
                parts.append(f"| {_plain(one['assertion'])} | {one['result']} | {_plain(sentence)} | {_plain(cures)} |")
            parts.append("")
    return "\n".join(parts)
