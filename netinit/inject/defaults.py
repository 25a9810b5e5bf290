"""The configuration that ships with the package, for injection without any other."""

from __future__ import annotations

from netinit.base.tree import Tree
from netinit.inject.config import InjectionConfig, load_config, load_values
from netinit.inject.data_files import read_data
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.values import merge_values


def default_config(
    *,
    values: str | Tree | None = None,
    mesh: str | Tree | MeshConfig | None = None,
    settings: tuple[str, ...] = (),
    lazily: bool = False,
) -> InjectionConfig:
    """Load the package's own configuration.

    `values` are merged over the package's like Helm overrides: maps are merged, null removes. `settings` follow, in the
    syntax of Helm's --set. Raises ConfigError, and OptionError for invalid settings.
    """
    own = load_values(read_data("injection-values.yaml"))
    merged = own if values is None else merge_values(own, load_values(values))
    return load_config(read_data("injection.yaml"), values=merged, mesh=mesh, settings=settings, lazily=lazily)
