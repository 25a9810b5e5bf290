"""Find the containers of a pod whose rights let them undo its interception; a manifest shows who has them.

Linux lets a process with NET_ADMIN over a network namespace change its rules, and all containers of a pod share one. A
process with SYS_ADMIN or SYS_MODULE gets there through the node's kernel, and one with SYS_PTRACE through a process of
the node or the proxy that it can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding.containers import CORE_DUMP, PROXY, effective_security, named, security

NET_RAW = "NET_RAW"
_BY_ITSELF = ("NET_ADMIN", "SYS_ADMIN", "SYS_MODULE")  # capabilities that suffice to change rules
_WITH_PROCESSES = "SYS_PTRACE"  # suffices if processes of others are in sight
_SIGHT = {"hostPID": "the node's", "shareProcessNamespace": "the proxy's"}  # field of the spec -> whose processes are


class RuleChanger(Record):
    """A container that may change the rules, and the right that lets it, as half a sentence: `it is privileged`."""

    container: str
    right: str


def has_capability(container: Tree, name: str) -> bool | None:
    """Return whether a container is granted a capability, such as `NET_ADMIN`; None if container runtimes differ.

    containerd (internal/cri/opts, WithCapabilities) and CRI-O start from their defaults, add ALL, drop ALL, add the
    names and drop the names, in upper case; Docker (oci/caps, TweakCapabilities) lets an added name or ALL win. `CAP_`
    before a name counts in CRI-O and Docker, not in containerd. NET_RAW is a default of containerd and Docker, not of
    CRI-O; no other name that is asked for here is a default anywhere.
    """
    context = security(container)
    if context.get("privileged") is True:
        return True
    lists = mapping(context.get("capabilities"))
    added, dropped = ({string(one).upper() for one in sequence(lists.get(key))} for key in ("add", "drop"))
    if name in added:
        return None if name in dropped else True
    if name in dropped:
        return False
    if "ALL" in added and "ALL" not in dropped:
        return True
    if "ALL" in added or f"CAP_{name}" in added:
        return None
    return None if name == NET_RAW and "ALL" not in dropped else False


def can_use_capabilities(container: Tree, spec: Tree) -> bool:
    """Return whether a process of the container can use what the container is granted.

    A user other than root has no capability of its own; it gains them from set-user-ID files and file capabilities, which
    `allowPrivilegeEscalation: false` forbids.
    """
    context = effective_security(container, spec)
    uid = context.get("runAsUser")
    is_root = uid == 0 if type(uid) is int else context.get("runAsNonRoot") is not True
    return is_root or security(container).get("allowPrivilegeEscalation") is not False


def running_with_rules(spec: Tree, init: Tree | None, *, by_plugin: bool) -> list[Tree]:
    """Return the containers that run when the rules are there, except those that set up the interception or are the proxy.

    `init`: the init container that programs or checks the rules; `by_plugin`: a CNI plugin or an agent programs them, before
    any container starts. Init containers before `init` have ended, unless they are native sidecars; so will all of a pod that has
    neither yet, since injection puts its own last.
    """
    starting = named(spec.get("initContainers"))
    first = 0 if by_plugin else len(starting) if init is None else starting.index(init)
    started = [one for number, one in enumerate(starting) if number >= first or one.get("restartPolicy") == "Always"]
    helpers = [one for one in starting if one is init or one.get("name") == CORE_DUMP]
    found = [*started, *named(spec.get("containers")), *named(spec.get("ephemeralContainers"))]
    return [one for one in found if one.get("name") != PROXY and not any(one is helper for helper in helpers)]


def rule_changers(spec: Tree, containers: Sequence[Tree]) -> tuple[RuleChanger, ...]:
    """Return those of the containers, which run with the pod's rules, that may change them."""
    found = [(string(one.get("name")), next(_rights(one, spec), "")) for one in containers]
    return tuple([RuleChanger(container=name, right=right) for name, right in found if right])


def _rights(container: Tree, spec: Tree) -> Iterator[str]:
    """Yield each right of a container that suffices to change rules."""
    if security(container).get("privileged") is True:
        yield "it is privileged"
    if not can_use_capabilities(container, spec):
        return
    for name in _BY_ITSELF:
        if (granted := has_capability(container, name)) is not False:
            yield _HAS[granted].format(name)
    granted = has_capability(container, _WITH_PROCESSES)
    for field, whose in _SIGHT.items():
        if granted is not False and spec.get(field) is True:
            yield f"{_HAS[granted].format(_WITH_PROCESSES)}, and sees {whose} processes ({field}: true)"


_HAS = {True: "it has {}", None: "it may have {} (container runtimes differ)"}


def raw_senders(spec: Tree, containers: Sequence[Tree]) -> tuple[str, ...]:
    """Return the names of those of the containers that are not denied NET_RAW, and so may set marks (SO_MARK, Linux 5.17)."""
    able = [one for one in containers if can_use_capabilities(one, spec) and has_capability(one, NET_RAW) is not False]
    return tuple([string(one.get("name")) for one in able])
