"""The configuration in use: read, parsed, tried on a canary pod, and then one value."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from netinit.base.errors import ConfigError, NetinitError
from netinit.inject import guard
from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.configuration_check import find_template_problems, try_canary
from netinit.inject.defaults import default_config
from netinit.inject.pod import Settings
from netinit.inject.unread_annotations import known_to

__all__ = ["Served", "Texts", "forget_others", "load"]

@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The texts that make a configuration; None where one is not given. `origin` says where they are from."""

    config: str | None = None
    values: str | None = None
    mesh: str | None = None
    origin: str = "netinit's own templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A configuration in use: it is replaced whole. `version` distinguishes configurations, `known` are annotations.

    `texts` are those that it was made of; `is_restored`: from before a restart, since the newest ones are invalid.
    """

    config: InjectionConfig
    settings: Settings
    version: str
    known: frozenset[str]
    origin: str
    texts: Texts = Texts()
    is_restored: bool = False
    generation: int = 0
    warnings: tuple[str, ...] = field(default=())

    def settings_with(self, environment: Mapping[str, str]) -> Settings:
        """The settings with the variables that a request's path asks for."""
        return self.settings.replace(environment={**self.settings.environment, **environment}) if environment else self.settings


def load(texts: Texts, settings: Settings, generation: int = 0, *, canary: bool = True) -> Served:
    """The configuration of these texts, which has injected the canary. ConfigError says what is wrong with which text."""
    config = _load(texts)
    if canary:
        try_canary(config, settings)
    doubts = [problem.message for problem in find_template_problems(config, settings) if not problem.stops_pods]
    return Served(
        config=config,
        settings=settings,
        version=_version(texts, config),
        known=known_to(config),
        origin=texts.origin,
        texts=texts,
        generation=generation,
        warnings=(*config.warnings, *doubts),
    )


def forget_others() -> None:
    """Lets go of what earlier configurations left: outlines of their texts, and parsed templates, which refer to themselves.

    Without it a process has 15 MiB more after a few dozen configurations.
    """
    guard.forget()
    gc.collect()


def _load(texts: Texts) -> InjectionConfig:
    if texts.config is not None and not texts.config.strip():
        raise ConfigError(f"{texts.origin}: the injector's configuration is empty")
    try:
        if texts.config is None:
            return default_config(values=texts.values, mesh=texts.mesh)
        return load_config(texts.config, values=texts.values, mesh=texts.mesh)
    except NetinitError as error:
        raise ConfigError(f"{texts.origin}: {error}") from error


def _version(texts: Texts, config: InjectionConfig) -> str:
    """The template's hash where it is classic, as the status annotation has it; else a hash of all texts."""
    if config.classic:
        return config.version
    whole = "\0".join(text or "" for text in (texts.config, texts.values, texts.mesh))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]
