"""The chains as a picture: a panel a table, a card a chain, an arrow for each jump and each way to the proxy."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import wrap
from xml.sax.saxutils import escape

from netinit.draw.picture import CAPTURE, CHANGE, END, JUMP, OTHER, SPARE, Box, Panel, Picture, Row

# Widths of letters, in parts of the font's size: sans-serif on average, and monospaced.
_SANS, _MONO = 0.54, 0.602
_TITLE, _NAME, _WORDS, _RULE = 20, 13, 11.5, 9.5  # font sizes
_WIDEST = 78  # letters of a rule before it is cut
_PAD, _ROW_GAP, _HEAD = 12, 7, 34
_COLUMN_GAP, _CARD_GAP, _MARGIN = 92, 22, 32
_PROXY_WIDTH, _PROXY_HEIGHT = 132, 46

_INK, _FAINT, _LINE, _PAPER, _PANEL = "#0f172a", "#64748b", "#cbd5e1", "#ffffff", "#f1f5f9"
_LIT, _LIT_PAPER = "#d97706", "#fff7e6"
_COLOURS = {  # of a target's chip: paper and ink
    JUMP: ("#e0e7ff", "#3730a3"),
    CAPTURE: ("#dbeafe", "#1d4ed8"),
    SPARE: ("#dcfce7", "#15803d"),
    END: ("#fee2e2", "#b91c1c"),
    CHANGE: ("#f3e8ff", "#7e22ce"),
    OTHER: ("#e2e8f0", "#334155"),
}
_SANS_FAMILY = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_MONO_FAMILY = "'JetBrains Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(slots=True)
class _Card:
    """A chain with its place on the page."""

    box: Box
    width: float
    height: float
    x: float = 0
    y: float = 0
    row_tops: list[float] = field(default_factory=list)  # below the card's top

    def exit(self, number: int) -> tuple[float, float]:
        """Where the arrow of a row begins."""
        return self.x + self.width, self.y + self.row_tops[number] + _row_height(
            self.box.rows[number]
        ) / 2 - _ROW_GAP / 2

    @property
    def entry(self) -> tuple[float, float]:
        """Where arrows to the chain end."""
        return self.x, self.y + _HEAD / 2


def render_svg(picture: Picture) -> str:
    """An SVG document without scripts, styles or links, so that it shows everywhere, a README's page included."""
    y = float(_MARGIN)
    head, y = _write_head(picture, y)
    body: list[str] = []
    widest = 480.0
    for panel in picture.panels:
        parts, width, height = _draw_panel(panel, y, lit=picture.lit)
        body += parts
        widest = max(widest, width)
        y += height + _CARD_GAP
    total = widest + 2 * _MARGIN
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{y + 10:.0f}" '
        f'viewBox="0 0 {total:.0f} {y + 10:.0f}" font-family="{_SANS_FAMILY}">'
    )
    arrows = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" markerHeight="{size}" '
        f'orient="auto-start-reverse"><path d="M0 0.8 L9.5 5 L0 9.2 z" fill="{colour}"/></marker>'
        for name, colour, size in (("arrow", "#94a3b8", 7), ("lit", _LIT, 5))
    )
    paper = f'<rect width="100%" height="100%" fill="{_PAPER}"/>'
    title = f"<title>{escape(picture.caption or picture.title)}</title>"
    return "\n".join([opening, title, f"<defs>{arrows}</defs>", paper, *head, *_widen(body, widest), "</svg>", ""])


def _widen(body: list[str], width: float) -> list[str]:
    """All panels get the width of the widest."""
    return [part.replace("PANEL_WIDTH", f"{width:.1f}") for part in body]


def _write_head(picture: Picture, y: float) -> tuple[list[str], float]:
    lines = [_text(_MARGIN, y + _TITLE * 0.8, picture.title, size=_TITLE, weight=700)]
    y += _TITLE + 8
    for line in wrap(picture.caption, 140, break_on_hyphens=False):
        lines.append(_text(_MARGIN, y + 13, line, size=14, fill=_LIT if picture.lit else _FAINT))
        y += 20
    return lines, y + 10


