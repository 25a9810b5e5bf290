"""The direction of imports, and what is true of every file."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import grimp
import pytest

from package_trees import parse

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "netinit").rglob("*.py"))
MOST_FUNCTIONS = 60  # of a file: beyond that it holds more than one idea
FOREIGN_TO_THE_FIELD = {  # a word of our own, and the field's, by which a maintainer searches
    r"\brules? of (others|somebody else)|others' rules": "foreign rules",
    r"\bspare[sd]?\b|\bsparing\b": "exclude",
    r"\bknock(s|ing)?\b": "probe",
    r"\btrials?\b": "feature check",
    r"\btwins?\b": "equal, repeated",
    r"\bthrow-away\b|\bapart\b": "isolated, separate",
    r"\bwhither\b": "where to",
    r"\bstands? for every\b|\bcomes? to nothing\b|\basks? (a|the) sets?\b": "say it plainly; reference a set",
}
MOST_FUNCTION_LINES = 50
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PURE = tuple(  # what may not import `os` by contract
    module.removeprefix("netinit.").replace(".", "/")
    for contract in CONTRACTS
    if {"os", "pathlib"} <= set(contract.get("forbidden_modules", ()))
    for module in contract["source_modules"]
)
READS_ITS_OWN_DATA = {"netinit/base/data.py"}  # tables, templates and configuration that are part of the package
OPENERS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
FORKS = {"fork", "forkpty"}
STARTS = {"posix_spawn", "posix_spawnp", "system", "popen", "execv", "execve", "execvp", "execvpe", "spawnv", "spawnve", "fork_exec"}
ENTERS, ENTERING = {"OpenPod"}, {"netinit/backends/named_pod.py", "netinit/kernel/open_pod.py"}
FORKING, STARTING = {"netinit/kernel/children.py"}, {"netinit/kernel/run.py"}
OF_THE_LAB = {"netinit/lab/pod.py"}  # the pause process of a pod
DOORS = {  # to stdout and stderr
    "netinit/base/logs.py", "netinit/base/output.py",  # both escape what others have written
    "netinit/library/safe_files.py",  # `inject -o /dev/stdout`: an artefact, written to the letter
    "netinit/data/chart/tests/capture.py",  # a program of its own in the pod of `helm test`; it prints its own words alone
}  # fmt: skip
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
PRINTERS = {"print", "echo", "secho", "echo_via_pager", "print_exc", "print_exception", "print_last", "print_stack", "print_tb"}


@functools.cache
def sort_nodes(tree):
    """The nodes of a tree, by their class: each tree is walked once for all that is asked of it."""
    found = defaultdict(list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return found


def lint_imports(folder):
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]  # -c: the package of the working folder is checked
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_file_imports_itself_by_way_of_others():
    """Imports within functions count: a circle that does not show at start-up is one nevertheless."""
    graph = grimp.build_graph("netinit", cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while leaves := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in leaves}
    users = {module for module in left if any(module in imported for imported in left.values())}
    assert not left, f"in circles, or above one: {', '.join(sorted(users))}"


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
        model.write("\nimport subprocess\nfrom netinit.backends import memory\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "netinit.rules.model -> subprocess" in done.stdout
    assert "netinit.rules.model -> netinit.backends" in done.stdout


def test_every_file_says_what_it_is_and_stays_readable():
    problems = [f"{path.relative_to(ROOT)}: {problem}" for path in SOURCES for problem in find_problems(path)]
    assert not problems, "\n".join(problems)


def test_a_name_of_a_class_has_one_meaning():
    places = {}
    for path in SOURCES:
        for node in sort_nodes(parse(path))[ast.ClassDef]:
            places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    problems = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not problems, "\n".join(["two things of one name; a search finds the wrong one:", *problems])


def test_code_and_messages_use_the_words_of_the_field():
    problems = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}: {better}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word, better in FOREIGN_TO_THE_FIELD.items()
        if (found := re.search(word, line, re.IGNORECASE))
    ]
    assert not problems, "\n".join(problems)


def find_prints(tree):
    """Places where a module prints on its own: it names a stream, or calls what prints."""
    nodes = sort_nodes(tree)
    for node in nodes[ast.Attribute]:
        if node.attr in STREAMS and isinstance(node.value, ast.Name) and node.value.id == "sys":
            yield f"line {node.lineno}: sys.{node.attr}"
    for node in nodes[ast.ImportFrom]:
        if node.module == "sys" and STREAMS & {alias.name for alias in node.names}:
            yield f"line {node.lineno}: imports a stream of sys"
    for node in nodes[ast.Constant]:
        if node.value in {"/dev/stdout", "/dev/stderr", "/dev/tty"}:
            yield f"line {node.lineno}: {node.value}"
    for node in nodes[ast.Call]:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in PRINTERS or (called == "write" and node.args and getattr(node.args[0], "value", None) in {1, 2}):
            yield f"line {node.lineno}: {called}()"


def test_only_the_log_and_the_output_module_print():
    """Whatever a command says goes through code that escapes what others have written."""
    problems = [
        f"{name}, {place}: print with netinit.base.output or a netinit.logs.Log"
        for path in SOURCES
        if (name := str(path.relative_to(ROOT))) not in DOORS
        for place in find_prints(parse(path))
    ]
    assert not problems, "\n".join(problems)


def find_calls(tree, names):
    """Places where one of these is called, on the system's modules or by its own name; methods of others are theirs."""
    nodes = sort_nodes(tree)
    for node in nodes[ast.Call]:
        called = node.func
        owner = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
        if isinstance(called, ast.Attribute) and called.attr in names and owner in {"os", "posix", "io", "subprocess", "_posixsubprocess"}:
            yield f"line {node.lineno}: {owner}.{called.attr}()"
        if isinstance(called, ast.Attribute) and called.attr in names and called.attr.endswith(("_text", "_bytes")):
            yield f"line {node.lineno}: {called.attr}()"
        if isinstance(called, ast.Name) and called.id in names:
            yield f"line {node.lineno}: {called.id}()"
    for node in nodes[ast.ImportFrom]:
        if node.module in {"os", "posix"}:
            yield from (f"line {node.lineno}: imports {alias.name}" for alias in node.names if alias.name in names)


