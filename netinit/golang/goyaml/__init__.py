"""YAML as kubectl reads it: Go's scalar types, bounded aliases, and a writer whose output no reader misunderstands.

Laws:

- Plain scalars are typed as sigs.k8s.io/yaml types them (YAML 1.1 booleans such as `y` and `off`, `010` and `0o10`
  are octal, timestamps and base-60 numbers stay strings); keys become strings.
- `load(dump(tree)) == tree`, for PyYAML's reader as well: what either of them would take for another type is quoted.
- No input takes more than the limits allow: depth, nodes, and nodes made by aliases ("billion laughs").

Reading goes through PyYAML, with libyaml where it has it (`events`); importing it takes 10 ms, so that is done by the first
who reads.
"""

from __future__ import annotations

from typing import Any

from netinit.golang.goyaml.writer import dump

__all__ = ["dump", "load", "load_all", "load_reporting"]


def load_all(text: str) -> list[Any]:
    """The trees of every document of the stream. Raises ParseError with line and column, or when a limit is passed."""
    from netinit.golang.goyaml import events

    return events.build(events.scan(text)).documents


def load(text: str) -> Any:
    """The tree of the only document; None for an empty text. Raises ParseError, also for a second document."""
    return load_reporting(text)[0]


def load_reporting(text: str) -> tuple[Any, tuple[str, ...]]:
    """`load`, and a sentence for every key that stands twice in its mapping (the last one counts, as in Go)."""
    from netinit.golang.goyaml import events

    builder = events.build(events.scan(text))
    return builder.document(), tuple(builder.duplicates)
