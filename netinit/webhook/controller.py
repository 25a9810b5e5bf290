"""The tasks that keep configuration, certificate and cluster objects current; a failed task is restarted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError, NetinitError
from netinit.base.tree import Tree
from netinit.inject.kubelets import Kubelets
from netinit.inject.proxy_configs import ProxyConfigResource, ProxyConfigs
from netinit.serving.events import EventLog
from netinit.webhook.certificate_loader import CertificateLoader
from netinit.webhook.certificates import make_pair, service_names
from netinit.webhook.config_loader import ConfigLoader, config_files, read_files
from netinit.webhook.configuration import Texts
from netinit.webhook.file_events import FileEvents
from netinit.webhook.renewal import CertificateState, RenewalPlan
from netinit.webhook.serving_state import ServingState
from netinit.webhook.settings import SECOND, ServeSettings

_POLL_SECONDS = 0.5  # between checks of changing files; equal results: writing is complete
_RESYNC_SECONDS = 10.0  # between checks of unchanged files, for file systems without inotify
_RETRY_SECONDS = 1.0
_CONFIGS, _NODES = "ProxyConfig resources", "nodes"  # in ServingState.awaited


class Controller:
    """Updates `state` and `certificates` until `run` is cancelled."""

    def __init__(self, settings: ServeSettings, state: ServingState, certificates: CertificateLoader, log: EventLog) -> None:
        self._settings = settings
        self._state = state
        self._certificates = certificates
        self._log = log
        self._config = ConfigLoader(settings.injection, state, log.event)
        self._rejections: asyncio.Queue[str] = asyncio.Queue()  # why files were rejected, for events
        watched = {_CONFIGS: settings.watch_proxy_configs, _NODES: settings.watches_nodes}
        state.awaited |= {kind for kind, is_watched in watched.items() if is_watched}

    async def run(self) -> None:
        """Run all tasks."""
        async with asyncio.TaskGroup() as group:
            for name, task in self._tasks().items():
                group.create_task(self._run_forever(name, task))

    def _tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        settings = self._settings
        found: dict[str, Callable[[], Awaitable[None]]] = {}
        if settings.tls_cert_file:
            found["certificate"] = self._follow_certificate
        if not (settings.config_map or settings.mesh_map):
            found["configuration"] = self._follow_files
        if settings.health_file:
            found["health file"] = self._write_health
        if settings.uses_cluster:
            found["cluster"] = self._follow_cluster
        return found

    async def _run_forever(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        """Restart a task whenever it fails; note the error meanwhile."""
        last = ""
        while True:
            try:
                await task()
            except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - the other tasks go on
                one = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                problem = f"{one}" if isinstance(one, NetinitError) else f"{type(one).__name__}: {one}"
                if problem != last:
                    self._log.event("error", f"{name}: {problem}")
                last = problem
                self._state.problems.note(name, problem)
            await asyncio.sleep(_RETRY_SECONDS)
            self._state.problems.note(name, "")

    # ---- files

    async def _follow_files(self) -> None:
        with contextlib.closing(_WatchedFiles(config_files(self._settings))) as watched:
            while True:
                if watched.has_settled_change() or self._state.served is None:
                    await self._read_files(watched)
                await watched.pause()

    async def _read_files(self, watched: _WatchedFiles) -> None:
        try:
            texts = await asyncio.to_thread(read_files, self._settings)
        except ConfigError as error:
            is_new = self._config.refuse(str(error))
            watched.retry()
        else:
            is_new = await self._config.offer(texts)
        if is_new and self._state.configuration_problem and self._settings.values_map:
            self._rejections.put_nowait(self._state.configuration_problem)

    async def _follow_certificate(self) -> None:
        settings = self._settings
        names = (settings.tls_cert_file, settings.tls_key_file, settings.client_ca_file)
        with contextlib.closing(_WatchedFiles([Path(name) for name in names if name])) as watched:
            while True:
                if watched.has_settled_change() or not self._certificates.has_certificate:
                    self._certificates.load_files()
                    if self._state.problems:  # a certificate may become valid later
                        watched.retry()
                await watched.pause()

    async def _write_health(self) -> None:
        while True:
            if self._state.is_ready():
                await asyncio.to_thread(Path(self._settings.health_file).write_text, "ok")
            await asyncio.sleep(self._settings.health_interval / SECOND)

    # ---- the cluster

    async def _follow_cluster(self) -> None:
        from netinit.kube.access import find_access
        from netinit.kube.client import Client
        from netinit.webhook.cluster import WatchedCluster

        settings = self._settings
        async with Client(find_access(kubeconfig=settings.kubeconfig, context=settings.context)) as client:
            cluster = WatchedCluster(client, settings, self._state.cluster_problems)
            async with asyncio.TaskGroup() as group:
                for task in self._cluster_tasks(cluster):
                    group.create_task(task)

    def _cluster_tasks(self, cluster: Any) -> list[Coroutine[Any, Any, None]]:
        settings = self._settings
        found: list[Coroutine[Any, Any, None]] = []
        if settings.config_map or settings.mesh_map:
            found.append(cluster.follow_config_maps(self._make_offer(cluster), lambda: read_files(settings)))
        if settings.values_map:
            found.append(self._report_refused(cluster))
        if settings.watch_namespaces:
            self._state.namespaces_source = "a watch of the API"
            found.append(cluster.follow_namespaces(self._set_namespaces))
        if settings.watch_proxy_configs:
            found.append(cluster.follow_proxy_configs(self._set_proxy_configs))
        if settings.watches_nodes:
            found.append(cluster.follow_nodes(self._set_kubelets))
        if settings.certificate_secret:
            names = service_names(settings.service, cluster.namespace)
            plan = RenewalPlan(
                lifetime=settings.certificate_lifetime / SECOND,
                make=lambda now, seconds: make_pair(names, now=now, seconds=seconds),
            )
            found.append(cluster.renew(plan, self._serve_certificate))
        if settings.webhook_config:
            found.append(cluster.keep_bundles())
            if settings.ca_cert_file:
                found.append(self._announce_file(cluster))
        return found

    def _make_offer(self, cluster: Any) -> Callable[[Texts | str, list[Tree]], Awaitable[None]]:
        from netinit.webhook.last_good import LastGoodConfig

        name = self._settings.last_good_map
        last_good = LastGoodConfig(cluster.client, cluster.namespace, name, self._state.cluster_problems) if name else None

        async def offer(texts: Texts | str, about: list[Tree]) -> None:
            is_new = self._config.refuse(texts) if isinstance(texts, str) else await self._config.offer(texts)
            problem = self._state.configuration_problem
            if last_good and problem and not self._state.served and (texts_before := await last_good.read()):
                await self._config.restore(texts_before)
            served = self._state.served
            if last_good and served and not served.is_restored:
                await last_good.write(served.texts)
            if is_new and problem:
                for tree in about:
                    await cluster.write_event(tree, self._describe(problem))

        return offer

    async def _report_refused(self, cluster: Any) -> None:
        while True:
            problem = await self._rejections.get()
            await cluster.write_event(await cluster.find_config_map(self._settings.values_map), self._describe(problem))

    def _describe(self, problem: str) -> str:
        served = self._state.served
        stays = "the webhook goes on with the one before" if served else "this replica has none yet, and is not ready"
        if served and served.is_restored:
            stays = f"the webhook was restarted, and goes on with {served.origin}"
        return f"{stays}: {problem}"

    def _set_namespaces(self, found: dict[str, Any]) -> None:
        self._state.namespaces = found

    def _set_proxy_configs(self, found: list[ProxyConfigResource]) -> None:
        self._config.change_settings(proxy_configs=ProxyConfigs.of(found, self._settings.revision))
        self._note_read(_CONFIGS, f"{len(found)} ProxyConfig resources")

    def _set_kubelets(self, found: dict[str, bool]) -> None:
        kubelets = Kubelets(by_node=found)
        self._config.change_settings(kubelets=kubelets)
        older = "sidecars of the older kind, since not every kubelet is 1.33 or later"
        use = "native sidecars" if kubelets.run_native_sidecars() else older
        self._note_read(_NODES, f"{len(found)} nodes: {use}")

    def _note_read(self, kind: str, message: str) -> None:
        self._state.awaited.discard(kind)
        self._log.event("info", message)

    def _serve_certificate(self, state: CertificateState) -> None:
        clients = self._certificates.read("--clientCAFile", self._settings.client_ca_file)
        self._certificates.offer(state.current.certificate, state.current.key, clients)

    async def _announce_file(self, cluster: Any) -> None:
        while True:
            text = self._certificates.read("--caCertFile", self._settings.ca_cert_file)
            if text:
                cluster.announce(text)
            await asyncio.sleep(_RETRY_SECONDS)


class _WatchedFiles:
    """Files that may change, be replaced, or be missing."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._events = FileEvents()
        self._is_watched = False
        self._seen: tuple[Any, ...] = ()
        self._taken: tuple[Any, ...] | None = None

    def close(self) -> None:
        self._events.close()

    def has_settled_change(self) -> bool:
        """Whether the files changed since this was last true, and are stable since the previous call."""
        self._is_watched = self._events.watch(self._paths)  # before the check, to miss no change
        found = tuple([_identity(path) for path in self._paths])
        is_complete, self._seen = found == self._seen, found
        if not is_complete or found == self._taken:
            return False
        self._taken = found
        return True

    async def pause(self) -> None:
        """Wait for an event, or briefly while a change is pending."""
        if self._is_watched and self._seen == self._taken:
            await self._events.wait(_RESYNC_SECONDS)
        else:
            await asyncio.sleep(_POLL_SECONDS)

    def retry(self) -> None:
        """Report the same files as changed again."""
        self._taken = None


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
