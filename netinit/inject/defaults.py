"""The configuration that ships with the package, so that injection works without any."""

from __future__ import annotations

from netinit.golang.tree import Tree
from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.meshconfig import MeshConfig

__all__ = ["default_config"]

_DATA = __file__.rpartition("/inject/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def default_config(
    *, values: str | Tree | None = None, mesh: str | Tree | MeshConfig | None = None, lazily: bool = False
) -> InjectionConfig:
    """The configuration of the package's own templates; values given here replace the package's as a whole."""
    if values is None:
        values = _read("injection-values.yaml")
    return load_config(_read("injection.yaml"), values=values, mesh=mesh, lazily=lazily)


def _read(name: str) -> str:
    with open(_DATA + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()
