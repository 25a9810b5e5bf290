"""Events of Kubernetes that the agent writes: on a pod of its node, or on the node."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.kube.client import Client, write_event
from netinit.node.decision import NodePod
from netinit.node.settings import NOTHING, AgentSettings
from netinit.serving.event_log import EventLog

_COMPONENT = "netinit-node"


@dataclass(slots=True)
class NodeEvents:
    """Writes the events; a failure is logged."""

    settings: AgentSettings
    client: Client
    log: EventLog

    async def send(self, reason: str, message: str, *, kind: str = "Warning", pod: NodePod | None = None) -> None:
        """Write an event on the pod or the node; not with --repair none, since the chart then gives no right to create events."""
        if self.settings.repair == NOTHING:
            return
        node = self.settings.node
        involved = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": node}  # as kubelets write them
        if pod:
            involved = {"kind": "Pod", "apiVersion": "v1", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        error = await write_event(self.client, involved, reason=reason, message=message, component=_COMPONENT, kind=kind)
        if error:
            self.log.event("error", f"an event cannot be written: {error}", pod=pod.label if pod else "")
