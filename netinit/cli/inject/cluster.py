"""Read access to the cluster for inject and check-inject; requires the extra `kubernetes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import Tree, mapping, strings

Found = TypeVar("Found")
_NOT_FOUND = 404


class Cluster:
    """The cluster that kubectl would use: by context and kubeconfig, or in-cluster."""

    def __init__(self, *, context: str | None = None, kubeconfig: str | None = None) -> None:
        try:
            from netinit.kube import resources, single_requests
            from netinit.kube.access import find_access
        except ImportError as error:
            raise ConfigError(
                "--context, --kubeconfig and the ConfigMap names need a package that is not installed: "
                "pip install 'netinit[kubernetes]'; or give the files with --injectConfigFile and --meshConfigFile"
            ) from error
        self._asking: Any = single_requests
        self._resources: Any = resources
        self._access = find_access(kubeconfig=kubeconfig or "", context=context or "")

    def _read(self, what: str, ask: Callable[[], Found]) -> Found:
        try:
            return ask()
        except ClusterError as error:
            if error.status:
                raise ConfigError(f"the cluster does not give {what}: {error.status} {error.reason}") from error
            raise ConfigError(f"the cluster cannot be asked for {what}: {error}") from error

    def _one(self, what: str, resource: Any, name: str, namespace: str = "") -> Tree:
        return self._read(what, lambda: mapping(self._asking.ask_one(self._access, resource, name, namespace)))

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Data of a ConfigMap. Raises ConfigError."""
        found = self._one(f"the ConfigMap {namespace}/{name}", self._resources.CONFIG_MAPS, name, namespace)
        return strings(found.get("data"))

    def namespace_labels(self, name: str) -> dict[str, str]:
        """Labels of a namespace. Raises ConfigError."""
        found = self._one(f"the namespace {name}", self._resources.NAMESPACES, name)
        return strings(mapping(found.get("metadata")).get("labels"))

    def nodes(self) -> list[Tree]:
        """All nodes. Raises ConfigError."""
        return self._list("the nodes", self._resources.NODES)

    def proxy_configs(self) -> list[Tree]:
        """The ProxyConfig resources; empty if the cluster does not define them. Raises ConfigError."""
        return self._list("the ProxyConfig resources", self._resources.PROXY_CONFIGS, optional=True)

    def _list(self, what: str, resource: Any, *, optional: bool = False) -> list[Tree]:
        def ask() -> list[Tree]:
            try:
                found: list[Tree] = self._asking.ask_list(self._access, resource)
            except ClusterError as error:
                if optional and error.status == _NOT_FOUND:
                    return []
                raise
            return found

        return self._read(what, ask)

    def webhook_configurations(self) -> list[Tree]:
        """MutatingWebhookConfigurations of sidecar injectors, as in manifests. Raises ConfigError."""
        found = self._list("the webhooks", self._resources.WEBHOOK_CONFIGURATIONS)
        return [item for item in found if "sidecar-injector" in str(item.get("webhooks"))]
