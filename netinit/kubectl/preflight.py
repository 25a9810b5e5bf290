"""`kubectl netinit preflight`: finds obstacles in a cluster before an installation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from netinit.base.errors import ClusterError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.cli.console import note
from netinit.cli.values import OneOf
from netinit.cli.webhook.lint import show_findings
from netinit.cli.webhook.manifests import ChartValues, chart_options, objects
from netinit.installation.dry_run_pods import NOT_TRIED, DryRunPod, find_usable_constraints, judge, make_dry_run_pods
from netinit.installation.linting import (
    CA_CONFIG_MAP,
    ERROR,
    HOOKS,
    WARNING,
    InstallationFinding,
    sort_findings,
    template_of,
)
from netinit.installation.preflight import NETWORKS, detect_platforms, name_resource, preflight
from netinit.kube.kubectl_program import find_error
from netinit.kubectl.common_options import kubectl_options
from netinit.kubectl.program import Kubectl, describe_failure, read_json

JSON, TEXT = "json", "text"
MAX_REFUSAL = 8192  # characters that are read of the API server's reason, with kubectl's warnings before it
READ = {  # kind -> kubectl resource
    "Namespace": ("namespaces",),
    "Node": ("nodes",),
    HOOKS: ("mutatingwebhookconfigurations",),
    "ConfigMap": ("configmaps", "-A", "--field-selector", f"metadata.name={CA_CONFIG_MAP}"),
    "DaemonSet": ("daemonsets", "-A"),
}
READ_OF_GROUPS = (("k8s.cni.cncf.io", NETWORKS, ("network-attachment-definitions.k8s.cni.cncf.io", "-A")),)  # group, kind, resource


@click.command("preflight")
@chart_options
@kubectl_options
@click.option("-o", "--output", "form", type=OneOf((TEXT, JSON)), default=TEXT, show_default=True, help="The format.")
def command(kubectl: Kubectl, chart: ChartValues, *, form: str) -> int:
    """Find what would stop an installation, before you install; changes nothing.

    Compares the chart's objects, with the values that you will give to helm install, with the cluster: Kubernetes' version,
    PodSecurity levels, OpenShift's constraints, other injectors, images without a registry, the control plane's ConfigMap, the nodes'
    kernels and CNI folders and runtimes, other releases, other meshes' agents, and your permissions. One pod of each workload is
    created as a server dry run, as its controller where you may impersonate it, so that quota, LimitRange, PodSecurity and policies
    answer themselves.
    What you may not read or try is a warning.

    Exit codes: 0 nothing was found that stops pods or the installation, 1 something was.
    """
    def render(*more: str) -> list[Tree]:
        return objects(chart.namespace, chart.name, chart.files, (*chart.settings, *more))

    planned, namespace = render(), chart.namespace
    version = _read_version(kubectl)
    groups, unknown = _read_groups(kubectl)
    by_kind, unread = _read(kubectl, READ | {kind: words for group, kind, words in READ_OF_GROUPS if group in groups})
    tried, notes = _try_pods(kubectl, planned, namespace)
    found = sort_findings([
        *preflight(planned, by_kind, namespace, version=version, groups=groups),
        *_compare_platforms(planned, detect_platforms(by_kind.get("Node", []), groups), render),
        *_ask_rights(kubectl, planned, namespace),
        *tried,
        *unread,
        *unknown,
    ])  # fmt: skip
    note(notes)
    return show_findings(found, as_json=form == JSON)


def _read_version(kubectl: Kubectl) -> str:
    """The API server's version. Raises ClusterError if it cannot be reached."""
    done = kubectl.ask("version", "-o", "json")
    if done.status:
        raise ClusterError(f"kubectl version: {describe_failure(done)}")
    version = string(mapping(mapping(read_json(done.output)).get("serverVersion")).get("gitVersion"))
    if not version:
        raise ClusterError("kubectl version: the answer names no version of the API server")
    return version


def _read(kubectl: Kubectl, kinds: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, list[Tree]], list[InstallationFinding]]:
    """The cluster's objects by kind, and a finding for each kind that is not readable."""
    by_kind: dict[str, list[Tree]] = {}
    unread = []
    for kind, words in kinds.items():
        try:
            by_kind[kind] = [mapping(one) for one in sequence(kubectl.get(*words).get("items"))]
        except ClusterError as error:
            text = f"not read, so nothing is known about them: {error}"
            unread.append(InstallationFinding(WARNING, "not-read", f"{kind}s", text, "ask an administrator who may list them"))
    return by_kind, unread


