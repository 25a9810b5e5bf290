"""Reach: how much code an entry may lead to, counted over all imports, those inside of functions too.

Who reviews the agent, which is privileged, or the init container, must read no more than this. Imports for types alone do not count.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from package_trees import parse

PACKAGE = Path(__file__).parents[2] / "netinit"
FILES = {
    ".".join(("netinit", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if not path.is_relative_to(PACKAGE / "data")
}
REACHES = {  # entry: its modules, what is left out on the way, the most lines, rooms that it must not lead to
    "plan and render": (("rules.layouts", "rules.render"), (), 6_500, ("simulate", "kernel", "golang", "inject")),
    "apply": (("pods.apply",), ("simulate", "live"), 12_000, ("golang", "inject", "kube", "cli", "webhook", "node")),
    "the node's agent": (("node",), (), 28_000, ("golang", "inject.adding", "cli", "webhook", "kubectl", "installation")),
    "questions": (("questions",), (), None, ("kernel", "kube", "node", "webhook", "pods", "backends", "cli", "kubectl", "serving")),
    "golang": (("golang",), (), None, ("base", "options", "rules", "inject")),
}  # fmt: skip


class _Imports(ast.NodeVisitor):
    """The modules of netinit that a file imports, except for types alone."""

    def __init__(self) -> None:
        self.found = set()

    def visit_If(self, node):
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                self.visit(other)
        elif ast.unparse(node.test) == "sys.platform == 'linux'":  # servers and init containers run on Linux
            for other in node.body:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node):
        self.found |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node):
        assert not node.level, "relative imports are not followed here"
        self.found |= {f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in FILES else node.module for alias in node.names}


@functools.cache
def imports_of(module):
    visitor = _Imports()
    visitor.visit(parse(FILES[module]))
    parents = {".".join(parts[:end]) for one in visitor.found for parts in [one.split(".")] for end in range(1, len(parts) + 1)}
    return parents & FILES.keys()


def is_in(module, rooms):
    return any(f"{module}.".startswith(f"netinit.{room}.") for room in rooms)


def reach(entries, left_out=()):
    """Each module that the entries lead to, with the module that led there first."""
    found = {module: "" for module in FILES if is_in(module, entries)}
    left = list(found)
    while left:
        module = left.pop()
        for one in sorted(imports_of(module) - found.keys()):
            if not is_in(one, left_out):
                found[one] = module
                left.append(one)
    return found


def describe_way(found, module):
    way = [module]
    while found[way[-1]]:
        way.append(found[way[-1]])
    return " <- ".join(way)


@pytest.mark.parametrize("entry", REACHES)
def test_an_entry_leads_to_no_more_code_than_its_limit(entry):
    entries, left_out, most, closed = REACHES[entry]
    found = reach(entries, left_out)
    ways = [describe_way(found, module) for module in found if is_in(module, closed)]
    assert not ways, "\n".join([f"{entry} leads into a room that is closed to it:", *ways])
    lines = sum(len(FILES[module].read_text("utf-8").splitlines()) for module in found)
    assert most is None or lines <= most, f"{entry} leads to {lines} lines in {len(found)} files; the limit is {most}"
