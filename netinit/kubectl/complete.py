"""`kubectl_complete-netinit`: completions in kubectl's format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import click

from netinit.base.errors import NetinitError
from netinit.base.output import show_artefact
from netinit.cli.commands import KUBECTL
from netinit.kubectl.common_options import find_kubectl

NO_FILES = ":4"  # the last line is a bit mask of directives (ShellCompDirectiveNoFileComp)
NAMES = ("-o", "name")
OF_NAMESPACES = ("-n", "--namespace", "--agent-namespace")
MAX_PROPOSED = 500  # more than a shell lists


@click.command("complete")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="WORD...")
def command(words: tuple[str, ...]) -> int:
    """Print the completions of the last word, for kubectl."""
    *before, last = words or ("",)
    found = [text for text in _propose(before, last) if text.startswith(last)][:MAX_PROPOSED]
    show_artefact("".join(f"{text}\n" for text in [*found, NO_FILES]))
    return 0


def _propose(before: list[str], last: str) -> Iterator[str]:
    if not before:
        yield from [f"{name}\t{what}" for name, (_, what) in KUBECTL.items() if name != "complete"]
        return
    if before[-1] in OF_NAMESPACES:
        yield from [name.partition("/")[2] for name in _lines("get", "namespaces", *NAMES)]
    elif before[-1] == "--context":
        yield from _lines("config", "get-contexts", *NAMES)
    elif last.startswith("-"):
        from netinit.cli.group import make_group  # imports every command's help

        group = make_group("kubectl")
        chosen = group.get_command(click.Context(group), before[0])
        for param in chosen.params if chosen else ():
            yield from [name for name in param.opts if name.startswith("--")]
    elif before[0] != "check" and "--cluster" not in before:
        named = next((after for word, after in pairwise(before) if word in OF_NAMESPACES[:2]), "")
        for name in _lines("get", "pods,deployments", *(("-n", named) if named else ()), *NAMES):
            kind, _, bare = name.partition("/")
            yield bare if kind == "pod" else f"deploy/{bare}"


def _lines(*words: str) -> list[str]:
    try:
        done = find_kubectl().ask(*words)
    except NetinitError:
        return []
    return [line for line in done.output.split("\n") if line and line.isprintable() and " " not in line] if not done.status else []
