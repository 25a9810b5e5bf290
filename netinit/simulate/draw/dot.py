"""Renders the chains in Graphviz' DOT language."""

from __future__ import annotations

from netinit.base.sanitize import escape, quote
from netinit.simulate.draw.picture import Box, Picture


def render_dot(picture: Picture) -> str:
    """Render a digraph: a cluster per table, a node per chain, an edge per jump or redirection."""
    lines = [
        "digraph netinit {",
        f"  graph [rankdir=LR, labelloc=t, fontname=Helvetica, label={_quote(picture.caption or picture.title)}];",
        "  node [shape=box, style=filled, fillcolor=white, fontname=Courier, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=9, color=slategray];",
    ]
    for panel in picture.panels:
        lines.append(f"  subgraph {_quote(f'cluster_{panel.table}')} {{")
        lines.append(f"    label={_quote(panel.table)};")
        lines += [f"    {_quote(f'{panel.table}/{box.name}')} [label={_label(box)}{_colour(box)}];" for box in panel.boxes]
        lines.append("  }")
    for port in picture.ports():
        lines.append(f'  {_quote(f"proxy :{port}")} [shape=box, style="rounded,filled", fillcolor=lightblue];')
    for table, chain, row in picture.edges():
        end = f"{table}/{row.to}" if row.to else f"proxy :{row.port}"
        lit = ", color=darkorange, penwidth=2.5" if row.hit else ""
        lines.append(f"  {_quote(f'{table}/{chain}')} -> {_quote(end)} [label={_quote(str(row.number))}{lit}];")
    return "".join([line + "\n" for line in [*lines, "}"]])


def _colour(box: Box) -> str:
    if box.hit:
        return ", fillcolor=cornsilk, color=darkorange, penwidth=2"
    return ", fillcolor=gray92" if box.policy else ""


def _label(box: Box) -> str:
    lines = [box.name + (f" (policy {box.policy})" if box.policy else ""), ""]
    for row in box.rows:
        count = f" [{row.packets}]" if row.packets is not None else ""
        said = f" with comment {quote(row.comment)}" if row.comment else ""
        number = row.number if not row.more else "..."
        lines.append(f"{'> ' if row.hit else ''}{number} {row.condition or 'all'} -> {row.target}{said}{count}")
    return '"' + "".join([_escape(line) + "\\l" for line in lines]) + '"'


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    """Escape text for a DOT string: quotes, label escapes and HTML entities."""
    return escape(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
