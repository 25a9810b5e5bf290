"""The direction of imports, and what is true of every file."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "netinit").rglob("*.py"))
MOST_LINES = 450  # about 400; tables of data may have more
MOST_FUNCTION_LINES = 60  # about 50, and the signature
TABLES = {"netinit/golang/sprig.py"}  # a table of functions


def lint_imports(folder):
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]  # -c: the package of the working folder is looked at
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_imports_point_down_as_the_contracts_in_pyproject_say():
    pytest.importorskip("importlinter")
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_contract_can_fail(tmp_path):
    """An import upwards is seen: the contracts name packages that exist."""
    pytest.importorskip("importlinter")
    copy = tmp_path / "netinit"
    for source in SOURCES:
        target = copy / source.relative_to(ROOT / "netinit")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    with (copy / "rules" / "model.py").open("a") as model:
        model.write("\nimport subprocess\nfrom netinit.backends import base\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "netinit.rules.model -> subprocess" in done.stdout
    assert "netinit.rules.model -> netinit.backends" in done.stdout


def test_every_file_says_what_it_is_and_stays_readable():
    problems = [f"{path.relative_to(ROOT)}: {problem}" for path in SOURCES for problem in find_problems(path)]
    assert not problems, "\n".join(problems)


def find_problems(path):
    text = path.read_text()
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "has no docstring"
    if tree.body[1:] and "from __future__ import annotations" not in text:
        yield "evaluates its annotations"
    if str(path.relative_to(ROOT)) in TABLES:
        return
    if (lines := len(text.splitlines())) > MOST_LINES:
        yield f"has {lines} lines; make a folder of it"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_FUNCTION_LINES:
                yield f"{node.name} has {lines} lines; make several of it"
