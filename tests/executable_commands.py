"""Which commands the static executable holds, as its builder chooses modules: the one list, for tests and releases."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from netinit.cli.commands import COMMANDS, SUBCOMMANDS

ROOT = Path(__file__).parents[1]
BUILDER = ROOT / "netinit" / "bin" / "executable.py"
ABSENT = "is not in this executable"


def load_builder() -> ModuleType:
    """netinit/bin/executable.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("executable_builder", BUILDER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_sources(builder: ModuleType) -> Any:
    """The modules of this Python's library and of netinit, for the builder."""
    found = builder.ModuleSources(Path(sysconfig.get_path("stdlib")))
    for path in sorted((ROOT / "netinit").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "data" not in parts[:-1]:
            found.paths[".".join(parts).removesuffix(".__init__")] = path
    return found


def list_commands() -> dict[str, str]:
    """Every command, with its group's name before it, and its module."""
    found = {name: module for name, (module, _) in COMMANDS.items()}
    for group, rows in SUBCOMMANDS.items():
        found |= {f"{group} {name}": module for name, (module, _) in rows.items()}
    return {name: f"netinit.{module.removesuffix('.__init__')}" for name, module in found.items()}


def find_absent(chosen: list[str] | None = None) -> list[str]:
    """The commands that the executable does not hold; `chosen`: its modules, where they are known, since to choose them takes seconds."""
    if chosen is None:
        builder = load_builder()
        chosen = builder.choose(read_sources(builder))
    return [name for name, module in list_commands().items() if module not in chosen]


def try_commands(*program: str) -> list[str]:
    """A line for each command whose --help the executable does not print, or for which it does not say that it is not in it."""
    wrong = []
    absent = find_absent()
    for name in list_commands():
        done = subprocess.run([*program, *name.split(), "--help"], capture_output=True, text=True, check=False, timeout=60)
        if name in absent:
            good = done.returncode == 2 and ABSENT in done.stderr
        else:
            good = done.returncode == 0 and done.stdout.startswith("Usage: ")
        if not good:
            wrong.append(f"{name} --help ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return wrong
