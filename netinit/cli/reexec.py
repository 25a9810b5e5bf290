"""Runs netinit again with its output captured, or replaces this process by it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from netinit.base.system import EMBEDDED, posix
from netinit.kernel import run

START = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); sys.argv[0] = 'netinit'; from netinit.cli.start import main; main()"


def run_netinit(words: Sequence[str], *, stdin: str = "", environ: Mapping[str, str] | None = None) -> run.Finished:
    """Run `netinit WORDS`. It inherits no variable but PATH."""
    program, arguments = find_itself(words)
    return run.finish(run.start(program, arguments, stdin=stdin, environment=environ))


def become_netinit(words: Sequence[str], *, environ: Mapping[str, str]) -> None:
    """Replace this process by `netinit WORDS`, keeping its input, output and PATH; `environ` is added."""
    program, arguments = find_itself(words)
    run.become(program, arguments, environ)


def find_itself(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the program and the arguments that run `netinit WORDS` as this process was started."""
    if EMBEDDED:
        return posix.readlink("/proc/self/exe"), tuple(words)
    isolated = ("-I",) if sys.flags.isolated else ("-E", "-P")
    # Passes on sys.path: a virtual environment is detected by argv[0], which may be a bare name.
    places = [str(Path(__file__).parents[2]), *[place for place in sys.path if place.startswith("/")]]
    return sys.executable, (*isolated, "-X", "utf8", "-c", START, ":".join(places), *words)
