"""Read access to the cluster for inject and check-inject; requires the extra `kubernetes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import Tree, mapping, strings

_NOT_FOUND = 404


class Cluster:
    """The cluster that kubectl would use: by context and kubeconfig, or in-cluster."""

    def __init__(self, *, context: str | None = None, kubeconfig: str | None = None) -> None:
        try:
            from netinit.kube import client
            from netinit.kube.access import find_access
        except ImportError as error:
            raise ConfigError(
                "--context, --kubeconfig and the ConfigMap names need a package that is not installed: "
                "pip install 'netinit[kubernetes]'; or give the files with --injectConfigFile and --meshConfigFile"
            ) from error
        self._api: Any = client
        self._access = find_access(kubeconfig=kubeconfig or "", context=context or "")

    def _read(self, what: str, ask: Callable[[Any], Any], *, optional: bool = False) -> Any:
        try:
            return self._api.ask_once(self._access, ask)
        except ClusterError as error:
            if optional and error.status == _NOT_FOUND:
                return [], ""
            if error.status:
                raise ConfigError(f"the cluster does not give {what}: {error.status} {error.reason}") from error
            raise ConfigError(f"the cluster cannot be asked for {what}: {error}") from error

    def _one(self, what: str, resource: Any, name: str, namespace: str = "") -> Tree:
        return mapping(self._read(what, lambda client: client.get(resource, name, namespace)))

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Data of a ConfigMap. Raises ConfigError."""
        found = self._one(f"the ConfigMap {namespace}/{name}", self._api.CONFIG_MAPS, name, namespace)
        return strings(found.get("data"))

    def namespace_labels(self, name: str) -> dict[str, str]:
        """Labels of a namespace. Raises ConfigError."""
        found = self._one(f"the namespace {name}", self._api.NAMESPACES, name)
        return strings(mapping(found.get("metadata")).get("labels"))

    def nodes(self) -> list[Tree]:
        """All nodes. Raises ConfigError."""
        return self._list("the nodes", self._api.NODES)

    def proxy_configs(self) -> list[Tree]:
        """The ProxyConfig resources; empty if the cluster does not define them. Raises ConfigError."""
        return self._list("the ProxyConfig resources", self._api.PROXY_CONFIGS, optional=True)

    def _list(self, what: str, resource: Any, *, optional: bool = False) -> list[Tree]:
        found: list[Tree] = self._read(what, lambda client: client.list(resource), optional=optional)[0]
        return found

    def webhook_configurations(self) -> list[Tree]:
        """MutatingWebhookConfigurations of sidecar injectors, as in manifests. Raises ConfigError."""
        found = self._list("the webhooks", self._api.WEBHOOK_CONFIGURATIONS)
        return [item for item in found if "sidecar-injector" in str(item.get("webhooks"))]
