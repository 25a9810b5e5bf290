"""Find problems of a pod: why its traffic is not intercepted or is lost, and which annotations have no effect.

A manifest does not show an image's default user, or what a CNI plugin does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from netinit.base.errors import OptionError
from netinit.base.findings import FindingKind
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.deciding.annotations import STATUS, UNCAPTURED_INIT
from netinit.inject.deciding.containers import (
    CORE_DUMP,
    PROXY,
    VALIDATION,
    effective_security,
    find,
    find_proxy,
    find_sidecar,
    named,
    other_kind,
)
from netinit.inject.deciding.init_container import find_init, is_ambient, options_of
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.inject.deciding.pod_options import REROUTED, joins_ambient
from netinit.inject.deciding.rights import RuleChanger, has_capability, raw_senders, rule_changers, running_with_rules
from netinit.inject.deciding.webhooks import INJECT
from netinit.options import BACKENDS, Options

ERROR, WARNING, NOTE = "error", "warning", "note"
# ERROR: the pod does not start, an application bypasses the proxy, or it breaks its node; NOTE: by design
_MAX_NAMED = 5  # containers in a finding
_SYSTEM_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")  # of nodes

HOST_NETWORK = FindingKind(
    "NI101", "host-network",
    "The pod uses its node's network: nothing is intercepted, or the whole node is.",
)
NOT_PROGRAMMED = FindingKind(
    "NI102", "no-init-container",
    "Nothing in the pod programs rules, and whether an injector or a CNI plugin will do so is not known. Give the "
    "Namespace too, or --assume.",
)
ARGUMENTS = FindingKind("NI103", "arguments", "The init container's arguments cannot be read: the pod does not start.")
MISSING_CAPABILITY = FindingKind(
    "NI104", "missing-capability",
    "The init container lacks NET_ADMIN, or NET_RAW where legacy iptables is asked for.",
)
NO_NETWORK = FindingKind("NI105", "no-network", "An init container runs with the rules but before the proxy.")
RULE_CHANGER = FindingKind(
    "NI108", "rule-changer",
    "A container has a right that lets it undo the interception: it is privileged, or has NET_ADMIN, SYS_ADMIN, "
    "SYS_MODULE, or SYS_PTRACE with hostPID or shareProcessNamespace. Only containers that run with the rules count, "
    "not the mesh's own.",
)
MARK_SETTER = FindingKind(
    "NI109", "mark-setter",
    "Ambient: a container that does not drop NET_RAW may set ztunnel's mark, and so bypass it.",
)
INVALID_VALUE = FindingKind(
    "NI112", "invalid-value",
    "An annotation, or another value that decides about the pod's rules, is invalid: the pod is refused, or starts "
    "without rules.",
)
SIDECAR_ANNOTATION = FindingKind(
    "NI126", "sidecar-annotation",
    "An annotation that sets an option of sidecars' rules, on a pod of an ambient mesh: Istio's agent programs that "
    "pod, and knows no exclusions of ports, networks or interfaces. A pod that needs some gets a sidecar; "
    "`ambient.istio.io/bypass-inbound-capture` leaves all inbound traffic alone.",
)


WINDOWS = FindingKind(
    "NI381", "windows",
    "The pod is for nodes with Windows, where neither the init container nor the proxy runs: both are Linux programs, and "
    'the API server refuses capabilities for Windows. Keep it out of the mesh: sidecar.istio.io/inject: "false".',
)
IGNORED_SETTING = FindingKind(
    "NI127", "ignored-setting",
    "A value of the pod that its injection ignores, or with which the proxy does not work.",
)


class PodFinding(Record):
    """A problem of a pod.

    `text`: what is wrong, why, and the remedy, without a full stop. `severity`: ERROR, WARNING or NOTE.
    `subject`: the container, "" for the whole pod. `path`: below metadata, of an annotation or a label.
    """

    kind: FindingKind
    text: str
    severity: str = WARNING
    subject: str = ""
    path: tuple[str, ...] = ()

    @property
    def is_note(self) -> bool:
        """Whether it is by design, and not a problem."""
        return self.severity == NOTE

    def __str__(self) -> str:
        return self.text


_WITHOUT_RULES = PodFinding(
    kind=NOT_PROGRAMMED,
    text="no init container programs rules: nothing is intercepted, unless an injector or a CNI plugin does it "
    "when the pod is created; add one (netinit inject), or ask what the cluster does (netinit check-inject)",
)  # fmt: skip


def uses_host_network(pod: Tree) -> bool:
    """Whether the pod uses its node's network namespace."""
    return mapping(pod.get("spec")).get("hostNetwork") is True


