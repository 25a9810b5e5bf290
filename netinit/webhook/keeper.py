"""The process that keeps what the workers serve with: configuration, certificate, namespaces; and answers for health and metrics."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError, NetinitError
from netinit.base.logs import level_of
from netinit.base.tree import Tree
from netinit.serving.events import EventLog, adopt_library_logs
from netinit.serving.listener import HttpListener, reply
from netinit.webhook import board as on
from netinit.webhook.board import Board
from netinit.webhook.certificates import Facts, check, find_missing_name, make_context, make_pair, service_names
from netinit.webhook.configuration import Texts
from netinit.webhook.feed import Feed, read_files
from netinit.webhook.metrics import CONTENT_TYPE, KeeperMetrics, take_slot
from netinit.webhook.renewal import Kept, RenewalPlan
from netinit.webhook.settings import SECOND, ServeSettings

__all__ = ["RESTARTS", "Keeper", "serve"]

RESTARTS = "restarts.json"
_LOOK = 0.25  # seconds between two looks at files; what two looks find alike is complete
_STATUS = 0.5
_ALIVE = 5.0  # seconds of silence after which a worker does not count
_MOST_CONNECTIONS = 64
_MOST_BYTES = 1 << 20  # of a certificate's file


def serve(settings: ServeSettings, listening: socket.socket, board: Board, slots: int) -> None:
    """The keeper's life: it ends on SIGTERM."""
    take_slot("keeper")
    asyncio.run(Keeper(settings, listening, board, slots).run())


