"""`kubectl netinit doctor --cluster`: all nodes, webhooks and releases on one screen, each with the command that mends it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from netinit.base.errors import ClusterError
from netinit.base.sanitize import Lines, lines, shorten
from netinit.base.tables import count
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.cli.console import answer_either
from netinit.cli.values import OneOf
from netinit.installation import cluster_checks, node_checks
from netinit.installation.cluster_checks import (
    ACCESS,
    ERROR,
    EVENTS,
    LEFTOVERS,
    NODES,
    OK,
    RELEASES,
    UNKNOWN,
    WARNING,
    WEBHOOKS,
    Check,
    InstalledObjects,
)
from netinit.installation.linting import CA_CONFIG_MAP, HOOKS, find_hooks, join_some, name_of
from netinit.kubectl.cluster_objects import MAX_REASON, NOT_INSTALLED, RESOURCES
from netinit.kubectl.common_options import kubectl_options
from netinit.kubectl.objects import check_name
from netinit.kubectl.program import Kubectl, describe_failure, read_json
from netinit.kubectl.sources import AGENT_CONTAINER
from netinit.questions.why.objects import SLICE

JSON, TEXT = "json", "text"
SIGNS = {OK: "✔", ERROR: "✘", WARNING: "!", UNKNOWN: "?"}
MAX_NAMES = 3  # of a row: -o json has all
MAX_ROWS = 6  # of an area: so that all areas fit on a screen
MAX_NODES = 10  # whose pods are read, or whose agents are asked, beyond what one list tells
_OURS = ("-l", "app.kubernetes.io/part-of=netinit")
_SERVERS = ("-l", "app.kubernetes.io/name in (netinit-node,netinit-webhook)")
EVERYWHERE = {  # kind -> kubectl resource, and the rest of the words
    "Node": ("nodes",), "Namespace": ("namespaces",), HOOKS: ("mutatingwebhookconfigurations",), "DaemonSet": ("daemonsets", "-A"),
    "Deployment": ("deployments", "-A"), "Pod": ("pods", "-A", *_SERVERS),
    "Event": ("events", "-A", "--field-selector", "type=Warning"),
    "ConfigMap": ("configmaps", "-A", "--field-selector", f"metadata.name={CA_CONFIG_MAP}"),
    "ClusterRole": ("clusterroles", *_OURS), "ClusterRoleBinding": ("clusterrolebindings", *_OURS),
    "ValidatingAdmissionPolicy": ("validatingadmissionpolicies", *_OURS),
    "ValidatingAdmissionPolicyBinding": ("validatingadmissionpolicybindings", *_OURS),
}  # fmt: skip
BESIDE_A_WEBHOOK = {  # in the namespace of its Service
    "Service": ("services",), SLICE: (RESOURCES[SLICE],), "PodDisruptionBudget": ("poddisruptionbudgets",),
    "HorizontalPodAutoscaler": ("horizontalpodautoscalers",),
    "ConfigMap": ("configmaps", "-l", "app.kubernetes.io/name=netinit-webhook"),
}  # fmt: skip
TITLES = {
    NODES: "Nodes", WEBHOOKS: "Webhooks", RELEASES: "Releases", LEFTOVERS: "Leftovers of removed releases",
    EVENTS: "Warnings in events", ACCESS: "Not read",
}  # fmt: skip


@click.command("doctor")
@kubectl_options
@click.option("-o", "--output", "form", type=OneOf((TEXT, JSON)), default=TEXT, show_default=True, help="The format.")
@click.option("--json", "form", flag_value=JSON, help="Short for -o json.")
def command(kubectl: Kubectl, *, form: str) -> int:
    """Show how nodes, webhooks and releases of the cluster are, on one screen; changes nothing.

    Exit codes: 0 nothing is wrong that stops pods, 1 something is, or something could not be read.
    """
    reader = ClusterSurvey(kubectl)
    objects = reader.read()
    checks = [*_judge(objects), *reader.list_unread()]
    groups = cluster_checks.group(checks)
    answer_either(to_object(groups), render(groups), as_json=form == JSON)
    return 1 if any(one.state in (ERROR, UNKNOWN) for one in checks) else 0


def _judge(objects: InstalledObjects) -> Iterator[Check]:
    yield from node_checks.check_nodes(objects)
    yield from cluster_checks.check_webhooks(objects)
    yield from cluster_checks.check_releases(objects)
    yield from cluster_checks.check_leftovers(objects)
    yield from node_checks.check_events(objects)


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read: the right that it takes, in a namespace or in all, kubectl's reason, and the one object if it is one."""

    verb: str
    resource: str
    namespace: str
    why: str
    name: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the right is missing, by kubectl's reason."""
        return "forbidden" in self.why.lower()


