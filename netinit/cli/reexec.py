"""Netinit started once more, with its outputs kept: for an answer that is sent on, or shown among others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from netinit.kernel import run

START = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); sys.argv[0] = 'netinit'; from netinit.cli.start import main; main()"


def run_netinit(words: Sequence[str], *, stdin: str = "", environ: Mapping[str, str] | None = None) -> run.Finished:
    """How `netinit WORDS` ended. It sees no variable of this process but PATH."""
    program, arguments = _find_itself(words)
    return run.finish(run.start(program, arguments, stdin=stdin, environment=environ))


def become_netinit(words: Sequence[str], *, environ: Mapping[str, str]) -> None:
    """Go on as `netinit WORDS` in this process, with its input and output, and no variable but PATH beside these."""
    program, arguments = _find_itself(words)
    run.become(program, arguments, environ)


def _find_itself(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The program and its arguments that are `netinit WORDS`."""
    isolated = ("-I",) if sys.flags.isolated else ("-E", "-P")
    # The places that this process imports from: a virtual environment is known by argv[0], which a program's name alone is.
    places = [str(Path(__file__).parents[2]), *[place for place in sys.path if place.startswith("/")]]
    return sys.executable, (*isolated, "-X", "utf8", "-c", START, ":".join(places), *words)
