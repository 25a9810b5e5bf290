"""Renders the chains as a tree for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.sanitize import Lines, lines, quote
from netinit.simulate.draw.picture import Box, Panel, Picture, Row

LIT = "▶"


def render_text(picture: Picture) -> Lines:
    """Render one tree per table; a chain is expanded at the first jump to it, and a packet's path marked with ▶."""
    printed = [picture.title, *([picture.caption] if picture.caption else [])]
    if not picture.panels:
        printed += ["", "(no rules)"]
    for panel in picture.panels:
        printed += ["", f"table {panel.table}"]
        shown: set[str] = set()
        called = {row.to for box in panel.boxes for row in box.rows if row.to}
        roots = [box for box in panel.boxes if box.policy or box.name not in called]
        for box in roots:
            last = box is roots[-1]
            printed += list(_chain(panel, box, "└─ " if last else "├─ ", "   " if last else "│  ", shown))
    return lines([line.rstrip() for line in printed])


def _chain(panel: Panel, box: Box, head: str, below: str, shown: set[str]) -> Iterator[str]:
    policy = f", policy {box.policy}" if box.policy else ""
    yield f"{head}{box.name} ({box.count} rule{'' if box.count == 1 else 's'}{policy})"
    shown.add(box.name)
    for row in box.rows:
        last = row is box.rows[-1]
        yield f"{below}{'└─ ' if last else '├─ '}{_rule(row, shown)}"
        deeper = below + ("   " if last else "│  ")
        called = panel.box(row.to) if row.to else None
        if called and called.name not in shown:
            yield from _chain(panel, called, deeper + "└─ ", deeper + "   ", shown)


def _rule(row: Row, shown: set[str]) -> str:
    mark = f"{LIT} " if row.hit else ""
    arrow = "→ " if row.to else ""
    again = " (see above)" if row.to in shown else ""
    count = f"  [{row.packets} packets]" if row.packets is not None else ""
    said = f"  with comment {quote(row.comment)}" if row.comment else ""
    purpose = f"  # {row.purpose}" if row.purpose else ""
    number = f"{row.number} " if not row.more else "… "
    return f"{mark}{number}{row.condition or 'all'} {arrow}{row.target}{again}{said}{purpose}{count}"
