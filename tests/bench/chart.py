"""Draws the measured cost against the length of the list: first run and connect, a line a backend, as SVG.

    python tests/bench/chart.py                  results/*.json -> results/apply.svg

The cost is on a logarithmic scale; the lengths stand side by side, an empty list at the left. Plain SVG 1.1 without fonts or scripts of others.
"""

from __future__ import annotations

import json
import math
import pathlib
from xml.sax.saxutils import escape

RESULTS = pathlib.Path(__file__).parent / "results"
COLOURS = ("#c0392b", "#e08e0b", "#1f6fb2", "#7fb2dd", "#2a8f4e")
WIDTH, HEIGHT = 860, 400
PANEL_WIDTH, PANEL_HEIGHT, TOP, LEFT, GAP = 340, 240, 50, 60, 90
ORDER = ("iptables-nft", "iptables-legacy", "iptables-nft+ipset", "iptables-legacy+ipset", "nftables")

Series = dict[str, list[tuple[float, float]]]  # backend -> (length of the list, cost)


def draw_panel(left: float, title: str, series: Series) -> list[str]:
    """One pair of axes with its lines, as SVG elements."""
    counts = sorted({count for points in series.values() for count, _ in points})
    costs = [cost for points in series.values() for _, cost in points]
    low, top = 10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs)))
    high = next(cost for cost in (top / 5, top / 2, top) if cost >= max(costs))

    def across(count: float) -> float:
        return left + PANEL_WIDTH * counts.index(count) / max(1, len(counts) - 1)

    def down(cost: float) -> float:
        return TOP + PANEL_HEIGHT * (1 - math.log(cost / low) / math.log(high / low))

    parts = [f'<text x="{left}" y="{TOP - 18}" font-weight="bold">{escape(title)}</text>']
    tick = low
    while tick <= high:
        for cost in (tick, 2 * tick, 5 * tick):
            if cost <= high:
                y = down(cost)
                parts.append(f'<path d="M{left} {y:.1f}h{PANEL_WIDTH}" stroke="#ddd"/>')
                parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{cost:,.0f}</text>')
        tick *= 10
    below = [(across(count), 20, f"{count:,.0f}") for count in counts] + [(left + PANEL_WIDTH / 2, 42, "excluded networks")]
    parts += [f'<text x="{x:.1f}" y="{TOP + PANEL_HEIGHT + y}" text-anchor="middle">{text}</text>' for x, y, text in below]
    for name, points in series.items():
        colour = COLOURS[ORDER.index(name)]
        places = [f"{across(count):.1f} {down(cost):.1f}" for count, cost in sorted(points)]
        parts.append(f'<path d="M{" L".join(places)}" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts += [f'<circle cx="{place.split()[0]}" cy="{place.split()[1]}" r="3" fill="{colour}"/>' for place in places]
    return parts


def draw(panels: dict[str, Series]) -> str:
    """The whole picture: the panels beside each other, one legend below."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', '<rect width="100%" height="100%" fill="#fff"/>']
    for number, (title, series) in enumerate(panels.items()):
        parts += draw_panel(LEFT + number * (PANEL_WIDTH + GAP), title, series)
    for number, name in enumerate(ORDER):
        x, y = LEFT + number * 165, HEIGHT - 28
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{COLOURS[number]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 24}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def read_series(name: str, figure: str) -> Series:
    """One figure of a results file by backend; what was measured without rules is no line."""
    series: Series = {}
    for row in json.loads((RESULTS / f"{name}.json").read_text()):
        if row["backend"] in ORDER:
            series.setdefault(row["backend"], []).append((row["excluded"], row[figure]))
    return series


def main() -> None:
    """Writes the chart."""
    panels = {"first run, ms": read_series("apply", "first"), "a connect through the rules, µs": read_series("connect", "connect")}
    (RESULTS / "apply.svg").write_text(draw(panels))
    print(RESULTS / "apply.svg")


if __name__ == "__main__":
    main()
