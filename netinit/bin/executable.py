"""Writes the files that executable.c embeds: executable.py OUTPUT LIBRARY PACKAGES, run by the Python that is embedded.

LIBRARY is the folder of Python's library, PACKAGES that of netinit and the packages that it uses. Taken is what netinit's
modules lead to by their import statements, inside of functions too. OUTPUT gets modules.bin and modules.h; the same files give
the same bytes.
"""
# ruff: noqa: INP001 - a program, no package

from __future__ import annotations

import _imp
import ast
import functools
import marshal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START = "netinit.cli.embedded"
# Servers, the node's agent, what reads the chart, and what speaks TLS: OpenSSL, and packages of compiled code, are not in the
# executable. Nor is the demonstration, which starts Python, nor the report, which reads sources.
LEFT_OUT = (
    "netinit.backends.libiptc", "netinit.cli.demo", "netinit.cli.imports", "netinit.cli.node", "netinit.cli.rootless",
    "netinit.cli.webhook", "netinit.installation", "netinit.kube", "netinit.kubectl.preflight", "netinit.kubectl.redaction",
    "netinit.kubectl.report", "netinit.node", "netinit.serving", "netinit.webhook",
)  # fmt: skip
KEPT = ("netinit.node", "netinit.node.pod_records", "netinit.node.settings")  # what is read of an agent's records
# Of Python's library: what is for terminals, tests and other systems, what starts processes of Python, and servers.
LEFT_OUT_OF_PYTHON = (
    "_aix_support", "_bootsubprocess", "_osx_support", "_py_abc", "_pyio", "asyncio.windows_events", "asyncio.windows_utils", "bdb",
    "bz2", "cmd", "code", "codeop", "concurrent.futures.process", "ctypes", "doctest", "ftplib", "http.server", "lzma",
    "multiprocessing", "ntpath", "nturl2path", "pdb", "plistlib", "pydoc", "pydoc_data", "rlcompleter", "sitecustomize",
    "socketserver", "ssl", "test", "unittest", "usercustomize", "webbrowser", "xmlrpc",
)  # fmt: skip
ENCODINGS = (
    "encodings", "encodings.aliases", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8", "stringprep",
)  # fmt: skip
FROZEN = ("__future__", "encodings", "encodings.aliases", "encodings.utf_8")  # what Python imports before it can ask a finder
# What a job of the init container imports, in the order of the jobs' imports: always, for options, and by what it finds.
JOBS = (
    ("netinit.cli.start",),
    (
        "netinit.options.interception", "netinit.options.declare", "netinit.cli.init_container", "netinit.pods.init_run",
        "netinit.rules.layouts.current", "netinit.kernel.plain_namespace",
    ),
    ("netinit.backends.nftables", "netinit.backends.nft_messages", "netinit.pods.reset_connections"),
)  # fmt: skip
FOREIGN = ("data", "dist-packages", "site-packages", "test", "tests")  # folders of no modules that count
DYNAMIC = ("pyroute2",)  # packages of which a module is imported by its name in a text


class Sources:
    """The modules of some folders, by name; the first folder's count."""

    def __init__(self, *folders: Path) -> None:
        self.paths: dict[str, Path] = {}
        for folder in folders:
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                if all(part.isidentifier() for part in parts) and not {*FOREIGN} & {*parts[:-1]}:
                    self.paths.setdefault(".".join(parts).removesuffix(".__init__"), path)

    @functools.cache  # noqa: B019 - lives as long as the program
    def tree(self, name: str) -> ast.Module:
        """A module's statements."""
        return ast.parse(self.paths[name].read_bytes())

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return self.paths[name].name == "__init__.py"

    def imports(self, name: str, *, at_top: bool) -> list[str]:
        """The modules that a module imports: always and at its top, or anywhere, except for types alone."""
        statements = self.tree(name).body if at_top else _walk(self.tree(name))
        package = name if self.is_package(name) else name.rpartition(".")[0]
        found = dict.fromkeys(one for statement in statements for one in self._named_by(statement, package))
        return [one for one in found if one in self.paths]

    def _named_by(self, statement: ast.AST, package: str) -> list[str]:
        if isinstance(statement, ast.Import):
            return [alias.name for alias in statement.names]
        if not isinstance(statement, ast.ImportFrom):
            return []
        start = statement.module or ""
        if statement.level:
            above = package.split(".")[: len(package.split(".")) - statement.level + 1]
            start = ".".join([*above, *([start] if start else [])])
        inner = [f"{start}.{alias.name}" for alias in statement.names]
        return [one if one in self.paths else start for one in inner]


