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
DOORS = {  # to stdout and stderr
    "netinit/base/logs.py", "netinit/base/output.py",  # both escape what others have written
    "netinit/cli/inject/files.py",  # `inject -o /dev/stdout`: an artefact, written to the letter
}  # fmt: skip
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
PRINTERS = {"print", "echo", "secho", "echo_via_pager", "print_exc", "print_exception", "print_last", "print_stack", "print_tb"}


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


def find_prints(tree):
    """Places where a module prints on its own: it names a stream, or calls what prints."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute) and name in STREAMS and isinstance(node.value, ast.Name) and node.value.id == "sys":
            yield f"line {node.lineno}: sys.{name}"
        if isinstance(node, ast.ImportFrom) and node.module == "sys" and STREAMS & {alias.name for alias in node.names}:
            yield f"line {node.lineno}: imports a stream of sys"
        if isinstance(node, ast.Constant) and node.value in {"/dev/stdout", "/dev/stderr", "/dev/tty"}:
            yield f"line {node.lineno}: {node.value}"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in PRINTERS or (called == "write" and node.args and getattr(node.args[0], "value", None) in {1, 2}):
                yield f"line {node.lineno}: {called}()"


def test_only_the_log_and_the_output_module_print():
    """Whatever a command says goes through code that escapes what others have written."""
    problems = [
        f"{name}, {place}: print with netinit.base.output or a netinit.logs.Log"
        for path in SOURCES
        if (name := str(path.relative_to(ROOT))) not in DOORS
        for place in find_prints(ast.parse(path.read_text()))
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "line",
    ["print(x)", "sys.stdout.write(x)", "stream = sys.stderr", "click.echo(x)", "from sys import stdout", "os.write(1, x)", "traceback.print_exc()",
     "open('/dev/tty', 'w').write(x)", "sys.__stdout__.buffer.write(x)"],
)  # fmt: skip
def test_a_line_that_prints_on_its_own_is_found(line):
    assert list(find_prints(ast.parse(line)))


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
