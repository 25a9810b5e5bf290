"""Formats an audit as one HTML page without scripts: what to act on first, for screens of any width, light or dark, and paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import Any

from netinit.base.data import read_data
from netinit.base.sanitize import escape
from netinit.base.version import __version__
from netinit.questions.audit import kinds
from netinit.questions.audit.text import (
    RESULTS,
    SIGNS,
    Collected,
    Row,
    collect_rows,
    collect_rulings,
    group_equal,
    heading,
    summarise,
    summarise_all,
)
from netinit.questions.several_pods import name_pods

MAX_SHOWN = 5  # links in a line; more are folded
MAX_LISTED = 20  # entries of a section in the table of contents
_SIGNS = {**SIGNS, **RESULTS}
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a section, and of the table of contents: its anchor, its title as markup, and the text below it."""

    anchor: str
    title: str
    body: str
    mark: str = ""  # its cause or result, which has a colour and a sign


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. `folded`: its items are read by those who ask for them."""

    anchor: str
    title: str
    items: tuple[Item, ...]
    folded: bool = False


def render_page(pods: Sequence[Mapping[str, Any]], date: str) -> str:
    """Render the page: each thing once, with the pods that it is about, and equal pods once."""
    groups = group_equal(pods)
    links = {name: f'<a href="#pod-{at}">{_plain(name)}</a>' for at, (_, names) in enumerate(groups, 1) for name in names}
    rows, rulings = collect_rows(pods), collect_rulings(pods)
    shown = links if len(pods) > 1 else {}
    to_act, by_design, covered = ([one for one in rows if _place(one[0]) == place] for place in range(3))
    refuted, proved = ([one for one in rulings if (one[0]["result"] == "proved") is wanted] for wanted in (False, True))
    sections = [
        Section("act", "Act on this first", (*_rulings("refuted", refuted, shown), *_traffic("act", to_act, shown))),
        Section("pods", "Pods", tuple([_pod(at, pod, names, len(pods) > 1) for at, (pod, names) in enumerate(groups, 1)])),
        Section("design", "By design", tuple(_traffic("design", by_design, shown)), folded=True),
        Section("covered", "Through the proxy", tuple(_traffic("covered", covered, shown)), folded=True),
        Section("proved", "Proved", tuple(_rulings("proved", proved, shown)), folded=True),
    ]
    nothing = [] if sections[0].items else ["<p>There is nothing to act on.</p>"]
    body = [_summary(pods), *nothing, _contents(sections), *[_section(one) for one in sections if one.items]]
    head, foot = read_data("audit.html").split("{{pods}}")
    return head + "\n".join(body) + foot.replace("{{version}}", __version__).replace("{{date}}", _plain(date))


def _place(row: Row) -> int:
    """0: act on it; 1: by design; 2: it goes through the proxy."""
    if row["by"] == kinds.DESIGN:
        return 1
    return 2 if row["by"] == kinds.COVERED and row["kind"] != kinds.UNANSWERED.name else 0


def _summary(pods: Sequence[Mapping[str, Any]]) -> str:
    said = [*summarise_all(pods)] if len(pods) != 1 else [f"{pods[0]['name']}: {summarise(pods[0])}"]
    return f'<div class="summary">{"".join([f"<p>{_plain(line.strip())}</p>" for line in said])}</div>'


def _contents(sections: Iterable[Section]) -> str:
    entries = []
    for one in sections:
        if one.items:
            listed = "".join([f'<li>{_mark(item.mark)}<a href="#{item.anchor}">{item.title}</a></li>' for item in one.items])
            is_open = not one.folded and len(one.items) <= MAX_LISTED
            inner = f"<ul>{listed}</ul>" if is_open else f"<details><summary>{len(one.items)}</summary><ul>{listed}</ul></details>"
            entries.append(f'<li><a href="#{one.anchor}">{one.title}</a>{inner}</li>')
    return f'<nav aria-label="Contents"><ul>{"".join(entries)}</ul></nav>'


def _section(one: Section) -> str:
    """The section; of a folded one the title of each item is seen, and the rest where somebody unfolds it."""
    parts = []
    for item in one.items:
        title = f'{_mark(item.mark)}<span class="title">{item.title}</span>'
        inner = f"<details><summary>{title}</summary>{item.body}</details>" if one.folded else f"<h3>{title}</h3>{item.body}"
        parts.append(f'<article id="{item.anchor}" class="{item.mark or "plain"}">{inner}</article>')
    return f'<section>\n<h2 id="{one.anchor}">{one.title}</h2>\n{"".join([part + chr(10) for part in parts])}</section>'


def _mark(mark: str) -> str:
    return f'<span class="mark {mark}">{_SIGNS[mark]} {mark}</span> ' if mark else ""


def _traffic(anchor: str, rows: Iterable[Collected], links: Mapping[str, str]) -> Iterator[Item]:
    rows = [*rows]
    titles = Counter(heading(row) for row, _, _ in rows)
    told = Counter((heading(row), *row["who"]) for row, _, _ in rows)
    for at, (row, names, places) in enumerate(rows, 1):
        because = _several(row["because"])
        body = [("Who", _several(row["who"])), ("Because", because), ("To close it", _words(row["closes"]))]
        body += [("Example", _plain(row["example"])), ("In", _some([links[name] for name in names] if links else [], "pods"))]
        body += [("At", _some([f"<code>{_plain(place)}</code>" for place in places], "places"))]
        title = f'{_plain(heading(row))} <code>{row["kind"]}</code>'
        if titles[heading(row)] > 1:
            detail = "; ".join(row["who"]) if told[(heading(row), *row["who"])] == 1 else f"in {name_pods(names)}"
            title += f' <span class="detail">{_words(detail)}</span>'
        yield Item(f"{anchor}-{at}", title, _list(body), "unknown" if row["kind"] == kinds.UNANSWERED.name else row["by"])


def _rulings(anchor: str, rulings: Iterable[Collected], links: Mapping[str, str]) -> Iterator[Item]:
    for at, (one, names, _) in enumerate(rulings, 1):
        shown = one["counterexample"]
        steps = "".join([f"<div><code>{_plain(step)}</code></div>" for step in shown["path"]]) if shown else ""
        steps = f"<details><summary>its path</summary>{steps}</details>" if steps else ""
        body = [("Unless", _several(one["unless"]))]
        body += [("Counterexample", _several([shown["packet"], shown["sentence"]]) + steps if shown else "")]
        body += [("What would change it", _several([f"{cure['change']}: {cure['verdict']}" for cure in one["cures"]]))]
        body += [("In", _some([links[name] for name in names] if links else [], "pods"))]
        name = f"{_plain(one['name'])}: " if one["name"] else ""
        yield Item(f"{anchor}-{at}", f"{name}<code>{_plain(one['assertion'])}</code>", _list(body), one["result"])


def _pod(number: int, pod: Mapping[str, Any], names: Sequence[str], several: bool) -> Item:
    """The pods of a group: what is particular to them, since what they have in common with others stands above."""
    parts = [f"<p>{_plain(summarise(pod))}</p>"] if several else []
    parts += [f'<p class="warning">{_words(warning)}</p>' for warning in pod["warnings"]]
    if len(names) > MAX_SHOWN:
        parts.append(f"<details><summary>{len(names)} pods</summary>{_several(names)}</details>")
    if pod["options"]:
        parts.append(f"<details><summary>options</summary><code>{_words(pod['options'])}</code></details>")
    return Item(f"pod-{number}", _plain(name_pods(names)), "".join(parts))


def _list(entries: Iterable[tuple[str, str]]) -> str:
    return f"<dl>{''.join([f'<dt>{name}</dt><dd>{text}</dd>' for name, text in entries if text])}</dl>"


def _some(texts: Sequence[str], what: str) -> str:
    """The texts, which are markup: a few in a line, more of them folded."""
    line = ", ".join(texts)
    return line if len(texts) <= MAX_SHOWN else f"<details><summary>{len(texts)} {what}</summary>{line}</details>"


def _several(texts: Iterable[str]) -> str:
    return "".join([f"<div>{_words(text)}</div>" for text in texts])


def _words(text: str) -> str:
    """Neutralise foreign text; an option in it is not broken at its hyphens."""
    parts, end = [], 0
    for found in _OPTION.finditer(text):
        parts += [_plain(text[end : found.start()]), f'<span class="option">{_plain(found[0])}</span>']
        end = found.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    """Neutralise foreign text: no markup, no control characters."""
    return escape_html(escape(text))
