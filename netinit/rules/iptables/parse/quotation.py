"""Format listed rules for people: the rule, and separately its comment."""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, quote, shorten
from netinit.rules.iptables.parse import split_words


def part_comment(spec: str) -> tuple[str, str]:
    """Return the rule without its comments, and these joined with "; "."""
    if "--comment" not in spec:
        return spec, ""
    try:
        words = split_words(spec)
    except ParseError:
        return spec, ""
    kept: list[str] = []
    comments: list[str] = []
    at = 0
    while at < len(words):
        head = words[at : at + 4]
        if [word.raw for word in head[:3]] == ["-m", "comment", "--comment"] and head[3:]:
            comments.append(head[3].text)
            at += 4
        else:
            kept.append(head[0].raw)
            at += 1
    return (" ".join(kept), "; ".join(comments)) if comments else (spec, "")


def quote_rule(spec: str) -> str:
    """Return the rule in backquotes with its comment in quotes, each shortened."""
    text, comment = part_comment(spec)
    return f"`{escape(shorten(text, MAX_RULE_LENGTH))}`" + (f" with comment {quote(comment)}" if comment else "")
