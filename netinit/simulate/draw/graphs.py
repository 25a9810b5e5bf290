"""Renders the chains as graphs: in Graphviz' DOT language, and as a Mermaid flowchart for READMEs and issues."""

from __future__ import annotations

from netinit.base.sanitize import escape, quote
from netinit.simulate.draw.picture import Box, Picture

_PLAIN = frozenset(" !'()*+,-./=?_~→…")  # characters without meaning in Mermaid (icons, formulas, directives), HTML and Markdown
_CLASSES = (
    "classDef chain fill:#ffffff,stroke:#94a3b8,color:#0f172a,text-align:left",
    "classDef builtin fill:#e2e8f0,stroke:#475569,color:#0f172a,text-align:left",
    "classDef proxy fill:#dbeafe,stroke:#2563eb,color:#1e3a8a",
    "classDef lit fill:#fff7e6,stroke:#d97706,stroke-width:3px,color:#0f172a,text-align:left",
)


def render_mermaid(picture: Picture) -> str:
    """Render a flowchart: a subgraph per table, a node per chain, an edge per jump or redirection."""
    lines = ["---", f"title: {_title(picture.caption or picture.title)}", "---", "flowchart LR"]
    for panel in picture.panels:
        lines.append(f'  subgraph {_node("table", panel.table)}["{_escape(panel.table)}"]')
        lines += [f'    {_node(panel.table, box.name)}["{_label(box)}"]:::{_style(box)}' for box in panel.boxes]
        lines.append("  end")
    lines += [f'  proxy_{port}(["proxy :{port}"]):::proxy' for port in picture.ports()]
    for number, (table, chain, row) in enumerate(picture.edges()):
        end = _node(table, row.to) if row.to else f"proxy_{row.port}"
        lines.append(f"  {_node(table, chain)} {'==>' if row.hit else '-->'}|{row.number}| {end}")
        if row.hit:
            lines.append(f"  linkStyle {number} stroke:#d97706")
    lines += [f"  {style}" for style in _CLASSES]
    return "".join([line + "\n" for line in lines])


def _node(table: str, chain: str) -> str:
    """A unique node identifier of letters, digits and underscores."""
    return "_".join([_identifier(part) for part in (table, *chain.split("_"))])


def _identifier(text: str) -> str:
    return "".join([c if c.isalnum() and c.isascii() and c != "x" else f"x{ord(c):x}x" for c in text])


def _title(text: str) -> str:
    """The title as a double-quoted YAML scalar, since the front matter is YAML."""
    return '"' + "".join([c if _is_plain(c) or c in "[]:`" else f"\\U{ord(c):08x}" for c in escape(text)]) + '"'


def _style(box: Box) -> str:
    return "lit" if box.hit else "builtin" if box.policy else "chain"


def _label(box: Box) -> str:
    lines = [f"<b>{_escape(box.name)}</b>"]
    for row in box.rows:
        words = f"{row.number if not row.more else '…'} {row.condition or 'all'} → {row.target}"
        said = f" with comment {quote(row.comment)}" if row.comment else ""
        count = f" ({row.packets})" if row.packets is not None else ""
        text = _escape(words + said + count)
        lines.append(f"<b>{text}</b>" if row.hit else text)
    return "<br/>".join(lines)


def _escape(text: str) -> str:
    """Escape text for a quoted label: all but known-safe characters become entity codes.

    Mermaid finds directives (`%%{…}%%`) even in quotes, so the safe characters are listed.
    """
    return "".join([c if _is_plain(c) else f"#{ord(c)};" for c in escape(text)])


def _is_plain(letter: str) -> bool:
    return letter.isalnum() or letter in _PLAIN


def render_dot(picture: Picture) -> str:
    """Render a digraph: a cluster per table, a node per chain, an edge per jump or redirection."""
    lines = [
        "digraph netinit {",
        f"  graph [rankdir=LR, labelloc=t, fontname=Helvetica, label={_quote_dot(picture.caption or picture.title)}];",
        "  node [shape=box, style=filled, fillcolor=white, fontname=Courier, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=9, color=slategray];",
    ]
    for panel in picture.panels:
        lines.append(f"  subgraph {_quote_dot(f'cluster_{panel.table}')} {{")
        lines.append(f"    label={_quote_dot(panel.table)};")
        lines += [f"    {_quote_dot(f'{panel.table}/{box.name}')} [label={_dot_label(box)}{_colour(box)}];" for box in panel.boxes]
        lines.append("  }")
    for port in picture.ports():
        lines.append(f'  {_quote_dot(f"proxy :{port}")} [shape=box, style="rounded,filled", fillcolor=lightblue];')
    for table, chain, row in picture.edges():
        end = f"{table}/{row.to}" if row.to else f"proxy :{row.port}"
        lit = ", color=darkorange, penwidth=2.5" if row.hit else ""
        lines.append(f"  {_quote_dot(f'{table}/{chain}')} -> {_quote_dot(end)} [label={_quote_dot(str(row.number))}{lit}];")
    return "".join([line + "\n" for line in [*lines, "}"]])


def _colour(box: Box) -> str:
    if box.hit:
        return ", fillcolor=cornsilk, color=darkorange, penwidth=2"
    return ", fillcolor=gray92" if box.policy else ""


def _dot_label(box: Box) -> str:
    lines = [box.name + (f" (policy {box.policy})" if box.policy else ""), ""]
    for row in box.rows:
        count = f" [{row.packets}]" if row.packets is not None else ""
        said = f" with comment {quote(row.comment)}" if row.comment else ""
        number = row.number if not row.more else "..."
        lines.append(f"{'> ' if row.hit else ''}{number} {row.condition or 'all'} -> {row.target}{said}{count}")
    return '"' + "".join([_escape_dot(line) + "\\l" for line in lines]) + '"'


def _quote_dot(text: str) -> str:
    return f'"{_escape_dot(text)}"'


def _escape_dot(text: str) -> str:
    """Escape text for a DOT string: quotes, label escapes and HTML entities."""
    return escape(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
