"""Drawings of the chains for the terminal, Mermaid and Graphviz, with a packet's path highlighted.

A picture has the content of a drawing in any format: tables in hook order, chains after their callers, rules as rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from netinit.base.sanitize import Lines, escape, lines, quote
from netinit.simulate.hooks import STAGES, TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, list_reachable
from netinit.simulate.trace import Trace

LIT = "▶"
MAX_OF_A_KIND = 4  # rules of one purpose shown before they are summarised
_PLAIN = frozenset(" !'()*+,-./=?_~→…")  # characters without meaning in Mermaid (icons, formulas, directives), HTML and Markdown
_CLASSES = (
    "classDef chain fill:#ffffff,stroke:#94a3b8,color:#0f172a,text-align:left",
    "classDef builtin fill:#e2e8f0,stroke:#475569,color:#0f172a,text-align:left",
    "classDef proxy fill:#dbeafe,stroke:#2563eb,color:#1e3a8a",
    "classDef lit fill:#fff7e6,stroke:#d97706,stroke-width:3px,color:#0f172a,text-align:left",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One rule, or the number of further rules of the same kind (`more`)."""

    number: int
    condition: str  # iptables syntax; empty: always
    purpose: str  # netinit's; empty for foreign rules
    target: str  # short form
    to: str = ""  # chain a jump leads to
    port: int = 0  # proxy port that packets are sent to
    hit: bool = False
    packets: int | None = None
    more: int = 0
    comment: str = ""  # the comment of a foreign rule

    def format(self, dots: str, arrow: str, count: str) -> str:
        """The rule in a node's label: `dots` replace the number of a row that counts others, `count` has {} for the packets."""
        comment = f" with comment {quote(self.comment)}" if self.comment else ""
        counted = count.format(self.packets) if self.packets is not None else ""
        return f"{dots if self.more else self.number} {self.condition or 'all'} {arrow} {self.target}{comment}{counted}"


@dataclass(frozen=True, slots=True)
class Box:
    """A chain. `count` is the number of its rules."""

    name: str
    policy: str
    rows: tuple[Row, ...]
    count: int
    hit: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole drawing: the chains of each table by name, callers first; `caption` describes the highlighted path."""

    title: str
    caption: str
    tables: dict[str, dict[str, Box]]

    def edges(self) -> list[tuple[str, str, Row]]:
        """Rules that lead to a drawn chain or the proxy, as (table, chain, rule)."""
        return [
            (table, box.name, row)
            for table, boxes in self.tables.items()
            for box in boxes.values()
            for row in box.rows
            if row.port or row.to in boxes
        ]

    def ports(self) -> tuple[int, ...]:
        """The proxy ports that rules send packets to."""
        return tuple(dict.fromkeys(row.port for _, _, row in self.edges() if row.port))


def make_picture(
    ruleset: Ruleset, *, title: str, trace: Trace | None = None, caption: str = "", tables: Sequence[str] = ()
) -> Picture:
    """Lay out a family's rules (all tables, or those named), highlighting the rules that matched in `trace`."""
    hits = {(step.table, step.chain, step.rule.number) for step in trace.hits if step.rule} if trace else set()
    drawn: dict[str, dict[str, Box]] = {}
    for table in [*TABLES_OF_THE_KERNEL, *[table for table in ruleset.tables if table not in TABLES_OF_THE_KERNEL]]:
        chains = ruleset.tables.get(table, {})
        if (not tables or table in tables) and any(chain.rules or _is_shown_empty(chain.policy) for chain in chains.values()):
            # Built-in chains in hook order, each before the chains it calls; unreferenced chains last.
            boxes = {name: _box(table, chains[name], hits) for name in list_reachable(chains, (*STAGES, *chains))}
            drawn[table] = {name: box for name, box in boxes.items() if box.rows or _is_shown_empty(box.policy)}
    return Picture(title, caption, drawn)


def _is_shown_empty(policy: str) -> bool:
    return policy not in ("", "ACCEPT")


