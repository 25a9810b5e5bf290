"""How configurations come in: read from files, tried, and put on the board; a bad one is told, and the old one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from netinit.base.more_errors import ConfigError
from netinit.base.tree import mapping
from netinit.inject.pod import Settings
from netinit.webhook import board as on
from netinit.webhook.board import Board
from netinit.webhook.configuration import Texts, forget_others, load
from netinit.webhook.settings import ServeSettings

__all__ = ["Feed", "read_files"]

_LARGEST = 8 << 20  # bytes of a file


class Feed:
    """Takes texts that may be a configuration, and publishes those that are."""

    def __init__(self, board: Board, settings: Settings, tell: Callable[[str, str], None]) -> None:
        self.problem = ""
        self._board = board
        self._settings = settings
        self._tell = tell
        self._offered: Texts | None = None
        told = mapping(board.tree(on.CONFIGURATION))
        self.generation = int(told.get("generation", 0))

    async def offer(self, texts: Texts) -> bool:
        """Whether these texts are new, and were tried. What came of it is in `problem`, and told."""
        if texts == self._offered:
            return False
        self._offered = texts
        try:
            served = await asyncio.to_thread(load, texts, self._settings)
        except ConfigError as error:
            self.refuse(str(error))
            return True
        finally:
            forget_others()
        self.generation += 1
        self._board.put_tree(
            on.CONFIGURATION,
            {
                "generation": self.generation,
                "config": texts.config,
                "values": texts.values,
                "mesh": texts.mesh,
                "origin": texts.origin,
            },
        )
        self.problem = ""
        self._tell("info", f"configuration {self.generation} is in use: version {served.version}, of {texts.origin}")
        for warning in served.warnings:
            self._tell("warn", f"configuration {self.generation}: {warning}")
        return True

    def refuse(self, problem: str) -> None:
        """There is a newer configuration, and it cannot be used."""
        if problem != self.problem:
            self.problem = problem
            stays = f"configuration {self.generation} stays in use" if self.generation else "there is none yet"
            self._tell("error", f"the configuration is not taken, {stays}: {problem}")


def read_files(settings: ServeSettings) -> Texts:
    """The texts of the files that the flags name. Raises ConfigError."""
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
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        if optional:
            return None
        raise ConfigError(f"{flag}: {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"{flag}: {path} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise ConfigError(f"{flag}: {path} is longer than {_LARGEST >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{flag}: {path} is not UTF-8: byte {error.start}") from error
