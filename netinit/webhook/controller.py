"""The tasks that keep configuration, certificate and cluster objects current; a failed task is restarted."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError
from netinit.kernel import identify_content
from netinit.kernel.file_changes import RESYNC_SECONDS, FileChanges
from netinit.serving.event_log import EventLog
from netinit.serving.readiness import Unreadiness, tell_unreadiness
from netinit.serving.server_process import run_forever, wait_readable
from netinit.webhook.configuration import Texts
from netinit.webhook.loaders import CertificateLoader, ConfigLoader, config_files, read_files
from netinit.webhook.serving_state import AWAITED_CONFIGS, AWAITED_NODES, ServingState
from netinit.webhook.settings import SECOND, ServeSettings

_POLL_SECONDS = 0.5  # between checks of changing files; equal results: writing is complete


class Controller:
    """Updates `state` and `certificates` until `run` is cancelled."""

    def __init__(self, settings: ServeSettings, state: ServingState, certificates: CertificateLoader, log: EventLog) -> None:
        self._settings = settings
        self._state = state
        self._certificates = certificates
        self._log = log
        self._config = ConfigLoader(settings.injection, state, log.event)
        self._rejections: asyncio.Queue[str] = asyncio.Queue()  # why files were rejected, for events
        self._unready: asyncio.Queue[str] = asyncio.Queue(maxsize=1)  # why the replica is not ready, for an event; the newest reason
        watched = {AWAITED_CONFIGS: settings.watch_proxy_configs, AWAITED_NODES: settings.watches_nodes}
        state.awaited |= {kind for kind, is_watched in watched.items() if is_watched}

    async def run(self) -> None:
        """Run all tasks."""
        settings = self._settings
        tasks = (
            ("certificate", settings.tls_cert_file, self._follow_certificate),
            ("configuration", not (settings.config_map or settings.mesh_map), self._follow_files),
            ("health file", settings.health_file, self._write_health),
            ("cluster", settings.uses_cluster, self._follow_cluster),
            ("readiness", True, lambda: tell_unreadiness(self._find_reason, self._log, self._announce)),
        )
        async with asyncio.TaskGroup() as group:
            for name, is_wanted, task in tasks:
                if is_wanted:
                    group.create_task(run_forever(name, task, self._state.problems, self._log))

    def _find_reason(self) -> Unreadiness | None:
        return None if self._state.draining else self._state.find_reason()

    async def _announce(self, reason: str) -> None:
        if self._unready.full():
            self._unready.get_nowait()
        self._unready.put_nowait(reason)

    # ---- files

    async def _follow_files(self) -> None:
        with contextlib.closing(WatchedFiles(config_files(self._settings))) as watched:
            while True:
                if watched.has_settled_change() or self._state.served is None:
                    await self._read_files(watched)
                await watched.pause()

    async def _read_files(self, watched: WatchedFiles) -> None:
        try:
            texts: Texts | str = await asyncio.to_thread(read_files, self._settings)
        except ConfigError as error:
            texts = str(error)
            watched.retry()
        if (problem := await self._config.offer(texts)) and self._settings.values_map:
            self._rejections.put_nowait(problem)

    async def _follow_certificate(self) -> None:
        settings = self._settings
        names = (settings.tls_cert_file, settings.tls_key_file, settings.client_ca_file)
        with contextlib.closing(WatchedFiles([Path(name) for name in names if name])) as watched:
            while True:
                if watched.has_settled_change() or self._certificates.served is None:
                    self._certificates.load_files()
                    if self._state.problems:  # a certificate may become valid later
                        watched.retry()
                await watched.pause()

    async def _write_health(self) -> None:
        while True:
            if self._state.report(verbose=False)[0]:
                await asyncio.to_thread(Path(self._settings.health_file).write_text, "ok")
            await asyncio.sleep(self._settings.health_interval / SECOND)

    async def _follow_cluster(self) -> None:
        from netinit.kube.access import find_access
        from netinit.kube.client import Client
        from netinit.webhook.cluster import WatchedCluster

        settings = self._settings
        async with Client(find_access(kubeconfig=settings.kubeconfig, context=settings.context)) as client:
            cluster = WatchedCluster(client, settings, self._state, config=self._config, certificates=self._certificates)
            async with asyncio.TaskGroup() as group:
                for task in cluster.tasks(self._rejections, self._unready):
                    group.create_task(task)


class WatchedFiles:
    """Files that may change, be replaced, or be missing, and notifications for their directories."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._changes = FileChanges()
        self._is_watched = False
        self._seen: tuple[Any, ...] = ()
        self._taken: tuple[Any, ...] | None = None

    def close(self) -> None:
        """Stop watching."""
        self._changes.close()

    def has_settled_change(self) -> bool:
        """Whether the files changed since this was last true, and are stable since the previous call."""
        self._is_watched = self._changes.watch(self._paths)  # before the check, to miss no change
        found = tuple([identify_content(str(path)) for path in self._paths])
        is_complete, self._seen = found == self._seen, found
        if not is_complete or found == self._taken:
            return False
        self._taken = found
        return True

    async def pause(self) -> None:
        """Wait for an event, or briefly while a change is pending."""
        if self._is_watched and self._seen == self._taken:
            await wait_readable(self._changes, RESYNC_SECONDS)
            self._changes.drain()
        else:
            await asyncio.sleep(_POLL_SECONDS)

    def retry(self) -> None:
        """Report the same files as changed again."""
        self._taken = None
