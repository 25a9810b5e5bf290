"""The init container of options, and the options of an init container: one is the other's inverse."""

from __future__ import annotations

import functools
import posixpath
from typing import Any

from netinit.base.tree import Tree, clone, sequence, string
from netinit.inject.containers import INIT, VALIDATION, find, named
from netinit.options import Options

__all__ = ["find_init", "init_container", "options_of"]

_SPELLED_OUT = ("outbound_port", "proxy_uids", "inbound_mode", "outbound_cidrs", "inbound_ports")
"""Options that stand in the arguments even with their default: what a reader of a pod looks for."""
_PROGRAMS = frozenset(("netinit", "istio-iptables", "istio-iptables.sh", "apply", "pilot-agent"))
_LONG = 4096  # characters of arguments that are not kept
_STARTED_AS = frozenset(("netinit", "istio-iptables"))
_RESOURCES: Tree = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def init_container(
    options: Options, *, image: str, name: str = INIT, image_pull_policy: str = "", resources: Tree | None = None
) -> Tree:
    """The init container that programs these options in a pod.

    It runs as root with NET_ADMIN, and with NET_RAW, which iptables of the legacy kind needs; nothing else is allowed
    it. What has no flag stands in its environment.
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
        "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
    }
    return container


def options_of(container: Tree) -> Options:
    """The options that an init container starts with, ours or Istio's, from its arguments and environment.

    Names of programs before the arguments are skipped. Raises OptionError for arguments that nobody understands.
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
    """The options of a command line, kept: those of most pods of a cluster are the same."""
    return Options.from_argv(arguments, dict(environment))


def find_init(spec: Tree) -> Tree | None:
    """The init container that programs rules, or checks those of a CNI plugin; None where there is none.

    It is known by its usual names, else it is the first that starts a program of ours or Istio's.
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
