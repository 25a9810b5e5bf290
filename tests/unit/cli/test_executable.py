"""The static executable's modules: what of each command is in it, what is not, and which of them are C data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from executable_commands import find_absent, load_builder, read_sources
from netinit.cli.commands import NODE

ROOT = Path(__file__).parents[3]
# A pod of the laboratory, the node's agent, and what serves or asks a server; of every other command all modules are in it.
NOT_IN_IT = ["node", "demo", "webhook serve", "webhook compare", "webhook probe", *[f"node {name}" for name in NODE]]


@pytest.fixture(scope="module")
def builder():
    return load_builder()


@pytest.fixture(scope="module")
def sources(builder):
    return read_sources(builder)


@pytest.fixture(scope="module")
def chosen(builder, sources):
    return builder.choose(sources)


def test_each_command_is_in_it_but_those_listed_here(chosen):
    assert find_absent(chosen) == NOT_IN_IT


def test_nothing_in_it_speaks_tls_serves_or_opens_archives(chosen):
    roots = {name.partition(".")[0] for name in chosen}
    assert not roots & {"asyncio", "ctypes", "email", "httpx2", "pyroute2", "re2", "socketserver", "ssl", "uvicorn", "zipfile", "zipimport"}
    assert not {name for name in chosen if name.startswith(("netinit.webhook", "urllib.request"))}
    assert {name for name in chosen if name.startswith("netinit.serving.")} == {"netinit.serving.certificates"}


def test_what_its_modules_import_of_netinit_is_in_it_or_left_out_by_name(builder, sources, chosen):
    named = {one for name in chosen for one in sources.imports(name, at_top=False) if one.startswith("netinit")}
    assert {one for one in named - set(chosen) if not builder.is_in(one, builder.LEFT_OUT)} == set()
    written = {name for name in sources.paths if name.startswith("netinit")}
    assert {name for name in written - set(chosen) if not builder.is_in(name, builder.LEFT_OUT)} == {"netinit.backends.libiptc"}, "it says so"


def test_each_module_has_what_it_always_imports(builder, sources, chosen):
    there = {*chosen, *builder.FROZEN.values()}
    lacking = {name: {*sources.imports(name, at_top=True)} - there for name in chosen}
    assert {name: lacks for name, lacks in lacking.items() if lacks} == {}


def test_what_a_module_imports_and_is_not_in_it_is_named_unless_the_module_does_without(builder, tmp_path):
    package = tmp_path / "netinit"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nfrom netinit import one\n")
    (package / "one.py").write_text(
        "import posix\ntry:\n    import absent_but_tried\nexcept ImportError:\n    import absent_instead\n"
        "def later():\n    import absent_later\n    from netinit import __doc__\n"
        "if EMBEDDED:\n    import _netinit\nelse:\n    import absent_elsewhere\n"
    )
    sources = builder.ModuleSources(tmp_path)
    assert builder.find_absent(sources, ["netinit", "netinit.one"], {"posix", "sys"}) == {"netinit.one": {"absent_instead", "absent_later"}}


@pytest.mark.netns
@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy", "nftables"])
def test_all_that_a_first_a_second_run_a_removal_and_a_run_after_it_import_is_c_data(builder, sources, chosen, backend):
    static = {*builder.find_static(sources, chosen)}
    words = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020"
    line = f'ip link set lo up && for job in first second; do "$@" {words}; done && "$@" --cleanup-only && exec "$@" {words}'
    start = [sys.executable, "-I", "-S", "-X", "importtime", str(ROOT / "netinit" / "__main__.py"), "--backend", backend]
    done = subprocess.run(
        ["unshare", "-n", "sh", "-euc", line, "sh", *start], capture_output=True, text=True, timeout=60, check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if row.startswith("import time:")}
    assert len(imported) > 70
    assert (imported & set(chosen)) - static == set(), "name them in JOBS: reading them costs more than running them"


def test_the_same_modules_give_the_same_bytes(builder, sources):
    first, second = (builder.dump(builder.compile_module(sources, "netinit.cli.lint")) for _ in range(2))
    assert first == second
    assert str(ROOT).encode() not in first, "no folder of the build is named"
    assert b"Which commands" not in first


def test_code_has_lines_for_tracebacks_but_no_columns(builder, sources):
    code = builder.compile_module(sources, "netinit.cli.lint")
    places = [place for one in (code, *[one for one in code.co_consts if hasattr(one, "co_code")]) for place in one.co_positions()]
    assert len({line for line, *_ in places}) > 30
    assert {(first, last) for *_, first, last in places} <= {(None, None), (0, 0)}, "a fifth of what is compressed"


@pytest.mark.parametrize("package", ["netinit", "another"])
def test_a_module_of_ours_keeps_the_docstrings_that_click_reads_and_each_imports_by_whole_names(builder, tmp_path, package):
    module = tmp_path / package / "module.py"
    module.parent.mkdir()
    module.write_text(
        '"""Of the module."""\nfrom __future__ import annotations\nfrom . import other\nfrom .third import name\n'
        '@decorate\ndef kept():\n    """Kept."""\ndef left():\n    """Left."""\n'
    )
    (tmp_path / package / "__init__.py").touch()
    code = builder.compile_module(builder.ModuleSources(tmp_path), f"{package}.module")
    kept, left = (one for one in code.co_consts if hasattr(one, "co_code"))
    ours = package == "netinit"
    assert (kept.co_consts[0], left.co_consts[0], "Of the module." in code.co_consts) == ("Kept." if ours else None, None, ours)
    assert {package, f"{package}.third"} <= {*code.co_names}
    assert "annotations" not in code.co_names


def test_code_as_c_data_names_every_variable_and_holds_each_constant_once(builder, tmp_path):
    source = "def outer(a, /, b, *rest, c=1, **more):\n    d = a\n    def inner(e):\n        nonlocal d\n        return a, d, e, rest\n    return inner\n"
    outer = next(one for one in compile(source, "x.py", "exec").co_consts if hasattr(one, "co_code"))
    inner = next(one for one in outer.co_consts if hasattr(one, "co_code"))
    names, kinds = sys.modules["static_code"].list_variables(outer)
    assert names == (*outer.co_varnames, *[one for one in outer.co_cellvars if one not in outer.co_varnames])
    assert dict(zip(names, kinds, strict=True)) == {"a": 0x60, "b": 0x20, "c": 0x20, "rest": 0x60, "more": 0x20, "inner": 0x20, "d": 0x40}
    assert sys.modules["static_code"].list_variables(inner) == (("e", "a", "d", "rest"), b"\x20\x80\x80\x80")
    (tmp_path / "internal").mkdir()
    (tmp_path / "internal" / "pycore_global_strings.h").write_text("#define STRUCT_FOR_ID(NAME) x\n    STRUCT_FOR_ID(held)\n")
    written = builder.StaticCode(tmp_path)
    code = compile("held = 'a text', b'bytes', 1 << 70, 'a text', 2.5, {'\u20ac'} , ...\nx in {1, 2}\n", "x.py", "exec")
    assert written.add(code) == 0
    text = written.render()
    assert text.count('"a text"') == 1
    assert "O(_Py_ID(held))" in text
    assert "READY(2, 0)}}, {8364}" in text


@pytest.mark.skipif(
    not (shutil.which("gcc") and Path("/usr/include/python3.11/internal/pycore_code.h").exists() and sys.version_info[:2] == (3, 11)),
    reason="gcc and the headers of Python 3.11 are not installed: apt-get install gcc libpython3.11-dev",
)
def test_all_static_code_is_c_that_compiles(builder, sources, chosen, tmp_path):
    written = builder.StaticCode(Path("/usr/include/python3.11"))
    for name in builder.find_static(sources, chosen):
        written.add(builder.compile_module(sources, name))
    (tmp_path / "code.c").write_text(written.render())
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Werror", "-I/usr/include/python3.11", "-fsyntax-only", tmp_path / "code.c"], check=True, timeout=300
    )
