"""`kubectl netinit report`: the data for a bug report about a pod, in one file, without the cluster's names and addresses."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from typing import Any

import click

from netinit.base.errors import ClusterError, NetinitError, OptionError, ParseError
from netinit.base.output import show_artefact
from netinit.base.sanitize import escape
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.base.version import __version__
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.annotations import (
    CHECKS,
    INTERCEPTION_MODE,
    PROXY_CONFIG,
    STATUS_PORT,
    go_bool,
    known_keys,
)
from netinit.inject.deciding.pod_options import ANNOTATIONS, VARIABLES
from netinit.inject.deciding.podfile import TUNNEL_VARIABLE, PodFacts, read_object
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources, object_options
from netinit.kubectl.objects import ClusterPod
from netinit.kubectl.program import Kubectl
from netinit.kubectl.redaction import redact, trim_version
from netinit.kubectl.sources import EphemeralSource, PodQuestion, PodSource, ask_first
from netinit.options.command_line import format_options

OF_THE_NODE = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "architecture")
OF_THE_MESH = ("istio-proxy", "istio-init", "istio-validation", "agent", "netinit")
MAX_VALUE = 300  # characters of an annotation's value that are shown
# Keys of proxy.istio.io/config that change rules, with the annotation of the same kind.
_RULES_OF_CONFIG = {"interceptionMode": INTERCEPTION_MODE, "statusPort": STATUS_PORT}
_VARIABLES = (*VARIABLES, TUNNEL_VARIABLE)  # of its proxyMetadata
QUESTIONS = {"Rules compared": ("verify",), "Traffic": ("audit",), "Rules": ("draw", "--table", "all"), "Doctor": ("doctor",)}


@click.command("report")
@click.option("--plain", is_flag=True, help="Leave names, addresses and comments of rules in.")
@object_options((AUTO, AGENT, EPHEMERAL, MANIFEST), "Who reads the rules: the agent, else the manifest; or only this one.")
def command(sources: Sources, *, plain: bool) -> int:
    """Write a redacted bug report about a pod, of a workload the first one, as one file in Markdown.

    It has versions, options, live rules (by the agent, if it runs; --source debug: an ephemeral container a question),
    differences, audit, the doctor's findings.

    Only netinit's own words, numbers of up to 7 digits, versions, usual names of devices (eth0) and addresses that are the same
    everywhere (loopback, 169.254.0.0/16, examples) stay. Other names, addresses and bytes become NAME-1, ADDRESS-1, BYTES-1,
    each the same one wherever it appears; of a foreign rule's comment the length stays. Annotations that are options of rules keep
    their values, the others' length is written. Labels, environment, commands, volumes, events and images (but for the names of
    the mesh's) are left out.

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
    origins = [f"{field}: {key}" for field, key in facts.origins.items()]
    yield from _section("Options", [format_options(facts.written_options), *origins])
    for title, (verb, *words) in QUESTIONS.items():
        try:
            found = ask_first(sources, pod, PodQuestion(verb, tuple(words), facts.options))
            if words and found.code == OptionError.exit_code:  # an older agent, which draws all tables without being asked
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
    return [f"{name}: {trim_version(info[name]) if 'Version' in name else info[name]}" for name in OF_THE_NODE if name in info]


def _describe_pod(pod: ClusterPod, facts: PodFacts) -> list[str]:
    metadata, spec = mapping(pod.tree.get("metadata")), mapping(pod.tree.get("spec"))
    annotations = strings(metadata.get("annotations"))
    families = " and ".join(dict.fromkeys(["IPv6" if ":" in address else "IPv4" for address in pod.addresses]))
    own_users = spec.get("hostUsers") is False
    return [
        f"phase: {pod.phase}; addresses: {families}; host network: {facts.host_network}; user namespace: {own_users}",
        *[f"{kind}: {_describe_container(one)}" for kind, one in _list_containers(spec)],
        *[f"annotation {key}: {_describe_annotation(key, annotations[key])}" for key in known_keys() if key in annotations],
        f"annotations that netinit does not know: {len(annotations.keys() - {*known_keys()})}",
        *[f"note: {note}" for note in facts.notes],
        *[f"finding: {finding} ({finding.kind.code})" for finding in facts.findings],
    ]


def _describe_annotation(key: str, value: str) -> str:
    if key == PROXY_CONFIG:
        return _describe_proxy_config(value)
    return _describe_value(value, is_shown=key in ANNOTATIONS and CHECKS[key](value) is None)


def _describe_proxy_config(text: str) -> str:
    """The keys of a proxy's configuration that change rules, with their values, and how long the text is."""
    try:
        config = mapping(yaml_texts.load(text))
    except ParseError:
        return f"{_describe_value(text, is_shown=False)}, not YAML"
    variables = mapping(config.get("proxyMetadata"))
    shown = {key: _describe_setting(config[key], kind) for key, kind in _RULES_OF_CONFIG.items() if key in config}
    shown |= {key: _describe_setting(variables[key]) for key in _VARIABLES if key in variables}
    return ", ".join([_describe_value(text, is_shown=False), *[f"{key}: {value}" for key, value in shown.items()]])


def _describe_setting(value: Any, kind: str = "") -> str:
    """A value of the annotation's kind, or without one a switch."""
    text = string(value) if isinstance(value, str) else json.dumps(value)
    return _describe_value(text, is_shown=CHECKS[kind](text) is None if kind else go_bool(text) is not None)


def _describe_value(value: str, *, is_shown: bool) -> str:
    return value if is_shown and len(value) <= MAX_VALUE else f"set, {len(value)} characters"


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