def list_packages(name: str) -> list[str]:
    """The packages that a module is in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node but those for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield other
                yield from _walk(other)
        else:
            yield child
            yield from _walk(child)


def is_in(name: str, rooms: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one."""
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def choose(sources: Sources) -> list[str]:
    """The modules of the executable, by name."""
    out = (*LEFT_OUT, *LEFT_OUT_OF_PYTHON)
    left = [name for name in sources.paths if name.split(".")[0] in ("netinit", *DYNAMIC) and not is_in(name, out)]
    left += [name for name in ENCODINGS if name in sources.paths]
    found = dict.fromkeys(left)
    while left:
        named = sources.imports(left.pop(), at_top=False)
        for name in dict.fromkeys(one for inner in named for one in (*list_packages(inner), inner)):
            if name in sources.paths and name not in found and (name in KEPT or not is_in(name, out)) and not _imp.is_frozen(name):
                found[name] = None
                left.append(name)
    return sorted(found)


class Records:
    """What is loaded at once: the modules of each group of JOBS, and every other module alone."""

    def __init__(self, sources: Sources, chosen: list[str]) -> None:
        known = {*chosen} - {*FROZEN}
        self._imports = {name: [one for one in sources.imports(name, at_top=True) if one in known] for name in known}
        self._packages = {name: [one for one in list_packages(name) if one in known] for name in known}
        self.of: dict[str, tuple[str, ...]] = {}  # module -> the modules of its record, in the order in which they are run
        self.before: dict[tuple[str, ...], str] = {}  # record -> the last module of the one that is run before
        last = ""
        for roots in JOBS:
            members = tuple(name for name in self._closure(roots) if name not in self.of)
            self.of |= dict.fromkeys(members, members)
            self.before[members] = last
            last = members[-1]
        self.of |= {name: (name,) for name in known if name not in self.of}

    def _closure(self, roots: tuple[str, ...]) -> list[str]:
        """The roots and what they import at their tops, the imported first; at the end packages, which may import their modules."""
        started: dict[str, None] = {}
        found: list[str] = []

        def visit(name: str) -> None:
            started[name] = None
            for one in self._imports[name]:
                if one not in started:
                    visit(one)
            found.append(name)

        for root in roots:
            if root not in started:
                visit(root)
        for name in found:  # grows
            for one in self._packages[name]:
                if one not in started:
                    visit(one)
        return found


def compile_module(sources: Sources, name: str) -> Any:
    """The code of a module, which names no folder of the build."""
    place = name.replace(".", "/") + ("/__init__.py" if sources.is_package(name) else ".py")
    return compile(sources.paths[name].read_bytes(), place, "exec", dont_inherit=True, optimize=0)


def dump(value: Any) -> bytes:
    """The same bytes for the same value: marshal writes what it has seen by whether others refer to it, which reading evens out."""
    return marshal.dumps(marshal.loads(marshal.dumps(value)))  # noqa: S302 - its own


def main(output: Path, library: Path, packages: Path) -> None:
    """Write modules.bin and modules.h."""
    sources = Sources(packages, library)
    chosen = choose(sources)
    records = Records(sources, chosen)
    content = bytearray()
    rows = {}

    def add(raw: bytes, *, packed: bool) -> str:
        """Where the bytes are in modules.bin: the beginning of a row."""
        held = zlib.compress(raw, 9) if packed else raw
        at = len(content)
        content.extend(held)
        return f"{at}, {len(held)}, {len(raw)}"

    places: dict[tuple[str, ...], str] = {}
    for name in chosen:
        if name in FROZEN:
            continue
        members = records.of[name]
        if members not in places:
            modules = tuple((one, sources.is_package(one), compile_module(sources, one)) for one in members)
            places[members] = add(dump((records.before.get(members, ""), modules)), packed=len(members) == 1 and name != START)
        rows[name] = f"{places[members]}, {int(sources.is_package(name))}, {int(len(members) > 1)}"
    data = packages / "netinit" / "data"
    for path in sorted(data.iterdir()):
        if path.is_file():
            rows[f"netinit/data/{path.name}"] = f"{add(path.read_bytes(), packed=True)}, 0, 0"
    frozen = []
    for name in FROZEN:
        at, _, size = add(dump(compile_module(sources, name)), packed=False).split(", ")
        frozen.append(f'    {{"{name}", embedded_bytes + {at}, {size}, {int(sources.is_package(name))}, NULL}},')
    (output / "modules.bin").write_bytes(content)
    text = ["/* written by executable.py */\n", "static const struct embedded embedded_files[] = {"]
    text += [f'    {{"{name}", {row}}},' for name, row in sorted(rows.items())]
    text += ["};\n", "static const struct _frozen frozen_modules[] = {", *frozen, "    {0},\n};", ""]
    (output / "modules.h").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
