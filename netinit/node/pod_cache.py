"""A cache of the node's pods from a watch of the API; pods not yet in it are requested directly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from netinit.base.errors import ClusterError, CniError
from netinit.kube.client import NOT_FOUND, PODS, Cache, Client
from netinit.node.decision import NodePod, matches_uid, read_pod
from netinit.node.protocol import CniCode

_AT_ONCE = 16  # concurrent requests: after a restart of the node all pods start at once
_PAUSE = 0.25  # seconds between two attempts


class PodCache(Cache):
    """The pods of one node."""

    def __init__(self, client: Client, node: str) -> None:
        super().__init__(client, PODS, fields=f"spec.nodeName={node}", keep=read_pod)
        self._turn = asyncio.Semaphore(_AT_ONCE)

    def __iter__(self) -> Iterator[NodePod]:
        return iter(list(self.items.values()))

    async def find(self, namespace: str, name: str, uid: str, deadline: float) -> NodePod:
        """Return the pod of this name and uid, asking the API until `deadline` (time.monotonic()). Raises CniError."""
        known: NodePod | None = self.get(name, namespace)
        if known is not None and matches_uid(known, uid):
            return known
        problem = "the API was not asked in time"
        while (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left), self._turn:
                    found = read_pod(await self.client.get(PODS, name, namespace))
            except TimeoutError:
                break
            except ClusterError as error:
                problem = str(error)
                if error.status == NOT_FOUND:
                    break
                await asyncio.sleep(min(_PAUSE, left))
                continue
            if matches_uid(found, uid):
                return found
            problem = "another pod has that name now"
            break
        raise CniError(f"pod {namespace}/{name} is not known: {problem}", CniCode.LATER)
