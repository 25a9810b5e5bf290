"""Finds pods that the API server refuses once they are injected, since their Namespace's Pod Security forbids NET_ADMIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding.containers import security
from netinit.inject.deciding.init_container import find_init
from netinit.inject.deciding.warnings import ERROR, PodFinding, uses_host_network

POD_SECURITY = FindingKind(
    "NI128", "pod-security",
    "The Namespace enforces Pod Security baseline or restricted, which forbid capabilities such as NET_ADMIN: the API server "
    "refuses pods whose init container programs rules. A CNI plugin programs them from the node, without that container.",
)
_ENFORCE = "pod-security.kubernetes.io/enforce"
_LEVELS = ("baseline", "restricted")
_ALLOWED = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
    "SETUID", "SYS_CHROOT",
))  # fmt: skip
"""The capabilities that containers may add under baseline (Pod Security Standards, Kubernetes 1.34)."""


def pod_security_findings(pod: Tree, namespace: str, labels: Mapping[str, str], severity: str = ERROR) -> Iterator[PodFinding]:
    """Yield a finding if the Namespace with these labels refuses the pod, which is as its injection leaves it."""
    level, init = labels.get(_ENFORCE, ""), find_init(mapping(pod.get("spec")))
    if level not in _LEVELS or init is None or uses_host_network(pod):
        return
    added = [string(one) for one in sequence(mapping(security(init).get("capabilities")).get("add"))]
    forbidden = [one for one in added if one not in _ALLOWED]
    if forbidden:
        yield PodFinding(
            kind=POD_SECURITY, severity=severity,
            text=f"Namespace {quote(namespace)} enforces Pod Security {level}, which refuses the pod as it is injected: init "
            f"container {quote(string(init.get('name')))} adds {' and '.join(forbidden)}; let a CNI plugin program the rules, or "
            f"label the Namespace {_ENFORCE}: privileged",
        )  # fmt: skip
