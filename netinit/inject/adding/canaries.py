"""Pods to try a configuration on: small ones of different owners, each with everything that an API server adds to a pod.

Defaults are set before admission, and so are those of the plugins ServiceAccount, Priority and DefaultTolerationSeconds (k8s.io/api
0.37, `SetDefaults_*`): templates may rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netinit.base.tree import Tree
from netinit.inject.adding.settings import GROUPS_ANNOTATION, UID_RANGE
from netinit.inject.deciding.containers import PROXY

NAMESPACE = "canary"
_TOKEN = "kube-api-access-canary"  # noqa: S105 - the name of a volume


class Canary(NamedTuple):
    """A pod to try; `namespace`: the annotations of its namespace."""

    pod: Tree
    namespace: Mapping[str, str] = {}


def _owned_by(api_version: str, kind: str, name: str, labels: dict[str, str]) -> Tree:
    owner = {
        "apiVersion": api_version, "kind": kind, "name": name, "uid": "00000000-0000-4000-8000-000000000000", "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    return {"generateName": f"{name}-", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}


def _probe(path: str) -> Tree:
    action = {"httpGet": {"path": path, "port": 80, "scheme": "HTTP"}}
    return {**action, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def _container(name: str, image: str, **given: object) -> Tree:
    return {
        "name": name, "image": image, **given, "resources": {}, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
        "volumeMounts": [{"name": _TOKEN, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }  # fmt: skip


def _pod(metadata: Tree, restarts: str, **container: object) -> Tree:
    """Return a pod of one container, with the defaults of all that is not given."""
    tolerations = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    sources: list[Tree] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]
    spec = {
        "volumes": [{"name": _TOKEN, "projected": {"sources": sources, "defaultMode": 420}}],
        "containers": [_container("app", "canary", **container)],
        "restartPolicy": restarts, "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default",
        "securityContext": {}, "schedulerName": "default-scheduler", "tolerations": tolerations, "priority": 0,
        "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_PORTS = [{"containerPort": 80, "protocol": "TCP"}]
_PROBES = {"livenessProbe": _probe("/live"), "readinessProbe": _probe("/ready"), "startupProbe": _probe("/start")}
_OF_DEPLOYMENT = _owned_by("apps/v1", "ReplicaSet", "canary-5d4f8c7b9d", {"app": "canary", "pod-template-hash": "5d4f8c7b9d"})
_OF_JOB = _owned_by("batch/v1", "Job", "canary", {"batch.kubernetes.io/job-name": "canary", "job-name": "canary"})
BARE_POD = _pod({"name": "canary", "namespace": NAMESPACE, "labels": {"app": "canary"}}, "Always", ports=_PORTS)


def _with_own_proxy(pod: Tree) -> Tree:
    """Return the pod with a container of the proxy that has some settings of its own, and the template's image."""
    own = _container(PROXY, "auto", env=[{"name": "CANARY", "value": "yes"}])
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], own]}}


_UID = 1000650000
_OF_OPENSHIFT = {UID_RANGE: f"{_UID}/10000", GROUPS_ANNOTATION: f"{_UID}/10000"}


def _on_openshift(pod: Tree) -> Tree:
    """Return the pod as OpenShift's admission changes it before webhooks see it, with restricted-v2 as for most pods."""
    context = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": _UID,
    }  # fmt: skip
    spec = {
        **pod["spec"], "containers": [{**one, "securityContext": context} for one in pod["spec"]["containers"]],
        "securityContext": {"seLinuxOptions": {"level": "s0:c26,c5"}, "fsGroup": _UID, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": "default-dockercfg-canary"}],
    }  # fmt: skip
    return {**pod, "metadata": {**pod["metadata"], "annotations": {"openshift.io/scc": "restricted-v2"}}, "spec": spec}


_DEPLOYED = _pod(_OF_DEPLOYMENT, "Always", ports=_PORTS)
CANARIES: Mapping[str, Canary] = {
    "a pod of a Deployment with probes": Canary(_pod(_OF_DEPLOYMENT, "Always", ports=_PORTS, **_PROBES)),
    "a pod of a Deployment without probes": Canary(_DEPLOYED),
    "a pod of a Job": Canary(_pod(_OF_JOB, "Never")),
    "a pod without an owner": Canary(BARE_POD),
    "a pod with an own istio-proxy": Canary(_with_own_proxy(_DEPLOYED)),
    "a pod on OpenShift": Canary(_on_openshift(_DEPLOYED), _OF_OPENSHIFT),
}
"""By what they stand for, as messages name them."""
