"""Formats an audit for the terminal, as Markdown, and as a self-contained HTML page in light and dark mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as escape_html
from typing import Any

from netinit.base.data import read_data
from netinit.base.sanitize import Lines, escape, lines
from netinit.base.version import __version__
from netinit.cli.audit.report import summarise

SIGNS = {"foreign": "✘", "unknown": "?", "configuration": "!", "design": "·", "covered": "✔"}
RESULTS = {"proved": "✔", "refuted": "✘", "unknown": "?"}
_MARKUP = str.maketrans({one: f"\\{one}" for one in "\\`*_{}[]<>()#+-.!|~"})


def render_text(pods: list[dict[str, Any]]) -> Lines:
    """Format each pod's bypasses and assertions."""
    printed: list[str] = []
    for number, pod in enumerate(pods):
        printed += [""] * bool(number) + [f"{pod['name']}: {summarise(pod)}"]
        printed += [line for row in pod["traffic"] for line in _describe_row(row)]
        printed += [line for ruling in pod["assertions"] for line in _describe_ruling(ruling)]
    return lines(printed)


def heading(row: dict[str, Any]) -> str:
    """The cause, the kind and, if captured, the proxy's port."""
    return f"{row['title']} {row['port']}" if row["port"] else str(row["title"])


def _describe_row(row: dict[str, Any]) -> Iterator[str]:
    by = "" if row["by"] == "covered" else f" ({row['by']}, {row['kind']})"
    yield f"{SIGNS[row['by']]} {heading(row)}{by}"
    yield from [f"    {who}" for who in row["who"]]
    yield from [f"    because: {reason}" for reason in row["because"]]
    if row["closes"]:
        yield f"    to close it: {row['closes']}"
        yield f"    example: {row['example']}"


def _describe_ruling(ruling: dict[str, Any]) -> Iterator[str]:
    name = f"{ruling['name']}: " if ruling["name"] else ""
    yield f"{RESULTS[ruling['result']]} {ruling['result']}: {name}{ruling['assertion']}"
    if ruling["result"] == "proved" and ruling["about"] == "0":
        yield "    no packet is concerned: this pod has none of these"
    yield from [f"    unless {condition}" for condition in ruling["unless"]]
    shown = ruling["counterexample"]
    if shown:
        yield f"    counterexample: {shown['packet']}"
        yield f"    {shown['sentence']}"
        yield from [f"      {step}" for step in shown["path"]]
    yield from [f"    what would change it: {cure['change']}: {cure['verdict']}" for cure in ruling["cures"]]


def _md(text: str) -> str:
    return escape(text).translate(_MARKUP)


def render_markdown(pods: list[dict[str, Any]]) -> str:
    """Format a section with tables per pod."""
    parts = ["# Audit of traffic", ""]
    for pod in pods:
        parts += [f"## {_md(pod['name'])}", "", f"{_md(summarise(pod))}.", ""]
        parts += [f"> Warning: {_md(warning)}\n" for warning in pod["warnings"]]
        parts += ["| by | traffic | who | because | to close it |", "| --- | --- | --- | --- | --- |"]
        for row in pod["traffic"]:
            who, because = ("<br>".join(map(_md, row[name])) for name in ("who", "because"))
            parts.append(f"| {row['by']} | {heading(row)} | {who} | {because} | {_md(row['closes'])} |")
        parts.append("")
        if pod["assertions"]:
            parts += ["| assertion | result | counterexample | what would change it |", "| --- | --- | --- | --- |"]
            for one in pod["assertions"]:
                shown = one["counterexample"]
                sentence = f"{shown['packet']}: {shown['sentence']}" if shown else ""
                cures = "; ".join(cure["change"] for cure in one["cures"])
                result = "<br>".join([one["result"], *[_md(f"unless {condition}") for condition in one["unless"]]])
                parts.append(f"| {_md(one['assertion'])} | {result} | {_md(sentence)} | {_md(cures)} |")
            parts.append("")
    return "\n".join(parts)


def render_page(pods: list[dict[str, Any]], date: str) -> str:
    """Render the page."""
    head, foot = read_data("audit.html").split("{{pods}}")
    body = "\n".join(part for pod in pods for part in _pod(pod))
    return head + body + foot.replace("{{version}}", __version__).replace("{{date}}", _plain(date))


def _plain(text: str) -> str:
    """Neutralise foreign text: no markup, no control characters."""
    return escape_html(escape(text))


def _pod(pod: dict[str, Any]) -> Iterator[str]:
    yield f"<section>\n<h2>{_plain(pod['name'])}</h2>\n<p>{_plain(summarise(pod))}.</p>"
    if pod["options"]:
        yield f'<p class="dim"><code>{_plain(pod["options"])}</code></p>'
    yield from [f'<p class="warning">{_plain(warning)}</p>' for warning in pod["warnings"]]
    yield _table(("By", "Traffic", "Who", "Because", "To close it"), (_row(row) for row in pod["traffic"]))
    if pod["assertions"]:
        titles = ("Result", "Assertion", "Counterexample", "What would change it")
        yield _table(titles, (_ruling(one) for one in pod["assertions"]))
    yield "</section>"


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    example = f'<div class="dim">for example {_plain(row["example"])}</div>'
    title = f'{_plain(heading(row))}<div class="dim"><code>{row["kind"]}</code></div>'
    return (
        f'<span class="by {row["by"]}">{row["by"]}</span>', title,
        _several(row["who"]) + example, _several(row["because"]), _plain(row["closes"]),
    )  # fmt: skip


def _several(texts: list[str]) -> str:
    return "".join(f"<div>{_plain(text)}</div>" for text in texts)


def _ruling(one: dict[str, Any]) -> tuple[str, ...]:
    shown = one["counterexample"]
    sentence = f'{_several([one["name"]] if one["name"] else [])}<code>{_plain(one["assertion"])}</code>'
    way = ""
    if shown:
        steps = "".join(f"<div><code>{_plain(step)}</code></div>" for step in shown["path"])
        way = _several([shown["packet"], shown["sentence"]]) + f"<details><summary>its path</summary>{steps}</details>"
    cures = _several([f"{cure['change']}: {cure['verdict']}" for cure in one["cures"]])
    result = f'<span class="by {one["result"]}">{one["result"]}</span>{_several([f"unless {text}" for text in one["unless"]])}'
    return result, sentence, way, cures