@dataclass
class ClusterSurvey:
    """Reads what the checks need, with get and list, and asks agents that are not ready for their status."""

    kubectl: Kubectl
    by_kind: dict[str, list[Tree]] = field(default_factory=dict)
    unread: dict[tuple[str, str], Unread] = field(default_factory=dict)  # by kind and namespace

    def read(self) -> InstalledObjects:
        """Read the cluster. Raises ClusterError if it does not answer at all."""
        self._read_lists([(kind, "", words) for kind, words in EVERYWHERE.items()])
        if not self.by_kind and not any(one.is_refused for one in self.unread.values()):
            raise ClusterError(next(iter(self.unread.values())).why)
        trees = {HOOKS: self.by_kind.get(HOOKS, [])}
        services = {hook.service[0] for hook in find_hooks(trees, whole=True)} - {""}
        places = sorted({check_name(one, "namespace") for one in services} | {_home(tree) for tree in self._find_webhooks()})
        self._read_lists([(kind, place, (*words, "-n", place)) for place in places for kind, words in BESIDE_A_WEBHOOK.items()])
        self._read_certificates()
        first = self._objects()
        return self._objects(answers=self._ask_agents(first), pods_by_node=self._read_nodes(first))

    def list_unread(self) -> Iterator[Check]:
        """Yield what could not be read, with the right that is missing."""
        refused: dict[tuple[str, str, str], dict[str, None]] = {}
        for one in self.unread.values():
            if one.is_refused:
                refused.setdefault((one.verb, one.namespace, one.name), {})[one.resource] = None
        for (kind, _), one in self.unread.items():
            if not one.is_refused:
                yield Check(UNKNOWN, ACCESS, "not-read", kind, shorten(one.why, MAX_REASON), "run it again")
                continue
            where = f"in the namespace {one.namespace}" if one.namespace else "in the cluster"
            role = ["-n", one.namespace, "create", "role"] if one.namespace else ["create", "clusterrole"]
            what = [f"--verb={one.verb}", f"--resource={','.join(refused[one.verb, one.namespace, one.name])}"]
            what += [f"--resource-name={one.name}"] if one.name else []
            remedy = f"{shlex.join(['kubectl', *role, f'netinit-doctor-{one.verb}', *what])}, and have it bound to you"
            yield Check(UNKNOWN, ACCESS, "no-right", kind, f"you lack the right to {one.verb} this {where}", remedy)

    def _objects(self, **more: Any) -> InstalledObjects:
        return InstalledObjects(by_kind=self.by_kind, unread=frozenset(kind for kind, _ in self.unread), now=time.time(), **more)

    def _find_webhooks(self) -> list[Tree]:
        """The Deployments of our own webhooks."""
        return self._objects().labelled("Deployment", cluster_checks.WEBHOOK)

    def _read_certificates(self) -> None:
        """Read the Secrets with the certificates of our own webhooks, by their names."""
        named = [(name, _home(tree)) for tree in self._find_webhooks() if (name := cluster_checks.find_secret(tree))]
        asked = [("secret", check_name(name, "secret"), "-n", place) for name, place in named]
        for (name, place), found in zip(named, self.kubectl.get_all(asked), strict=True):
            if isinstance(found, ClusterError):
                self.unread["Secret", place] = Unread("get", "secrets", place, str(found), name)
            elif found:
                self.by_kind.setdefault("Secret", []).append(found)

    def _read_lists(self, asked: Sequence[tuple[str, str, Sequence[str]]]) -> None:
        """Read these lists, each of a kind in a place, and remember those that cannot be."""
        for (kind, place, words), found in zip(asked, self.kubectl.get_all([words for _, _, words in asked]), strict=True):
            if isinstance(found, ClusterError) and NOT_INSTALLED not in str(found):
                self.unread[kind, place] = Unread("list", words[0].replace(".v1.", "."), place, str(found))
            else:
                items = sequence(found.get("items")) if isinstance(found, dict) else []
                self.by_kind.setdefault(kind, []).extend([one for one in items if isinstance(one, dict)])

    def _ask_agents(self, objects: InstalledObjects) -> dict[str, Tree]:
        """What agents that are not ready say of themselves, of the first few."""
        pods = node_checks.find_unready_agents(objects)[:MAX_NODES]
        words = ("-c", AGENT_CONTAINER, "--", "netinit", "node", "status", "--json")
        done = self.kubectl.ask_all([(("exec", "-n", *_name(pod), *words), "") for pod in pods])
        answers = {}
        for pod, one in zip(pods, done, strict=True):
            tree = read_json(one.output)
            if tree is None and one.status:
                place, _ = _name(pod)
                self.unread["the agent's own status", place] = Unread("create", "pods/exec", place, describe_failure(one))
            answers[string(mapping(pod.get("spec")).get("nodeName"))] = tree or {}
        return answers

    def _read_nodes(self, objects: InstalledObjects) -> dict[str, list[Tree]]:
        """The pods of nodes without an agent, of the first few."""
        names = [check_name(name, "node") for name in node_checks.find_uncovered_nodes(objects)[:MAX_NODES]]
        asked = [("pods", "-A", "--field-selector", f"spec.nodeName={name}") for name in names]
        pods = {}
        for name, found in zip(names, self.kubectl.get_all(asked), strict=True):
            if isinstance(found, ClusterError):
                self.unread["the pods of nodes without an agent", ""] = Unread("list", "pods", "", str(found))
            else:
                pods[name] = [one for one in sequence(found.get("items")) if isinstance(one, dict)]
        return pods


