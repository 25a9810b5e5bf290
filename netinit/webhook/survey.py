"""Read an installation's objects (for lint) or workloads (for compare) from a cluster."""

from __future__ import annotations

import asyncio
import contextlib

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.kube.access import find_access
from netinit.kube.client import Client
from netinit.kube.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    NAMESPACES,
    PODS,
    PROXY_CONFIGS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    WEBHOOK_CONFIGURATIONS,
    Resource,
)
from netinit.webhook.prerequisites import CA_CONFIG_MAP

_LINTED = (WEBHOOK_CONFIGURATIONS, SERVICES, ENDPOINT_SLICES, ENDPOINTS, DEPLOYMENTS, DISRUPTION_BUDGETS, NAMESPACES, PROXY_CONFIGS)
_WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS, JOBS, PODS)
_CONTROLLERS = {resource.kind for resource in _WORKLOADS} | {"ReplicaSet", "ReplicationController", "Node"}


def survey(context: str, kubeconfig: str) -> list[Tree]:
    """Return the objects to lint, without unreadable kinds. Raises ClusterError if webhooks cannot be read."""
    return asyncio.run(_survey(context, kubeconfig))


async def _survey(context: str, kubeconfig: str) -> list[Tree]:
    trees: list[Tree] = []
    async with Client(find_access(kubeconfig=kubeconfig, context=context)) as client:
        for resource in _LINTED:
            try:
                found, _ = await client.list(resource)
            except ClusterError as error:
                if resource is WEBHOOK_CONFIGURATIONS or not error.status:
                    raise
                continue
            trees += _typed(resource, found)
        with contextlib.suppress(ClusterError):
            trees += _typed(CONFIG_MAPS, (await client.list(CONFIG_MAPS, fields=f"metadata.name={CA_CONFIG_MAP}"))[0])
        for namespace in sorted(_namespaces(trees)):
            for resource in (SECRETS, CONFIG_MAPS):
                with contextlib.suppress(ClusterError):
                    trees += _typed(resource, (await client.list(resource, namespace))[0])
    return trees


def find_workloads(context: str, kubeconfig: str, namespace: str) -> list[Tree]:
    """Return the workloads not owned by another one; in all namespaces if `namespace` is empty. Raises ClusterError."""
    return asyncio.run(_find_workloads(context, kubeconfig, namespace))


async def _find_workloads(context: str, kubeconfig: str, namespace: str) -> list[Tree]:
    found: list[Tree] = []
    async with Client(find_access(kubeconfig=kubeconfig, context=context)) as client:
        for resource in _WORKLOADS:
            found += _typed(resource, (await client.list(resource, namespace))[0])
    return [tree for tree in found if not _CONTROLLERS & _owner_kinds(tree)]


def _owner_kinds(tree: Tree) -> set[str]:
    return {string(mapping(owner).get("kind")) for owner in sequence(mapping(tree.get("metadata")).get("ownerReferences"))}


def _typed(resource: Resource, found: list[Tree]) -> list[Tree]:
    return [{"kind": resource.kind, "apiVersion": resource.api_version, **tree} for tree in found]


def _namespaces(trees: list[Tree]) -> set[str]:
    """Return the namespaces of the webhooks' Services."""
    hooks = [mapping(hook) for tree in trees for hook in sequence(tree.get("webhooks"))]
    return {string(mapping(mapping(hook.get("clientConfig")).get("service")).get("namespace")) for hook in hooks} - {""}
