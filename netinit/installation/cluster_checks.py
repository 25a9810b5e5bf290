"""Judge a running installation: webhooks, releases and what removed ones left, for one screen. Pure.

`node_checks` has the nodes, and what agents and webhooks told in events.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from netinit.base.documentation import address_of
from netinit.base.errors import ConfigError
from netinit.base.sanitize import shorten
from netinit.base.tables import count
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.installation import linting
from netinit.installation.linting import HOOKS, ByKind, Hook, labels_of, metadata_of, name_of, subject_of
from netinit.installation.neighbours import check_agent
from netinit.serving.certificates import describe, split_pem

OK, ERROR, WARNING, UNKNOWN = "ok", linting.ERROR, linting.WARNING, "unknown"
NODES, WEBHOOKS, RELEASES, LEFTOVERS, EVENTS, ACCESS = "nodes", "webhooks", "releases", "leftovers", "events", "access"
NAME_OF, RELEASE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
AGENT, WEBHOOK = "netinit-node", "netinit-webhook"  # values of NAME_OF
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
MAX_REASON = 200  # characters of what a pod, an event or an agent says
_VERSION = "app.kubernetes.io/version"
_SECRET, _TLS_VOLUME = "--certificateSecret=", "tls"  # of the chart's Deployment
_TRACED_BY_HELM = "meta.helm.sh/release-namespace"
_TAG = re.compile(r":([\w.-]{1,128})$")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what it is about, how it is, and the command that mends it.

    Checks that differ in `subject` alone are shown once; `detail` and `remedy` are then those of the first.
    """

    state: str
    area: str
    kind: str
    subject: str
    message: str
    remedy: str = ""
    detail: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledObjects:
    """The objects that were read. `unread`: kinds that were not. `now`: seconds since the epoch.

    `answers`: what `netinit node status --json` said, by the node's name. `pods_by_node`: the pods of nodes without an agent.
    """

    by_kind: ByKind
    now: float
    unread: frozenset[str] = frozenset()
    answers: Mapping[str, Tree] = field(default_factory=dict)
    pods_by_node: Mapping[str, list[Tree]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Tree]:
        """The objects of a kind."""
        return self.by_kind.get(kind, [])

    def labelled(self, kind: str, name: str) -> list[Tree]:
        """The objects of a kind that have this value of the label app.kubernetes.io/name."""
        return [tree for tree in self.of(kind) if labels_of(tree).get(NAME_OF) == name]

    def owned(self, owner: Tree) -> list[Tree]:
        """The pods that a controller owns, itself or by its ReplicaSet, which the API server does not let strangers claim."""
        uid, own = metadata_of(owner).get("uid"), (metadata_of(owner).get("namespace"), name_of(owner))
        references = [(pod, one) for pod in self.of("Pod") for one in sequence(metadata_of(pod).get("ownerReferences"))]
        return [pod for pod, one in references if _is_owner(mapping(one), uid, own, pod)]


def _is_owner(reference: Tree, uid: Any, own: tuple[Any, str], pod: Tree) -> bool:
    namespace, name = own
    if reference.get("controller") is not True or metadata_of(pod).get("namespace") != namespace:
        return False
    if reference.get("kind") == "ReplicaSet":
        return string(reference.get("name")).removesuffix("-" + labels_of(pod).get("pod-template-hash", "")) == name
    return bool(reference.get("uid") == uid)


# ---- words that several checks share ---------------------------------------------------------------------------------------


def in_namespace(tree: Tree, *words: str) -> str:
    """A command of kubectl for the namespace of an object."""
    return shlex.join(["kubectl", "-n", string(metadata_of(tree).get("namespace")), *words])


def image_of(pod_or_template: Tree) -> str:
    """The image of the first container."""
    containers = sequence(mapping(pod_or_template.get("spec")).get("containers"))
    return string(mapping(containers[0]).get("image")) if containers else ""


def version_of(image: str, workload: Tree) -> str:
    """The version of an image: its tag, or the chart's where it is named by its digest alone."""
    found = _TAG.search(image.partition("@")[0])
    return found[1] if found else labels_of(workload).get(_VERSION, "") or "no version"


def is_condition(tree: Tree, kind: str) -> bool:
    """Whether an object's status has this condition as True."""
    return _find_condition(tree, kind).get("status") == "True"


def _find_condition(tree: Tree, kind: str) -> Tree:
    listed = map(mapping, sequence(mapping(tree.get("status")).get("conditions")))
    return next((one for one in listed if one.get("type") == kind), {})


def explain_unready(pod: Tree) -> str:
    """Why a pod is not ready, by its status; empty if that does not say."""
    status = mapping(pod.get("status"))
    for one in map(mapping, sequence(status.get("containerStatuses"))):
        waiting, last = mapping(mapping(one.get("state")).get("waiting")), mapping(mapping(one.get("lastState")).get("terminated"))
        if reason := string(waiting.get("reason")):
            ended = f"; it ended with {string(last.get('exitCode'))}, {string(last.get('reason'))}" if last else ""
            return shorten(f"{reason}{ended}", MAX_REASON)
    scheduled = _find_condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return shorten(f"not scheduled: {string(scheduled.get('message'))}", MAX_REASON)
    return shorten(string(status.get("reason")), MAX_REASON)


