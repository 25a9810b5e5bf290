"""Drawings of the chains for the terminal, Mermaid and Graphviz, with a packet's path highlighted.

A picture has the content of a drawing in any format: tables in hook order, chains after their callers, rules as rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from itertools import groupby, pairwise, product
from textwrap import wrap

from netinit.base.sanitize import MAX_RULE_LENGTH, Lines, escape, lines, quote, shorten
from netinit.base.tables import count
from netinit.rules.model import NAT
from netinit.simulate.hooks import STAGES, TABLES_OF_THE_KERNEL
from netinit.simulate.phrases import phrase_rule
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, list_reachable
from netinit.simulate.trace import DROPPED, UNKNOWN, Trace

LIT = "▶"
MAX_OF_A_KIND = 4  # rules of one purpose shown before they are summarised
MAX_STACKED = 8  # chains of a table that are tied to those of the next: there may be thousands
_FONT = 'fontname="Helvetica"'
_GRAPH = f'rankdir=TB, ranksep=0.4, nodesep=0.3, pad=0.2, bgcolor="#ffffff", labelloc=t, labeljust=l, {_FONT}'
_NODE = f'shape=plain, {_FONT}, fontsize=10, fontcolor="#0f172a"'
_EDGE = f'{_FONT}, fontsize=9, color="#94a3b8", fontcolor="#475569", arrowsize=0.7'
_CLUSTER = 'fontsize=10, fontcolor="#475569", color="#cbd5e1", style=rounded'
_PROXY = 'shape=box, style="rounded,filled", margin="0.15,0.05"'
_REACHED, _NOT_REACHED = 'fillcolor="#fff7e6", color="#d97706", penwidth=2', 'fillcolor="#dbeafe", color="#2563eb"'
_HIT, _BUILTIN, _CHAIN = ("#d97706", "#fff7e6", 2), ("#475569", "#e2e8f0", 1), ("#94a3b8", "#f1f5f9", 1)  # frame, title, width
_BACK_OF_HIT = ' bgcolor="#ffedd5"'
_TITLE_WIDTH, _ROW_WIDTH, _TARGET_WIDTH = 84, 38, 24  # letters in a line of a drawing that is read at 900 pixels
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
    rule: str  # its conditions in iptables syntax; empty: always
    condition: str  # the same in words
    purpose: str  # netinit's; empty for foreign rules
    target: str  # short form
    to: str = ""  # chain a jump leads to
    port: int = 0  # proxy port that packets are sent to
    hit: bool = False
    packets: int | None = None
    more: int = 0
    comment: str = ""  # the comment of a foreign rule

    @property
    def label(self) -> str:
        """The number, or dots if the row counts others."""
        return "…" if self.more else str(self.number)

    @property
    def details(self) -> str:
        """The comment of a foreign rule, and the live counter."""
        comment = f" with comment {quote(self.comment)}" if self.comment else ""
        return comment + (f" ({count(self.packets, 'packet')})" if self.packets is not None else "")

    def __str__(self) -> str:
        return f"{self.label} {self.condition or 'all'} → {self.target}{self.details}"


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


def choose_tables(ruleset: Ruleset, trace: Trace | None = None) -> tuple[str, ...]:
    """The tables that say where packets go: nat, those that capture or drop by policy, and the one that decides about `trace`.

    All tables if none of these has rules, or if it is not known what decides.
    """
    cause = trace.cause if trace else None
    if trace and trace.verdict in (DROPPED, UNKNOWN) and not cause:
        return tuple(ruleset.tables)
    deciding = {NAT, cause.table if cause else NAT}
    chosen = [name for name, chains in ruleset.tables.items() if name in deciding or any(map(_decides, chains.values()))]
    has_rules = any(chain.rules for name in chosen for chain in ruleset.tables[name].values())
    return tuple(chosen if has_rules else ruleset.tables)


def _decides(chain: LoadedChain) -> bool:
    return _is_shown_empty(chain.policy) or any(loaded.rule.target.captures_at for loaded in chain.rules)


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
    text = f"{rest} more like {'these' if len(shown) > 1 else 'this'}"
    more = Row(last.number, text, text, last.purpose, last.target, last.to, last.port,
               packets=sum(counted) if counted else None, more=rest)  # fmt: skip
    return [*shown, more]


def _row(loaded: LoadedRule, hit: bool) -> Row:
    target = loaded.rule.target
    rule = f" {loaded.bare_text}"
    for end in (" -j ", " -g "):
        rule = rule.rpartition(end)[0] if end in rule else rule
    condition = escape(shorten(phrase_rule(loaded.rule), MAX_RULE_LENGTH))
    return Row(
        number=loaded.number, rule=rule.strip(), condition=condition, purpose=loaded.purpose, target=target.label(), to=target.calls,
        port=target.captures_at, hit=hit, packets=loaded.packets, comment=loaded.comment,
    )  # fmt: skip


def render_text(picture: Picture) -> Lines:
    """Render one tree per table; a chain is expanded at the first jump to it, and a packet's path marked with ▶."""
    printed = [*([picture.caption] if picture.caption else []), picture.title]
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
    again = " (see above)" if row.to in shown else ""
    purpose = f"  # {row.purpose}" if row.purpose else ""
    return f"{mark}{row.label} {row.rule or 'all'} {'→ ' if row.to else ''}{row.target}{again}{row.details}{purpose}"