def pod_findings(pod: Tree, *, with_rights: bool = True) -> tuple[PodFinding, ...]:
    """Return the problems of a pod, errors first.

    Kinds: host-network, no-init-container, arguments, missing-capability, proxy-owner, no-network, sidecar-annotation; and, of what
    its containers may do, rule-changer and mark-setter.
    """
    spec = mapping(pod.get("spec"))
    rights = _by_rights(pod) if with_rights else ()
    init = find_init(spec)
    if uses_host_network(pod):
        of_init = init is not None and not only_validates(init)
        return (_on_host_network(init if of_init else None),)
    if init is None and other_kind(mapping(find_proxy(spec)).get("args")):
        return ()  # no rules are there to miss, or to change
    if init is None:
        sharing = _sharing_proxy_user(spec, init, _proxy_options(spec))
        without = [] if is_ambient(pod) else [_WITHOUT_RULES]
        return tuple(_errors_first([*without, *sharing, *_without_rules_in_ambient(pod), *rights]))
    try:
        options = options_of(init)
    except OptionError as error:
        return (_with_bad_arguments(string(init.get("name")), error),)
    by_plugin = only_validates(init, options) and find_proxy(spec) is not None
    found = [
        *_on_windows(spec),
        *_missing_capabilities(init, options),
        *_sharing_proxy_user(spec, init, _proxy_options(spec) if by_plugin else options),
        *_without_network(spec, init, options),
        *rights,
    ]
    return tuple(_errors_first(found))


def _errors_first(found: list[PodFinding]) -> list[PodFinding]:
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def _on_host_network(init: Tree | None) -> PodFinding:
    """Say what `hostNetwork: true` does to a pod, and to its node if `init` programs rules there."""
    if init is None:
        return PodFinding(
            kind=HOST_NETWORK,
            text="hostNetwork: true: the pod uses its node's network, where nothing is intercepted for it; "
            "remove hostNetwork: true if it is to be intercepted",
        )  # fmt: skip
    name = string(init.get("name"))
    return PodFinding(
        kind=HOST_NETWORK, severity=ERROR, subject=name,
        text=f"hostNetwork: true: init container {quote(name)} is for the node's own network: its rules would capture the "
        f"traffic of the whole node, and stay when the pod is deleted; remove hostNetwork: true, or {quote(name)} from the pod",
    )  # fmt: skip


def _with_bad_arguments(name: str, error: OptionError) -> PodFinding:
    """Say why the init container `name` does not start."""
    problems = "; ".join(error.problems)
    return PodFinding(
        kind=ARGUMENTS, severity=ERROR, subject=name,
        text=f"init container {quote(name)} has arguments that cannot be read: {problems}; "
        "correct them: with these the pod does not start",
    )  # fmt: skip


def find_rule_changers(pod: Tree) -> tuple[RuleChanger, ...]:
    """Return the containers of a pod that may change its rules; none on its node's network, where it has none."""
    return () if uses_host_network(pod) else rule_changers(mapping(pod.get("spec")), _running_with_rules(pod))


def may_set_marks(pod: Tree) -> bool:
    """Whether a container of the pod, other than the proxy, is not kept from setting firewall marks."""
    return bool(find_rule_changers(pod) or raw_senders(mapping(pod.get("spec")), _running_with_rules(pod)))


def _running_with_rules(pod: Tree) -> list[Tree]:
    """Return the containers that run with the rules, as far as the pod shows who programs it."""
    spec = mapping(pod.get("spec"))
    init = find_init(spec)
    by_plugin = only_validates(init) if init is not None else is_ambient(pod) or find_sidecar(spec) is not None
    return running_with_rules(spec, init, by_plugin=by_plugin)


def _by_rights(pod: Tree) -> Iterator[PodFinding]:
    """Yield a finding for each container that may change the rules, and one for those that may set ztunnel's mark."""
    changers = find_rule_changers(pod)
    for one in changers:
        yield PodFinding(
            kind=RULE_CHANGER, subject=one.container,
            text=f"container {quote(one.container)} may change the rules: {one.right}; remove that right, or trust the container "
            "as you trust the proxy: proofs about this pod hold only until it uses the right",
        )  # fmt: skip
    if is_ambient(pod):
        known = {one.container for one in changers}
        senders = [name for name in raw_senders(mapping(pod.get("spec")), _running_with_rules(pod)) if name not in known]
        if senders:
            more = f" and {len(senders) - _MAX_NAMED} more" if len(senders) > _MAX_NAMED else ""
            names = ", ".join(map(quote, senders[:_MAX_NAMED])) + more
            yield PodFinding(
                kind=MARK_SETTER, severity=NOTE,
                text=f"may keep NET_RAW: {names}; since Linux 5.17 it suffices to set ztunnel's mark (SO_MARK), and what has the "
                "mark is not captured; drop NET_RAW or ALL in securityContext.capabilities.drop",
            )  # fmt: skip


