"""Create events on objects, which `kubectl describe` shows."""

from __future__ import annotations

import time

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree
from netinit.kube.client import Client
from netinit.kube.resources import EVENTS

_MAX_MESSAGE = 1000  # characters of a message; the API accepts 1024


async def write_event(
    client: Client, involved: Tree, *, reason: str, message: str, component: str, namespace: str, kind: str = "Warning"
) -> str:
    """Create an event on the object that `involved` refers to. Return why it cannot be written; empty if it was."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "metadata": {"generateName": f"{involved.get('name')}.", "namespace": namespace},
        "involvedObject": involved,
        "type": kind,
        "reason": reason,
        "message": message[:_MAX_MESSAGE],
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await client.create(EVENTS, event, namespace)
    except ClusterError as error:
        return str(error)
    return ""
