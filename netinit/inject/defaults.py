"""The configuration that ships with the package, so that injection works without any."""

from __future__ import annotations

from importlib.resources import files

from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.tree import Tree

__all__ = ["default_config"]


def default_config(
    *, values: str | Tree | None = None, mesh: str | Tree | MeshConfig | None = None
) -> InjectionConfig:
    """The configuration of the package's own templates; values given here replace the package's as a whole."""
    folder = files("netinit") / "data"
    if values is None:
        values = (folder / "injection-values.yaml").read_text(encoding="utf-8")
    return load_config((folder / "injection.yaml").read_text(encoding="utf-8"), values=values, mesh=mesh)