def _without_rules_in_ambient(pod: Tree) -> Iterator[PodFinding]:
    """Yield a finding for each annotation that sets an option of sidecars' rules, if the pod is in an ambient mesh instead."""
    metadata = mapping(pod.get("metadata"))
    annotations = strings(metadata.get("annotations"))
    without_sidecar = find_proxy(mapping(pod.get("spec"))) is None and STATUS not in annotations
    if not is_ambient(pod) and not (without_sidecar and joins_ambient(strings(metadata.get("labels")))):
        return
    for flag in Options.flags:
        for name in (flag.annotation, *flag.istio_annotations):
            if name in annotations and flag.field != REROUTED:
                yield PodFinding(
                    kind=SIDECAR_ANNOTATION, path=("annotations", name),
                    text=f"annotation {quote(name)} has no effect: the pod is in an ambient mesh, whose rules do not have "
                    f"{flag.label}; remove it, or give the pod a sidecar "
                    '(labels istio.io/dataplane-mode: none and sidecar.istio.io/inject: "true")',
                )  # fmt: skip


def only_validates(init: Tree, options: Options | None = None) -> bool:
    """Whether this container only checks rules that a CNI plugin programs."""
    options = options or readable_options(init)
    return init.get("name") == VALIDATION or (options is not None and options.skip_rule_apply)


def readable_options(init: Tree) -> Options | None:
    """Return the options of an init container; None if they are invalid."""
    with contextlib.suppress(OptionError):
        return options_of(init)
    return None


def _on_windows(spec: Tree) -> Iterator[PodFinding]:
    """Yield a finding if the pod runs on nodes with Windows, by its own words."""
    selected = strings(spec.get("nodeSelector"))
    systems = {"os": string(mapping(spec.get("os")).get("name"))}
    systems |= {f"nodeSelector {key}": selected.get(key, "") for key in _SYSTEM_LABELS}
    if field := next((field for field, value in systems.items() if value == "windows"), ""):
        yield PodFinding(
            kind=WINDOWS, severity=ERROR,
            text=f"{field}: windows: no init container and no proxy of a mesh runs on Windows, so that the pod does not start; "
            f'set the label {INJECT}: "false" on the pod template',
        )  # fmt: skip


def _missing_capabilities(init: Tree, options: Options) -> Iterator[PodFinding]:
    if only_validates(init, options):
        return
    wanted = {"NET_ADMIN": "every backend needs it to program rules"}
    backend = BACKENDS.get(options.wanted_backend)
    if backend and backend.wants_net_raw:
        wanted["NET_RAW"] = "legacy iptables needs it to open its socket, and its options ask for legacy iptables"
    for capability, reason in wanted.items():
        if (granted := has_capability(init, capability)) is not True:
            yield _lacking(string(init.get("name")), capability, reason, is_certain=granted is False)


def _lacking(name: str, capability: str, reason: str, *, is_certain: bool) -> PodFinding:
    """Say that the init container `name` lacks a capability, or may."""
    if is_certain:
        return PodFinding(
            kind=MISSING_CAPABILITY, severity=ERROR, subject=name,
            text=f"init container {quote(name)} lacks {capability}: {reason}; "
            f"add {capability} to its securityContext.capabilities.add",
        )  # fmt: skip
    return PodFinding(
        kind=MISSING_CAPABILITY, subject=name,
        text=f"init container {quote(name)} may lack {capability}: {reason}; container runtimes differ in this; "
        f"add {capability}, without CAP_, to its securityContext.capabilities.add, and do not drop it",
    )  # fmt: skip


def _sharing_proxy_user(spec: Tree, init: Tree | None, options: Options) -> Iterator[PodFinding]:
    is_captured = init is not None or find_proxy(spec) is not None
    for name, owner in shared_owners(spec, init, options):
        field = "runAsUser" if owner.startswith("uid") else "runAsGroup"
        who = f"container {quote(name)} runs as {owner}, which is the proxy's"
        what = ": its outbound traffic counts as the proxy's and is not captured"
        if not is_captured:
            what = " in an injected pod: its outbound traffic would not be captured"
        goes_on = any(one.get("name") == name for one in applications_of(spec, init))
        severity = ERROR if is_captured and goes_on else WARNING
        yield PodFinding(kind=PROXY_OWNER, severity=severity, subject=name, text=f"{who}{what}; choose another {field}")


