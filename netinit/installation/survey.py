"""Read an installation's objects (for lint) or workloads (for compare) from a cluster."""

from __future__ import annotations

from collections.abc import Callable

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree, mapping, sequence
from netinit.installation.linting import CA_CONFIG_MAP, HOOKS, find_hooks, metadata_of
from netinit.kube import resources as api
from netinit.kube.reading import Reads, open_cluster
from netinit.kube.resources import Resource

_LINTED = (
    api.WEBHOOK_CONFIGURATIONS, api.SERVICES, api.ENDPOINT_SLICES, api.ENDPOINTS, api.DEPLOYMENTS,
    api.DISRUPTION_BUDGETS, api.NAMESPACES, api.PROXY_CONFIGS,
)  # fmt: skip
_WORKLOADS = (
    api.DEPLOYMENTS, api.STATEFUL_SETS, api.DAEMON_SETS, api.CRON_JOBS, api.JOBS, api.PODS,
)  # fmt: skip
_CONTROLLERS = {resource.kind for resource in _WORKLOADS} | {"ReplicaSet", "ReplicationController", "Node"}


def survey(context: str, kubeconfig: str) -> tuple[list[Tree], dict[str, str]]:
    """Return the objects to lint, and why kinds were not read. Raises ClusterError if webhooks cannot be read."""
    surveyed: tuple[list[Tree], dict[str, str]] = open_cluster(kubeconfig=kubeconfig, context=context)(_survey)
    return surveyed


async def _survey(client: Reads) -> tuple[list[Tree], dict[str, str]]:
    trees: list[Tree] = []
    unread: dict[str, str] = {}

    async def read(resource: Resource, namespace: str = "", *, fields: str = "") -> None:
        try:
            trees.extend(await _list(client, resource, namespace, fields=fields))
        except ClusterError as error:
            if resource is api.WEBHOOK_CONFIGURATIONS or not error.status:
                raise
            if error.status != api.NOT_FOUND:  # a kind that this cluster does not have
                unread.setdefault(resource.kind, str(error))

    for resource in _LINTED:
        await read(resource)
    await read(api.CONFIG_MAPS, fields=f"metadata.name={CA_CONFIG_MAP}")
    for namespace in sorted({hook.service[0] for hook in find_hooks({HOOKS: trees}, whole=True)} - {""}):
        for resource in (api.SECRETS, api.CONFIG_MAPS):
            await read(resource, namespace)
    return trees, unread


def find_workloads(context: str, kubeconfig: str, namespace: str) -> list[Tree]:
    """Return the workloads not owned by another one; in all namespaces if `namespace` is empty. Raises ClusterError."""

    async def ask(client: Reads) -> list[Tree]:
        return [tree for resource in _WORKLOADS for tree in await _list(client, resource, namespace, keep=_is_unowned)]

    found: list[Tree] = open_cluster(kubeconfig=kubeconfig, context=context)(ask)
    return found


def _is_unowned(tree: Tree) -> bool:
    return not any(mapping(one).get("kind") in _CONTROLLERS for one in sequence(metadata_of(tree).get("ownerReferences")))


async def _list(
    client: Reads, resource: Resource, namespace: str = "", *, fields: str = "", keep: Callable[[Tree], bool] = bool
) -> list[Tree]:
    """List those objects that `keep` is true of: a cluster's pods are many, and few of them are theirs."""
    found, _ = await client.list(resource, namespace, fields=fields, keep=lambda tree: resource.typed(tree) if keep(tree) else None)
    return found
