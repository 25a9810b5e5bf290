"""What users build on: the library's names, the command line, the schemas of JSON. `python tests/api.py` says what changed.

tests/api.txt is what the last release has, one promise a line. A line that is gone breaks somebody: the test names it, until
`python tests/api.py --renew` records it, which goes with a file of changelog.d: +WORDS.changed.md or .removed.md.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import netinit
from netinit import testing
from netinit.base.data import read_data
from netinit.cli import complete, group
from netinit.options import Options

FILE = Path(__file__).parent / "api.txt"
DATA = Path(netinit.__file__).parent / "data"


def list_promises() -> list[str]:
    """Every promise of the checkout, sorted."""
    return sorted({*_of_library(), *_of_variables(), *_of_commands(), *_of_schemas()})


def find_broken(recorded: list[str], now: list[str]) -> list[str]:
    """The promises that are kept no more."""
    return [one for one in recorded if one not in set(now)]


def _of_library() -> Iterator[str]:
    for module in (netinit, testing):
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"name {module.__name__}.{name}{_parameters(thing) if inspect.isfunction(thing) else ''}"
    for flag in Options.flags:
        yield f"name netinit.Options({flag.field}=)"


def _parameters(function: Any) -> str:
    """Those that a caller must give: one more of them breaks every call."""
    names = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    return f"({', '.join(names)})"


def _of_variables() -> Iterator[str]:
    yield from [f"variable {name}" for flag in Options.flags for name in flag.variables]
    yield from [f"annotation {flag.annotation}" for flag in Options.flags if flag.annotation]


def _of_commands() -> Iterator[str]:
    context = click.Context(group.root, info_name="netinit")
    for line in read_data("completion.tsv").splitlines():
        command, names, kind, _ = line.split("\t")
        for name in names.split(","):
            if name in ("", complete.RULES):
                continue
            yield f"flag {command or 'netinit'} {name}"
            yield from [f"value {command or 'netinit'} {name} {word}" for word in kind.split("|") if "|" in kind]
    yield from [f"command {name}" for name in group.root.list_commands(context)]


def _of_schemas() -> Iterator[str]:
    for path in sorted(DATA.glob("*.schema.json")):
        yield from _of_schema(json.loads(path.read_text("utf-8")), path.name)


def _of_schema(schema: Any, where: str) -> Iterator[str]:
    """The fields that a reader may rely on, with their types; and which of them are always there."""
    if not isinstance(schema, dict):
        return
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        kind = one.get("type", "") if isinstance(one, dict) else ""
        yield f"json {where} {name}: {kind if isinstance(kind, str) else '|'.join(kind)}{' always' if name in required else ''}"
        yield from _of_schema(one, f"{where} {name}")
    for key in ("items", "additionalProperties"):
        yield from _of_schema(schema.get(key), f"{where} []")
    for key in ("$defs", "definitions"):
        for name, one in schema.get(key, {}).items():
            yield from _of_schema(one, f"{where} {name}")


def main(words: list[str]) -> int:
    """Prints what is gone and what is new, or records the promises of today."""
    now = list_promises()
    if words == ["--renew"]:
        FILE.write_text("".join([f"{one}\n" for one in now]), "utf-8")
        return 0
    recorded = FILE.read_text("utf-8").splitlines()
    broken = find_broken(recorded, now)
    print("".join([f"- {one}\n" for one in broken] + [f"+ {one}\n" for one in find_broken(now, recorded)]), end="")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
