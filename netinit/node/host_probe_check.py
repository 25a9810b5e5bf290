"""Check the node's own rules for the kubelet's probes of an ambient mesh's pods: metric, event and, if asked, repair."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from netinit.base.net import read_addresses
from netinit.inject.pod_options import REDIRECTION
from netinit.node.decision import NodePod, is_own_pod
from netinit.node.jobs import CHECK_PROBES, REPAIR_PROBES, Job, JobResult
from netinit.node.settings import PROGRAM, SECOND
from netinit.node.sweep import NodeCheck
from netinit.options.interception import BROKEN, EXEMPT, UNKNOWN

_JOB_SECONDS = 30.0
_NO_HOST = "this agent is not on the node's network: set node.hostNetwork"


@dataclass(slots=True)
class HostProbeCheck(NodeCheck):
    """Checks periodically, while the node has ambient pods; reports each problem once."""

    _reported: str = ""

    async def run(self) -> None:
        """Check until cancelled."""
        await self.pod_cache.wait()
        while True:
            await self.check()
            await asyncio.sleep(self.settings.sweep_interval / SECOND)

    async def check(self) -> None:
        """Judge the probes of all ambient pods; report and repair."""
        pods = {address: pod for pod in self.pod_cache if _is_ambient(pod) for address in read_addresses(pod.addresses)}
        found = await self._judge(pods) if pods else {}
        counts = Counter(state for state, _ in found.values())
        for state in (EXEMPT, BROKEN, UNKNOWN):
            self.metrics.probes.labels(state).set(counts[state])
        lines = [f"{address} of {pods[address].label}: {detail}" for address, (state, detail) in found.items() if state == BROKEN]
        reasons = [detail for state, detail in found.values() if state == UNKNOWN]
        if lines:
            text = f"the kubelet's probes of {len(lines)} addresses of ambient pods are captured, such as {lines[0]}"
            if self._log_once("warn", text):
                await self.send_event("HostProbesCaptured", text)
        elif reasons:
            self._log_once("info", f"whether the kubelet's probes of ambient pods are captured is unknown: {reasons[0]}")
        else:
            self._reported = ""
        if lines and self.settings.host_probes == PROGRAM:
            await self._repair(pods)

    def _log_once(self, level: str, text: str) -> bool:
        is_new, self._reported = text != self._reported, text
        if is_new:
            self.log.event(level, text)
        return is_new

    async def _judge(self, pods: dict[str, NodePod]) -> dict[str, tuple[str, str]]:
        """Return state and detail of each address."""
        own = [pod for pod in self.pod_cache if is_own_pod(pod.namespace, pod.name, self.settings.namespace, self.settings.daemon_set)]
        is_outside = bool(own) and not any(pod.host_network for pod in own)
        done = JobResult(error=_NO_HOST) if is_outside else await self._do(CHECK_PROBES, pods)
        if done.error:
            return dict.fromkeys(pods, (UNKNOWN, done.error))
        parts = [one.split(" ", 2) for one in done.differences]
        return {address: (state, detail) for state, address, detail in parts}

    async def _do(self, kind: str, pods: dict[str, NodePod]) -> JobResult:
        uids = {address: pod.uid for address, pod in pods.items()}
        return await self.programmer.do(Job.of(kind, self.settings.base, seconds=_JOB_SECONDS, uids=uids))

    async def _repair(self, pods: dict[str, NodePod]) -> None:
        done = await self._do(REPAIR_PROBES, pods)
        problem = done.error or "; ".join(one.partition(" ")[2] for one in done.differences)
        self.metrics.repairs.labels("host-probes", "fail" if problem else "success").inc()
        if problem:
            self.log.event("error", f"the node's rules for probes of ambient pods cannot be repaired: {problem}")
            return
        self._reported = ""
        await self.send_event("HostProbesRepaired", f"the node's rules were programmed by {done.backend}", kind="Normal")


def _is_ambient(pod: NodePod) -> bool:
    return pod.annotations.get(REDIRECTION) == "enabled" and not pod.ended and not pod.host_network