def _box(table: str, chain: LoadedChain, hits: set[tuple[str, str, int]]) -> Box:
    rows = [_row(loaded, (table, chain.name, loaded.number) in hits) for loaded in chain.rules]
    of_a_kind = groupby(rows, key=lambda row: (row.purpose, row.target) if row.purpose else row.number)
    shown = tuple([row for _, group in of_a_kind for row in _shorten([*group])])
    return Box(chain.name, chain.policy, shown, len(rows), any(row.hit for row in shown))


def _shorten(rows: list[Row]) -> list[Row]:
    """Of more than MAX_OF_A_KIND rules with one purpose, keep the hit ones or the first, and count the rest."""
    if len(rows) <= MAX_OF_A_KIND:
        return rows
    shown = [row for row in rows if row.hit][:MAX_OF_A_KIND] or rows[: MAX_OF_A_KIND - 1]
    last = rows[-1]
    rest = len(rows) - len(shown)
    counted = [row.packets for row in rows if row not in shown and row.packets is not None]
    more = Row(last.number, f"{rest} more like {'these' if len(shown) > 1 else 'this'}", last.purpose, last.target,
               last.to, last.port, packets=sum(counted) if counted else None, more=rest)  # fmt: skip
    return [*shown, more]


def _row(loaded: LoadedRule, hit: bool) -> Row:
    target = loaded.rule.target
    condition = loaded.bare_text
    for end in (" -j ", " -g "):
        condition = f" {condition}".rpartition(end)[0].strip() if end in f" {condition}" else condition
    return Row(
        number=loaded.number, condition=condition, purpose=loaded.purpose, target=target.label(), to=target.calls,
        port=target.captures_at, hit=hit, packets=loaded.packets, comment=loaded.comment,
    )  # fmt: skip


def render_text(picture: Picture) -> Lines:
    """Render one tree per table; a chain is expanded at the first jump to it, and a packet's path marked with ▶."""
    printed = [picture.title, *([picture.caption] if picture.caption else [])]
    if not picture.tables:
        printed += ["", "(no rules)"]
    for table, boxes in picture.tables.items():
        printed += ["", f"table {table}"]
        shown: set[str] = set()
        called = {row.to for box in boxes.values() for row in box.rows}
        roots = [box for box in boxes.values() if box.policy or box.name not in called]
        for box in roots:
            printed += _chain(boxes, box, *(("└─ ", "   ") if box is roots[-1] else ("├─ ", "│  ")), shown)
    return lines([line.rstrip() for line in printed])


def _chain(boxes: dict[str, Box], box: Box, head: str, below: str, shown: set[str]) -> Iterator[str]:
    policy = f", policy {box.policy}" if box.policy else ""
    yield f"{head}{box.name} ({box.count} rule{'' if box.count == 1 else 's'}{policy})"
    shown.add(box.name)
    for row in box.rows:
        branch, deeper = ("└─ ", "   ") if row is box.rows[-1] else ("├─ ", "│  ")
        yield f"{below}{branch}{_rule(row, shown)}"
        if row.to in boxes and row.to not in shown:
            yield from _chain(boxes, boxes[row.to], f"{below}{deeper}└─ ", f"{below}{deeper}   ", shown)


def _rule(row: Row, shown: set[str]) -> str:
    mark = f"{LIT} " if row.hit else ""
    arrow = "→ " if row.to else ""
    again = " (see above)" if row.to in shown else ""
    count = f"  [{row.packets} packets]" if row.packets is not None else ""
    comment = f"  with comment {quote(row.comment)}" if row.comment else ""
    purpose = f"  # {row.purpose}" if row.purpose else ""
    number = f"{row.number} " if not row.more else "… "
    return f"{mark}{number}{row.condition or 'all'} {arrow}{row.target}{again}{comment}{purpose}{count}"


