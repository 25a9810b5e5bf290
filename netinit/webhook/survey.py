"""Read an installation's objects (for lint) or workloads (for compare) from a cluster."""

from __future__ import annotations

import contextlib

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree, mapping, sequence
from netinit.kube import api_paths
from netinit.kube.access import find_access
from netinit.kube.api_paths import Resource
from netinit.kube.client import Client, ask_once
from netinit.webhook.installation_findings import find_hooks, metadata_of
from netinit.webhook.linting import CA_CONFIG_MAP

_LINTED = (
    api_paths.WEBHOOK_CONFIGURATIONS, api_paths.SERVICES, api_paths.ENDPOINT_SLICES, api_paths.ENDPOINTS, api_paths.DEPLOYMENTS,
    api_paths.DISRUPTION_BUDGETS, api_paths.NAMESPACES, api_paths.PROXY_CONFIGS,
)  # fmt: skip
_WORKLOADS = (
    api_paths.DEPLOYMENTS, api_paths.STATEFUL_SETS, api_paths.DAEMON_SETS, api_paths.CRON_JOBS, api_paths.JOBS, api_paths.PODS,
)  # fmt: skip
_CONTROLLERS = {resource.kind for resource in _WORKLOADS} | {"ReplicaSet", "ReplicationController", "Node"}


def survey(context: str, kubeconfig: str) -> list[Tree]:
    """Return the objects to lint, without unreadable kinds. Raises ClusterError if webhooks cannot be read."""
    return ask_once(find_access(kubeconfig=kubeconfig, context=context), _survey)


async def _survey(client: Client) -> list[Tree]:
    trees: list[Tree] = []
    for resource in _LINTED:
        try:
            trees += await _list(client, resource)
        except ClusterError as error:
            if resource is api_paths.WEBHOOK_CONFIGURATIONS or not error.status:
                raise
    with contextlib.suppress(ClusterError):
        trees += await _list(client, api_paths.CONFIG_MAPS, fields=f"metadata.name={CA_CONFIG_MAP}")
    for namespace in sorted({hook.service[0] for hook in find_hooks(trees)} - {""}):
        for resource in (api_paths.SECRETS, api_paths.CONFIG_MAPS):
            with contextlib.suppress(ClusterError):
                trees += await _list(client, resource, namespace)
    return trees


def find_workloads(context: str, kubeconfig: str, namespace: str) -> list[Tree]:
    """Return the workloads not owned by another one; in all namespaces if `namespace` is empty. Raises ClusterError."""

    async def ask(client: Client) -> list[Tree]:
        return [tree for resource in _WORKLOADS for tree in await _list(client, resource, namespace)]

    found = ask_once(find_access(kubeconfig=kubeconfig, context=context), ask)
    owners = [sequence(metadata_of(tree).get("ownerReferences")) for tree in found]
    return [tree for tree, of in zip(found, owners, strict=True) if not any(mapping(one).get("kind") in _CONTROLLERS for one in of)]


async def _list(client: Client, resource: Resource, namespace: str = "", *, fields: str = "") -> list[Tree]:
    return [resource.typed(tree) for tree in (await client.list(resource, namespace, fields=fields))[0]]
