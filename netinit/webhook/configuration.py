"""Load a configuration: parse it and test it on a canary pod. Pure."""

from __future__ import annotations

import gc
import hashlib
from dataclasses import dataclass

from netinit.base.errors import ConfigError
from netinit.inject.adding import guard
from netinit.inject.adding.config import InjectionConfig, load_config
from netinit.inject.adding.places import Files
from netinit.inject.adding.settings import Settings
from netinit.questions.configuration_check import find_template_problems, try_canaries, warnings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The source texts of a configuration; None for the default.

    `origin`: where they are from, for messages; `values_origin` and `mesh_origin`, where they are from elsewhere.
    """

    config: str | None = None
    values: str | None = None
    mesh: str | None = None
    origin: str = "netinit's own templates"
    values_origin: str = ""
    mesh_origin: str = ""

    @property
    def files(self) -> Files:
        """The names for messages."""
        return Files(templates=self.origin, values=self.values_origin or self.origin, mesh=self.mesh_origin or self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A configuration in use.

    `version`: its hash. `is_restored`: the last good one, after a restart.
    """

    config: InjectionConfig
    settings: Settings
    version: str
    texts: Texts = Texts()
    is_restored: bool = False
    generation: int = 0
    warnings: tuple[str, ...] = ()
    refused_canaries: int = 0


def load(texts: Texts, settings: Settings, generation: int = 0) -> Served:
    """Parse the texts and inject canary pods. Raises ConfigError."""
    if texts.config is not None and not texts.config.strip():
        raise ConfigError(f"{texts.origin}: the injector's configuration is empty")
    config = load_config(texts.config, values=texts.values, mesh=texts.mesh, files=texts.files)
    tried = try_canaries(config, settings)
    template_warnings = [problem.message for problem in find_template_problems(config, settings) if not problem.stops_pods]
    return Served(
        config=config,
        settings=settings,
        version=_version(texts, config),
        texts=texts,
        generation=generation,
        warnings=(*config.warnings, *warnings_of(tried), *template_warnings),
        refused_canaries=sum(bool(one.problem) for one in tried),
    )


def free_old_configurations() -> None:
    """Free earlier configurations' caches: 15 MiB in a few dozen reloads."""
    guard.forget()
    gc.collect()


def _version(texts: Texts, config: InjectionConfig) -> str:
    """Return the template's hash for a classic configuration, as in Istio's status annotation; else that of all texts."""
    if config.classic:
        return config.version
    whole = "\0".join(text or "" for text in (texts.config, texts.values, texts.mesh))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]
