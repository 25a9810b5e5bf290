"""Pods of an installation, to create as a server dry run: the API server itself says what would refuse them. Pure.

ReplicaSets and DaemonSets are accepted whatever their pods are; quota, PodSecurity, LimitRange and admission webhooks refuse
only the pods, after the installation and in events of the owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.installation.linting import (
    ERROR,
    WARNING,
    InstallationFinding,
    metadata_of,
    name_of,
    subject_of,
    template_of,
)

# The API server validates, not kubectl, which would need its OpenAPI document.
_CREATE = ("create", "--dry-run=server", "--validate=false", "-o", "name", "-f", "-")
_CREATORS = {  # kind: who creates its pods, by which policies and OpenShift's security context constraints judge
    "Deployment": "system:serviceaccount:kube-system:replicaset-controller",
    "DaemonSet": "system:serviceaccount:kube-system:daemon-set-controller",
}
NOT_TRIED = (
    "a dry run does not tell whether images can be pulled, whether a node has room for the pods, what NetworkPolicies and the nodes' "
    "runtimes (SELinux, AppArmor, gVisor) allow, what webhooks do that skip dry runs, and what the objects beside the pods meet"
)
_MAX_REASON = 400  # characters of a refusal that are shown
_SCOPE = "PriorityClass"
CONSTRAINTS = "securitycontextconstraints"
_WITHOUT_ACCOUNT = re.compile("error looking up service account")  # Kubernetes' admission plugin ServiceAccount
_WITHOUT_QUOTA = re.compile("insufficient quota to match these scopes")  # its admission plugin ResourceQuota, with limitedResources
_WITHOUT_CONSTRAINT = re.compile(r"unable to validate against any security context constraint")  # OpenShift's admission plugin
_WITHOUT_NAMESPACE = re.compile(r'namespaces "[^"]*" not found')
_WITHOUT_ANSWER = re.compile(
    r'User "[^"]*" cannot |does not support dry run|'
    r"Error from server \((?:Unauthorized|Timeout|ServiceUnavailable|TooManyRequests|ServerTimeout)\)"
)
_WITHOUT_IMPERSONATION = re.compile(r'cannot impersonate resource|User "system:serviceaccount:kube-system:[a-z-]+" cannot ')
_REFUSED = re.compile(r"Error from server[ :]|^The (?:Pod|pods) .* is invalid", re.MULTILINE)
_REMEDIES = (  # a part of the refusal, and what to do; the first that fits
    (_WITHOUT_QUOTA.pattern, "set resourceQuotas.enabled=true, or a priorityClassName and node.priorityClassName that is not limited"),
    ("exceeded quota|failed quota", "raise the quota, or lower what the chart asks for: replicas, resources, node.resources"),
    ("violates PodSecurity", "kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=privileged"),
    ("security context constraint", "set openshift=true and node.platform=openshift, which let the accounts use what they need"),
    ("tolerations .*conflict with its", "allow them in {namespace}'s annotation {tolerations}, or set node.tolerations"),
    ("node label selector conflicts", "remove the annotation scheduler.alpha.kubernetes.io/node-selector of {namespace}"),
    ("(?:minimum|maximum) .* usage per", "set resources and node.resources within the namespace's LimitRange, or change it"),
    ("no PriorityClass with name", "create the PriorityClass, or set priorityClassName and node.priorityClassName to one that exists"),
    ("autogke-", "GKE Autopilot admits no agent: set node.enabled=false; the cluster needs --workload-policies=allow-net-admin"),
    ("admission webhook|ValidatingAdmissionPolicy|failed calling webhook", "exempt {namespace} from the policy, or change it"),
    ("", "change what refuses it"),
)


@dataclass(frozen=True, slots=True)
class DryRunPod:
    """A pod as a workload of the installation would create it; `notes`: what had to be changed for the pod.

    `creator`: the controller's account that the API server is asked as; empty for the user's own. `account`: the pod's own,
    whether it is tried with it or not.
    """

    workload: str
    tree: Tree
    creator: str = ""
    account: str = ""
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of kubectl that try it, with the pod on the standard input."""
        namespace = string(metadata_of(self.tree).get("namespace"))
        return (*_CREATE, "-n", namespace, *(("--as", self.creator) if self.creator else ()))

    def by_user(self, why: str = "") -> DryRunPod:
        """Return the pod as the user creates it; `why`: the reason, where the user could be asked for another."""
        note = f"{self.workload}: tried as you, not as {self.creator}: what judges by who creates a pod may answer otherwise"
        return replace(self, creator="", notes=(*self.notes, f"{note}{why}"))

    def without(self, field: str, note: str) -> DryRunPod:
        """Return the pod without a field of its spec."""
        spec = {key: value for key, value in mapping(self.tree["spec"]).items() if key != field}
        return replace(self, tree={**self.tree, "spec": spec}, notes=(*self.notes, f"{self.workload}: {note}"))


def make_dry_run_pods(planned: Sequence[Tree], namespace: str) -> list[DryRunPod]:
    """Return a pod of each workload among the planned objects."""
    return list(_make_dry_run_pods(planned, namespace))


