"""How configurations come in: read from files, tried, and put on the board; a bad one is told, and the old one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from netinit.base.errors import ConfigError
from netinit.base.tree import mapping
from netinit.inject.pod import Settings
from netinit.webhook import board as on
from netinit.webhook.board import Board
from netinit.webhook.configuration import Served, Texts, forget_others, load
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
        self._tried: Served | None = None  # a good one that is not on the board yet
        told = mapping(board.tree(on.CONFIGURATION))
        self.generation = int(told.get("generation", 0))

    async def offer(self, texts: Texts) -> bool:
        """Whether these texts are new, and were tried. What came of it is in `problem`, and told."""
        if texts == self._offered:
            self._publish()
            return False
        self._offered, self._tried = texts, None
        try:
            self._tried = await asyncio.to_thread(load, texts, self._settings)
        except ConfigError as error:
            self._refuse(str(error))
            return True
        finally:
            forget_others()
        self._publish()
        return True

    def _publish(self) -> None:
        """What was tried is on the board, unless it is there already; where it cannot be now, it waits for the next offer."""
        texts, served = self._offered, self._tried
        if texts is None or served is None:
            return
        told = {"config": texts.config, "values": texts.values, "mesh": texts.mesh, "origin": texts.origin}
        try:
            self._board.put_tree(on.CONFIGURATION, {"generation": self.generation + 1, **told})
        except OSError as error:
            self._refuse(f"--stateFolder: it cannot be written: {error.strerror}; it is tried again")
            return
        self._tried = None
        self.generation += 1
        self.problem = ""
        self._tell("info", f"configuration {self.generation} is in use: version {served.version}, of {texts.origin}")
        for warning in served.warnings:
            self._tell("warn", f"configuration {self.generation}: {warning}")

    def refuse(self, problem: str) -> bool:
        """There is something newer that is no configuration at all; whether that is news."""
        self._offered = self._tried = None  # what was there before is new when it comes back
        return self._refuse(problem)

    def _refuse(self, problem: str) -> bool:
        if problem == self.problem:
            return False
        self.problem = problem
        stays = f"configuration {self.generation} stays in use" if self.generation else "there is none yet"
        self._tell("error", f"the configuration is not taken, {stays}: {problem}")
        return True


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
