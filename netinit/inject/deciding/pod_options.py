"""The options of a pod: of its init container, and back; or of its annotations and its proxy, as a CNI plugin reads them."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Mapping
from typing import Any

from netinit.base.tree import Tree, clone, mapping, sequence, string, strings
from netinit.inject.deciding.annotations import CHECKS, go_bool, read_switch
from netinit.inject.deciding.containers import INIT, VALIDATION, find, named
from netinit.options import Options, kinds
from netinit.options.interception import AMBIENT, DEFAULT_PROXY_UID
from netinit.options.kinds import Flag

_SPELLED_OUT = ("outbound_port", "proxy_uids", "inbound_mode", "outbound_cidrs", "inbound_ports")
"""Options that are always in the arguments, for people who read the pod."""
_PROGRAMS = frozenset(("netinit", "istio-iptables", "istio-iptables.sh", "apply", "pilot-agent"))
_LONG = 4096  # characters: longer arguments are not cached
_STARTED_AS = frozenset(("netinit", "istio-iptables"))
_RESOURCES: Tree = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def init_container(
    options: Options, *, image: str, name: str = INIT, image_pull_policy: str = "", resources: Tree | None = None
) -> Tree:
    """Return the init container that programs these options.

    It runs as root with only NET_ADMIN and, for legacy iptables, NET_RAW, under the runtime's seccomp profile. Options
    without a flag are in its environment.
    """
    container: Tree = {"name": name, "image": image}
    if image_pull_policy:
        container["imagePullPolicy"] = image_pull_policy
    container["args"] = list(options.to_argv(always=_SPELLED_OUT))
    if environment := options.to_environ():
        container["env"] = [{"name": key, "value": value} for key, value in sorted(environment.items())]
    container["resources"] = clone(_RESOURCES if resources is None else resources)
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "runAsUser": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
    }
    return container


def options_of(container: Tree) -> Options:
    """Return the options of an init container, netinit's or Istio's, from its arguments and environment.

    Program names before the arguments are skipped. Raises OptionError.
    """
    words: list[Any] = [*sequence(container.get("command")), *sequence(container.get("args"))]
    arguments = [string(word) for word in words]
    while arguments and posixpath.basename(arguments[0]) in _PROGRAMS:
        del arguments[0]
    variables = named(container.get("env"))
    environment = {string(item.get("name")): string(item.get("value")) for item in variables if "value" in item}
    read = _options if len(" ".join(arguments)) < _LONG else _options.__wrapped__
    return read(tuple(arguments), tuple(environment.items()))


@functools.lru_cache(maxsize=64)
def _options(arguments: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Options:
    """Parse a command line; cached, since most pods of a cluster have the same one."""
    return Options.from_argv(arguments, dict(environment))


def find_init(spec: Tree) -> Tree | None:
    """Return the init container that programs the rules or checks a CNI plugin's; None without one.

    It is found by its usual names, else as the first that runs netinit or an Istio program.
    """
    containers = named(spec.get("initContainers"))
    for usual in (INIT, VALIDATION):
        if (container := find(containers, usual)) is not None:
            return container
    for container in containers:
        words = [*sequence(container.get("command")), *sequence(container.get("args"))]
        if any(posixpath.basename(string(word)) in _STARTED_AS for word in words):
            return container
    return None


# --- without an init container ---

REDIRECTION = "ambient.istio.io/redirection"
"""The annotation that an ambient agent sets to `enabled` on pods that it has programmed."""
BY_AGENT = {"redirect_dns": "ambient.istio.io/dns-capture", "ingress": "ambient.istio.io/bypass-inbound-capture"}

ANNOTATIONS = tuple(name for flag in Options.flags for name in (*flag.istio_annotations, flag.annotation) if name)
"""The annotations whose values are options of rules."""
PREFIXES = tuple({f"{name.partition('/')[0]}/": None for name in (*ANNOTATIONS, REDIRECTION)})  # of annotations that are read
VARIABLES = tuple({flag.pod_variable: None for flag in Options.flags if flag.pod_variable})  # variables of the proxy's container


def find_annotation(flag: Flag, annotations: Mapping[str, str]) -> str:
    """Return the name of the flag's annotation that the pod has; "" without one."""
    return next((name for name in (flag.annotation, *flag.istio_annotations) if name in annotations), "")


def is_ambient(pod: Tree) -> bool:
    """Whether a mesh's ambient agent programmed the pod, which has no init container of a mesh then."""
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    return annotations.get(REDIRECTION) == "enabled" and find_init(mapping(pod.get("spec"))) is None


def find_invalid_annotations(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the annotations with invalid values, each with the reason."""
    found = [(name, CHECKS[name](annotations[name])) for name in ANNOTATIONS if name in annotations]
    return [(name, problem) for name, problem in found if problem]


def make_cni_options(
    annotations: Mapping[str, str], environment: Mapping[str, str], base: Options, *, uid: int | None, gid: int | None
) -> Options:
    """Return a pod's options. Raises OptionError.

    `base`: the node's defaults for all pods. `uid`, `gid`: those of the proxy.
    """
    read = {flag.field: _value_of(flag, annotations, environment) for flag in Options.flags}
    found: dict[str, Any] = {field: value for field, value in read.items() if value is not None}
    return base.replace(**found, proxy_uids=(uid or DEFAULT_PROXY_UID,), proxy_gids=(gid or DEFAULT_PROXY_UID,))


def make_ambient_options(annotations: Mapping[str, str], *, dns: bool = True) -> Options:
    """Return the options of a pod that an ambient agent programmed; `dns`: the mesh's default for DNS capture."""
    rerouted = Options.flag("virtual_interfaces")
    return Options(
        layout=AMBIENT,
        redirect_dns=read_switch(annotations, BY_AGENT["redirect_dns"], default=dns),
        ingress=read_switch(annotations, BY_AGENT["ingress"], default=False),
        virtual_interfaces=rerouted.kind.read(annotations.get(find_annotation(rerouted, annotations), "")),
    )


def _value_of(flag: Flag, annotations: Mapping[str, str], environment: Mapping[str, str]) -> str | bool | None:
    text = flag.without_annotation
    if name := find_annotation(flag, annotations):
        text = annotations[name].strip()
    elif variable := environment.get(flag.pod_variable):
        return go_bool(variable) is True if flag.kind is kinds.SWITCH else variable
    elif not text:
        return None
    if flag.kind in (kinds.PORTS, kinds.PORTS_OR_ALL):  # annotations may contain port 0, which captures nothing
        listed = [*text.split(","), *map(str, flag.always_on_node)]
        text = ",".join([item.strip() for item in listed if item.strip().lstrip("0")])
    return text
