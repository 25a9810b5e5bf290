"""The init container that programs a pod: made from options, found in a pod, and read as options again."""

from __future__ import annotations

import functools
import posixpath
from typing import Any

from netinit.base.tree import Tree, clone, mapping, sequence, string, strings
from netinit.inject.deciding.containers import INIT, VALIDATION, find, named
from netinit.inject.deciding.pod_options import REDIRECTION
from netinit.options import Options

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


def is_ambient(pod: Tree) -> bool:
    """Whether a mesh's ambient agent programmed the pod, which has no init container of a mesh then."""
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    return annotations.get(REDIRECTION) == "enabled" and find_init(mapping(pod.get("spec"))) is None
