"""Modules that a start by path reads by netinit.cli.imports are those that Python itself would read."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import netinit
from netinit.cli.imports import MAX_MODULE_BYTES, CompiledFinder

MAIN = str(Path(netinit.__file__).parent / "__main__.py")
TIMED, CHECKED, UNCHECKED = py_compile.PycInvalidationMode
NAME = "netinit.thing"
# Starts as by path, and tells at the end what became of the modules.
DESCRIBE = """
import posix, sys
def tell(code):
    told = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "netinit":
            spec, parent = module.__spec__, sys.modules.get(name.rpartition(".")[0])
            told[name] = {
                "loader": type(module.__loader__).__name__, "file": module.__file__, "cached": module.__cached__,
                "package": module.__package__, "path": list(getattr(module, "__path__", ())), "doc": module.__doc__, "name": module.__name__,
                "spec": [spec.name, spec.origin, spec.cached, spec.parent, spec.has_location, spec.loader is module.__loader__],
                "in its package": parent is None or getattr(parent, name.rpartition(".")[2]) is module,
                "source": module.__loader__.get_source(name) == open(module.__file__, encoding="utf-8").read(),
            }
    import json
    sys.stderr.write(json.dumps(told))
    sys.exit(code)
posix._exit = tell
main, sys.argv = sys.argv[1], sys.argv[1:]
exec(compile(open(main).read(), main, "exec"), {"__name__": "__main__", "__file__": main, "__package__": None})
"""


@pytest.fixture
def source(tmp_path):
    """A module of a package in a folder, not compiled."""
    path = tmp_path / "thing.py"
    path.write_text("VALUE = 'first'\n")
    return path


def find(source):
    return CompiledFinder(str(source.parent)).find_spec(NAME)


def run(loader: SourceFileLoader):
    names: dict[str, object] = {}
    exec(loader.get_code(NAME), names)
    return names["VALUE"]


def rewrite(source, text, *, keep_time):
    before = source.stat().st_mtime_ns
    source.write_text(text)
    later = before if keep_time else before + 2 * 10**9
    os.utime(source, ns=(later, later))


def describe_modules(*words, before=""):
    """What every module of ours is to those that look at it, after a start by path."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", before + DESCRIBE, MAIN, *words], capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stderr.replace("/netinit/../", "/"))


def test_every_module_of_ours_is_found_by_it_in_a_start_by_path():
    modules = describe_modules("-n", "--ipv6", "on")
    assert {name for name, told in modules.items() if told["loader"] != "CompiledLoader"} == {"netinit", "netinit.cli", "netinit.cli.imports"}
    assert len(modules) > 20


def test_modules_are_what_they_are_when_python_finds_them():
    """Without the finder in front, Python's own finds the same files."""
    ours = describe_modules("-n", "--ipv6", "on")
    skipped = "import sys; sys.meta_path = type('Last', (list,), {'insert': lambda finders, _at, finder: None})(sys.meta_path)\n"
    pythons = describe_modules("-n", "--ipv6", "on", before=skipped)
    assert {told.pop("loader") for told in pythons.values()} == {"SourceFileLoader"}
    assert {told.pop("loader") for told in ours.values()} == {"CompiledLoader", "SourceFileLoader"}
    assert ours == pythons


@pytest.mark.parametrize("mode", [TIMED, CHECKED, UNCHECKED])
@pytest.mark.parametrize(("text", "keep_time"), [("VALUE = 'other'\n", True), ("VALUE = 'other'\n", False), ("VALUE = 'longer'\n", True)])
def test_a_source_that_changed_is_seen_where_python_sees_it(tmp_path, mode, text, keep_time):
    """Each looks at a copy of its own, since who sees the change writes the compiled file anew."""
    found = []
    for name, loader_of in (("python", lambda path: SourceFileLoader(NAME, str(path))), ("ours", lambda path: find(path).loader)):
        source = tmp_path / name / "thing.py"
        source.parent.mkdir()
        source.write_text("VALUE = 'first'\n")
        py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
        rewrite(source, text, keep_time=keep_time)
        found.append(run(loader_of(source)))
    assert found[0] == found[1]
    assert (found[1] == "first") == (mode is UNCHECKED or (mode is TIMED and keep_time and "other" in text))


