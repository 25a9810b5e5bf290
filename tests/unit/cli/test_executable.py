"""The static executable's modules: what of each command is in it, what is not, and in which order a job's modules run."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path

import pytest

from netinit.cli.commands import COMMANDS, KUBECTL, NODE, WEBHOOK

ROOT = Path(__file__).parents[3]
BUILDER = ROOT / "netinit" / "bin" / "executable.py"
# Command -> its modules that are not in the executable; of every other command all of netinit's are.
NOT_IN_IT = {
    "demo": {"netinit.cli.demo"},
    "kubectl preflight": {"netinit.kubectl.preflight"},
    "kubectl report": {"netinit.kubectl.report"},
    **{f"node {name}": {f"netinit.{module}"} for name, (module, _) in NODE.items()},
    **{f"webhook {name}": {f"netinit.{module}"} for name, (module, _) in WEBHOOK.items()},
    "node": {"netinit.cli.node"},
    "webhook": {"netinit.cli.webhook"},
}


@pytest.fixture(scope="module")
def builder():
    spec = importlib.util.spec_from_file_location("executable_builder", BUILDER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(builder):
    found = builder.Sources(Path(sysconfig.get_path("stdlib")))
    for path in sorted((ROOT / "netinit").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "data" not in parts[:-1]:
            found.paths[".".join(parts).removesuffix(".__init__")] = path
    return found


@pytest.fixture(scope="module")
def chosen(builder, sources):
    return builder.choose(sources)


def test_each_command_is_in_it_but_those_listed_here(chosen):
    commands = {name: module for name, (module, _) in COMMANDS.items()}
    for group, rows in (("kubectl", KUBECTL), ("node", NODE), ("webhook", WEBHOOK)):
        commands |= {f"{group} {name}": module for name, (module, _) in rows.items()}
    wanted = {name: f"netinit.{module.removesuffix('.__init__')}" for name, module in commands.items()}
    assert {name: {module} for name, module in wanted.items() if module not in chosen} == NOT_IN_IT


def test_nothing_in_it_speaks_tls_or_serves(chosen):
    assert not {name for name in chosen if name.partition(".")[0] in {"ssl", "ctypes", "uvicorn", "httpx2", "re2"}}
    assert not {name for name in chosen if name.startswith(("netinit.kube.", "netinit.serving", "netinit.webhook"))}


def test_what_its_modules_import_of_netinit_is_in_it_or_left_out_by_name(builder, sources, chosen):
    named = {one for name in chosen for one in sources.imports(name, at_top=False) if one.startswith("netinit")}
    assert {one for one in named - set(chosen) if not builder.is_in(one, builder.LEFT_OUT)} == set()
    written = {name for name in sources.paths if name.startswith("netinit")}
    assert {name for name in written - set(chosen) if not builder.is_in(name, builder.LEFT_OUT)} == set()


def test_a_jobs_modules_run_after_those_that_they_import(builder, sources, chosen):
    records = builder.Records(sources, chosen)
    for members in records.before:
        for at, name in enumerate(members):
            later = set(members[at + 1 :])
            own = set(builder.list_packages(name))
            late = {one for one in sources.imports(name, at_top=True) if one in later and not one.startswith(f"{name}.")} - own
            assert not late, f"{name} runs before {late}"
    names = [name for members in records.before for name in members]
    assert len(names) == len(set(names))


def test_the_same_modules_give_the_same_bytes(builder, sources):
    first, second = (builder.dump(("", (("netinit.cli.start", False, builder.compile_module(sources, "netinit.cli.start")),))) for _ in range(2))
    assert first == second
    assert str(ROOT).encode() not in first, "no folder of the build is named"

