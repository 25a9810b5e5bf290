"""The option tables of the README: `python -m netinit.cli.reference README.md` renews them; alone it prints them."""

from __future__ import annotations

import sys
from pathlib import Path

from netinit.cli.flags import is_ours, spell_default
from netinit.options import FLAGS, Flag
from netinit.options.kinds import SWITCH

BEGIN = "<!-- begin: options, made by python -m netinit.cli.reference -->"
END = "<!-- end: options -->"
HEAD = ("flag", "environment", "default", "meaning")


def render_tables() -> str:
    """The tables between their markers, a line break at the end."""
    parts = [
        BEGIN,
        "",
        "The options of istio-iptables:",
        "",
        *_render_table([flag for flag in FLAGS if flag.long and not is_ours(flag)]),
        "",
        "Those of netinit:",
        "",
        *_render_table([flag for flag in FLAGS if is_ours(flag)]),
        "",
        "Environment variables without a flag:",
        "",
        *_render_table([flag for flag in FLAGS if not flag.long]),
        "",
        END,
    ]
    return "\n".join(parts) + "\n"


def replace_tables(text: str) -> str:
    """The text with its tables renewed. ValueError when the markers are not in it once each, in order."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END + "\n")
    if not begin or not end or BEGIN in after or END in after:
        raise ValueError("the markers of the option tables are not there once each")
    return before + render_tables() + after


def _render_table(flags: list[Flag]) -> list[str]:
    head = HEAD if flags[0].long else HEAD[1:]
    lines = [_render_row(head), _render_row(["---"] * len(head))]
    for flag in flags:
        names = ", ".join([f"`--{name}`" for name in (flag.long, *flag.aliases)])
        value = "" if flag.kind is SWITCH else f" {_escape(flag.kind.metavar)}"
        short = f"`-{flag.short}`, " if flag.short else ""
        variables = ", ".join([f"`{name}`" for name in flag.variables])
        default = f"`{spell_default(flag)}`" if spell_default(flag) else ""
        cells = (f"{short}{names}{value}", variables, default, _escape(flag.help))
        lines.append(_render_row(cells if flag.long else cells[1:]))
    return lines


def _render_row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def main(paths: list[str]) -> None:
    """Renews the tables of each file, or prints them where none is named."""
    for path in map(Path, paths):
        path.write_text(replace_tables(path.read_text("utf-8")), "utf-8")
    if not paths:
        sys.stdout.write(render_tables())


if __name__ == "__main__":
    main(sys.argv[1:])
