"""docs/library.md: each example gives what the command above it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import reference

ROOT = Path(__file__).parents[3]
PAIR = re.compile(r"^```sh\n([^`]*)^```\n\n<!-- output.*?^<!-- end -->\n\n```python\n([^`]*)^```$", re.DOTALL | re.MULTILINE)
PAIRS = PAIR.findall((ROOT / "docs" / "library.md").read_text("utf-8"))


def test_four_examples_stand_beside_their_command():
    assert [line.split()[1] for line, _ in PAIRS] == ["explain", "audit", "diff", "lint"]


@pytest.mark.parametrize(("line", "program"), PAIRS, ids=[line.split()[1] for line, _ in PAIRS])
def test_an_example_prints_what_the_command_above_it_prints(line, program, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = reference.print_output(line.strip())
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {})
    first = printed.getvalue().splitlines()[0]
    assert first == command.splitlines()[0]
    if ".text" in program:
        assert printed.getvalue().startswith(command)
