"""The controller's cluster tasks: watch objects, renew the Secret, update caBundles.

API errors are noted in `ServingState.cluster_problems` by object, and retried; events and resources that are left out in `notices`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from typing import Any

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.adding.meshconfig import ProxyConfigResource, ProxyConfigs
from netinit.inject.adding.settings import RANGES, Kubelets, Namespace, runs_native_sidecars
from netinit.kube import resources as api
from netinit.kube.client import Cache, Client, follow, write_event
from netinit.kube.resources import Resource
from netinit.kube.service_account import find_service_account
from netinit.serving.certificates import service_names
from netinit.webhook.certificates import (
    CertificateState,
    bundle_patch,
    from_secret,
    next_state,
    overlap_seconds,
    to_data,
)
from netinit.webhook.configuration import Texts
from netinit.webhook.loaders import CertificateLoader, ConfigLoader, read_files
from netinit.webhook.pod_events import PodEvent
from netinit.webhook.serving_state import (
    AWAITED_CONFIGS,
    AWAITED_NODES,
    ServingState,
)
from netinit.webhook.settings import SECOND, ServeSettings

_RETRY_SECONDS = 1.0
_EVENT_SECONDS = 5.0  # until an event about readiness is tried again
_RESYNC_SECONDS = 30.0
_PUBLISH_SECONDS = 0.1  # publish once for many changes
_COMPONENT = "netinit-webhook"
_TEXTS = ("config", "values", "mesh")
_EVENT_OF_READINESS = "event about readiness"


class WatchedCluster:
    """What the server keeps up to date from the cluster, and in it; each of `tasks` runs until cancelled."""

    def __init__(
        self, client: Client, settings: ServeSettings, state: ServingState, *, config: ConfigLoader, certificates: CertificateLoader
    ) -> None:
        self.bundle = ""
        self.announced = not settings.webhook_config
        self._client = client
        self._settings = settings
        self._namespace = settings.namespace or client.access.namespace
        self._state = state
        self._problems = state.cluster_problems
        self._config = config
        self._certificates = certificates
        self._wake = asyncio.Event()
        self._lifetime = settings.certificate_lifetime / SECOND
        self._certificate_state: CertificateState | None = None
        self._versions: dict[str, Any] = {}  # of the last offer, by ConfigMap
        self._saved: Texts | None = None  # the last good configuration, as stored

    def tasks(self, rejections: asyncio.Queue[str], unready: asyncio.Queue[str] | None = None) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks that the settings ask for. For events: why files were rejected, and why the replica is not ready."""
        settings = self._settings
        if settings.watch_namespaces:
            self._state.namespaces_source = "a watch of the API"
        wanted = (
            (settings.config_map or settings.mesh_map, self._follow_config_maps),
            (settings.values_map, lambda: self._report_rejections(rejections)),
            (settings.pod_name, lambda: self._report_unreadiness(unready or asyncio.Queue())),
            (settings.watch_namespaces,
             lambda: self._follow("namespaces", api.NAMESPACES, _read_namespace, self._publish_namespaces)),
            (settings.watch_proxy_configs, lambda: self._follow(
                AWAITED_CONFIGS, api.PROXY_CONFIGS, _read_proxy_config, self._publish_proxy_configs, optional=True)),  # of a CRD
            (settings.watches_nodes, lambda: self._follow(AWAITED_NODES, api.NODES, runs_native_sidecars, self._publish_nodes)),
            (settings.certificate_secret, self._renew),
            (settings.webhook_config, self._keep_bundles),
            (settings.webhook_config and settings.ca_cert_file, self._announce_file),
            (True, lambda: self._state.pod_events.write(self._write_pod_event)),
        )  # fmt: skip
        return [task() for is_wanted, task in wanted if is_wanted]

    def _watch(self, resource: Resource, name: str, namespace: str = "") -> Cache:
        """Return the cache of one object."""
        return Cache(self._client, resource, namespace, fields=f"metadata.name={name}")

    # ---- ConfigMaps

    async def _follow_config_maps(self) -> None:
        names = filter(None, (self._settings.config_map, self._settings.mesh_map))
        caches = {name: self._watch(api.CONFIG_MAPS, name, self._namespace) for name in names}

        async def react() -> None:
            current = {name: cache.get(name, self._namespace) for name, cache in caches.items()}
            for name, cache in caches.items():
                missing = "it does not exist" if cache.synced and not current[name] else ""
                self._problems.note(self._config_map(name), cache.error or missing)
            if all(current.values()):
                await self._offer(current)

        await follow(caches.values(), react, seconds=_RESYNC_SECONDS)

    def _config_map(self, name: str) -> str:
        return f"ConfigMap {self._namespace}/{name}"

    async def _offer(self, current: dict[str, Tree]) -> None:
        """Load the configuration of the ConfigMaps, by name, and of files for what they lack."""
        texts = read_files(self._settings)
        versions = {name: mapping(tree.get("metadata")).get("resourceVersion") for name, tree in current.items()}
        changed = [tree for name, tree in current.items() if versions[name] != self._versions.get(name)]
        self._versions = versions
        data = {}
        for name, key in ((self._settings.config_map, "config"), (self._settings.mesh_map, "mesh")):
            found = data[key] = strings(mapping(current.get(name)).get("data"))
            if name and key not in found:
                await self._take(f"{self._config_map(name)}: it has no key {key}", [current[name]])
                return
        target = Texts(
            config=data["config"].get("config", texts.config),
            values=texts.values if texts.values is not None else data["config"].get("values"),
            mesh=data["mesh"].get("mesh", texts.mesh),
            origin=self._config_map(self._settings.config_map) if self._settings.config_map else texts.origin,
            values_origin=texts.values_origin,
            mesh_origin=self._config_map(self._settings.mesh_map) if self._settings.mesh_map else texts.mesh_origin,
        )
        await self._take(target, changed or list(current.values()))

    async def _take(self, texts: Texts | str, about: list[Tree]) -> None:
        """Load the texts, or note why there are none; report a new problem on the ConfigMaps that changed."""
        problem = await self._config.offer(texts)
        if self._settings.last_good_map:
            await self._restore_or_save()
        for tree in about if problem else ():
            await self._write_event(tree, problem)

    async def _restore_or_save(self) -> None:
        """After a restart use the last good configuration if the newest is invalid; save a valid one."""
        name = self._settings.last_good_map
        label = self._config_map(name)
        try:
            if self._state.configuration_problem and not self._state.served:
                stored = strings((await self._client.get(api.CONFIG_MAPS, name, self._namespace)).get("data"))
                if stored:
                    origin = f"{label}, the last good one of {stored.get('origin')}"
                    config, values, mesh = (stored.get(key) for key in _TEXTS)
                    await self._config.restore(Texts(config=config, values=values, mesh=mesh, origin=origin))
            served = self._state.served
            if served and not served.is_restored and served.texts != self._saved:
                target = asdict(served.texts)
                found = mapping((await self._client.get(api.CONFIG_MAPS, name, self._namespace)).get("data"))
                if any(found.get(key) != value for key, value in target.items()):
                    await self._client.patch(api.CONFIG_MAPS, name, {"data": target}, self._namespace)
                self._saved = served.texts
                self._problems.note(label, "")
        except ClusterError as error:
            self._problems.note(label, f"the last good configuration is not kept: {error}")

    async def _report_rejections(self, rejections: asyncio.Queue[str]) -> None:
        """Write an event for each problem of the files, which are mounted from a ConfigMap."""
        name = self._settings.values_map
        while True:
            problem = await rejections.get()
            try:
                about = await self._client.get(api.CONFIG_MAPS, name, self._namespace)
            except ClusterError:
                about = {"metadata": {"name": name, "namespace": self._namespace}}
            await self._write_event(about, problem)

    async def _report_unreadiness(self, unready: asyncio.Queue[str]) -> None:
        """Write an event on this replica's pod for each reason why it is not ready, once the API takes it."""
        settings = self._settings
        pod = {"kind": "Pod", "apiVersion": "v1", "name": settings.pod_name, "uid": settings.pod_uid, "namespace": self._namespace}
        while True:
            reason = await unready.get()
            while error := await write_event(
                self._client, pod, reason="NotReady", message=f"it answers no reviews: {reason}", component=_COMPONENT
            ):
                self._state.notices.note(_EVENT_OF_READINESS, error)
                await asyncio.sleep(_EVENT_SECONDS)
                reason = unready.get_nowait() if unready.full() else reason
            self._state.notices.note(_EVENT_OF_READINESS, "")

    async def _write_event(self, about: Tree, problem: str) -> None:
        """Write a warning event on a ConfigMap."""
        served = self._state.served
        stays = "the webhook keeps the previous one" if served else "this replica has none yet, and is not ready"
        if served and served.is_restored:
            stays = f"the webhook was restarted, and uses {served.texts.origin}"
        metadata = mapping(about.get("metadata"))
        own = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
        error = await write_event(
            self._client, {"kind": "ConfigMap", "apiVersion": "v1", **own}, reason="InvalidConfiguration",
            message=f"{stays}: {problem}", component=_COMPONENT,
        )  # fmt: skip
        self._state.notices.note("event", error)

    async def _write_pod_event(self, event: PodEvent) -> None:
        """Write a warning event on a pod's controller."""
        error = await write_event(
            self._client, dict(event.involved), reason=event.reason, message=event.message, component=_COMPONENT
        )
        self._state.notices.note("event about a pod", error)

    # ---- objects that affect the injection of pods

    def _publish_namespaces(self, items: dict[Any, Namespace]) -> None:
        self._state.namespaces = {one.name: one for one in items.values()}

    def _publish_nodes(self, items: dict[tuple[str, str], bool]) -> None:
        kubelets = Kubelets(by_node={name: is_native for (_, name), is_native in items.items()})
        older = "regular sidecars, since not every kubelet is 1.33 or later"
        use = "native sidecars" if kubelets.run_native_sidecars() else older
        self._config.change_settings(f"{len(items)} nodes: {use}", native_sidecars=kubelets)

    def _publish_proxy_configs(self, items: dict[Any, ProxyConfigResource | ConfigError]) -> None:
        refused = [str(one) for one in items.values() if isinstance(one, ConfigError)]
        self._state.notices.note("ProxyConfig resources that are left out", "; ".join(refused))
        found = [one for one in items.values() if not isinstance(one, ConfigError)]
        configs = ProxyConfigs.of(found, self._settings.revision)
        self._config.change_settings(f"{len(found)} ProxyConfig resources", proxy_configs=configs)

    async def _follow(
        self, label: str, resource: Resource, keep: Callable[[Tree], Any], publish: Callable[[dict[Any, Any]], None], *,
        optional: bool = False,
    ) -> None:  # fmt: skip
        """Watch a resource, in all namespaces, and publish what `keep` returns for each object; `optional` as in `Cache`."""
        cache = Cache(self._client, resource, keep=keep, optional=optional)
        published: dict[tuple[str, str], Any] | None = None

        async def react() -> None:
            nonlocal published
            self._problems.note(label, cache.error)
            if cache.synced and cache.items != published:
                published = dict(cache.items)
                publish(published)
                self._state.awaited.discard(label)
            await asyncio.sleep(_PUBLISH_SECONDS)

        await follow([cache], react)

    # ---- the certificate

    async def _renew(self) -> None:
        """Renew the certificate in the Secret together with other replicas, and serve its current pair."""
        name = self._settings.certificate_secret
        cache = self._watch(api.SECRETS, name, self._namespace)

        async def react() -> None:
            self._problems.note(f"Secret {self._namespace}/{name}", cache.error)
            if cache.synced:
                await self.renew_step(cache.get(name, self._namespace))

        await follow([cache], react, seconds=min(_RESYNC_SECONDS, overlap_seconds(self._lifetime) / 4))

    async def renew_step(self, secret: Tree | None) -> None:
        """Do what is due for the Secret, and serve its certificate."""
        label = f"Secret {self._namespace}/{self._settings.certificate_secret}"
        current = from_secret(secret) if secret else self._certificate_state  # recreate a deleted Secret
        names = service_names(self._settings.service, self._namespace)
        work = partial(next_state, names=names, lifetime=self._lifetime, announced=self.announced)
        target = await asyncio.to_thread(work, current, time.time())
        if target is not current or secret is None:
            try:
                await self._write_secret(secret, target)
            except ClusterError as error:
                if error.status not in {api.CONFLICT, api.NOT_FOUND}:  # else another replica was faster
                    self._problems.note(label, str(error))
                return
        self._problems.note(label, "")
        self._certificate_state = target
        self._announce(target.bundle)
        self._certificates.offer(target.current.certificate, target.current.key)

    async def _write_secret(self, secret: Tree | None, target: CertificateState) -> None:
        name = self._settings.certificate_secret
        if secret is None:
            owner = find_service_account(self._client.access)
            metadata = {"name": name, "namespace": self._namespace, "ownerReferences": [owner] if owner else []}
            await self._client.create(api.SECRETS, {"type": "Opaque", "data": to_data(target), "metadata": metadata}, self._namespace)
            return
        metadata = {key: value for key, value in mapping(secret.get("metadata")).items() if key != "managedFields"}
        body = {"type": secret.get("type") or "Opaque", "data": to_data(target), "metadata": metadata}
        await self._client.replace(api.SECRETS, body, name, self._namespace)

    # ---- caBundles

    def _announce(self, bundle: str) -> None:
        """Set the bundle (PEM) for every caBundle; `announced` is True once `_keep_bundles` has written it everywhere."""
        if bundle != self.bundle:
            self.bundle = bundle
            self.announced = not self._settings.webhook_config
            self._wake.set()

    async def _announce_file(self) -> None:
        while True:
            if text := self._certificates.read("--caCertFile", self._settings.ca_cert_file):
                self._announce(text)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_bundles(self) -> None:
        """Patch the caBundle of our webhooks whenever it differs."""
        names = [name.strip() for name in self._settings.webhook_config.split(",") if name.strip()]
        caches = {name: self._watch(api.WEBHOOK_CONFIGURATIONS, name) for name in names}

        async def react() -> None:
            if bundle := self.bundle:
                done = [await self._patch(name, cache, bundle) for name, cache in caches.items()]
                self.announced = all(done) and bundle == self.bundle
                if not all(done):
                    await asyncio.sleep(_RETRY_SECONDS)
                    self._wake.set()

        await follow(caches.values(), react, changed=self._wake, seconds=_RESYNC_SECONDS)

    async def _patch(self, name: str, cache: Cache, bundle: str) -> bool:
        """Return whether the caBundle was already correct."""
        label, settings, tree = f"MutatingWebhookConfiguration {name}", self._settings, cache.get(name)
        if tree is None:
            self._problems.note(label, "it does not exist" if cache.synced else cache.error)
            return False
        patch = bundle_patch(tree, bundle, service=settings.service, namespace=self._namespace, name=settings.webhook_name)
        try:
            if patch:
                await self._client.patch(api.WEBHOOK_CONFIGURATIONS, name, patch, kind=api.JSON_PATCH)
        except ClusterError as error:
            # conflict or 422: the object changed, and the watch delivers it
            self._problems.note(label, "" if error.status in {api.CONFLICT, 422} else str(error))
            return False
        self._problems.note(label, "")
        return not patch


def _read_namespace(tree: Tree) -> Namespace | None:
    """Return a namespace with OpenShift's annotations for user and group ids; None without them."""
    annotations = strings(mapping(tree.get("metadata")).get("annotations"))
    kept = {key: annotations[key] for key in RANGES if key in annotations}
    return Namespace(name=api.name_of(tree)[1], annotations=kept) if kept else None


def _read_proxy_config(tree: Tree) -> ProxyConfigResource | ConfigError:
    try:
        return ProxyConfigResource.parse(tree)
    except ConfigError as error:  # the CRD may be of another Istio release
        return error