def render_mermaid(picture: Picture) -> str:
    """Render a flowchart: a subgraph per table, a node per chain, an edge per jump or redirection."""
    printed = ["---", f"title: {_title(picture.caption or picture.title)}", "---", "flowchart LR"]
    for table, boxes in picture.tables.items():
        printed.append(f'  subgraph {_node("table", table)}["{_escape(table)}"]')
        for box in boxes.values():
            style = "lit" if box.hit else "builtin" if box.policy else "chain"
            texts = [(_escape(row.format("…", "→", " ({})")), row.hit) for row in box.rows]
            label = "<br/>".join([f"<b>{text}</b>" if is_bold else text for text, is_bold in [(_escape(box.name), True), *texts]])
            printed.append(f'    {_node(table, box.name)}["{label}"]:::{style}')
        printed.append("  end")
    printed += [f'  proxy_{port}(["proxy :{port}"]):::proxy' for port in picture.ports()]
    for number, (table, chain, row) in enumerate(picture.edges()):
        end = _node(table, row.to) if row.to else f"proxy_{row.port}"
        printed.append(f"  {_node(table, chain)} {'==>' if row.hit else '-->'}|{row.number}| {end}")
        if row.hit:
            printed.append(f"  linkStyle {number} stroke:#d97706")
    printed += [f"  {style}" for style in _CLASSES]
    return "".join([line + "\n" for line in printed])


def _node(table: str, chain: str) -> str:
    """A unique node identifier of letters, digits and underscores."""
    parts = (table, *chain.split("_"))
    return "_".join(["".join([c if c.isalnum() and c.isascii() and c != "x" else f"x{ord(c):x}x" for c in part]) for part in parts])


def _title(text: str) -> str:
    """The title as a double-quoted YAML scalar, since the front matter is YAML."""
    return '"' + "".join([c if _is_plain(c) or c in "[]:`" else f"\\U{ord(c):08x}" for c in escape(text)]) + '"'


def _escape(text: str) -> str:
    """Escape text for a quoted label: all but known-safe characters become entity codes.

    Mermaid finds directives (`%%{…}%%`) even in quotes, so the safe characters are listed.
    """
    return "".join([c if _is_plain(c) else f"#{ord(c)};" for c in escape(text)])


def _is_plain(letter: str) -> bool:
    return letter.isalnum() or letter in _PLAIN


def render_dot(picture: Picture) -> str:
    """Render a digraph: a cluster per table, a node per chain, an edge per jump or redirection."""
    printed = [
        "digraph netinit {",
        f"  graph [rankdir=LR, labelloc=t, fontname=Helvetica, label={_quote_dot(picture.caption or picture.title)}];",
        "  node [shape=box, style=filled, fillcolor=white, fontname=Courier, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=9, color=slategray];",
    ]
    for table, boxes in picture.tables.items():
        printed += [f"  subgraph {_quote_dot(f'cluster_{table}')} {{", f"    label={_quote_dot(table)};"]
        for box in boxes.values():
            colour = ", fillcolor=gray92" if box.policy else ""
            if box.hit:
                colour = ", fillcolor=cornsilk, color=darkorange, penwidth=2"
            rows = [f"{'> ' if row.hit else ''}{row.format('...', '->', ' [{}]')}" for row in box.rows]
            texts = [box.name + (f" (policy {box.policy})" if box.policy else ""), "", *rows]
            label = "".join([_escape_dot(text) + "\\l" for text in texts])
            printed.append(f"    {_quote_dot(f'{table}/{box.name}')} [label=\"{label}\"{colour}];")
        printed.append("  }")
    for port in picture.ports():
        printed.append(f'  {_quote_dot(f"proxy :{port}")} [shape=box, style="rounded,filled", fillcolor=lightblue];')
    for table, chain, row in picture.edges():
        end = f"{table}/{row.to}" if row.to else f"proxy :{row.port}"
        style = ", color=darkorange, penwidth=2.5" if row.hit else ""
        printed.append(f"  {_quote_dot(f'{table}/{chain}')} -> {_quote_dot(end)} [label={_quote_dot(str(row.number))}{style}];")
    return "".join([line + "\n" for line in [*printed, "}"]])


def _quote_dot(text: str) -> str:
    return f'"{_escape_dot(text)}"'


def _escape_dot(text: str) -> str:
    """Escape text for a DOT string: quotes, label escapes and HTML entities."""
    return escape(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
