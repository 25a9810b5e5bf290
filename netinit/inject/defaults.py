"""The configuration that ships with the package, so that injection works without any."""

from __future__ import annotations

from netinit.base.tree import Tree
from netinit.inject.config import InjectionConfig, load_config, load_values
from netinit.inject.data_files import read_data
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.values import merge_values

__all__ = ["default_config"]


def default_config(
    *,
    values: str | Tree | None = None,
    mesh: str | Tree | MeshConfig | None = None,
    settings: tuple[str, ...] = (),
    lazily: bool = False,
) -> InjectionConfig:
    """The configuration of the package's own templates.

    Values given here are laid over the package's as Helm lays a chart's overrides: maps are merged, null removes. Then
    the `settings` are made, in the grammar of Helm's --set. Raises ConfigError, and OptionError for the settings.
    """
    own = load_values(read_data("injection-values.yaml"))
    merged = own if values is None else merge_values(own, load_values(values))
    return load_config(read_data("injection.yaml"), values=merged, mesh=mesh, settings=settings, lazily=lazily)
