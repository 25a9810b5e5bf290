"""Where commands that make a few requests to the API and exit send them: to the API itself, or to kubectl."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from netinit.base.system import EMBEDDED
from netinit.base.tree import Tree
from netinit.kube.resources import Resource

Answer = TypeVar("Answer")


class Reads(Protocol):
    """What commands ask: netinit's own client, or kubectl."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Tree:
        """Get one object."""

    async def list(
        self, resource: Resource, namespace: str = "", *, fields: str = "", keep: Callable[[Tree], Any] = lambda tree: tree
    ) -> tuple[list[Any], str]:
        """List objects, as what `keep` returns of each but None; also returns their resourceVersion."""


def open_cluster(*, kubeconfig: str, context: str) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
    """Find a cluster, and return what makes a request to it. Raises ConfigError, and ImportError without the package httpx2.

    The executable, which holds no TLS, asks by the user's kubectl.
    """
    if EMBEDDED:
        from netinit.kube.by_kubectl import find_reader

        return find_reader(kubeconfig=kubeconfig, context=context).ask
    from netinit.kube import one_request
    from netinit.kube.access import find_access

    access = find_access(kubeconfig=kubeconfig, context=context)
    return lambda request: one_request.ask_once(access, request)
