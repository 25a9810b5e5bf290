"""The configuration that ships with the package, so that injection works without any."""

from __future__ import annotations

from pathlib import Path

from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.tree import Tree

__all__ = ["default_config"]

_DATA = Path(__file__).parents[1] / "data"  # importlib.resources costs 10 ms to import


def default_config(*, values: str | Tree | None = None, mesh: str | Tree | MeshConfig | None = None) -> InjectionConfig:
    """The configuration of the package's own templates; values given here replace the package's as a whole."""
    if values is None:
        values = (_DATA / "injection-values.yaml").read_text(encoding="utf-8")
    return load_config((_DATA / "injection.yaml").read_text(encoding="utf-8"), values=values, mesh=mesh)
