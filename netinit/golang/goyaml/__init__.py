"""Read YAML like kubectl, and write YAML that every reader reads alike.

- Plain scalars get the types of sigs.k8s.io/yaml: `y` and `off` are booleans, `010` and `0o10` octal numbers,
  timestamps and base-60 numbers strings. Keys become strings.
- `load(dump(tree)) == tree`, also with PyYAML's reader.
- Depth, nodes, and nodes created by aliases ("billion laughs") are limited.

Reading imports PyYAML on first use, which takes 10 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netinit.golang.goyaml.writer import dump

if TYPE_CHECKING:
    from netinit.golang.errors import YamlError
    from netinit.golang.goyaml.places import TextPlace

__all__ = ["dump", "load", "load_all", "load_reporting", "read_places", "rewrite"]


def load_all(text: str) -> list[Any]:
    """Parse all documents of a stream. Raises YamlError with line and column, also for an exceeded limit."""
    from netinit.golang.goyaml import events

    return events.TreeBuilder(text).documents


def load(text: str) -> Any:
    """Parse a single document; None for an empty text. Raises YamlError, also for a second document."""
    return load_reporting(text)[0]


def load_reporting(text: str) -> tuple[Any, tuple[YamlError, ...]]:
    """Parse a single document; also return an error for each duplicate key. As in Go, the last one applies."""
    from netinit.golang.goyaml import events

    builder = events.TreeBuilder(text)
    return builder.document(), tuple(builder.duplicates)


def read_places(text: str) -> list[TextPlace]:
    """Return where each document's keys and items stand: `place.find(("spec", "containers", 0))`. Raises YamlError."""
    from netinit.golang.goyaml import places

    return places.read_places(text)


def rewrite(text: str, before: Any, after: Any) -> str:
    """Return a document's text, changed only where the tree `after` differs from its tree `before`: comments and order stay."""
    from netinit.golang.goyaml import edits

    return edits.rewrite(text, before, after)