def gather_calls(names, allowed, folders=("",)):
    return [
        f"{name}, {place}"
        for path in SOURCES
        if (name := str(path.relative_to(ROOT))) not in allowed and name.startswith(tuple(f"netinit/{folder}" for folder in folders))
        for place in find_calls(parse(path), names)
    ]


def test_children_are_forked_and_programs_started_in_one_file_each():
    problems = gather_calls(FORKS, FORKING) + gather_calls(STARTS, STARTING | OF_THE_LAB)
    assert not problems, "\n".join(["ask netinit.kernel.children or netinit.kernel.run:", *problems])


def test_pods_are_opened_in_one_file():
    """Whoever opens one otherwise would have to refuse the machine, read its name servers and hold its locks alone."""
    naming = {str(path.relative_to(ROOT)) for path in SOURCES if any(is_named(node, ENTERS) for node in ast.walk(parse(path)))}
    assert naming == ENTERING, "open pods by netinit.backends.named_pod"


def is_named(node, names):
    return bool({getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", "")} & names)


def test_pure_packages_open_no_file():
    assert {"golang", "inject", "options", "rules", "simulate", "live", "questions", "installation/chart", "node/decision"} <= set(PURE)
    problems = gather_calls(OPENERS, READS_ITS_OWN_DATA, PURE)
    assert not problems, "\n".join(["a pure package is given what it reads:", *problems])


def test_what_is_excused_exists_and_needs_it():
    excused = [*FORKING, *STARTING, *OF_THE_LAB, *READS_ITS_OWN_DATA, *DOORS]
    assert [name for name in excused if not (ROOT / name).is_file()] == []
    for names, files in ((FORKS, FORKING), (STARTS, STARTING | OF_THE_LAB), (OPENERS, READS_ITS_OWN_DATA)):
        assert [name for name in files if not list(find_calls(parse(ROOT / name), names))] == []


@pytest.mark.parametrize(
    "line", ["os.fork()", "posix.fork()", "from os import fork", "posix.posix_spawn(a, b, c)", "os.system(x)", "open(x)", "path.read_text()", "os.open(x, 0)"]
)
def test_a_line_that_forks_starts_or_opens_is_found(line):
    assert list(find_calls(ast.parse(line), FORKS | STARTS | OPENERS))


@pytest.mark.parametrize(
    "line",
    ["print(x)", "sys.stdout.write(x)", "stream = sys.stderr", "click.echo(x)", "from sys import stdout", "os.write(1, x)", "traceback.print_exc()",
     "open('/dev/tty', 'w').write(x)", "sys.__stdout__.buffer.write(x)"],
)  # fmt: skip
def test_a_line_that_prints_on_its_own_is_found(line):
    assert list(find_prints(ast.parse(line)))


def find_problems(path):
    text = path.read_text()
    tree = parse(path)
    if not ast.get_docstring(tree):
        yield "has no docstring"
    if tree.body[1:] and "from __future__ import annotations" not in text:
        yield "evaluates its annotations"
    functions = (*sort_nodes(tree)[ast.FunctionDef], *sort_nodes(tree)[ast.AsyncFunctionDef])
    if len(functions) > MOST_FUNCTIONS:
        yield f"has {len(functions)} functions; make a folder of it"
    for node in functions:
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MOST_FUNCTION_LINES:
            yield f"{node.name} has {lines} lines; make several of it"