def _draw_panel(panel: Panel, top: float, *, lit: bool) -> tuple[list[str], float, float]:
    """The parts of a table's panel, its width and its height."""
    cards = {box.name: _measure(box) for box in panel.boxes}
    ranks = _rank(panel)
    columns = [
        [cards[box.name] for box in panel.boxes if ranks[box.name] == rank] for rank in range(max(ranks.values()) + 1)
    ]
    x = _MARGIN + 20.0
    lowest = _place(columns, cards, top + 44)
    for column in columns:
        for card in column:
            card.x = x
        x += max(card.width for card in column) + _COLUMN_GAP
    ports = _proxy_ports(panel, cards)
    bottom = max(lowest, top + 44 + len(ports) * (_PROXY_HEIGHT + 18))
    places = _place_ports(ports, x, top + 44, bottom)
    right = x + _PROXY_WIDTH if ports else x - _COLUMN_GAP
    parts = [
        f'<rect x="{_MARGIN}" y="{top:.1f}" width="PANEL_WIDTH" height="{bottom - top + 16:.1f}" rx="14" fill="{_PANEL}"/>',
        _text(_MARGIN + 20, top + 27, panel.table, size=15, weight=700, fill=_INK),
        _text(_MARGIN + 28 + len(panel.table) * 15 * _SANS, top + 27, "table", size=12, fill=_FAINT),
    ]
    edges = list(_edges(panel, cards, places))
    parts += [_arrow(*edge) for edge in sorted(edges, key=lambda edge: edge[2])]  # lit ones on top
    for card in cards.values():
        parts += _draw_card(card, dim=lit and not card.box.hit)
    hit = {row.port for box in panel.boxes for row in box.rows if row.hit}
    parts += [part for port, place in places.items() for part in _draw_proxy(port, ports[port], place, lit=port in hit)]
    return parts, right - _MARGIN + 20, bottom - top + 16


def _measure(box: Box) -> _Card:
    tops, y = [], float(_HEAD + 8)
    width = len(box.name) * _NAME * 0.66 + (110 if box.policy else 70)
    for row in box.rows:
        tops.append(y)
        y += _row_height(row)
        words = (
            max(len(_purpose(row)) * _WORDS * _SANS, len(_cut(row.condition)) * _RULE * _MONO)
            if row.purpose
            else len(_condition(row)) * 10.5 * _MONO
        )
        width = max(
            width,
            30
            + words
            + 16
            + _chip_width(row)
            + _PAD
            + (len(str(row.packets)) * 6.5 + 14 if row.packets is not None else 0),
        )
    return _Card(box, width, y + 4, row_tops=tops)


def _row_height(row: Row) -> float:
    return (30 if row.purpose and row.condition else 18) + _ROW_GAP


def _purpose(row: Row) -> str:
    return row.purpose if not row.more else f"{row.purpose} (…)"


def _condition(row: Row) -> str:
    return _cut(row.condition or "everything")


def _cut(text: str) -> str:
    """The condition without the names of modules, which its options imply, and not too long."""
    words = text.split(" ")
    text = " ".join(
        word for before, word in zip(["", *words], words, strict=False) if "-m" not in (before, word) or before == word
    )
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _chip_width(row: Row) -> float:
    return len(row.target) * 9.5 * 0.6 + 14


def _rank(panel: Panel) -> dict[str, int]:
    """How many jumps lead to a chain at most: its column. Chains that call each other in a circle stay where they are."""
    ranks = {box.name: 0 for box in panel.boxes}
    for _ in panel.boxes:
        for box in panel.boxes:
            for row in box.rows:
                if row.to in ranks and ranks[row.to] <= ranks[box.name] < len(ranks):
                    ranks[row.to] = ranks[box.name] + 1
    used = sorted(set(ranks.values()))
    return {name: used.index(rank) for name, rank in ranks.items()}


