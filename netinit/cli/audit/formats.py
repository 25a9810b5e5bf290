"""Formats an audit as Markdown, and as a self-contained HTML page in light and dark mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as escape_html
from typing import Any

from netinit.base.data import read_data
from netinit.base.sanitize import escape
from netinit.base.version import __version__
from netinit.questions.audit.text import heading, merge_equal, summarise

_MARKUP = str.maketrans({one: f"\\{one}" for one in "\\`*_{}[]<>()#+-.!|~"})


def _md(text: str) -> str:
    return escape(text).translate(_MARKUP)


def render_markdown(pods: list[dict[str, Any]]) -> str:
    """Format a section with tables per pod."""
    parts = ["# Audit of traffic", ""]
    for pod in merge_equal(pods):
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
    body = "\n".join(part for pod in merge_equal(pods) for part in _pod(pod))
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
