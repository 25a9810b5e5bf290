"""What a cluster holds of an installation, for lint."""

from __future__ import annotations

import asyncio
import contextlib

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.kube.access import find_access
from netinit.kube.client import Client
from netinit.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    PROXY_CONFIGS,
    SECRETS,
    SERVICES,
    WEBHOOK_CONFIGURATIONS,
    Resource,
)
from netinit.webhook.prerequisites import CA_CONFIG_MAP

__all__ = ["survey"]

_ASKED = (WEBHOOK_CONFIGURATIONS, SERVICES, ENDPOINT_SLICES, ENDPOINTS, DEPLOYMENTS, DISRUPTION_BUDGETS, NAMESPACES, PROXY_CONFIGS)


def survey(context: str, kubeconfig: str) -> list[Tree]:
    """The objects of the cluster that matter. Kinds that the caller may not read are left out; ClusterError otherwise."""
    return asyncio.run(_survey(context, kubeconfig))


async def _survey(context: str, kubeconfig: str) -> list[Tree]:
    trees: list[Tree] = []
    async with Client(find_access(kubeconfig=kubeconfig, context=context)) as client:
        for resource in _ASKED:
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


def _typed(resource: Resource, found: list[Tree]) -> list[Tree]:
    return [{"kind": resource.kind, "apiVersion": resource.api_version, **tree} for tree in found]


def _namespaces(trees: list[Tree]) -> set[str]:
    """Where the webhooks lead to, and keep their certificates."""
    hooks = [mapping(hook) for tree in trees for hook in sequence(tree.get("webhooks"))]
    return {string(mapping(mapping(hook.get("clientConfig")).get("service")).get("namespace")) for hook in hooks} - {""}
