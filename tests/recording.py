"""The recording on the first page: what `netinit demo` and `netinit explain` print, as pictures that play by themselves.

`make recording` runs both and renews docs/pictures/demo.svg and docs/pictures/demo-phone.svg. The lines are those that the commands
print, wrapped at the picture's width; only their pace is chosen, so that they can be read.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = ("netinit demo", "netinit explain -b '*' -i '*' --ipv6 off --to 10.1.2.3:443 --uid 1000")
PICTURES = {"demo.svg": (96, 26), "demo-phone.svg": (46, 30)}  # columns and rows of the terminal
LINE, PLAN_LINE, TITLE, COMMAND, END = 0.16, 0.03, 0.7, 1.2, 6.0  # seconds before the next line
CELL, HEIGHT, MARGIN = 8.6, 19, 14  # of a letter of 14 pixels; of a line; around all
SGR = re.compile(r"\x1b\[([\d;]*)m")
CLASSES = {"1;36": "title", "1": "bold", "2": "dim", "32": "good", "1;31": "bad"}
PID = re.compile(r"(?<=process )\d+|(?<=--pid )\d+")
STYLE = """
    text { fill: #e4e8ec; font: 14px "Roboto Mono", ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; }
    .title { fill: #6cc7d9; font-weight: 700; } .bold { font-weight: 700; } .dim { fill: #8b98a5; } .good { fill: #7fd69b; } .bad { fill: #ff8a80; font-weight: 700; }
    .command { fill: #f0a94a; font-weight: 700; }"""
BACK = "#14181c"


@dataclass(frozen=True)
class Line:
    """A line of the terminal: its parts with their classes, and the second in which it appears."""

    parts: tuple[tuple[str, str], ...]
    at: float


def run(command: str) -> str:
    """What the command prints on a terminal, in colour; the process ID, another one each time, as the pages have it."""
    words = [sys.executable, "-m", *shlex.split(command), "--color", "always"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return PID.sub("4711", done.stdout)


def read_parts(text: str) -> list[tuple[str, str]]:
    """A printed line as (text, class of its colour). Raises KeyError for a colour that is not known."""
    pieces = SGR.split(text)
    classes = ["", *[CLASSES[code] if code not in ("", "0") else "" for code in pieces[1::2]]]
    return [(piece, name) for piece, name in zip(pieces[::2], classes, strict=True) if piece]


def wrap(parts: list[tuple[str, str]], columns: int) -> list[tuple[tuple[str, str], ...]]:
    """Break a line into rows of at most `columns` letters, behind a blank where there is one. The rows hold all letters."""
    letters = [(letter, name) for text, name in parts for letter in text]
    indent = next((at for at, (letter, _) in enumerate(letters) if letter != " "), 0)
    rows = []
    while len(letters) > columns:
        blanks = [at for at in range(indent + 1, columns + 1) if letters[at - 1][0] == " "]
        end = blanks[-1] if blanks else columns
        rows.append(letters[:end])
        letters, indent = letters[end:], 0
    return [tuple(_join(row)) for row in (*rows, letters)]


def _join(letters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    for letter, name in letters:
        if joined and joined[-1][1] == name:
            joined[-1] = (joined[-1][0] + letter, name)
        else:
            joined.append((letter, name))
    return joined


def make_lines(outputs: dict[str, str], columns: int) -> tuple[list[Line], float]:
    """The lines of all commands with their times, and how long it plays."""
    lines, at = [], 0.5
    for command, printed in outputs.items():
        rows = wrap([("$ ", "dim"), (command, "command")], columns)
        lines += [Line(row, at) for row in rows]
        at += COMMAND
        in_plan = False
        for text in printed.splitlines():
            parts = read_parts(text)
            is_title = any(name == "title" for _, name in parts)
            in_plan = "The plan" in text if is_title else in_plan
            at += TITLE if is_title else PLAN_LINE if in_plan else LINE
            lines += [Line(row, at) for row in wrap(parts, columns)]
        at += COMMAND
    return lines, at + END


def render(outputs: dict[str, str], columns: int, rows: int) -> str:
    """The picture. A reader who wants no motion sees the end of it."""
    lines, length = make_lines(outputs, columns)
    width, height = round(columns * CELL + 2 * MARGIN), rows * HEIGHT + 2 * MARGIN
    reached = {line.at: number for number, line in enumerate(lines, 1)}
    scrolled, uncovered = ({at: HEIGHT * max(0, number - less) for at, number in reached.items()} for less in (rows, 0))
    texts = [
        f'    <text y="{HEIGHT * number + 14}">{"".join(map(_span, line.parts))}</text>' for number, line in enumerate(lines) if line.parts
    ]
    label = escape(f"What these commands print: {'; '.join(outputs)}", quote=True)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{label}">
  <style>{STYLE}
    .screen {{ transform: translateY({-max(scrolled.values())}px); }} .cover {{ transform: translateY({max(uncovered.values())}px); }}
    @media (prefers-reduced-motion: no-preference) {{
      .screen {{ animation: scroll {length:.2f}s step-end infinite; }} .cover {{ animation: uncover {length:.2f}s step-end infinite; }}
    }}
    @keyframes scroll {{ {_frames(scrolled, length, -1)} }}
    @keyframes uncover {{ {_frames(uncovered, length, 1)} }}
  </style>
  <rect width="{width}" height="{height}" rx="8" fill="{BACK}"/>
  <svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{rows * HEIGHT}"><g class="screen">
{chr(10).join(texts)}
    <rect class="cover" width="{width}" height="{HEIGHT * len(lines)}" fill="{BACK}"/>
  </g></svg>
</svg>
"""


def _frames(offsets: dict[float, int], length: float, sign: int) -> str:
    return " ".join(["0%{transform:none}", *[f"{100 * at / length:.2f}%{{transform:translateY({sign * one}px)}}" for at, one in offsets.items()]])


def _span(part: tuple[str, str]) -> str:
    text, name = part
    return f'<tspan class="{name}">{escape(text)}</tspan>' if name else f"<tspan>{escape(text)}</tspan>"


def main() -> None:
    """Run the commands and write the pictures."""
    outputs = {command: run(command) for command in COMMANDS}
    for name, size in PICTURES.items():
        (ROOT / "docs" / "pictures" / name).write_text(render(outputs, *size), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
