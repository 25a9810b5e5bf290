"""What a cluster holds of an installation, for lint."""

from __future__ import annotations

import asyncio

from netinit.base.more_errors import ClusterError
from netinit.base.tree import Tree
from netinit.kube.access import find_access
from netinit.kube.client import Client
from netinit.kube.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    SERVICES,
    WEBHOOK_CONFIGURATIONS,
)

__all__ = ["survey"]

_ASKED = (WEBHOOK_CONFIGURATIONS, SERVICES, ENDPOINT_SLICES, ENDPOINTS, DEPLOYMENTS, DISRUPTION_BUDGETS, NAMESPACES)


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
            trees += [{"kind": resource.kind, "apiVersion": resource.api_version, **tree} for tree in found]
    return trees
