"""Words for people: a number with its noun, and columns that are aligned."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: int, word: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the columns, but the last, of rows of equal length."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    return ["  ".join([*[cell.ljust(width) for cell, width in zip(row, widths, strict=False)], row[-1]]).rstrip() for row in rows]
