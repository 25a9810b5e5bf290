"""Read, check and publish configurations. An invalid one leaves the previous one in use."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError
from netinit.inject.pod import Settings
from netinit.webhook.configuration import Served, Texts, free_old_configurations, load
from netinit.webhook.serving_state import ServingState
from netinit.webhook.settings import ServeSettings

_MAX_FILE_BYTES = 8 << 20  # a ConfigMap has at most 1 MiB


class ConfigLoader:
    """Loads texts as configurations and stores valid ones in `state`."""

    def __init__(self, settings: Settings, state: ServingState, log: Callable[[str, str], None]) -> None:
        self._settings = settings
        self._state = state
        self._log = log
        self._offered: Texts | None = None

    async def offer(self, texts: Texts) -> bool:
        """Load and publish the texts, or note and log why they are invalid. False only if they are those of before."""
        if texts == self._offered:
            return False
        self._offered = texts
        generation = self._state.served.generation + 1 if self._state.served else 1
        try:
            served = await asyncio.to_thread(load, texts, self._settings, generation)
        except ConfigError as error:
            self.refuse(str(error), texts)
            return True
        finally:
            free_old_configurations()
        self._publish(served)
        return True

    async def restore(self, texts: Texts) -> None:
        """Use the last good configuration after a restart; the newest one's problem stays noted."""
        problem = self._state.configuration_problem
        try:
            served = await asyncio.to_thread(load, texts, self._settings, 1)
        except ConfigError as error:
            self._log("error", f"the last good configuration cannot be used any more: {error}")
            return
        self._publish(dataclasses.replace(served, is_restored=True))
        self._state.configuration_problem = problem

    def change_settings(self, message: str, **changes: Any) -> None:
        """Replace injection settings, such as those from cluster objects, and log the message."""
        self._settings = self._settings.replace(**changes)
        if self._state.served:
            self._state.served = dataclasses.replace(self._state.served, settings=self._settings)
        self._log("info", message)

    def _publish(self, served: Served) -> None:
        self._state.served = dataclasses.replace(served, settings=self._settings)  # may have changed meanwhile
        self._state.configuration_problem = ""
        if served.generation == 1:
            gc.freeze()  # startup objects live on: exclude them from collections
        self._log("info", f"configuration {served.generation} is in use: version {served.version}, of {served.origin}")
        for warning in served.warnings:
            self._log("warn", f"configuration {served.generation}: {warning}")

    def refuse(self, problem: str, offered: Texts | None = None) -> bool:
        """Note why the texts `offered` are invalid or, without them, missing; return False if that is already noted."""
        self._offered = offered  # if others were offered before, they are tried again when they return
        if problem == self._state.configuration_problem:
            return False
        self._state.configuration_problem = problem
        served = self._state.served
        stays = f"configuration {served.generation} stays in use" if served else "there is none yet"
        self._log("error", f"the configuration is not taken, {stays}: {problem}")
        return True


def config_files(settings: ServeSettings) -> list[Path]:
    """Return the files that `read_files` may read."""
    folders = ((settings.inject_config, ("config", "values")), (settings.values_file, ("values",)), (settings.mesh_config, ("mesh",)))
    return [path for name, keys in folders if name for path in (Path(name), *(Path(name) / key for key in keys))]


def read_files(settings: ServeSettings) -> Texts:
    """Return the texts of the files that the flags name. Raises ConfigError."""
    config = _read("--injectConfig", settings.inject_config, "config")
    values = _read("--valuesFile", settings.values_file, "values")
    if values is None and config is not None and Path(settings.inject_config).is_dir():
        values = _read("--injectConfig", settings.inject_config, "values", optional=True)
    mesh = _read("--meshConfig", settings.mesh_config, "mesh")
    return Texts(config=config, values=values, mesh=mesh, origin=settings.inject_config or Texts().origin)


def _read(flag: str, name: str, key: str, *, optional: bool = False) -> str | None:
    if not name:
        return None
    path = Path(name)
    if path.is_dir():
        path /= key
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if optional:
            return None
        raise ConfigError(f"{flag}: {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"{flag}: {path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{flag}: {path} is longer than {_MAX_FILE_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{flag}: {path} is not UTF-8: byte {error.start}") from error
