"""Judge the nodes of a running installation: agents, taints, pods that wait, and what agents and webhooks told in events. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from netinit.base.documentation import address_of
from netinit.base.sanitize import shorten
from netinit.base.tables import count
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.adding.settings import node_info
from netinit.inject.deciding.containers import find_sidecar
from netinit.inject.deciding.init_container import find_init, is_ambient
from netinit.inject.deciding.warnings import only_validates, uses_host_network
from netinit.installation.cluster_checks import (
    AGENT,
    ERROR,
    EVENTS,
    LEFTOVERS,
    MAX_REASON,
    NAME_OF,
    NODES,
    OK,
    UNKNOWN,
    WARNING,
    Check,
    InstalledObjects,
    explain_unready,
    image_of,
    in_namespace,
    is_condition,
    last_event,
    version_of,
)
from netinit.installation.linting import arguments_of, metadata_of, name_of, subject_of, template_of
from netinit.installation.neighbours import is_mesh_agent

_TAINT = "--startupTaint="
_OURS = "netinit"  # in the key of a taint that a removed release may have left
_PLUGIN = "netinit: "  # begins what the plugin says, in the event of a pod that the runtime could not create
_WAITS = "FailedCreatePodSandBox"
_TELLERS = ("netinit-node", "netinit-webhook")  # the components that write events
_STUCK = address_of("troubleshooting", "a-node-is-stuck")


def check_nodes(objects: InstalledObjects) -> Iterator[Check]:
    """Yield how the agent of each Linux node is."""
    agents = objects.labelled("DaemonSet", AGENT)
    yield from _check_taints(agents, objects)
    if not agents:
        if "DaemonSet" not in objects.unread:
            yield Check(OK, NODES, "no-agent", "the cluster", "no node agent is installed: init containers program the pods")
        return
    if objects.unread & {"Node", "Pod"}:
        return  # how many agents there should be is not known
    for agent in agents:
        yield from _check_count(agent, objects)
    pods = map_agents(agents, objects)
    for node in list_linux_nodes(objects):
        found = pods.get(name_of(node), [])
        if not is_condition(node, "Ready"):
            why, remedy = "the node itself is not ready, so its agent is not known", ["kubectl", "describe", "node", name_of(node)]
            yield Check(UNKNOWN, NODES, "node-not-ready", f"node {name_of(node)}", why, shlex.join(remedy))
        elif found:
            yield _check_agent_of(node, *found[0], objects)
        else:
            yield _check_uncovered(node, agents[0], objects)


def list_linux_nodes(objects: InstalledObjects) -> list[Tree]:
    """The nodes on which pods with rules can run."""
    return [tree for tree in objects.of("Node") if node_info(tree).get("operatingSystem", "linux") == "linux"]


def map_agents(agents: list[Tree], objects: InstalledObjects) -> dict[str, list[tuple[Tree, Tree]]]:
    """The agents by node, each its pod and its DaemonSet: ready ones first, of these the newest."""
    found: dict[str, list[tuple[Tree, Tree]]] = {}
    owned = [(pod, agent) for agent in agents for pod in objects.owned(agent)]
    newest = sorted(owned, key=lambda one: string(metadata_of(one[0]).get("creationTimestamp")), reverse=True)
    for pod, agent in sorted(newest, key=lambda one: not is_condition(one[0], "Ready")):
        found.setdefault(_find_node(pod), []).append((pod, agent))
    return found


def _find_node(pod: Tree) -> str:
    """The node of a DaemonSet's pod, also before it is scheduled: then its controller has written it into the affinity."""
    spec = mapping(pod.get("spec"))
    if name := string(spec.get("nodeName")):
        return name
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    terms = sequence(mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")).get("nodeSelectorTerms"))
    fields = [one for term in terms for one in sequence(mapping(term).get("matchFields"))]
    values = [value for one in map(mapping, fields) if one.get("key") == "metadata.name" for value in sequence(one.get("values"))]
    return string(values[0]) if values else ""


def find_unready_agents(objects: InstalledObjects) -> list[Tree]:
    """The agents' pods that run and are not ready: those that can say themselves what is wrong."""
    first = [own[0][0] for own in map_agents(objects.labelled("DaemonSet", AGENT), objects).values()]
    return [pod for pod in first if mapping(pod.get("status")).get("phase") == "Running" and not is_condition(pod, "Ready")]


def find_uncovered_nodes(objects: InstalledObjects) -> list[str]:
    """The names of the nodes without an agent, where there are agents and nodes can be told from them."""
    agents = objects.labelled("DaemonSet", AGENT)
    if not agents or objects.unread & {"Node", "Pod"}:
        return []
    covered = map_agents(agents, objects)
    return [name_of(node) for node in list_linux_nodes(objects) if name_of(node) not in covered and is_condition(node, "Ready")]


def _check_count(agent: Tree, objects: InstalledObjects) -> Iterator[Check]:
    """Yield that pods of the DaemonSet are missing, which quota, PodSecurity or a policy refuses: only its events say so."""
    wanted = mapping(agent.get("status")).get("desiredNumberScheduled")
    nodes = {_find_node(pod) for pod in objects.owned(agent)}
    if isinstance(wanted, int) and len(nodes) < wanted:
        why = last_event(objects, "DaemonSet", name_of(agent), "FailedCreate")
        yield Check(
            ERROR, NODES, "agents-not-created", subject_of("DaemonSet", agent),
            f"{wanted - len(nodes)} of {count(wanted, 'agent')} could not be created{f': {why}' if why else ''}",
            in_namespace(agent, "describe", "daemonset", name_of(agent)),
        )  # fmt: skip


def _check_agent_of(node: Tree, pod: Tree, agent: Tree, objects: InstalledObjects) -> Check:
    """How the agent of a node is."""
    subject, planned = f"node {name_of(node)}", image_of(template_of(agent))
    version = version_of(image_of(pod), agent)
    if is_condition(pod, "Ready"):
        if image_of(pod) == planned:
            return Check(OK, NODES, "ready", subject, f"agent ready, {version}")
        return Check(
            WARNING, NODES, "old-agent", subject,
            f"agent ready, of the version {version}, while its DaemonSet has {version_of(planned, agent)}",
            in_namespace(agent, "rollout", "status", f"daemonset/{name_of(agent)}"),
        )  # fmt: skip
    answer = objects.answers.get(name_of(node), {})
    missing = [f"{part}: {text}" for part in ("executable", "entry") if (text := string(answer.get(part)))]
    if missing:
        return Check(
            ERROR, NODES, "plugin-missing", subject, shorten(f"the plugin is not in place: {'; '.join(missing)}", MAX_REASON),
            in_namespace(pod, "logs", name_of(pod)), page=address_of("node", "status-and-metrics"),
        )  # fmt: skip
    why = shorten(string(answer.get("agent")), MAX_REASON) or explain_unready(pod)
    why = why or last_event(objects, "Node", name_of(node), "NotReady")
    states = [mapping(mapping(one).get("state")) for one in sequence(mapping(pod.get("status")).get("containerStatuses"))]
    words = ("logs", name_of(pod)) if any("running" in one for one in states) else ("describe", "pod", name_of(pod))
    remedy = in_namespace(pod, *words)
    return Check(ERROR, NODES, "not-ready", subject, f"agent not ready{f': {why}' if why else ''}", remedy, page=_STUCK)


def _check_uncovered(node: Tree, agent: Tree, objects: InstalledObjects) -> Check:
    """Whether a node without an agent has pods that need one."""
    subject, name = f"node {name_of(node)}", name_of(node)
    if name not in objects.pods_by_node:
        remedy = shlex.join(["kubectl", "get", "pods", "-A", "--field-selector", f"spec.nodeName={name}"])
        return Check(UNKNOWN, NODES, "pods-not-read", subject, "no agent, and whether its pods need one was not read", remedy)
    needy = [pod for pod in objects.pods_by_node[name] if needs_agent(pod)]
    if not needy:
        return Check(OK, NODES, "not-selected", subject, "no agent, and no pod that needs one")
    state = WARNING if any(is_mesh_agent(one) for one in objects.of("DaemonSet")) else ERROR
    return Check(
        state, NODES, "no-agent-for-pods", subject,
        "no agent, though injected pods without an init container run here: nothing programs them",
        "set node.nodeSelector, node.affinity and node.tolerations so that the agent runs here: "
        f"{in_namespace(agent, 'get', 'daemonset', name_of(agent), '-o', 'yaml')}",
        detail=f"{metadata_of(needy[0]).get('namespace')}/{name_of(needy[0])}",
    )  # fmt: skip


def needs_agent(pod: Tree) -> bool:
    """Whether a pod has a sidecar, and nothing in it programs its rules."""
    spec = mapping(pod.get("spec"))
    init = find_init(spec)
    if uses_host_network(pod) or is_ambient(pod) or mapping(pod.get("status")).get("phase") in {"Succeeded", "Failed"}:
        return False
    return only_validates(init) if init is not None else find_sidecar(spec) is not None


# ---- taints and events -------------------------------------------------------------------------------------------------------


def _check_taints(agents: list[Tree], objects: InstalledObjects) -> Iterator[Check]:
    """Yield nodes that keep pods away by the agent's startup taint, or by one of a release that is gone."""
    given = [word.removeprefix(_TAINT) for agent in agents for word in arguments_of(agent) if word.startswith(_TAINT)]
    own = {text.partition(":")[0].partition("=")[0] for text in given}
    ready = {name for name, found in map_agents(agents, objects).items() if is_condition(found[0][0], "Ready")}
    for node in list_linux_nodes(objects):
        for taint in map(mapping, sequence(mapping(node.get("spec")).get("taints"))):
            key, name = string(taint.get("key")), name_of(node)
            remedy = shlex.join(["kubectl", "taint", "node", name, f"{key}:{string(taint.get('effect'))}-"])
            if key in own:
                why = "though its agent is ready" if name in ready else "until its agent is ready"
                message = f"has the startup taint {shorten(key)} {why}: it takes no other pods"
                yield Check(WARNING, NODES, "tainted", f"node {name}", message, remedy)
            elif _OURS in key and "DaemonSet" not in objects.unread:
                message = f"has the taint {shorten(key)}, which no agent removes"
                yield Check(WARNING, LEFTOVERS, "taint", f"node {name}", message, remedy)


def check_events(objects: InstalledObjects) -> Iterator[Check]:
    """Yield what webhook and agents told of pods and nodes, and pods that wait for a plugin, each kind once."""
    for event in objects.of("Event"):
        reason, message = string(event.get("reason")), string(event.get("message"))
        involved = mapping(event.get("involvedObject"))
        subject = "/".join(filter(None, (string(involved.get("namespace")), string(involved.get("name")))))
        if reason == _WAITS and _PLUGIN in message:
            yield Check(
                ERROR, EVENTS, "pods-wait", f"pod {subject}", "does not start",
                f"kubectl get pods -A -o wide -l {NAME_OF}={AGENT}",
                detail=shorten(message.rpartition(_PLUGIN)[2], MAX_REASON), page=_STUCK,
            )  # fmt: skip
        elif component_of(event) in _TELLERS and reason != "NotReady":  # which is said of the node or the Deployment itself
            is_of_pod = involved.get("kind") == "Pod"
            words = (["netinit", "verify"] if is_of_pod else ["describe", string(involved.get("kind")).lower()])
            namespace = string(involved.get("namespace"))
            where = ["-n", namespace] if namespace else []
            remedy = shlex.join(["kubectl", *words, string(involved.get("name")), *where])
            title = f"{string(involved.get('kind')).lower()} {subject}"
            yield Check(WARNING, EVENTS, shorten(reason), title, shorten(reason), remedy, detail=shorten(message, MAX_REASON))


def component_of(event: Tree) -> str:
    """The program that wrote an event."""
    return string(mapping(event.get("source")).get("component")) or string(event.get("reportingComponent"))
