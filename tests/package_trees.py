"""The syntax trees of the package's files, parsed once for all tests of a worker: sharing.py keeps those together that ask for all."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def parse(path: Path) -> ast.Module:
    """The tree of a file, which nothing changes."""
    return ast.parse(path.read_text("utf-8"))
