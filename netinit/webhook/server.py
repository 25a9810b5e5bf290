"""Run the webhook server: sockets, limits, tasks and graceful shutdown."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from netinit.base.logs import level_of
from netinit.serving.background import reply_monitoring
from netinit.serving.event_log import EventLog, adopt_library_logs
from netinit.serving.listener import HttpListener
from netinit.serving.resources import allow_descriptors, listen, memory_limit
from netinit.webhook.application import Application
from netinit.webhook.certificate_loader import CertificateLoader
from netinit.webhook.controller import Controller
from netinit.webhook.serving_state import Metrics, ServingState
from netinit.webhook.settings import SECOND, ServeSettings

_DRAIN_SECONDS = 15.0  # for open reviews
_MONITORING_CONNECTIONS = 64
_SPARE_DESCRIPTORS = 256  # for files, the API and closing connections
_BYTES_PER_CONNECTION = 512 << 10  # of the memory limit; one with TLS and half its headers takes a fifth
_MIN_CONNECTIONS, _MAX_CONNECTIONS = 64, 512
_MIN_BYTES, _MAX_BYTES = 8 << 20, 32 << 20  # for request bodies: 1/16 of the memory limit, within these bounds


def run(settings: ServeSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises ConfigError if a port cannot be opened."""
    log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
    reviews, monitoring = listen(settings.address, settings.port), listen(settings.address, settings.monitoring_port)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asyncio.run(_Server(settings, log).run(reviews, monitoring))
    log.event("info", "ended")
    return 0


class _Server:
    """The server's parts, connected."""

    def __init__(self, settings: ServeSettings, log: EventLog) -> None:
        self._settings = settings
        self._log = log
        self._state = state = ServingState()
        memory = memory_limit() or _MAX_CONNECTIONS * _BYTES_PER_CONNECTION * 2
        max_connections = settings.max_connections or _clamp(_MIN_CONNECTIONS, memory // _BYTES_PER_CONNECTION, _MAX_CONNECTIONS)
        allow_descriptors(max_connections + _MONITORING_CONNECTIONS + _SPARE_DESCRIPTORS)
        self._certificates = CertificateLoader(settings, state, log)
        self._controller = Controller(settings, state, self._certificates, log)
        metrics = Metrics(state, lambda: self._reviews.connections)
        application = Application(
            state, log=log, metrics=metrics, max_reviews=settings.max_reviews, max_bytes=_clamp(_MIN_BYTES, memory // 16, _MAX_BYTES),
            wants_certificate=bool(settings.client_ca_file),
        )  # fmt: skip

        async def monitor(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - ASGI's signature
            await reply_monitoring(scope, send, metrics.text, state.report, close=state.draining)

        dropped = lambda stage: metrics.dropped.labels(stage).inc()  # noqa: E731 - of one line
        self._reviews = HttpListener(application, max_connections=max_connections, dropped=dropped)
        self._monitoring = HttpListener(monitor, max_connections=_MONITORING_CONNECTIONS)

    async def run(self, reviews: socket.socket, monitoring: socket.socket) -> None:
        adopt_library_logs(self._log)
        stop_requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
        controller = asyncio.create_task(self._controller.run())
        await self._monitoring.start(monitoring, None)
        await self._reviews.start(reviews, self._certificates.context)
        ports = f"port {self._settings.port}, metrics on port {self._settings.monitoring_port}"
        self._log.event("info", f"serving reviews on {ports}")
        await stop_requested.wait()
        self._log.event("info", "stopping: reviews in progress are finished")
        await self._drain()
        controller.cancel()
        await self._monitoring.close(1.0)

    async def _drain(self) -> None:
        """Keep serving until the API server stops sending reviews, then finish open ones."""
        self._state.draining = True
        await asyncio.sleep(self._settings.shutdown_delay / SECOND)
        if not await self._reviews.close(_DRAIN_SECONDS):
            self._log.event("error", f"reviews were cut off: they were not done within {_DRAIN_SECONDS:.0f} s")


def _clamp(low: int, value: int, high: int) -> int:
    return min(max(low, value), high)
