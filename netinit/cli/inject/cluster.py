"""The cluster that inject and check-inject may read: ConfigMaps, namespaces, webhooks; needs the extra `kubernetes`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from netinit.base.errors import ConfigError

__all__ = ["Cluster"]


class Cluster:
    """A cluster as kubectl would find it: by context and kubeconfig, else from inside a pod."""

    def __init__(self, *, context: str | None = None, kubeconfig: str | None = None) -> None:
        try:
            client: Any = import_module("kubernetes.client")
            config: Any = import_module("kubernetes.config")
        except ImportError as error:
            raise ConfigError(
                "--context, --kubeconfig and the ConfigMap names need the Kubernetes client: "
                "pip install kubernetes; or give the files with --injectConfigFile and --meshConfigFile"
            ) from error
        try:
            config.load_kube_config(config_file=kubeconfig, context=context)
        except config.ConfigException as error:
            if context or kubeconfig:
                raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
            try:
                config.load_incluster_config()
            except config.ConfigException as inside:
                raise ConfigError(f"there is no kubeconfig ({error}) and this is no pod ({inside})") from inside
        self._client: Any = client

    def _read(self, what: str, call: Any, *names: str) -> Any:
        try:
            return call(*names)
        except self._client.ApiException as error:
            raise ConfigError(f"the cluster does not give {what}: {error.status} {error.reason}") from error
        except Exception as error:  # urllib3's, whose package is not ours to import
            raise ConfigError(f"the cluster cannot be asked for {what}: {error}") from error

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """The data of a ConfigMap. Raises ConfigError."""
        api = self._client.CoreV1Api()
        found = self._read(f"the ConfigMap {namespace}/{name}", api.read_namespaced_config_map, name, namespace)
        return dict(found.data or {})

    def namespace_labels(self, name: str) -> dict[str, str]:
        """The labels of a namespace. Raises ConfigError."""
        found = self._read(f"the namespace {name}", self._client.CoreV1Api().read_namespace, name)
        return dict(found.metadata.labels or {})

    def webhook_configurations(self) -> list[dict[str, Any]]:
        """The MutatingWebhookConfigurations of sidecar injectors, as in manifests. Raises ConfigError."""
        api = self._client.AdmissionregistrationV1Api()
        found = self._read("the webhooks", api.list_mutating_webhook_configuration)
        objects = self._client.ApiClient().sanitize_for_serialization(found)["items"]
        return [item for item in objects if "sidecar-injector" in str(item.get("webhooks"))]