# ---- webhooks ----------------------------------------------------------------------------------------------------------------


def check_webhooks(objects: InstalledObjects) -> Iterator[Check]:
    """Yield what `lint` finds, the configurations in which it finds nothing, and the webhook's replicas."""
    if HOOKS not in objects.unread:
        trees = [{**tree, "kind": kind} for kind in objects.by_kind for tree in objects.of(kind)]
        found = linting.lint(trees, now=objects.now, unread=objects.unread)
        for one in found:
            state = UNKNOWN if one.kind == linting.BUNDLE_UNREAD else one.severity
            yield Check(state, WEBHOOKS, one.kind, one.subject, one.message, one.remedy, page=one.page)
        by_name: dict[str, list[Hook]] = {}
        for hook in linting.find_hooks(objects.by_kind, whole=True, unread=objects.unread):
            by_name.setdefault(hook.configuration, []).append(hook)
        for name, hooks in by_name.items():
            if not any(one.subject.partition(",")[0] == name for one in found):
                yield Check(OK, WEBHOOKS, "configuration", name, _describe_hooks(hooks, objects))
    for deployment in objects.labelled("Deployment", WEBHOOK):
        yield _check_replicas(deployment, objects)


def _describe_hooks(hooks: list[Hook], objects: InstalledObjects) -> str:
    """How the webhooks of a configuration are, when nothing is wrong with them."""
    policies = "/".join(dict.fromkeys(["Fail" if hook.fails else "Ignore" for hook in hooks]))
    said = [count(len(hooks), "webhook"), f"failurePolicy {policies}"]
    if ends := [end for hook in hooks if (end := _find_end(hook))]:
        said.append(f"caBundle valid until {time.strftime('%Y-%m-%d', time.gmtime(min(ends)))}")
    if "EndpointSlice" not in objects.unread and all(hook.service[1] for hook in hooks):
        said.append(count(min(hook.count_ready_endpoints() for hook in hooks), "ready endpoint"))
    return ", ".join(said)


def _find_end(hook: Hook) -> float:
    """When the last CA of a webhook expires; 0 if that is not known."""
    try:
        bundle = base64.b64decode(string(mapping(hook.tree.get("clientConfig")).get("caBundle")), validate=True).decode()
        return max([describe(one).until for one in split_pem(bundle)], default=0.0)
    except (binascii.Error, UnicodeDecodeError, ConfigError, ImportError):
        return 0.0


def _check_replicas(deployment: Tree, objects: InstalledObjects) -> Check:
    subject = subject_of("Deployment", deployment)
    wanted = _number(mapping(deployment.get("spec")).get("replicas"))
    ready = _number(mapping(deployment.get("status")).get("readyReplicas"))
    version = version_of(image_of(linting.template_of(deployment)), deployment)
    if ready and ready >= wanted:
        return Check(OK, WEBHOOKS, "replicas", subject, f"{ready} of {count(wanted, 'replica')} ready, {version}")
    pods = [pod for pod in objects.owned(deployment) if not is_condition(pod, "Ready")]
    reasons = [explain_unready(pod) or last_event(objects, "Pod", name_of(pod), "NotReady") for pod in pods]
    why = next(filter(None, reasons), "" if pods else last_event(objects, "ReplicaSet", "", "FailedCreate"))
    message = f"{ready} of {count(wanted, 'replica')} ready" + (f": {why}" if why else "")
    words = ("logs", f"deploy/{name_of(deployment)}") if pods else ("get", "events")
    remedy = in_namespace(deployment, *words)
    return Check(WARNING if ready else ERROR, WEBHOOKS, "replicas", subject, message, remedy)


def find_secret(deployment: Tree) -> str:
    """The name of the Secret with a webhook's certificate; empty if it has none."""
    given = [word.removeprefix(_SECRET) for word in linting.arguments_of(deployment) if word.startswith(_SECRET)]
    volumes = [mapping(one) for one in sequence(mapping(linting.template_of(deployment).get("spec")).get("volumes"))]
    mounted = [string(mapping(one.get("secret")).get("secretName")) for one in volumes if one.get("name") == _TLS_VOLUME]
    return next(iter((*given, *mounted)), "")


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def last_event(objects: InstalledObjects, kind: str, name: str, reason: str) -> str:
    """The newest message of an event about an object, whose name begins so; empty if there is none."""
    found = [(mapping(one.get("involvedObject")), one) for one in objects.of("Event") if one.get("reason") == reason]
    told = [one for of, one in found if of.get("kind") == kind and string(of.get("name")).startswith(name)]
    newest = max(told, key=lambda one: string(one.get("lastTimestamp")), default={})
    return shorten(string(newest.get("message")), MAX_REASON)


