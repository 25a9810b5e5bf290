"""Formats an audit as Markdown."""

from __future__ import annotations

from typing import Any

from netinit.base.sanitize import escape
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
