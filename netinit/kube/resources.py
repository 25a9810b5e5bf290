"""The resources of the API that netinit reads and writes, and the statuses and kinds of patches that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from netinit.base.tree import Tree, mapping, sequence, string

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
NOT_FOUND, CONFLICT, GONE = 404, 409, 410
PAGE = 500  # objects of a list at a time


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: group and version as in manifests, kind, and plural as in paths."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str = "", name: str = "", *more: str) -> str:
        """The path of an object or, without a name, of a list; without a namespace, across all."""
        parts = ["apis" if "/" in self.api_version else "api", *self.api_version.split("/")]
        parts += ["namespaces", namespace] if namespace else []
        parts += [self.plural, *([name] if name else []), *more]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def typed(self, tree: Tree) -> Tree:
        """The object with its type, which the API leaves out in lists."""
        return {"apiVersion": self.api_version, "kind": self.kind, **tree}


CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
EVENTS = Resource("v1", "Event", "events")
NAMESPACES = Resource("v1", "Namespace", "namespaces")
PODS = Resource("v1", "Pod", "pods")
SECRETS = Resource("v1", "Secret", "secrets")
SERVICES = Resource("v1", "Service", "services")
NODES = Resource("v1", "Node", "nodes")
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")
CRON_JOBS = Resource("batch/v1", "CronJob", "cronjobs")
JOBS = Resource("batch/v1", "Job", "jobs")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
ENDPOINTS = Resource("v1", "Endpoints", "endpoints")
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DISRUPTION_BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
PROXY_CONFIGS = Resource("networking.istio.io/v1beta1", "ProxyConfig", "proxyconfigs")
WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"
)


def take_page(page: Tree, query: dict[str, str]) -> tuple[list[Tree], str]:
    """Return a page's objects and the list's version; `query` asks for the next page then, if there is one (`continue`)."""
    metadata = mapping(page.get("metadata"))
    query["continue"] = string(metadata.get("continue"))
    return [item for item in sequence(page.get("items")) if isinstance(item, dict)], string(metadata.get("resourceVersion"))


def name_of(tree: Tree) -> tuple[str, str]:
    """Namespace and name of an object."""
    metadata = mapping(tree.get("metadata"))
    return string(metadata.get("namespace")), string(metadata.get("name"))