def _proxy_options(spec: Tree) -> Options:
    """Return the proxy's users as a CNI plugin or an injector takes them: its own, unless root's."""
    if (proxy := find_proxy(spec)) is None:
        return Options()
    ids = zip(("proxy_uids", "proxy_gids"), user_of(proxy, spec), strict=True)
    return Options().replace(**{field: str(number) for field, number in ids if number})


def applications_of(spec: Tree, init: Tree | None) -> list[Tree]:
    """Return the containers that keep running, native sidecars included, except the proxy."""
    sidecars = [one for one in named(spec.get("initContainers")) if one.get("restartPolicy") == "Always"]
    return [one for one in (*named(spec.get("containers")), *sidecars) if one is not init and one.get("name") != PROXY]


def shared_owners(spec: Tree, init: Tree | None, options: Options) -> tuple[tuple[str, str], ...]:
    """Return containers that run as the proxy's `uid N` or `gid N`, as pairs: their traffic counts as the proxy's.

    Init containers that end count behind a native proxy alone: before the proxy runs, only its user has a network: it is intended.
    """
    proxy, starting = find_unnamed_proxy(spec, init, options), named(spec.get("initContainers"))
    applications = [one for one in applications_of(spec, init) if one is not proxy]
    behind = itertools.dropwhile(lambda one: one.get("name") != PROXY, starting)
    applications += [one for one in behind if one.get("name") not in {PROXY, CORE_DUMP} and one.get("restartPolicy") != "Always"]
    owned = [(one, owner) for one in applications if (owner := _proxy_owner(one, spec, options))]
    return tuple((string(one.get("name")), owner) for one, owner in owned)


def find_unnamed_proxy(spec: Tree, init: Tree | None, options: Options) -> Tree | None:
    """Return the proxy of an injected pod where no container has the usual name: the first of several with the proxy's user."""
    applications = applications_of(spec, init)
    if init is None or find_proxy(spec) is not None or len(applications) <= 1:
        return None
    return next((one for one in applications if _proxy_owner(one, spec, options)), None)


def _proxy_owner(container: Tree, spec: Tree, options: Options) -> str:
    """Return the proxy's `uid N` or `gid N` that this container runs as; "" if none."""
    uid, gid = user_of(container, spec)
    return f"uid {uid}" if uid in options.proxy_uids else f"gid {gid}" if gid in options.proxy_gids else ""


def user_of(container: Tree, spec: Tree) -> tuple[int | None, int | None]:
    """Return a container's user and group in the manifest; None if the image decides."""
    context = effective_security(container, spec)
    uid, gid = (number if type(number) is int else None for number in map(context.get, ("runAsUser", "runAsGroup")))
    return uid, gid


def _is_excluded(container: Tree, spec: Tree, options: Options) -> bool:
    """Whether traffic of the container's user or group is excluded from capture, so the sharing is intended."""
    listed = (options.exclude_outbound_for_uids, options.exclude_outbound_for_gids)
    return any(
        number is not None and one.protocol == "tcp" and one.first <= number <= one.last
        for number, ranges in zip(user_of(container, spec), listed, strict=True)
        for one in ranges
    )


def _without_network(spec: Tree, init: Tree, options: Options) -> Iterator[PodFinding]:
    by_plugin = only_validates(init, options)  # the CNI plugin sets the rules before any container starts
    if not (by_plugin or options.outbound_cidrs or options.outbound_ports):
        return
    containers = named(spec.get("initContainers"))
    native = find(containers, PROXY) is not None
    exclude = f"exclude its destinations, or its user by its name in the annotation {UNCAPTURED_INIT}"
    move = "move it behind istio-proxy" if native else f"use native sidecars, {exclude}"
    captured = containers if by_plugin else containers[containers.index(init) + 1 :]
    for container in itertools.takewhile(lambda one: one.get("name") != PROXY, captured):
        name = string(container.get("name"))
        if container is init or name in {CORE_DUMP, VALIDATION}:
            continue
        if _proxy_owner(container, spec, options) or _is_excluded(container, spec, options):
            continue
        yield PodFinding(
            kind=NO_NETWORK, subject=name,
            text=f"init container {quote(name)} runs when traffic is captured but before the proxy starts: it has no "
            f"network; {move}, or run it as the proxy's user (runAsUser: {options.proxy_uids[0]})",
        )  # fmt: skip
