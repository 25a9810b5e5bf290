"""Read YAML as kubectl does (Go's scalar types, limits on aliases), and write YAML that every reader understands alike.

Invariants:

- Plain scalars get the types of sigs.k8s.io/yaml (YAML 1.1 booleans such as `y` and `off`; `010` and `0o10` are octal;
  timestamps and base-60 numbers stay strings); keys become strings.
- `load(dump(tree)) == tree`, also with PyYAML's reader: text that either would read as another type is quoted.
- All input is limited: depth, nodes, and nodes created by aliases ("billion laughs").

Reading uses PyYAML, with libyaml if available (`events`); its import takes 10 ms, so it happens on first use.
"""

from __future__ import annotations

from typing import Any

from netinit.golang.goyaml.writer import dump

__all__ = ["dump", "load", "load_all", "load_reporting"]


def load_all(text: str) -> list[Any]:
    """Parse all documents of a stream. Raises ParseError with line and column, also for an exceeded limit."""
    from netinit.golang.goyaml import events

    return events.build(events.scan(text)).documents


def load(text: str) -> Any:
    """Parse a single document; None for an empty text. Raises ParseError, also for a second document."""
    return load_reporting(text)[0]


def load_reporting(text: str) -> tuple[Any, tuple[str, ...]]:
    """Parse a single document; also return a sentence for each duplicate key (the last one counts, as in Go)."""
    from netinit.golang.goyaml import events

    builder = events.build(events.scan(text))
    return builder.document(), tuple(builder.duplicates)
