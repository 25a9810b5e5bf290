"""What a command answers on macOS and Windows, if it needs a Linux kernel: where to run it instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from netinit.base.errors import OptionError
from netinit.cli.commands import ALIASES, COMMANDS

KUBECTL_TOO = {"explain", "audit", "verify", "draw", "doctor", "watch", "trace", "why"}
CHANGING, READING = {"apply", "remove"}, {"verify", "watch", "trace", "doctor", "demo", "node"}
LIVE = ("--live", "--pid", "--netns", "--network-namespace", "--all-pods")
PLANNING = ("--dry-run", "-n")  # of apply; what remove would remove depends on the live rules
ABOUT = ("--help", "-h", "--version")


def refuse(words: Sequence[str], system: str = sys.platform) -> None:
    """Raise OptionError for a command line that needs Linux."""
    named = next((word for word in words if word in COMMANDS or word in ALIASES), "apply")
    name = ALIASES.get(named, named)
    given = {word.partition("=")[0] for word in words}
    is_live = name != "kubectl" and (not given.isdisjoint(LIVE) or (name == "diff" and "live" in given))
    asks_files = not given.isdisjoint(("--rules", *(PLANNING if name == "apply" else ()))) and not is_live
    if asks_files or not given.isdisjoint(ABOUT) or not (is_live or name in CHANGING | READING):
        return
    inside = f", or from here: kubectl netinit {name if name in KUBECTL_TOO else 'fix'} POD" if name in KUBECTL_TOO | CHANGING else ""
    what = f"{name} of a live pod" if is_live and name not in CHANGING | READING else name
    raise OptionError(f"{what} needs Linux, and this is {NAMES.get(system, system)}: run it on the node{inside}")


NAMES = {"darwin": "macOS", "win32": "Windows", "emscripten": "a browser"}