def _read_groups(kubectl: Kubectl) -> tuple[set[str], list[InstallationFinding]]:
    """The API server's groups, and a finding if they are not known."""
    done = kubectl.ask("api-versions")
    if done.status:
        text = f"not read, so nothing is known of this platform's own: {describe_failure(done)}"
        return set(), [InstallationFinding(WARNING, "not-read", "API groups", text, "kubectl api-versions")]
    return {line.partition("/")[0] for line in done.output.split() if "/" in line}, []


def _compare_platforms(planned: Sequence[Tree], platforms: dict[str, str], render: Any) -> Iterator[InstallationFinding]:
    given = _find_needs(planned)
    for platform, where in platforms.items() if given else ():
        missing = sorted(_find_needs(render(f"node.platform={platform}")) - given)
        if missing:
            yield InstallationFinding(
                ERROR, "platform", "DaemonSet",
                f"{where} looks like {platform}, where the agent needs {', '.join(missing)}",
                f"set node.platform={platform}",
            )  # fmt: skip


def _find_needs(planned: Sequence[Tree]) -> set[str]:
    """What the agent has that depends on the platform: folders, OpenShift's constraint, SELinux type; empty without an agent."""
    folders = _find_host_paths(planned)
    if not folders:
        return set()
    containers = [one for spec in _agent_specs(planned) for one in sequence(spec.get("containers"))]
    types = [string(mapping(mapping(mapping(one).get("securityContext")).get("seLinuxOptions")).get("type")) for one in containers]
    accounts = [string(spec.get("serviceAccountName")) for spec in _agent_specs(planned)]
    constraints = [name for account in accounts for name in find_usable_constraints(planned, account)]
    return folders | {f"the SELinux type {one}" for one in types if one} | {f"the constraint {one}" for one in constraints}


def _agent_specs(planned: Sequence[Tree]) -> list[Tree]:
    """The specs of the agent's pods."""
    return [mapping(template_of(tree).get("spec")) for tree in planned if tree.get("kind") == "DaemonSet"]


def _find_host_paths(planned: Sequence[Tree]) -> set[str]:
    volumes = [one for spec in _agent_specs(planned) for one in sequence(spec.get("volumes"))]
    paths = [mapping(mapping(one).get("hostPath")) for one in volumes]
    return {string(one.get("path")) for one in paths if one}


def _ask_rights(kubectl: Kubectl, planned: Sequence[Tree], namespace: str) -> Iterator[InstallationFinding]:
    scopes = {name_resource(tree): ("-n", namespace) if mapping(tree["metadata"]).get("namespace") else () for tree in planned}
    done = kubectl.ask_all([(("auth", "can-i", "create", resource, *scope), "") for resource, scope in scopes.items()])
    answers = dict(zip(scopes, done, strict=True))
    refused = [resource for resource, one in answers.items() if one.output.strip().startswith("no")]
    failed = [describe_failure(one) for resource, one in answers.items() if one.status and resource not in refused]
    if refused:
        yield InstallationFinding(
            ERROR, "no-right", "RBAC",
            f"you may not create {', '.join(refused)}",
            "install with an account that may, such as cluster-admin",
        )  # fmt: skip
    if failed:
        yield InstallationFinding(WARNING, "not-read", "RBAC", f"your rights are not known: {failed[0]}", "kubectl auth can-i --list")


def _try_pods(kubectl: Kubectl, planned: Sequence[Tree], namespace: str) -> tuple[list[InstallationFinding], list[str]]:
    """What refuses a pod of each workload, and notes on what a dry run does not find."""
    found: list[InstallationFinding] = []
    notes: list[str] = []
    pods = make_dry_run_pods(planned, namespace)
    while pods:
        asked = [(one.words, json.dumps(one.tree)) for one in pods]
        answers = list(zip(pods, kubectl.ask_all(asked), strict=True))
        refusals = [(pod, find_error(done.errors) or done.output) for pod, done in answers if done.status]
        verdicts = [judge(pod, shorten(text, MAX_REFUSAL), planned) for pod, text in refusals]
        notes += [text for pod, done in answers if not done.status for text in (*pod.notes, NOT_TRIED)]
        found += [one for one in verdicts if isinstance(one, InstallationFinding)]
        pods = [one for one in verdicts if isinstance(one, DryRunPod)]
    return found, list(dict.fromkeys(notes))
