"""The workload of a pod. A pod only names its direct controller; the Deployment or CronJob is derived from its name."""

from __future__ import annotations

import re

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string, strings

_CRON_JOB = r"(?s)(.+)-[0-9]{8,10}\Z"


class PodOwner(Record):
    """A workload; `api_version` is as in manifests, `apps/v1`."""

    name: str
    namespace: str = ""
    kind: str = "Pod"
    api_version: str = "v1"

    @classmethod
    def of_pod(cls, pod: Tree, namespace: str = "") -> PodOwner:
        """Return the workload of a pod: the pod itself if it has no controller or no generateName."""
        metadata = mapping(pod.get("metadata"))
        namespace = string(metadata.get("namespace")) or namespace
        itself = cls(name=string(metadata.get("name")), namespace=namespace)
        if not metadata.get("generateName"):
            return itself
        for reference in sequence(metadata.get("ownerReferences")):
            if isinstance(reference, dict) and reference.get("controller") is True:
                return cls._behind(reference, strings(metadata.get("labels")), namespace)
        return itself

    @classmethod
    def _behind(cls, reference: Tree, labels: dict[str, str], namespace: str) -> PodOwner:
        name, kind = string(reference.get("name")), string(reference.get("kind"))
        version = string(reference.get("apiVersion"))
        if kind == "ReplicaSet":
            for label, parent, parent_version in (
                ("pod-template-hash", "Deployment", version),
                ("rollouts-pod-template-hash", "Rollout", "v1alpha1"),
            ):
                hashed = labels.get(label)
                if hashed and name.endswith(hashed):
                    base = name.removesuffix(f"-{hashed}")
                    return cls(name=base, namespace=namespace, kind=parent, api_version=parent_version)
        elif kind == "ReplicationController" and labels.get("deploymentconfig"):
            config = labels["deploymentconfig"]
            return cls(name=config, namespace=namespace, kind="DeploymentConfig", api_version=version)
        elif kind == "Job" and (found := re.match(_CRON_JOB, name)):
            return cls(name=found[1], namespace=namespace, kind="CronJob", api_version="batch/v1")
        return cls(name=name, namespace=namespace, kind=kind, api_version=version)
