"""The public five beside their commands: each call, and the command line that asks the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import netinit
from netinit.base.json_answers import to_json

CALLS: dict[str, Callable[..., Any]] = {name: getattr(netinit, name) for name in ("explain", "audit", "diff", "lint", "verify")}


def compare(run: Callable[[list[str]], Any], words: list[str], arguments: tuple[Any, ...] = (), **named: Any) -> Any:
    """Check that the call answers as the command `netinit WORDS` does: text, JSON, notes and warnings. Returns the call's result."""
    found = CALLS[words[0]](*arguments, **named)
    done = run(["netinit", *words])
    assert found.text == done.out
    said = [f"note: {text}" for text in found.notes] if hasattr(found, "notes") else []
    said += [f"warning: {text}" for text in found.warnings] if hasattr(found, "warnings") else []
    assert sorted(set(said)) == sorted(done.err.splitlines()), (said, done.err)
    assert to_json(found.to_object()) == run(["netinit", *words, "--json"]).out
    return found