def render_mermaid(picture: Picture) -> str:
    """Render a flowchart: a subgraph per table, a node per chain, an edge per jump or redirection."""
    printed = ["---", f"title: {_title(picture.caption or picture.title)}", "---", "flowchart LR"]
    for table, boxes in picture.tables.items():
        printed.append(f'  subgraph {_node("table", table)}["{_escape(table)}"]')
        for box in boxes.values():
            style = "lit" if box.hit else "builtin" if box.policy else "chain"
            texts = [(_escape(str(row)), row.hit) for row in box.rows]
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
    """Render a digraph: a cluster per table, a node per chain, an edge per jump or redirection; as wide as a page."""
    printed = ["digraph netinit {", f"  graph [{_GRAPH}, label={_label_title(picture)}];", f"  node [{_NODE}];", f"  edge [{_EDGE}];"]
    for table, boxes in picture.tables.items():
        printed.append(f"  subgraph {_quote_dot(f'cluster_{table}')} {{")
        printed.append(f"    graph [label={_quote_dot(f'table {table}')}, {_CLUSTER}];")
        printed += [f"    {_quote_dot(f'{table}/{box.name}')} [label={_label_box(box)}];" for box in boxes.values()]
        printed.append("  }")
    reached = {row.port for _, _, row in picture.edges() if row.hit}
    for port in picture.ports():
        printed.append(f"  {_quote_dot(f'proxy :{port}')} [{_PROXY}, {_REACHED if port in reached else _NOT_REACHED}];")
    for table, chain, row in picture.edges():
        start, end = f"{table}/{chain}", f"{table}/{row.to}" if row.to else f"proxy :{row.port}"
        style = ', color="#d97706", penwidth=2.5' if row.hit else ""
        printed.append(f"  {_quote_dot(start)} -> {_quote_dot(end)} [label={_quote_dot(f' {row.label}')}{style}];")
    printed += [f"  {_quote_dot(above)} -> {_quote_dot(below)} [style=invis];" for above, below in _stack(picture)]
    return "".join([line + "\n" for line in [*printed, "}"]])


def _stack(picture: Picture) -> Iterator[tuple[str, str]]:
    """The chains that stand below others, so that each table is drawn below the one before it."""
    called = {(table, row.to) for table, _, row in picture.edges()}
    for (above, upper), (below, lower) in pairwise(picture.tables.items()):
        roots = [f"{below}/{name}" for name in lower if (below, name) not in called]
        leaves = [f"{above}/{box.name}" for box in upper.values() if not any(row.to in upper for row in box.rows)]
        yield from product(leaves[:MAX_STACKED], roots[:MAX_STACKED])


def _label_title(picture: Picture) -> str:
    """The verdict, and below it whose rules these are."""
    rows = [f'<font point-size="14"><b>{_wrap(picture.caption or picture.title, _TITLE_WIDTH)}</b></font>']
    if picture.caption:
        rows.append(f'<font point-size="10" color="#475569">{_wrap(picture.title, _TITLE_WIDTH)}</font>')
    cells = "".join([f'<tr><td align="left" balign="left">{row}</td></tr>' for row in rows])
    return f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="3">{cells}</table>>'


def _label_box(box: Box) -> str:
    """A chain as a table: its name, and a row for each rule, in which equal parts stand below each other."""
    colour, back, width = _HIT if box.hit else _BUILTIN if box.policy else _CHAIN
    policy = f"  (policy {box.policy})" if box.policy else ""
    rows = [f'<tr><td colspan="5" align="left" bgcolor="{back}"><b>{_html(box.name)}</b>{_html(policy)}</td></tr>']
    for row in box.rows:
        target = _wrap(f"{row.target}{row.details}", _TARGET_WIDTH)
        texts = [row.label, _wrap_condition(row.condition or "all"), "→", target]
        texts = [f"<b>{text}</b>" if row.hit else text for text in texts]
        attributes = f'align="left" balign="left" valign="top"{_BACK_OF_HIT if row.hit else ""}'
        rows.append("<tr>" + "".join([f"<td {attributes}>{text}</td>" for text in [*texts, ""]]) + "</tr>")
    attributes = f'border="{width}" cellborder="0" cellspacing="0" cellpadding="3" color="{colour}" bgcolor="#ffffff"'
    return f"<<table {attributes}>{''.join(rows)}</table>>"


def _wrap(text: str, width: int) -> str:
    """The text in lines of at most `width` letters."""
    return '<br align="left"/>'.join([_html(line) for line in wrap(escape(text), width)] or [" "])


def _wrap_condition(condition: str) -> str:
    """The condition in lines that end behind a comma, where its parts fit into a line."""
    parts: list[str] = []
    for part in escape(condition).split(", "):
        if parts and len(f"{parts[-1]}, {part}") <= _ROW_WIDTH:
            parts[-1] += f", {part}"
        else:
            parts.append(part)
    return '<br align="left"/>'.join([_wrap(part, _ROW_WIDTH + 1) for part in (*[f"{part}," for part in parts[:-1]], parts[-1])])


def _html(text: str) -> str:
    """Escape text for a label with markup."""
    return escape_html(escape(text))


def _quote_dot(text: str) -> str:
    """Quote text as a DOT string: quotes, label escapes and HTML entities are escaped."""
    return '"' + escape(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") + '"'