def _name(pod: Tree) -> tuple[str, str]:
    """The namespace and the name of a pod, as arguments of kubectl."""
    return _home(pod), check_name(name_of(pod), "pod")


def _home(tree: Tree) -> str:
    """The namespace of an object, as an argument of kubectl."""
    return check_name(mapping(tree.get("metadata")).get("namespace"), "namespace")


# ---- what is printed ---------------------------------------------------------------------------------------------------------


def render(groups: list[list[Check]]) -> Lines:
    """Format the areas, a row for each group of equal checks, with what mends it, and the counts."""
    printed = []
    for area, title in TITLES.items():
        rows = [own for own in groups if own[0].area == area]
        printed += [title] if rows else []
        for own in rows[:MAX_ROWS]:
            printed += _render_group(own)
        if len(rows) > MAX_ROWS:
            printed.append(f"  … and {count(len(rows) - MAX_ROWS, 'row')} more: -o json")
    return lines([*printed, "", _sum_up(groups)])


def _render_group(own: list[Check]) -> Iterator[str]:
    first = own[0]
    said = f"{first.message}: {first.detail}" if first.detail else first.message
    yield f"  {SIGNS[first.state]} {_join([one.subject for one in own])}: {said}"
    if first.remedy:
        yield f"      {first.remedy}{f' ({first.page})' if first.page else ''}"


def _join(subjects: list[str]) -> str:
    """The first few subjects, and how many there are: `250 nodes (a, b, c and 247 more)` of `node a` and so on."""
    kinds = {one.rpartition(" ")[0] for one in subjects}
    before, _, noun = next(iter(kinds)).rpartition(" ")
    is_counted = len(subjects) > 1 and len(kinds) == 1 and noun
    shown = join_some([one.rpartition(" ")[2] for one in subjects] if is_counted else subjects, MAX_NAMES)
    return f"{before} {count(len(subjects), noun)} ({shown})".lstrip() if is_counted else shown


def _sum_up(groups: list[list[Check]]) -> str:
    states = [own[0].state for own in groups]
    wrong = [count(number, word) for state, word in ((ERROR, "error"), (WARNING, "warning")) if (number := states.count(state))]
    wrong += [f"{states.count(UNKNOWN)} not known"] if UNKNOWN in states else []
    return ", ".join(wrong) or "OK: nothing is wrong"


def to_object(groups: Iterable[list[Check]]) -> dict[str, Any]:
    """The answer in the form of netinit/data/cluster-doctor.schema.json."""
    rows = list(groups)
    states = [own[0].state for own in rows]
    return {
        "ok": ERROR not in states and UNKNOWN not in states,
        "checks": [
            {key: getattr(own[0], key) for key in ("area", "state", "kind", "message", "detail", "remedy", "page")}
            | {"subjects": [one.subject for one in own]}
            for own in rows
        ],
    }  # fmt: skip
