"""Writes the files that executable.c embeds, run by the Python that is embedded: executable.py OUTPUT LIBRARY HEADERS PACKAGES.

LIBRARY is the folder of Python's library, HEADERS that of its C files, PACKAGES that of netinit and the packages that it uses. Taken
is what netinit's modules lead to by their import statements, inside of functions too. OUTPUT gets modules.bin, modules.h, code.c and
order.ld; the same files give the same bytes.
"""
# ruff: noqa: INP001 - a program, no package

from __future__ import annotations
import __future__

import ast
import functools
import marshal
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # isolated, Python does not
from static_code import StaticCode

# Servers, the node's agent, and what speaks TLS: OpenSSL, and packages of compiled code, are not in the executable,
# which asks clusters by kubectl. Nor is the laboratory, whose pods start a shell, nor the demonstration in it.
LEFT_OUT = (
    "cryptography", "netinit.bin", "netinit.cli.demo", "netinit.cli.imports", "netinit.cli.node", "netinit.cli.rootless",
    "netinit.cli.webhook.compare", "netinit.cli.webhook.serve", "netinit.installation.comparison", "netinit.kube.access",
    "netinit.kube.client", "netinit.kube.one_request", "netinit.kube.service_account", "netinit.lab", "netinit.node",
    "netinit.serving", "netinit.testing", "netinit.webhook",
)  # fmt: skip
# Of those: where an agent answers, and what finds the certificates of an installation.
KEPT = ("netinit.node", "netinit.node.settings", "netinit.serving", "netinit.serving.certificates")
# Of packages and of Python's library: what is for terminals, tests, archives, mail and other systems, what starts processes of
# Python, servers and clients, and readers of XML, which is only written.
LEFT_OUT_OF_OTHERS = (
    "_aix_support", "_bootsubprocess", "_compression", "_osx_support", "_py_abc", "_pyio", "argparse", "asyncio", "bdb", "bz2",
    "click._winconsole", "cmd", "code", "codeop", "concurrent", "csv", "ctypes", "doctest", "email", "ftplib", "getopt", "gzip",
    "http", "importlib._bootstrap", "importlib._bootstrap_external", "importlib.metadata", "importlib.resources", "logging",
    "lzma", "mimetypes", "multiprocessing", "nturl2path", "pdb", "plistlib", "py_compile", "pydoc", "pydoc_data", "quopri",
    "rlcompleter", "sitecustomize", "smtplib", "socketserver", "sqlite3", "ssl", "statistics", "tarfile", "test", "tracemalloc",
    "tty", "unittest", "urllib.error", "urllib.request", "urllib.response", "usercustomize", "webbrowser", "xml.dom",
    "xml.etree", "xml.parsers", "xml.sax.expatreader", "xmlrpc", "yaml.cyaml", "zipfile", "zipimport",
)  # fmt: skip
ENCODINGS = ("encodings.ascii", "encodings.idna", "encodings.latin_1", "stringprep")
SYSTEM_DATA = "_sysconfigdata_"  # how the module's name begins that zoneinfo reads
# Built-in modules that the interpreter and code in C import, beside those that a module names.
BUILT_IN = (
    "_abc", "_ast", "_codecs", "_imp", "_io", "_signal", "_string", "_thread", "_warnings", "_weakref", "builtins", "gc",
    "marshal", "posix", "sys", "time",
)  # fmt: skip
OWN = ("_contextvars", "_netinit")  # of executable.c
OUTSIDE = ("EMBEDDED", "TYPE_CHECKING")  # names by which modules ask for what is not there
# What Python imports as it starts, and its import system, which it calls so.
STARTING = ("abc", "codecs", "encodings", "encodings.aliases", "encodings.utf_8", "io")
FROZEN = {"_frozen_importlib": "importlib._bootstrap", "_frozen_importlib_external": "importlib._bootstrap_external"}
# What the jobs of the init container import, beside what that imports at the top: inside of functions, by what they find and are
# told. And of the backends every module that leads to no module of Python's library.
JOBS = (
    "netinit.cli.start", "netinit.cli.embedded", "netinit.options.interception", "netinit.options.declare",
    "netinit.options.older_istio", "netinit.cli.init_container", "netinit.pods.init_run", "netinit.rules.layouts.current",
    "netinit.kernel.plain_namespace", "netinit.pods.reset_connections", "netinit.base.owners", "netinit.base.snapshot",
    "netinit.kernel.table_replacement", "netinit.kernel.snapshot.legacy_tables", "netinit.rules.iptables.table_order",
    "netinit.rules.expressions.compat",
)  # fmt: skip
BACKENDS = "netinit.backends."
# Of Python's static library what a job of the init container does not run: behind the rest, it takes no memory of a job, where
# the kernel maps 64 KiB and more around what is used.
SELDOM = (
    "Python-ast", "_blake2*", "_collectionsmodule", "_datetimemodule", "_functoolsmodule", "_operator", "_pickle",
    "_randommodule", "action_helpers", "arraymodule", "ast", "ast_opt", "asdl", "binascii", "blake2*",
    "complexobject", "dtoa", "errnomodule", "hamt", "hashtable", "iterobject", "mathmodule", "md5module",
    "odictobject", "parser", "pegen*", "pystrhex", "pystrtod", "pythonrun", "sha*module", "sre", "string_parser",
    "symtable", "tokenizer", "unicodedata", "zlibmodule",
)  # fmt: skip
BLOCK = 1 << 15  # bytes that are compressed together: more gain little, and take longer to unpack
# What every command for people imports is not compressed: with it, these commands start as fast as the package does.
SHARED = "netinit.cli.group"
FOREIGN = ("data", "dist-packages", "site-packages", "test", "tests")  # folders of no modules that count