def _make_dry_run_pods(planned: Sequence[Tree], namespace: str) -> Iterator[DryRunPod]:
    for tree in planned:
        template = template_of(tree)
        if not template.get("spec"):
            continue
        metadata = {**metadata_of(template), "generateName": f"{name_of(tree)}-", "namespace": namespace}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        kind = string(tree.get("kind"))
        account = string(mapping(template["spec"]).get("serviceAccountName"))
        yield DryRunPod(subject_of(kind, tree), made, _CREATORS.get(kind, ""), account)


def judge(pod: DryRunPod, refusal: str, planned: Sequence[Tree]) -> DryRunPod | InstallationFinding:
    """Return the pod to try instead where the installation itself removes what refuses this one, else what is wrong.

    `refusal`: the whole error of kubectl. `planned`: the objects that the installation creates before its pods.
    """
    spec, namespace = mapping(pod.tree["spec"]), string(metadata_of(pod.tree).get("namespace"))
    if pod.creator and _WITHOUT_IMPERSONATION.search(refusal):
        return pod.by_user()
    account, priority = string(spec.get("serviceAccountName")), string(spec.get("priorityClassName"))
    if account and _WITHOUT_ACCOUNT.search(refusal):
        note = f"the account {account} does not exist yet: tried with default; what applies to {account} alone is not known"
        return pod.without("serviceAccountName", note)
    if priority and _WITHOUT_QUOTA.search(refusal) and priority in _find_classes_with_quota(planned):
        note = f"tried without the priority class {priority}, which the chart's own ResourceQuota will admit"
        return pod.without("priorityClassName", note)
    constraints = find_usable_constraints(planned, pod.account) if not spec.get("serviceAccountName") else ()
    if constraints and _WITHOUT_CONSTRAINT.search(refusal):
        return _judge_by_constraints(pod, refusal, ", ".join(sorted(constraints)))
    if _WITHOUT_NAMESPACE.search(refusal):
        return InstallationFinding(
            WARNING, "no-namespace", f"Namespace {namespace}",
            "it does not exist yet: whether quota, PodSecurity or policies refuse the pods there is not known",
            f"kubectl create namespace {namespace}, with the labels that it is to have, and run preflight again",
        )  # fmt: skip
    if _WITHOUT_ANSWER.search(refusal) or not _REFUSED.search(refusal):
        return InstallationFinding(
            WARNING, "pod-not-tried", pod.workload,
            f"whether its pods are refused is not known: {_first_line(refusal)}",
            f"run preflight as someone who may create pods in {namespace}",
        )  # fmt: skip
    remedy = next(remedy for pattern, remedy in _REMEDIES if re.search(pattern, refusal))
    return InstallationFinding(
        ERROR, "pod-refused", pod.workload,
        f"its pods are refused: {_first_line(refusal)}",
        remedy.format(namespace=namespace, tolerations="scheduler.alpha.kubernetes.io/tolerationsWhitelist"),
    )  # fmt: skip


def _judge_by_constraints(pod: DryRunPod, refusal: str, names: str) -> DryRunPod | InstallationFinding:
    """Try as the user, whose rights count beside the account's, a pod whose account will be allowed these constraints."""
    later = f"{pod.account} may use the constraint {names} only after the installation"
    if pod.creator:
        return pod.by_user(f" ({later})")
    return InstallationFinding(
        WARNING, "pod-not-tried", pod.workload,
        f"whether its pods are refused is not known: {later}, and you may not use it: {_first_line(refusal)}",
        "run preflight as cluster-admin",
    )  # fmt: skip


def find_usable_constraints(planned: Sequence[Tree], account: str) -> set[str]:
    """Return the security context constraints (OpenShift) that the planned roles let an account use."""
    bindings = [tree for tree in planned if string(tree.get("kind")).endswith("RoleBinding")]
    own = [tree for tree in bindings if any(mapping(one).get("name") == account for one in sequence(tree.get("subjects")))]
    roles = {(string(one.get("kind")), string(one.get("name"))) for one in [mapping(tree.get("roleRef")) for tree in own]}
    lists = [sequence(tree.get("rules")) for tree in planned if (string(tree.get("kind")), name_of(tree)) in roles]
    rules = [mapping(rule) for rules in lists for rule in rules]
    names = [sequence(rule.get("resourceNames")) for rule in rules if CONSTRAINTS in sequence(rule.get("resources"))]
    return {string(name) for some in names for name in some}


def _find_classes_with_quota(planned: Sequence[Tree]) -> set[str]:
    """Return the priority classes whose pods the planned ResourceQuotas admit."""
    specs = [mapping(tree.get("spec")) for tree in planned if tree.get("kind") == "ResourceQuota"]
    scopes = [mapping(one) for spec in specs for one in sequence(mapping(spec.get("scopeSelector")).get("matchExpressions"))]
    return {string(value) for one in scopes if one.get("scopeName") == _SCOPE for value in sequence(one.get("values"))}


def _first_line(refusal: str) -> str:
    """The refusal without kubectl's warnings before it."""
    lines = [line for line in refusal.splitlines() if line.strip() and not line.startswith("Warning:")]
    return shorten(lines[0].strip(), _MAX_REASON) if lines else "kubectl gave no reason"