def _place(columns: list[list[_Card]], cards: dict[str, _Card], top: float) -> float:
    """Gives every card its height: stacked first, then moved near what leads there, as far as the page is long anyway.

    The lowest edge of all.
    """
    for column in columns:
        column.sort(key=lambda card: _callers_height(card, cards, top))
        y = top
        for card in column:
            card.y = y
            y += card.height + _CARD_GAP
    bottom = max(card.y + card.height for card in cards.values())
    for column in columns[2:]:
        _move(column, [_callers_height(card, cards, top) - _HEAD / 2 for card in column], bottom)
    if len(columns) > 1:
        _move(columns[0], [_called_height(card, columns[1]) for card in columns[0]], bottom)
    return bottom


def _move(column: list[_Card], wanted: list[float], bottom: float) -> None:
    """Moves the cards of a column down to where they are wanted, in their order and not below `bottom`."""
    room = bottom - sum(card.height for card in column) - _CARD_GAP * (len(column) - 1)
    lowest = column[0].y
    for card, height in zip(column, wanted, strict=True):
        card.y = max(lowest, min(height, room))
        lowest = card.y + card.height + _CARD_GAP
        room += card.height + _CARD_GAP


def _callers_height(card: _Card, cards: dict[str, _Card], top: float) -> float:
    """The height at which the rules that lead to a chain stand, on average."""
    callers = [
        other.exit(index)[1]
        for other in cards.values()
        if other.y
        for index, row in enumerate(other.box.rows)
        if row.to == card.box.name
    ]
    return sum(callers) / len(callers) if callers else top


def _called_height(card: _Card, neighbours: list[_Card]) -> float:
    """Where a card must stand for its first jump to a neighbour to be level with the chain that it leads to."""
    entries = {other.box.name: other.entry[1] for other in neighbours}
    for top, row in zip(card.row_tops, card.box.rows, strict=True):
        if row.to in entries:
            return entries[row.to] - top - _row_height(row) / 2 + _ROW_GAP / 2
    return card.y


def _proxy_ports(panel: Panel, cards: dict[str, _Card]) -> dict[int, tuple[float, bool]]:
    """The proxy's ports that rules lead to: the height of the first such rule, and whether by TPROXY; top to bottom."""
    found: dict[int, tuple[float, bool]] = {}
    for box in panel.boxes:
        for index, row in enumerate(box.rows):
            if row.port:
                found.setdefault(row.port, (cards[box.name].exit(index)[1], row.transparent))
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


def _place_ports(
    ports: dict[int, tuple[float, bool]], x: float, top: float, bottom: float
) -> dict[int, tuple[float, float]]:
    """Where each port's pill stands: at the height of its rule, as far as the others leave room."""
    places: dict[int, tuple[float, float]] = {}
    y = top
    left = len(ports)
    for port, (wanted, _) in ports.items():
        limit = bottom - left * (_PROXY_HEIGHT + 18) + 18
        y = max(y, min(wanted - _PROXY_HEIGHT / 2, limit))
        places[port] = (x, y)
        y += _PROXY_HEIGHT + 18
        left -= 1
    return places


def _edges(
    panel: Panel, cards: dict[str, _Card], places: dict[int, tuple[float, float]]
) -> list[tuple[tuple[float, float], tuple[float, float], bool]]:
    found = []
    for box in panel.boxes:
        for index, row in enumerate(box.rows):
            start = cards[box.name].exit(index)
            if row.to in cards:
                found.append((start, cards[row.to].entry, row.hit))
            elif row.port in places:
                x, y = places[row.port]
                found.append((start, (x, y + _PROXY_HEIGHT / 2), row.hit))
    return found


def _arrow(start: tuple[float, float], end: tuple[float, float], lit: bool) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = max(36.0, (x2 - x1) / 2)
    colour, width, name = (_LIT, 2.6, "lit") if lit else ("#94a3b8", 1.2, "arrow")
    return (
        f'<path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2 - 2:.1f} {y2:.1f}" '
        f'fill="none" stroke="{colour}" stroke-width="{width}" marker-end="url(#{name})"/>'
    )