class Keeper:
    """The process's state. `problems` is what is wrong now, by what it is about, `of_cluster` what is wrong with the API."""

    def __init__(self, settings: ServeSettings, listening: socket.socket, board: Board, slots: int) -> None:
        self.settings = settings
        self.board = board
        self.slots = slots
        self.log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
        self.problems: dict[str, str] = {}
        self.of_cluster: dict[str, str] = {}
        self.metrics = KeeperMetrics()
        self.feed = Feed(board, settings.injection, self.log.event)
        self.expires = 0.0
        self._listening = listening
        self._told = asyncio.Event()
        self._served: tuple[str, str] | None = None  # the pair, and the authority of clients
        self._status: Tree = {}

    async def run(self) -> None:
        """Does its duties until it is told to end."""
        adopt_library_logs(self.log)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._told.set)
        listener = HttpListener(self._answer, most_connections=_MOST_CONNECTIONS)
        await listener.start(self._listening, None)
        duties = [asyncio.create_task(self._insist(name, duty)) for name, duty in await self._duties()]
        await self._told.wait()
        for task in duties:
            task.cancel()
        await listener.close(1.0)

    async def _duties(self) -> list[tuple[str, Any]]:
        settings = self.settings
        found: list[tuple[str, Any]] = [("status", self._tell_status)]
        if not (settings.config_map or settings.mesh_map):
            found.append(("configuration", self._follow_files))
        if settings.tls_cert_file:
            found.append(("certificate", self._follow_certificate))
        if settings.health_file:
            found.append(("health file", self._write_health))
        if settings.uses_cluster:
            found.append(("cluster", self._follow_cluster))
        return found

    async def _insist(self, name: str, duty: Any) -> None:
        """Does a duty, and again a second after it failed; its failure is a problem until then."""
        told = ""
        while True:
            try:
                await duty()
            except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - the other duties go on
                one = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                problem = f"{one}" if isinstance(one, NetinitError) else f"{type(one).__name__}: {one}"
                if problem != told:
                    self.log.event("error", f"{name}: {problem}")
                told = problem
                self._note(name, problem)
            await asyncio.sleep(1.0)
            self._note(name, "")

    def _note(self, what: str, problem: str) -> None:
        if problem:
            self.problems[what] = problem
        else:
            self.problems.pop(what, None)

    # ---- configuration

    async def _follow_files(self) -> None:
        before: Texts | None = None
        while True:
            try:
                texts = await asyncio.to_thread(read_files, self.settings)
            except ConfigError as error:
                self.feed.refuse(str(error))
            else:
                if texts == before or not self.feed.generation:
                    await self.feed.offer(texts)
                before = texts
            await asyncio.sleep(_LOOK)

    async def _follow_cluster(self) -> None:
        from netinit.kube.access import find_access
        from netinit.kube.client import Client
        from netinit.webhook.cluster import WatchedCluster

        settings = self.settings
        async with Client(find_access(kubeconfig=settings.kubeconfig, context=settings.context)) as client:
            cluster = WatchedCluster(client, settings, self.of_cluster)
            await self._with_cluster(cluster)

    async def _with_cluster(self, cluster: Any) -> None:
        settings = self.settings

        async def offer(texts: Texts | str, about: list[Tree]) -> None:
            new = self.feed.refuse(texts) if isinstance(texts, str) else await self.feed.offer(texts)
            if new and self.feed.problem:
                for tree in about:
                    await cluster.tell_event(tree, f"the webhook goes on with the one before: {self.feed.problem}")

        duties: list[Coroutine[Any, Any, None]] = []
        if settings.config_map or settings.mesh_map:
            duties.append(cluster.follow_config_maps(offer, lambda: read_files(settings)))
        if settings.watch_namespaces:
            duties.append(cluster.follow_namespaces(lambda found: self.board.put_tree(on.NAMESPACES, found)))
        if settings.certificate_secret:
            names = service_names(settings.service, cluster.namespace)
            plan = RenewalPlan(
                lifetime=settings.certificate_lifetime / SECOND,
                make=lambda now, seconds: make_pair(names, now=now, seconds=seconds),
            )
            duties.append(cluster.renew(plan, self._serve_kept))
        if settings.webhook_config:
            duties.append(cluster.keep_bundles())
        if settings.webhook_config and settings.ca_cert_file:
            duties.append(self._announce_file(cluster))
        async with asyncio.TaskGroup() as group:
            for duty in duties:
                group.create_task(duty)

    # ---- certificates

    async def _announce_file(self, cluster: Any) -> None:
        while True:
            text = self._read("--caCertFile", self.settings.ca_cert_file)
            if text:
                cluster.announce(text)
            await asyncio.sleep(1.0)

    def _serve_kept(self, kept: Kept) -> None:
        self._publish(kept.present.certificate, kept.present.key, self._read("--clientCAFile", self.settings.client_ca_file))

    async def _follow_certificate(self) -> None:
        before = ("", "", "")
        while True:
            found = (
                self._read("--tlsCertFile", self.settings.tls_cert_file),
                self._read("--tlsKeyFile", self.settings.tls_key_file),
                self._read("--clientCAFile", self.settings.client_ca_file),
            )
            if (found == before or self._served is None) and found[0] and found[1]:
                self._publish(*found)
            before = found
            await asyncio.sleep(_LOOK)

    def _publish(self, certificate: str, key: str, clients: str) -> None:
        """The pair is served from now on, and clients are known by this authority, if that can be."""
        if self.settings.client_ca_file and not clients:
            return  # what is wrong with its file is noted
        wanted = (f"{key.rstrip()}\n{certificate}", clients)
        if wanted == self._served:
            self._note("certificate", "")
            return
        try:
            facts = check(certificate, key, now=time.time())
            self._try(*wanted)
        except ConfigError as error:
            problem = f"{error}; " + ("the one before is served" if self._served else "there is none to serve")
            if problem != self.problems.get("certificate"):
                self.log.event("error", f"the certificate is not taken: {error}")
            self._note("certificate", problem)
            return
        if clients:
            self.board.put(on.CLIENT_AUTHORITY, clients.encode())
        self.board.put_tree(on.EXPIRY, facts.until)
        self.board.put(on.CERTIFICATE, wanted[0].encode())
        self.expires = facts.until
        self._served = wanted
        self._note("certificate", "")
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts.until))
        self.log.event("info", f"serving certificate for {', '.join(facts.names)}, valid until {until}")
        self._note_names(facts)

    def _try(self, pair: str, clients: str) -> None:
        """Raises ConfigError where the TLS library of the workers would not take it."""
        self.board.put(on.TRIED, pair.encode())
        self.board.put(on.TRIED_CLIENTS, clients.encode())
        try:
            make_context(self.board.path(on.TRIED), self.board.path(on.TRIED_CLIENTS) if clients else None)
        finally:
            self.board.take_away(on.TRIED)
            self.board.take_away(on.TRIED_CLIENTS)

    def _note_names(self, facts: Facts) -> None:
        """A certificate that the API server would not take is served nevertheless: others may ask by another name."""
        settings = self.settings
        missing = find_missing_name(facts, settings.service, settings.namespace) if settings.namespace else ""
        told = f"it is not for {missing}, by which the API server asks, but for {', '.join(facts.names) or 'no name'}"
        self._note("names of the certificate", told if missing else "")
        if missing:
            self.log.event("error", f"the certificate: {told}")

    def _read(self, flag: str, name: str) -> str:
        """The text of a file; empty where there is none to read, which is noted."""
        if not name:
            return ""
        problem = text = ""
        try:
            with Path(name).open("rb") as file:
                text = file.read(_MOST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{name} cannot be read: {error}"
        else:
            problem = "" if text.strip() else f"{name} is empty"
        self._note(flag, problem)
        return "" if problem else text

    # ---- how it is

    def _alive(self) -> int:
        return sum(self.board.silence(slot) < _ALIVE for slot in range(self.slots))

    def _good(self) -> bool:
        return bool(self.feed.generation and self.expires > time.time() and self._alive() and not self._draining())

    def _draining(self) -> bool:
        return self.board.path(on.DRAINING).exists()

    async def _tell_status(self) -> None:
        """Puts on the board, and into metrics, what is wrong."""
        while True:
            wrong = {**self.problems, **self.of_cluster}
            problems = [f"{what}: {problem}" for what, problem in sorted(wrong.items())]
            if self.feed.problem:
                problems.insert(0, f"configuration: {self.feed.problem}")
            source = "a watch of the API" if self.settings.watch_namespaces else "the review alone"
            status = {"problems": problems, "notes": [f"namespaces: known from {source}"]}
            if status != self._status:
                self._status = status
                self.board.put_tree(on.STATUS, status)
            self.metrics.bad_configuration.set(1 if self.feed.problem else 0)
            self.metrics.cluster_error.set(1 if self.of_cluster or "cluster" in self.problems else 0)
            self.metrics.workers.set(self._alive())
            self.metrics.restarts.set(int(self.board.tree(RESTARTS) or 0))
            await asyncio.sleep(_STATUS)

    async def _write_health(self) -> None:
        """The classic health file: `ok`, written anew at each interval as long as the server is healthy."""
        while True:
            if self._good():
                await asyncio.to_thread(Path(self.settings.health_file).write_text, "ok")
            await asyncio.sleep(self.settings.health_interval / SECOND)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI's signature
        """Metrics and health, without TLS."""
        path = scope["path"]
        if path == "/metrics":
            await reply(send, 200, await asyncio.to_thread(KeeperMetrics.text), CONTENT_TYPE)
        elif path in {"/livez", "/healthz"}:
            await reply(send, 200, b"ok\n")
        elif path == "/readyz":
            good = self._good()
            draining = self._draining()
            lines = [
                f"[{'-' if draining else '+'}]serving: {'draining: it was told to end' if draining else 'ok'}",
                f"[{'+' if self.feed.generation else '-'}]configuration: generation {self.feed.generation}",
                f"[{'+' if self.expires > time.time() else '-'}]certificate: valid until {int(self.expires)}",
                f"[{'+' if self._alive() else '-'}]workers: {self._alive()} of {self.slots}",
                *[f"[!]{problem}" for problem in self._status.get("problems", ())],
            ]
            text = "\n".join(lines) + "\n" if b"verbose" in scope["query_string"] or not good else "ok\n"
            await reply(send, 200 if good else 503, text.encode())
        else:
            await reply(send, 404, b"there are /metrics, /livez and /readyz\n")