# ---- releases ----------------------------------------------------------------------------------------------------------------


def check_releases(objects: InstalledObjects) -> Iterator[Check]:
    """Yield each release with its versions, those that have the agent twice, and other meshes' agents."""
    workloads = _find_workloads(objects)
    for release in dict.fromkeys(map(identify, workloads)):
        own = [tree for tree in workloads if identify(tree) == release]
        yield _compare_versions(release, own, objects)
    agents = objects.labelled("DaemonSet", AGENT)
    for agent in agents[1:]:
        namespace, name = identify(agent)
        yield Check(
            ERROR, RELEASES, "another-agent", subject_of("DaemonSet", agent),
            f"the release {'/'.join(identify(agents[0]))} has the agent too: the plugin is one's, and the other's agents do not start",
            f"{shlex.join(['helm', 'uninstall', name, '-n', namespace])}, or set node.enabled=false in one of them",
            page=address_of("node", "several-releases"),
        )  # fmt: skip
    for agent in agents[:1]:
        for other in objects.of("DaemonSet"):
            if labels_of(other).get(NAME_OF) != AGENT:
                for one in check_agent(agent, other):
                    yield Check(one.severity, RELEASES, one.kind, one.subject, one.message, one.remedy, page=one.page)


def _find_workloads(objects: InstalledObjects) -> list[Tree]:
    """The workloads of all releases."""
    kinds = (("Deployment", WEBHOOK), ("DaemonSet", AGENT))
    return [{**tree, "kind": kind} for kind, name in kinds for tree in objects.labelled(kind, name)]


def identify(tree: Tree) -> tuple[str, str]:
    """The namespace and the name of the release that has an object."""
    return string(metadata_of(tree).get("namespace")), labels_of(tree).get(RELEASE, "")


def _compare_versions(release: tuple[str, str], workloads: list[Tree], objects: InstalledObjects) -> Check:
    """Whether webhook, agent and init container of a release are of one version."""
    namespace, name = release
    titles = {"Deployment": "webhook", "DaemonSet": "agent"}
    versions = {titles[tree["kind"]]: version_of(image_of(linting.template_of(tree)), tree) for tree in workloads}
    maps = [tree for tree in objects.labelled("ConfigMap", WEBHOOK) if identify(tree) == release]
    images = [image for tree in maps if (image := linting.read_init_image(strings(tree.get("data")).get("values", "")))]
    versions |= {"init container": version_of(images[0], workloads[0])} if images else {}
    said = ", ".join([f"{part} {version}" for part, version in versions.items()])
    subject = f"release {namespace}/{name}"
    if len(set(versions.values())) == 1:
        return Check(OK, RELEASES, "version", subject, said)
    return Check(
        WARNING, RELEASES, "version-skew", subject,
        f"of several versions: {said}",
        f"{shlex.join(['helm', 'upgrade', name, 'oci://REGISTRY/mesh/charts/netinit', '-n', namespace])} --reset-then-reuse-values, "
        "without the tags that were set (image.tag, initImage.tag, node.image.tag)",
        page=address_of("webhook", "upgrade"),
    )  # fmt: skip


# ---- what removed releases left ----------------------------------------------------------------------------------------------


def check_leftovers(objects: InstalledObjects) -> Iterator[Check]:
    """Yield objects of no namespace whose release is gone. Webhook configurations are `lint`'s."""
    if objects.unread & {"Deployment", "DaemonSet"}:
        return  # which releases there are is not known
    releases = [identify(tree) for tree in _find_workloads(objects)]
    found = False
    for kind in CLUSTER_WIDE:
        for tree in objects.of(kind):
            namespace = strings(metadata_of(tree).get("annotations")).get(_TRACED_BY_HELM, "")
            name = labels_of(tree).get(RELEASE, "")
            if not any(one == name and namespace in ("", place) for place, one in releases):
                found = True
                remedy = shlex.join(["kubectl", "delete", kind.lower(), name_of(tree)])
                yield Check(WARNING, LEFTOVERS, "no-release", f"{kind} {name_of(tree)}", f"its release {name} is gone", remedy)
    if not found and not objects.unread & {*CLUSTER_WIDE, "Node"}:
        yield Check(OK, LEFTOVERS, "none", "the cluster", "no roles and no policies of removed releases")


def group(checks: Iterable[Check]) -> list[list[Check]]:
    """Put equal checks together, in the order of the areas, what to act on first."""
    areas, states = (NODES, WEBHOOKS, RELEASES, LEFTOVERS, EVENTS, ACCESS), (ERROR, WARNING, UNKNOWN, OK)
    groups: dict[tuple[str, ...], list[Check]] = {}
    for one in dict.fromkeys(checks):
        groups.setdefault((one.area, one.state, one.kind, one.message), []).append(one)
    return sorted(groups.values(), key=lambda own: (areas.index(own[0].area), states.index(own[0].state)))