def _draw_card(card: _Card, *, dim: bool) -> list[str]:
    box = card.box
    edge, stroke = (_LIT, 2) if box.hit else (_LINE, 1)
    head = "#1e293b" if box.policy else "#475569"
    place = f'<rect x="{card.x:.1f}" y="{card.y:.1f}" width="{card.width:.1f}" height="{card.height:.1f}" rx="9"'
    parts = [
        f'{place} fill="{_PANEL}"/>',  # arrows that pass behind a faint card stay behind it
        f'<g opacity="{0.55 if dim else 1}">',
        f'{place} fill="{_PAPER}" stroke="{edge}" stroke-width="{stroke}"/>',
        (
            f'<path d="M{card.x:.1f} {card.y + _HEAD - 6:.1f} v-{_HEAD - 15} q0 -9 9 -9 h{card.width - 18:.1f} '
            f'q9 0 9 9 v{_HEAD - 15} z" fill="{head}"/>'
        ),
        _text(card.x + _PAD, card.y + 18.5, box.name, size=_NAME, weight=700, fill="#ffffff"),
    ]
    side = f"policy {box.policy}" if box.policy else f"{box.count} rule{'' if box.count == 1 else 's'}"
    parts.append(_text(card.x + card.width - _PAD, card.y + 18.5, side, size=10, fill="#cbd5e1", anchor="end"))
    for row, top in zip(box.rows, card.row_tops, strict=True):
        parts += _draw_row(card, row, card.y + top)
    return [*parts, "</g>"]


def _draw_row(card: _Card, row: Row, y: float) -> list[str]:
    height = _row_height(row) - _ROW_GAP
    parts = []
    if row.hit:
        parts.append(
            f'<rect x="{card.x + 5:.1f}" y="{y - 3:.1f}" width="{card.width - 10:.1f}" height="{height + 6:.1f}" '
            f'rx="5" fill="{_LIT_PAPER}"/>'
        )
    number = "…" if row.more else str(row.number)
    parts.append(
        _text(card.x + 22, y + 12, number, size=10, fill=_LIT if row.hit else _FAINT, anchor="end", weight=600)
    )
    left = card.x + 30
    if row.purpose:
        parts.append(_text(left, y + 12, _purpose(row), size=_WORDS, weight=600 if row.hit else 400))
        if row.condition:
            parts.append(_text(left, y + 26, _cut(row.condition), size=_RULE, fill=_FAINT, mono=True))
    else:
        parts.append(_text(left, y + 12, _condition(row), size=10.5, mono=True))
    paper, ink = _COLOURS[row.kind]
    width = _chip_width(row)
    chip = card.x + card.width - _PAD - width + 4
    middle = y + height / 2
    parts.append(
        f'<rect x="{chip:.1f}" y="{middle - 8.5:.1f}" width="{width:.1f}" height="17" rx="8.5" fill="{paper}"/>'
    )
    parts.append(_text(chip + width / 2, middle + 3.4, row.target, size=9.5, fill=ink, anchor="middle", weight=700))
    if row.packets is not None:
        parts.append(
            _text(
                chip - 8,
                middle + 3.4,
                str(row.packets),
                size=10,
                fill=_LIT if row.packets else _FAINT,
                anchor="end",
                weight=600,
            )
        )
    return parts


def _draw_proxy(port: int, what: tuple[float, bool], place: tuple[float, float], *, lit: bool) -> list[str]:
    x, y = place
    edge, width = (_LIT, 2.6) if lit else ("#2563eb", 1.4)
    middle = x + _PROXY_WIDTH / 2
    return [
        (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{_PROXY_WIDTH}" height="{_PROXY_HEIGHT}" rx="23" fill="#eff6ff" '
            f'stroke="{edge}" stroke-width="{width}"/>'
        ),
        _text(middle, y + 20, f"proxy :{port}", size=13, weight=700, fill="#1e3a8a", anchor="middle"),
        _text(middle, y + 35, "addresses kept" if what[1] else "redirected", size=10, fill="#3b82f6", anchor="middle"),
    ]


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: float,
    fill: str = _INK,
    weight: int = 400,
    anchor: str = "start",
    mono: bool = False,
) -> str:
    more = f' font-family="{_MONO_FAMILY}"' if mono else ""
    more += f' font-weight="{weight}"' if weight != 400 else ""  # noqa: PLR2004
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}"{more} xml:space="preserve">{escape(words)}</text>'
