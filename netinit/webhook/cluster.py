"""The controller's cluster tasks: watch objects, renew the Secret, update caBundles.

API errors are noted in `problems` by object, and retried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.kubelets import runs_native_sidecars
from netinit.inject.openshift import GROUPS_ANNOTATION, UID_RANGE
from netinit.inject.proxy_configs import ProxyConfigResource
from netinit.kube.access import find_service_account
from netinit.kube.cache import Cache
from netinit.kube.client import CONFLICT, JSON_PATCH, NOT_FOUND, Client
from netinit.kube.events import write_event
from netinit.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PROXY_CONFIGS,
    SECRETS,
    WEBHOOK_CONFIGURATIONS,
    Resource,
)
from netinit.webhook.configuration import Texts
from netinit.webhook.registration import bundle_patch
from netinit.webhook.renewal import CertificateState, RenewalPlan, from_secret, next_state, to_data
from netinit.webhook.serving_state import Problems
from netinit.webhook.settings import ServeSettings

_RETRY_SECONDS = 1.0
_RESYNC_SECONDS = 30.0
_COMPONENT = "netinit-webhook"

OfferCallback = Callable[[Texts | str, list[Tree]], Any]
"""Takes the texts of a configuration, or why there are none, and the ConfigMaps that changed."""


class WatchedCluster:
    """The cluster tasks and their state; callbacks get results. `follow_*`, `renew`, `keep_bundles` run until cancelled."""

    def __init__(self, client: Client, settings: ServeSettings, problems: Problems) -> None:
        self.client = client
        self.settings = settings
        self.namespace = settings.namespace or client.access.namespace
        self._problems = problems
        self.bundle = ""
        self.announced = not settings.webhook_config
        self._wake = asyncio.Event()
        self._certificate_state: CertificateState | None = None
        self._versions: dict[str, Any] = {}  # of the last offer, by ConfigMap

    # ---- ConfigMaps

    async def follow_config_maps(self, offer: OfferCallback, files: Callable[[], Texts]) -> None:
        """Call `offer` whenever a watched ConfigMap changes; `files` reads the other texts."""
        changed = asyncio.Event()
        caches = {
            name: Cache(self.client, CONFIG_MAPS, self.namespace, fields=f"metadata.name={name}", changed=changed.set)
            for name in (self.settings.config_map, self.settings.mesh_map)
            if name
        }
        async with asyncio.TaskGroup() as group:
            for cache in caches.values():
                group.create_task(cache.run())
            while True:
                await _wait_for(changed, _RESYNC_SECONDS)
                changed.clear()
                for name, cache in caches.items():
                    self._problems.note(f"ConfigMap {self.namespace}/{name}", cache.error)
                if all(cache.synced for cache in caches.values()):
                    await self._offer(caches, offer, files)

    async def _offer(self, caches: dict[str, Cache], offer: OfferCallback, files: Callable[[], Texts]) -> None:
        current: dict[str, Tree] = {}
        for name, cache in caches.items():
            tree = cache.get(name, self.namespace)
            self._problems.note(f"ConfigMap {self.namespace}/{name}", "" if tree else "it does not exist")
            if tree is None:
                return
            current[name] = tree
        texts = files()
        config, mesh = current.get(self.settings.config_map), current.get(self.settings.mesh_map)
        versions = {name: mapping(tree.get("metadata")).get("resourceVersion") for name, tree in current.items()}
        changed = [tree for name, tree in current.items() if versions[name] != self._versions.get(name)]
        self._versions = versions
        for tree, key in ((config, "config"), (mesh, "mesh")):
            if tree is not None and key not in strings(tree.get("data")):
                problem = f"ConfigMap {self.namespace}/{mapping(tree['metadata']).get('name')}: it has no key {key}"
                await offer(problem, [tree])
                return
        data = strings(mapping(config).get("data"))
        target = Texts(
            config=data.get("config", texts.config),
            values=texts.values if texts.values is not None else data.get("values"),
            mesh=strings(mesh.get("data"))["mesh"] if mesh else texts.mesh,
            origin=f"ConfigMap {self.namespace}/{self.settings.config_map}" if config else texts.origin,
        )
        await offer(target, changed or list(current.values()))

    async def find_config_map(self, name: str) -> Tree:
        """Return a ConfigMap, or only its name if it cannot be read."""
        try:
            return await self.client.get(CONFIG_MAPS, name, self.namespace)
        except ClusterError:
            return {"metadata": {"name": name, "namespace": self.namespace}}

    async def write_event(self, about: Tree, message: str) -> None:
        """Write a warning event on a ConfigMap."""
        metadata = mapping(about.get("metadata"))
        own = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
        involved = {"kind": "ConfigMap", "apiVersion": "v1", **own}
        try:
            await write_event(
                self.client, involved, reason="InvalidConfiguration", message=message, component=_COMPONENT, namespace=self.namespace
            )
        except ClusterError as error:
            self._problems.note("event", str(error))
        else:
            self._problems.note("event", "")

    # ---- objects that affect the injection of pods

    async def follow_namespaces(self, publish: Callable[[dict[str, Any]], None]) -> None:
        """Publish the namespaces with OpenShift annotations for user and group ids."""

        def keep(tree: Tree) -> Any:
            annotations = strings(mapping(tree.get("metadata")).get("annotations"))
            kept = {key: annotations[key] for key in (UID_RANGE, GROUPS_ANNOTATION) if key in annotations}
            return {"annotations": kept} if kept else None

        await self._follow("namespaces", NAMESPACES, keep, lambda items: publish(_by_name(items)))

    async def follow_nodes(self, publish: Callable[[dict[str, bool]], None]) -> None:
        """Publish for each node whether its kubelet supports native sidecars."""
        await self._follow("nodes", NODES, runs_native_sidecars, lambda items: publish(_by_name(items)))

    async def follow_proxy_configs(self, publish: Callable[[list[ProxyConfigResource]], None]) -> None:
        """Publish the ProxyConfig resources; none if the cluster lacks the CRD."""

        def keep(tree: Tree) -> Any:
            try:
                return ProxyConfigResource.parse(tree)
            except ConfigError as error:  # the CRD may be of another Istio release
                return error

        def take(items: dict[tuple[str, str], Any]) -> None:
            refused = [str(one) for one in items.values() if isinstance(one, ConfigError)]
            self._problems.note("ProxyConfig resources that are left out", "; ".join(refused))
            publish([one for one in items.values() if not isinstance(one, ConfigError)])

        await self._follow("ProxyConfig resources", PROXY_CONFIGS, keep, take, optional=True)

    async def _follow(
        self,
        label: str,
        resource: Resource,
        keep: Callable[[Tree], Any],
        publish: Callable[[dict[tuple[str, str], Any]], None],
        *,
        optional: bool = False,
    ) -> None:
        """Watch a resource in all namespaces; publish what `keep` returns for each object.

        `optional`: the cluster may lack the resource.
        """
        changed = asyncio.Event()
        cache = Cache(self.client, resource, keep=keep, changed=changed.set, optional=optional)
        published: dict[tuple[str, str], Any] | None = None
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                await changed.wait()
                changed.clear()
                self._problems.note(label, cache.error)
                if cache.synced and cache.items != published:
                    published = dict(cache.items)
                    publish(published)
                await asyncio.sleep(0.1)  # publish once for many changes

    # ---- the certificate

    async def renew(self, plan: RenewalPlan, serve: Callable[[CertificateState], None]) -> None:
        """Renew the certificate in the Secret together with other replicas, and serve its current pair."""
        name = self.settings.certificate_secret
        changed = asyncio.Event()
        cache = Cache(self.client, SECRETS, self.namespace, fields=f"metadata.name={name}", changed=changed.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                self._problems.note(f"Secret {self.namespace}/{name}", cache.error)
                if cache.synced:
                    await self._renew_step(cache.get(name, self.namespace), plan, serve)
                await _wait_for(changed, min(_RESYNC_SECONDS, plan.overlap / 4))
                changed.clear()

    async def _renew_step(self, secret: Tree | None, plan: RenewalPlan, serve: Callable[[CertificateState], None]) -> None:
        label = f"Secret {self.namespace}/{self.settings.certificate_secret}"
        current = from_secret(secret) if secret else self._certificate_state  # recreate a deleted Secret
        target = await asyncio.to_thread(next_state, current, time.time(), plan, announced=self.announced)
        if target is not current or secret is None:
            try:
                await self._write_secret(secret, target)
            except ClusterError as error:
                if error.status not in {CONFLICT, NOT_FOUND}:  # else another replica was faster
                    self._problems.note(label, str(error))
                return
        self._problems.note(label, "")
        self._certificate_state = target
        self.announce(target.bundle)
        serve(target)

    async def _write_secret(self, secret: Tree | None, target: CertificateState) -> None:
        name = self.settings.certificate_secret
        body: Tree = {
            "type": "Opaque",
            "data": to_data(target),
            "metadata": {"name": name, "namespace": self.namespace},
        }
        if secret is None:
            owner = find_service_account(self.client.access)
            body["metadata"]["ownerReferences"] = [owner] if owner else []
            await self.client.create(SECRETS, body, self.namespace)
            return
        metadata = mapping(secret.get("metadata"))
        body["type"] = secret.get("type") or "Opaque"
        body["metadata"] = {key: value for key, value in metadata.items() if key != "managedFields"}
        await self.client.replace(SECRETS, body, name, self.namespace)

    # ---- caBundles

    def announce(self, bundle: str) -> None:
        """Set the bundle (PEM) for every caBundle; `announced` is True once `keep_bundles` has written it everywhere."""
        if bundle != self.bundle:
            self.bundle = bundle
            self.announced = not self.settings.webhook_config
            self._wake.set()

    async def keep_bundles(self) -> None:
        """Patch the caBundle of our webhooks whenever it differs."""
        names = [name.strip() for name in self.settings.webhook_config.split(",") if name.strip()]
        caches = {
            name: Cache(self.client, WEBHOOK_CONFIGURATIONS, fields=f"metadata.name={name}", changed=self._wake.set)
            for name in names
        }
        async with asyncio.TaskGroup() as group:
            for cache in caches.values():
                group.create_task(cache.run())
            while True:
                await _wait_for(self._wake, _RESYNC_SECONDS)
                self._wake.clear()
                bundle = self.bundle
                if bundle:
                    done = [await self._patch(name, cache, bundle) for name, cache in caches.items()]
                    self.announced = all(done) and bundle == self.bundle
                    if not all(done):
                        await asyncio.sleep(_RETRY_SECONDS)
                        self._wake.set()

    async def _patch(self, name: str, cache: Cache, bundle: str) -> bool:
        """Return whether the caBundle was already correct."""
        label = f"MutatingWebhookConfiguration {name}"
        if not cache.synced:
            self._problems.note(label, cache.error)
            return False
        tree = cache.get(name)
        if tree is None:
            self._problems.note(label, "it does not exist")
            return False
        patch = bundle_patch(
            tree, bundle, service=self.settings.service, namespace=self.namespace, name=self.settings.webhook_name
        )
        try:
            if patch:
                await self.client.patch(WEBHOOK_CONFIGURATIONS, name, patch, kind=JSON_PATCH)
        except ClusterError as error:
            # conflict or 422: the object changed, and the watch delivers it
            self._problems.note(label, "" if error.status in {CONFLICT, 422} else str(error))
            return False
        self._problems.note(label, "")
        return not patch


def _by_name(items: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    return {name: value for (_, name), value in items.items()}


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most `seconds`."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
