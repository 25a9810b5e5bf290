"""The README's option tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from netinit.cli import reference
from netinit.options import FLAGS

README = Path(__file__).parents[3] / "README.md"


def test_the_readmes_option_tables_are_those_of_the_program():
    text = README.read_text("utf-8")
    assert reference.replace_tables(text) == text, "run: python -m netinit.cli.reference README.md"


def test_the_tables_have_every_option_once_in_rows_of_equal_length():
    rows = [line for line in reference.render_tables().splitlines() if line.startswith("|")]
    cells = [row.replace("\\|", "").count("|") for row in rows]
    assert set(cells) == {5, 4}
    for flag in FLAGS:
        assert sum(f"`{flag.label}`" in row for row in rows) == 1, flag.label


def test_only_what_stands_between_the_markers_is_replaced(tmp_path):
    file = tmp_path / "README.md"
    file.write_text(f"before\n{reference.BEGIN}\nold\n{reference.END}\nafter\n", "utf-8")
    reference.main([str(file)])
    assert file.read_text("utf-8") == f"before\n{reference.render_tables()}after\n"
    with pytest.raises(ValueError, match="markers"):
        reference.replace_tables("no markers")
