"""A process that serves reviews: it takes what is on the board, and swaps it between two reviews."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from netinit.base.errors import NetinitError
from netinit.base.logs import level_of
from netinit.base.tree import mapping, string
from netinit.inject.pod import Namespace
from netinit.serving.events import EventLog, adopt_library_logs
from netinit.serving.listener import HttpListener
from netinit.webhook import board as on
from netinit.webhook.application import Application
from netinit.webhook.board import Board, Watched
from netinit.webhook.certificates import make_context
from netinit.webhook.configuration import Texts, forget_others, load
from netinit.webhook.metrics import Metrics, take_slot
from netinit.webhook.settings import SECOND, ServeSettings

__all__ = ["DRAIN_SECONDS", "Worker", "serve"]

_LOOK = 0.2  # seconds between two looks at the board
_BEAT = 1.0
_SPARE_FILES = 64  # descriptors beside connections; what is over that waits in the kernel's queue
DRAIN_SECONDS = 15.0  # for reviews that were begun


class _PresentContext(ssl.SSLContext):
    """The socket's context, which gives each new connection the present one.

    A callback for the name of the server (SNI) could change it too, but sessions of TLS 1.2 would stay the first context's,
    and go on with an authority of clients that is not known any more (OpenSSL 3.5).
    """

    present: ssl.SSLContext | None = None

    def wrap_bio(self, *buffers: Any, **more: Any) -> ssl.SSLObject:
        """What asyncio calls for a connection that was taken, which is not before there is a present one."""
        return self.present.wrap_bio(*buffers, **more) if self.present else super().wrap_bio(*buffers, **more)


def serve(settings: ServeSettings, listening: socket.socket, board: Board, slot: int) -> None:
    """The life of a worker: it ends on SIGTERM, when the reviews that were begun are done."""
    take_slot(f"worker-{slot}")
    most = settings.most_connections + _SPARE_FILES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    asyncio.run(Worker(settings, listening, board, slot).run())


class Worker:
    """The process's state: what it serves with, and whether it does."""

    def __init__(self, settings: ServeSettings, listening: socket.socket, board: Board, slot: int) -> None:
        self.settings = settings
        self.board = board
        self.slot = slot
        self.log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
        self.metrics = Metrics()
        self.application = Application(
            log=self.log,
            metrics=self.metrics,
            most=settings.most_reviews,
            health=self.health,
            wants_certificate=bool(settings.client_ca_file),
        )
        self.expires = 0.0
        self._listening = listening
        self._listener = HttpListener(self.application, most_connections=settings.most_connections)
        self._context = _PresentContext(ssl.PROTOCOL_TLS_SERVER)
        self._namespaces: Mapping[str, Any] = {}
        self._told = asyncio.Event()
        names = (on.CONFIGURATION, on.CERTIFICATE, on.NAMESPACES, on.CLIENT_AUTHORITY)
        self._files = {name: Watched(board.path(name)) for name in names}

    async def run(self) -> None:
        """Serves until it is told to end."""
        adopt_library_logs(self.log)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._told.set)
        self.application.namespace = self._namespace
        beats = asyncio.create_task(self._beat())
        looks = asyncio.create_task(self._follow())
        await self._told.wait()
        self.application.draining = True
        if self._listener.started:
            await asyncio.sleep(self.settings.shutdown_delay / SECOND)
            if not await self._listener.close(DRAIN_SECONDS):
                self.log.event("error", f"reviews were cut off: they were not done within {DRAIN_SECONDS:.0f} s")
        for task in (beats, looks):
            task.cancel()

    async def _beat(self) -> None:
        while True:
            self.board.beat(self.slot)
            self.metrics.connections.set(self._listener.connections)
            await asyncio.sleep(_BEAT)

    async def _follow(self) -> None:
        """Takes what is new on the board; begins to serve when there is all that serving needs."""
        while True:
            try:
                await self._look()
            except (
                NetinitError,
                OSError,
                ValueError,
            ) as error:  # the keeper has tried it; it can't be this one's fault
                self.log.event("error", f"what the keeper published cannot be taken: {error}")
            await asyncio.sleep(_LOOK if self._listener.started else _LOOK / 10)

    async def _look(self) -> None:
        new = [data for name in (on.CERTIFICATE, on.CLIENT_AUTHORITY) for data in self._files[name].changes()]
        if new:
            self._take_certificate()
        if any(True for _ in self._files[on.CONFIGURATION].changes()):
            await self._take_configuration(self.board.tree(on.CONFIGURATION))
        if any(True for _ in self._files[on.NAMESPACES].changes()):
            self._namespaces = mapping(self.board.tree(on.NAMESPACES))
        if not self._listener.started and self._context.present is not None and self.application.served is not None:
            gc.collect()
            gc.freeze()  # what is there now stays: collections need not look at it
            await self._listener.start(self._listening, self._context)

    async def _take_configuration(self, told: Any) -> None:
        texts = Texts(config=told["config"], values=told["values"], mesh=told["mesh"], origin=string(told["origin"]))
        generation = int(told["generation"])
        served = await asyncio.to_thread(load, texts, self.settings.injection, generation, canary=False)
        self.application.served = served
        if self._listener.started:
            forget_others()
        self.metrics.generation.set(generation)

    def _take_certificate(self) -> None:
        """Serves with the certificate from the next handshake on; connections that are there go on."""
        pair = self.board.path(on.CERTIFICATE)
        if not pair.exists():  # the authority of clients comes before it
            return
        self._context.present = make_context(pair, self.board.path(on.CLIENT_AUTHORITY) if self.settings.client_ca_file else None)
        self.expires = float(self.board.tree(on.EXPIRY))  # reading certificates would take 8 MiB in each worker
        self.metrics.expiry.set(self.expires)

    def _namespace(self, name: str) -> Namespace:
        known = mapping(self._namespaces.get(name))
        return Namespace(name=name, labels=mapping(known.get("labels")), annotations=mapping(known.get("annotations")))

    def health(self, verbose: bool) -> tuple[bool, str]:
        """Whether reviews can be answered, and why not, or with `verbose` all that is known."""
        served = self.application.served
        told = mapping(self.board.tree(on.STATUS)) if verbose else {}
        checks = [
            (
                "serving",
                not self.application.draining,
                "draining: it was told to end" if self.application.draining else "",
            ),
            (
                "configuration",
                served is not None,
                f"generation {served.generation}, version {served.version}, of {served.origin}"
                if served
                else "none yet",
            ),
            (
                "certificate",
                self.expires > time.time(),
                f"valid until {_date(self.expires)}" if self.expires else "none yet",
            ),
        ]
        good = all(passed for _, passed, _ in checks)
        if not verbose and good:
            return True, "ok\n"
        lines = [f"[{'+' if passed else '-'}]{name}: {detail or 'ok'}" for name, passed, detail in checks]
        lines += [f"[!]{problem}" for problem in told.get("problems", ())]
        lines += [f"[ ]{note}" for note in told.get("notes", ())]
        return good, "\n".join([*lines, "ready" if good else "not ready", ""])


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