class ModuleSources:
    """The modules of some folders, by name; the first folder's count."""

    def __init__(self, *folders: Path) -> None:
        self.paths: dict[str, Path] = {}
        for folder in folders:
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                if all(part.replace("-", "_").isidentifier() for part in parts) and not {*FOREIGN} & {*parts[:-1]}:
                    self.paths.setdefault(".".join(parts).removesuffix(".__init__"), path)

    @functools.cache  # noqa: B019 - lives as long as the program
    def tree(self, name: str) -> ast.Module:
        """A module's statements."""
        return ast.parse(self.paths[name].read_bytes())

    @functools.cache  # noqa: B019 - lives as long as the program
    def import_statements(self, name: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """A module's import statements, at its top or anywhere, except for types alone."""
        return tuple(one for one in _walk(self.tree(name)) if isinstance(one, ast.Import | ast.ImportFrom))

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return self.paths[name].name == "__init__.py"

    def imports(self, name: str, *, at_top: bool) -> list[str]:
        """The modules that a module imports: always and at its top, or anywhere, except for types alone."""
        statements = self.tree(name).body if at_top else self.import_statements(name)
        found = dict.fromkeys(one for statement in statements for one in self.named_by(statement, name))
        return [one for one in found if one in self.paths]

    def names(self, name: str) -> list[str]:
        """The modules that a module names anywhere, also those that have no file."""
        return [one for statement in self.import_statements(name) for one in self.named_by(statement, name)]

    def named_by(self, statement: ast.AST, name: str) -> list[str]:
        """The modules that a statement of a module imports."""
        package = name if self.is_package(name) else name.rpartition(".")[0]
        if isinstance(statement, ast.Import):
            return [alias.name for alias in statement.names]
        if not isinstance(statement, ast.ImportFrom):
            return []
        start = _absolute(statement, package)
        inner = [f"{start}.{alias.name}" for alias in statement.names]
        return [one if one in self.paths else start for one in inner]


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    """The module that a statement imports from."""
    above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
    return ".".join([*above, *([statement.module] if statement.module else [])])


def list_packages(name: str) -> list[str]:
    """The packages that a module is in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node but those for types alone; expressions, which hold none, are not looked into."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
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


def choose(sources: ModuleSources) -> list[str]:
    """The modules of the executable, by name."""
    out = (*LEFT_OUT, *LEFT_OUT_OF_OTHERS)
    own = [name for name in sources.paths if name.split(".")[0] == "netinit" and not is_in(name, out)]
    lacking = {name for name in own if any(is_in(one, LEFT_OUT_OF_OTHERS) for one in sources.imports(name, at_top=True))}
    left = [name for name in own if name not in lacking]  # that of libraries, a backend, wants ctypes
    left += [name for name in sources.paths if name in (*STARTING, *ENCODINGS) or name.startswith(SYSTEM_DATA)]
    found = dict.fromkeys(left)
    while left:
        named = sources.imports(left.pop(), at_top=False)
        for name in dict.fromkeys(one for inner in named for one in (*list_packages(inner), inner)):
            if name in sources.paths and name not in found and name not in lacking and (name in KEPT or not is_in(name, out)):
                found[name] = None
                left.append(name)
    return sorted(found)


def find_static(sources: ModuleSources, chosen: list[str]) -> list[str]:
    """The modules whose code is C data: STARTING, JOBS and backends, with all that they import at their tops."""
    roots = [name for name in (*STARTING, *JOBS) if name in chosen]
    found = _close(sources, chosen, roots)
    for name in chosen:
        if name.startswith(BACKENDS) and name not in found:
            more = _close(sources, chosen, [name])
            if all(one in found or is_in(one, ("netinit",)) for one in more):
                found |= more
    return list(found)


def _close(sources: ModuleSources, chosen: list[str], roots: list[str]) -> dict[str, None]:
    """The roots, and what they import at their tops."""
    found = dict.fromkeys(roots)
    left = list(found)
    while left:
        name = left.pop(0)
        for inner in (*list_packages(name), *sources.imports(name, at_top=True)):
            if inner in chosen and inner not in found:
                found[inner] = None
                left.append(inner)
    return found


def compile_module(sources: ModuleSources, name: str, place: str = "") -> CodeType:
    """The code of a module, which names no folder of the build.

    Left out are functions' docstrings, except for those that decorators read, columns, which a traceback shows only beside sources,
    and other projects' docstrings and line numbers. Imports are absolute, as the executable's own import wants them.
    """
    place = place or name.replace(".", "/") + ("/__init__.py" if sources.is_package(name) else ".py")
    tree = ast.parse(sources.paths[name].read_bytes())
    future = 0
    for statement in list(tree.body):
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            future |= functools.reduce(int.__or__, [getattr(__future__, alias.name).compiler_flag for alias in statement.names])
            tree.body.remove(statement)
    for inner in ast.walk(tree):
        if isinstance(inner, (ast.expr, ast.stmt, ast.excepthandler)):
            inner.end_lineno, inner.col_offset, inner.end_col_offset = inner.lineno, -1, -1
        if isinstance(inner, ast.ImportFrom) and inner.level:
            inner.module, inner.level = _absolute(inner, name if sources.is_package(name) else name.rpartition(".")[0]), 0
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) or inner.decorator_list:
            continue
        if ast.get_docstring(inner, clean=False) is not None:
            inner.body[0:1] = [] if len(inner.body) > 1 else [ast.copy_location(ast.Pass(), inner.body[0])]
    own = is_in(name, ("netinit",))
    code: CodeType = compile(tree, place, "exec", flags=future, dont_inherit=True, optimize=0 if own else 2)
    return code if own else _without_lines(code)


def _without_lines(code: CodeType) -> CodeType:
    constants = [_without_lines(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return code.replace(co_linetable=b"", co_consts=tuple(constants))


def dump(value: Any) -> bytes:
    """The same bytes for the same value: marshal writes what it has seen by whether others refer to it, which reading evens out."""
    return marshal.dumps(marshal.loads(marshal.dumps(value)))  # noqa: S302 - its own


class Blocks:
    """modules.bin: files one after the other, most of them compressed, some together."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.places: dict[str, str] = {}  # file -> the block's place, packed size and size, and its own place and size in it
        self._open: dict[str, bytes] = {}

    def add(self, name: str, raw: bytes, *, compress: bool = True) -> None:
        """Add a file."""
        self._open[name] = raw
        if compress and sum(map(len, self._open.values())) >= BLOCK:
            self.close()

    def close(self, *, compress: bool = True) -> None:
        """End the block of what has been added, if anything, compressed or as it is."""
        if not self._open:
            return
        raw = b"".join(self._open.values())
        packed = zlib.compress(raw, 9) if compress else raw
        within = 0
        for name, one in self._open.items():
            self.places[name] = f"{len(self.content)}, {len(packed)}, {len(raw)}, {within}, {len(one)}"
            within += len(one)
        self.content += packed
        self._open = {}


def find_absent(sources: ModuleSources, chosen: list[str], builtins: set[str]) -> dict[str, set[str]]:
    """What modules import that is not in the executable: those of netinit anywhere, others at the top; `try: import` may lack it."""
    there = {*chosen, *FROZEN, *FROZEN.values(), *builtins, *OWN}
    absent = {}
    for name in chosen:
        of_netinit = is_in(name, ("netinit",))
        statements = [one for one in _unguarded(sources.tree(name)) if of_netinit or one in sources.tree(name).body]
        named = {one for statement in statements for one in sources.named_by(statement, name)}
        lacks = {one for one in named if not {one, one.partition(".")[0]} & there and not is_in(one, LEFT_OUT)}
        if lacks:
            absent[name] = lacks
    return absent


def _unguarded(node: ast.AST) -> Iterator[ast.AST]:
    """All import statements below a node but those for types alone, and those in the body of a `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Try):
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _unguarded(part)
        elif isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id in OUTSIDE:
            for part in child.orelse if child.test.id == "TYPE_CHECKING" else child.body:
                yield from _unguarded(ast.Module([part], []))
        else:
            yield from _unguarded(child)


def find_builtins(config: Path, names: set[str]) -> list[tuple[str, str]]:
    """The rows of Python's table of built-in modules (config.c) that these names need, and the interpreter itself."""
    rows = re.findall(r'^\s*{"(\w+)", (\w+)},', config.read_text("utf-8"), re.MULTILINE)
    return [(name, start) for name, start in rows if name in names or name in BUILT_IN]


def write_order() -> str:
    """Return the linker's order: what a job seldom runs behind the rest."""
    lines = []
    for section in ("text", "rodata"):
        inner = " ".join(f"*libpython*:{name}.o(.{section} .{section}.*)" for name in SELDOM)
        inner += f" *libz.a:(.{section} .{section}.*)"
        edges = f"{section}_seldom = .; {inner} {section}_seldom_end = .;"
        lines.append(f"SECTIONS {{ .{section}.seldom : {{ {edges} }} }} INSERT AFTER .{section};\n")
    return "".join(lines)


def write_tables(rows: list[tuple[str, str, int, int]], frozen: dict[str, int], builtins: list[tuple[str, str]]) -> str:
    """Return modules.h: a row for each file (name, place, number of its code, whether it is a package), and Python's own tables."""
    text = ["/* written by executable.py */\n", "static const struct embedded embedded_files[] = {"]
    text += [f'    {{"{name}", {place}, {number}, {is_package}}},' for name, place, number, is_package in sorted(rows)]
    text += ["};\n", *[f"CODE_OF({number})" for number in frozen.values()], "\nstatic const struct _frozen frozen_modules[] = {"]
    text += [f'    {{"{name}", NULL, 0, 0, code_{number}}},' for name, number in frozen.items()]
    text += ["    {0},\n};\n", "static const struct _module_alias frozen_aliases[] = {"]
    text += [f'    {{"{name}", "{own}"}},' for name, own in FROZEN.items()]
    text += ["    {0},\n};\n", *[f"extern PyObject *{start}(void);" for _, start in builtins if start != "NULL"]]
    text += ["\nstruct _inittab _PyImport_Inittab[] = {", *[f'    {{"{name}", {start}}},' for name, start in builtins]]
    text += ["    {0},\n};", ""]
    return "\n".join(text)


def main(output: Path, library: Path, headers: Path, packages: Path) -> None:
    """Write modules.bin, modules.h, code.c and order.ld."""
    sources = ModuleSources(packages, library)
    chosen = choose(sources)
    static = StaticCode(headers)
    frozen = {name: static.add(compile_module(sources, own, f"<frozen {own}>")) for name, own in FROZEN.items()}
    numbers = {name: static.add(compile_module(sources, name)) for name in find_static(sources, chosen)}
    blocks = Blocks()
    shared = _close(sources, chosen, [SHARED])
    for compress in (False, True):
        for name in chosen:
            if name not in numbers and compress == (name not in shared):
                blocks.add(name, dump(compile_module(sources, name)), compress=compress)
        blocks.close(compress=compress)
    for path in sorted((packages / "netinit" / "data").rglob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            blocks.close()  # each for itself: what reads one needs no other
            blocks.add(str(path.relative_to(packages)), path.read_bytes())
    blocks.close()
    packages_of = {name: int(sources.is_package(name)) for name in chosen}
    rows = [(name, place, -1, packages_of.get(name, 0)) for name, place in blocks.places.items()]
    rows += [(name, "0, 0, 0, 0, 0", number, packages_of[name]) for name, number in numbers.items()]
    wanted = {one for name in (*chosen, *FROZEN.values()) for one in sources.names(name)}
    builtins = find_builtins(next(library.glob("config-*/config.c")), wanted)
    if absent := find_absent(sources, chosen, {name for name, _ in builtins}):
        sys.exit(f"modules in the executable import what is not in it: {absent}")
    (output / "modules.bin").write_bytes(blocks.content)
    (output / "modules.h").write_text(write_tables(rows, frozen, builtins), encoding="utf-8")
    (output / "code.c").write_text(static.render(), encoding="utf-8")
    (output / "order.ld").write_text(write_order(), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