def test_the_compiled_file_is_what_is_run(source):
    """A source of the same size and time is what Python does not see either."""
    py_compile.compile(str(source), doraise=True, invalidation_mode=TIMED)
    rewrite(source, "VALUE = 'other'\n", keep_time=True)
    assert run(find(source).loader) == "first"


@pytest.mark.parametrize("size", [10, MAX_MODULE_BYTES, MAX_MODULE_BYTES + 1])
def test_what_is_not_compiled_is_compiled_and_what_is_long_is_read_whole(source, size, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source.write_text(f"VALUE = '{'x' * size}'\n")
    assert run(find(source).loader) == "x" * size
    assert Path(cache_from_source(str(source))).is_file()
    assert run(find(source).loader) == "x" * size


def test_a_file_of_another_python_is_not_run(source):
    py_compile.compile(str(source), doraise=True)
    compiled = Path(cache_from_source(str(source)))
    compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:])
    assert run(find(source).loader) == "first"


def test_code_names_the_source_where_it_is_now(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "thing.py").write_text("VALUE = 1\n")
    py_compile.compile(str(old / "thing.py"), doraise=True)
    old.rename(new)
    assert find(new / "thing.py").loader.get_code(NAME).co_filename == str(new / "thing.py")


def test_a_module_and_a_package_are_described_as_python_does(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").touch()
    (tmp_path / "room" / "thing.py").touch()
    finder = CompiledFinder(str(tmp_path))
    room, thing = finder.find_spec("netinit.room"), finder.find_spec("netinit.room.thing")
    assert isinstance(room, ModuleSpec)
    assert (room.submodule_search_locations, room.origin) == ([f"{tmp_path}/room"], f"{tmp_path}/room/__init__.py")
    assert (thing.submodule_search_locations, thing.origin) == (None, f"{tmp_path}/room/thing.py")
    for spec in (room, thing):
        assert (spec.has_location, spec.cached) == (True, cache_from_source(spec.origin))
    assert (room.parent, thing.parent) == ("netinit.room", "netinit.room")


@pytest.mark.parametrize("name", ["netinit", "netinits.thing", "thing", "json", "netinit.nothing", "netinit.thing.nothing"])
def test_what_is_not_ours_or_not_there_is_left_to_python(source, name):
    assert CompiledFinder(str(source.parent)).find_spec(name) is None


def test_a_start_by_a_link_to_a_relative_link_is_one_by_path(tmp_path):
    (tmp_path / "netinit").symlink_to(Path(MAIN).parent)
    (tmp_path / "near").symlink_to("netinit/__main__.py")
    (tmp_path / "istio-iptables").symlink_to("near")
    words = ("-n", "--ipv6", "on", "-b", "80")
    started = [subprocess.run([sys.executable, "-I", "-S", path, *words], capture_output=True, text=True, timeout=30, check=True) for path in (MAIN, tmp_path / "istio-iptables")]
    assert started[0].stdout == started[1].stdout
    assert "--dport 80" in started[1].stdout


def test_the_folder_of_the_package_is_no_place_to_import_from(tmp_path):
    """Python puts it there where it is not isolated: `import inject` would be ours."""
    code = (
        "import sys; package, parent = sys.argv[1:]; sys.path[:0] = [package, parent]; from netinit.cli.imports import CompiledFinder, begin; begin(package);"
        "assert package not in sys.path; assert parent in sys.path; assert type(sys.meta_path[0]) is CompiledFinder; import netinit.options;"
        "print(type(netinit.options.__spec__.loader).__name__)"
    )
    package = Path(MAIN).parent
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(package), str(package.parent)], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "CompiledLoader\n"
