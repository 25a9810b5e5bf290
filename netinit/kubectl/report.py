"""`kubectl netinit report`: the data for a bug report about a pod, in one file, without the cluster's names and addresses."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping

import click

from netinit.base.errors import ClusterError, NetinitError
from netinit.base.net import Network, family_of, number_of, parse_address
from netinit.base.output import show_artefact
from netinit.base.sanitize import escape
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.base.version import __version__
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.podfile import PodFacts, read_object
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources, object_options
from netinit.kubectl.objects import ClusterPod
from netinit.kubectl.program import Kubectl
from netinit.kubectl.sources import EphemeralSource, PodQuestion, PodSource, ask_first
from netinit.options.command_line import format_options

OF_THE_NODE = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "architecture")
OF_THE_MESH = ("istio-proxy", "istio-init", "istio-validation", "agent", "netinit")
MAX_VALUE = 300  # characters of an annotation: sidecar.istio.io/status fills a page
QUESTIONS = {"Rules compared": "verify", "Traffic": "audit", "Rules": "draw", "Doctor": "doctor"}


@click.command("report")
@click.option("--plain", is_flag=True, help="Leave names and addresses in.")
@object_options((AUTO, AGENT, EPHEMERAL, MANIFEST), "Who reads the rules: the agent, else the manifest; or only this one.")
def command(sources: Sources, *, plain: bool) -> int:
    """Write a redacted bug report about a pod, of a workload the first one, as one file in Markdown.

    It has versions, options, live rules (by the agent, if it runs; --source debug: an ephemeral container a question),
    differences, audit, the doctor's findings. Names and addresses are replaced; environment, commands, volumes left out.

    Read it before you send it. Exit codes: 0 written, even if a part has only a reason; 1 no such pod; 2 wrong options.
    """
    pod = sources.pods[0]
    asked = [one for one in sources.of(pod) if sources.chosen != AUTO or not isinstance(one, EphemeralSource)]
    text = "\n".join(_write(sources.kubectl, pod, asked)) + "\n"
    show_artefact(text if plain else redact(text, _find_names(pod)))
    return 0


def _write(kubectl: Kubectl, pod: ClusterPod, sources: list[PodSource]) -> Iterator[str]:
    yield from ("# netinit report", "")
    yield from _section("Versions", [f"netinit {__version__}, Python {platform.python_version()}", *_describe_node(kubectl, pod)])
    try:
        facts = read_object(pod.tree)
    except NetinitError as error:
        yield from _section("Options", [f"cannot be read: {error}"])
        return
    yield from _section("Pod", _describe_pod(pod, facts))
    yield from _section("Options", [format_options(facts.options), *[f"{field}: {key}" for field, key in facts.origins.items()]])
    for title, verb in QUESTIONS.items():
        try:
            found = ask_first(sources, pod, PodQuestion(verb, (), facts.options))
        except ClusterError as error:
            yield from _section(title, [str(error)])
            continue
        lines = [f"netinit {verb}: exit code {found.code}", f"source: {found.source}", *[f"note: {note}" for note in found.notes]]
        yield from _section(title, [*lines, *found.text])


def _section(title: str, rows: list[str]) -> Iterator[str]:
    yield from (f"## {title}", "", "```text", *[escape(row).replace("```", "'''") for row in rows], "```", "")


def _describe_node(kubectl: Kubectl, pod: ClusterPod) -> list[str]:
    try:
        info = strings(mapping(mapping(kubectl.get("node", pod.node)).get("status")).get("nodeInfo"))
    except ClusterError as error:
        return [f"node: not read: {error}"]
    return [f"{name}: {info[name]}" for name in OF_THE_NODE if name in info]


def _describe_pod(pod: ClusterPod, facts: PodFacts) -> list[str]:
    metadata, spec = mapping(pod.tree.get("metadata")), mapping(pod.tree.get("spec"))
    known, annotations = known_keys(), strings(metadata.get("annotations"))
    kept = {key: value for key, value in annotations.items() if key in known and len(value) < MAX_VALUE}
    families = " and ".join(dict.fromkeys(["IPv6" if ":" in address else "IPv4" for address in pod.addresses]))
    own_users = spec.get("hostUsers") is False
    return [
        f"phase: {pod.phase}; addresses: {families}; host network: {facts.host_network}; user namespace: {own_users}",
        *[f"{kind}: {_describe_container(one)}" for kind, one in _list_containers(spec)],
        *[f"annotation {key}: {value}" for key, value in kept.items()],
        *[f"note: {note}" for note in facts.notes],
        *[f"finding: {finding}" for finding in facts.findings],
    ]


def _list_containers(spec: Tree) -> list[tuple[str, Tree]]:
    kinds = {"init container": "initContainers", "container": "containers", "ephemeral container": "ephemeralContainers"}
    return [(kind, mapping(one)) for kind, key in kinds.items() for one in sequence(spec.get(key))]


def _describe_container(container: Tree) -> str:
    name, context = string(container.get("name")), mapping(container.get("securityContext"))
    rights = [f"{key}: {context[key]}" for key in ("runAsUser", "runAsGroup", "privileged", "capabilities") if key in context]
    restarts = [f"restartPolicy: {container['restartPolicy']}"] if "restartPolicy" in container else []
    image = f" of {string(container.get('image')).rpartition('/')[2]}" if name in OF_THE_MESH else ""
    return f'"{name}"{image}{": " if rights or restarts else ""}{", ".join([*restarts, *rights])}'


def _find_names(pod: ClusterPod) -> dict[str, str]:
    metadata, spec = mapping(pod.tree.get("metadata")), mapping(pod.tree.get("spec"))
    owners = [string(mapping(one).get("name")) for one in sequence(metadata.get("ownerReferences"))]
    stems = [owner.rpartition("-")[0] for owner in owners] + [string(metadata.get("generateName")).rstrip("-")]
    names = {name: "OWNER" for name in (*stems, *owners) if name}
    names |= {pod.account: "ACCOUNT"} if pod.account != "default" else {}
    names |= {pod.node: "NODE", pod.namespace: "NAMESPACE", pod.name: "POD"}
    containers = [string(one.get("name")) for _, one in _list_containers(spec)]
    others = [name for name in containers if name not in OF_THE_MESH]
    return names | {f'"{name}"': f'"CONTAINER-{number}"' for number, name in enumerate(others, 1)}


_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*(?![\w:]))")
KEPT = tuple(  # reveals nothing about a cluster, but is essential for understanding rules
    Network.parse(text)
    for text in ("0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
                 "255.255.255.255/32", "::/127", "::6/128", "2001:db8::/32", "fe80::/10", "ff00::/8")
)  # fmt: skip


def redact(text: str, names: Mapping[str, str]) -> str:
    """Replace names (name -> replacement, as whole words) and addresses, which are numbered in order of appearance."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w]|-\w)", names[name], text)
    numbers: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        try:
            address = parse_address(found[0])
        except ValueError:
            return found[0]
        family, value = family_of(address), number_of(address)
        if any(one.family is family and one.first <= value <= one.last for one in KEPT):
            return found[0]
        return numbers.setdefault(address, f"ADDRESS-{len(numbers) + 1}")

    return _ADDRESS.sub(replace, text)
