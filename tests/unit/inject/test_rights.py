"""Who in a pod may undo its interception: capabilities as container runtimes apply them, and which containers run with the rules."""

from __future__ import annotations

import pytest

from netinit.inject import load_config
from netinit.inject.deciding.podfile import read_object
from netinit.inject.deciding.rights import can_use_capabilities, has_capability
from netinit.inject.deciding.warnings import NOTE, WARNING, find_rule_changers, pod_findings
from netinit.questions.injection_advice import advise

CORE_DUMP = {"name": "enable-core-dump", "securityContext": {"privileged": True}}
PROXY = {"name": "istio-proxy", "securityContext": {"runAsUser": 1337, "capabilities": {"add": ["NET_ADMIN"]}}}
INIT = {"name": "istio-init", "args": ["istio-iptables", "-b", "*", "-i", "*"], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
VALIDATION = {"name": "istio-validation", "args": ["istio-iptables", "-b", "*", "--run-validation", "--skip-rule-apply"]}
AMBIENT = {"ambient.istio.io/redirection": "enabled"}


def granted(name, add=(), drop=(), **more):
    lists = {key: items for key, items in (("add", list(add)), ("drop", list(drop))) if items}
    return {"name": name, "securityContext": {**({"capabilities": lists} if lists else {}), **more}}


def make(*containers, inits=(INIT,), annotations=None, **spec):
    spec = {"initContainers": list(inits), "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}


def changers(pod):
    return {one.container: one.right for one in find_rule_changers(pod)}


@pytest.mark.parametrize(
    ("add", "drop", "admin", "raw"),
    [
        ([], [], False, None), ([], ["ALL"], False, False), ([], ["NET_RAW"], False, False), ([], ["net_raw"], False, False),
        ([], ["CAP_NET_RAW"], False, None), (["NET_ADMIN"], ["ALL"], True, False), (["net_admin"], ["all"], True, False),
        (["NET_ADMIN"], ["NET_ADMIN"], None, None), (["ALL"], [], True, True), (["all"], ["NET_ADMIN"], False, True),
        (["ALL"], ["ALL"], None, None), (["CAP_NET_ADMIN"], [], None, None), (["CAP_ALL"], [], False, None), (["NET_ADMIN "], [], False, None),
        (["NET_BIND_SERVICE"], ["ALL"], False, False), ([1, None, ["NET_ADMIN"]], [{}], False, None),
    ],
)  # fmt: skip
def test_capabilities_are_those_that_a_container_runtime_grants(add, drop, admin, raw):
    container = granted("app", add, drop)
    assert (has_capability(container, "NET_ADMIN"), has_capability(container, "NET_RAW")) == (admin, raw)


def test_a_privileged_container_has_every_capability_whatever_it_drops():
    assert has_capability(granted("app", drop=["ALL"], privileged=True), "NET_ADMIN") is True


@pytest.mark.parametrize(
    ("pod", "own", "usable"),
    [
        ({}, {}, True), ({}, {"runAsUser": 1000}, True), ({}, {"runAsUser": 1000, "allowPrivilegeEscalation": False}, False),
        ({"runAsUser": 1000}, {"allowPrivilegeEscalation": False}, False), ({"runAsUser": 1000}, {"runAsUser": None, "allowPrivilegeEscalation": False}, False),
        ({"runAsUser": 1000}, {"runAsUser": 0, "allowPrivilegeEscalation": False}, True), ({}, {"allowPrivilegeEscalation": False}, True),
        ({"runAsNonRoot": True}, {"allowPrivilegeEscalation": False}, False), ({"runAsUser": 0}, {"allowPrivilegeEscalation": False, "runAsNonRoot": True}, True),
        ({"allowPrivilegeEscalation": False}, {"runAsUser": 1000}, True), ({}, {"runAsUser": True, "allowPrivilegeEscalation": False}, True),
    ],
)  # fmt: skip
def test_a_user_other_than_root_without_escalation_can_use_no_capability(pod, own, usable):
    container = {"name": "app", "securityContext": own}
    assert can_use_capabilities(container, {"securityContext": pod}) is usable


@pytest.mark.parametrize(
    "pod",
    [
        make({"name": "app"}), make({"name": "app"}, PROXY), make({"name": "app"}, inits=[INIT, PROXY, CORE_DUMP]),
        make(granted("app", ["NET_BIND_SERVICE", "NET_RAW"]), PROXY), make(granted("app", ["SYS_PTRACE"])), make({"name": "app"}, hostPID=True),
        make({"name": "app"}, shareProcessNamespace=True), make({"name": "app"}, PROXY, inits=[VALIDATION]), make({"name": "app"}, inits=[]),
        make(granted("app", ["NET_ADMIN"], runAsUser=1000, allowPrivilegeEscalation=False)), make(granted("app", drop=["ALL"]), PROXY),
        make({"name": "app"}, inits=[granted("sysctl", privileged=True), INIT]), make({"name": "app"}, inits=[granted("sysctl", privileged=True)]),
        make(granted("app", privileged=True), hostNetwork=True), make(granted("app", privileged="true")), make(granted("app", ["SYS_PTRACE"]), hostPID="true"),
    ],
)  # fmt: skip
def test_a_pod_whose_applications_have_usual_rights_has_nobody_who_may_change_rules(pod):
    assert changers(pod) == {}
    assert "rule-changer" not in [one.kind.name for one in pod_findings(pod)]


@pytest.mark.parametrize(
    ("container", "spec", "right"),
    [
        (granted("app", privileged=True), {}, "it is privileged"),
        (granted("app", ["NET_ADMIN"], ["ALL"]), {}, "it has NET_ADMIN"),
        (granted("app", ["All"]), {}, "it has NET_ADMIN"),
        (granted("app", ["ALL"], ["NET_ADMIN"]), {}, "it has SYS_ADMIN"),
        (granted("app", ["cap_net_admin"]), {}, "it may have NET_ADMIN (container runtimes differ)"),
        (granted("app", ["SYS_ADMIN"]), {}, "it has SYS_ADMIN"),
        (granted("app", ["SYS_MODULE"]), {}, "it has SYS_MODULE"),
        (granted("app", ["SYS_PTRACE"]), {"hostPID": True}, "it has SYS_PTRACE, and sees the node's processes (hostPID: true)"),
        (granted("app", ["SYS_PTRACE"]), {"shareProcessNamespace": True}, "it has SYS_PTRACE, and sees the proxy's processes (shareProcessNamespace: true)"),
        (granted("app", ["NET_ADMIN"], runAsUser=1000), {}, "it has NET_ADMIN"),
        (granted("app", ["NET_ADMIN"], allowPrivilegeEscalation=False), {}, "it has NET_ADMIN"),
    ],
)  # fmt: skip
def test_a_container_that_may_change_the_rules_is_named_with_its_right(container, spec, right):
    pod = make(container, PROXY, **spec)
    assert changers(pod) == {"app": right}
    (found,) = pod_findings(pod)
    assert (found.severity, found.kind.name, found.subject) == (WARNING, "rule-changer", "app")
    assert str(found).startswith(f'container "app" may change the rules: {right}; ')
    assert changers(make({"name": "other"}, PROXY, ephemeralContainers=[container], **spec)) == {"app": right}


@pytest.mark.parametrize(
    ("inits", "annotations", "containers", "named"),
    [
        (["own", INIT], {}, (), []),
        ([INIT, "own"], {}, (), ["own"]),
        (["sidecar", INIT], {}, (), ["sidecar"]),
        ([INIT, PROXY, "own", "sidecar"], {}, (), ["own", "sidecar"]),
        (["own", VALIDATION], {}, (PROXY,), ["own"]),
        (["own"], {}, (PROXY,), ["own"]),
        (["own"], AMBIENT, (), ["own"]),
        (["own"], {}, (), []),
        (["sidecar"], {}, (), ["sidecar"]),
        ([VALIDATION, INIT, "own"], {}, (), ["own"]),
    ],
)
def test_an_init_container_counts_where_it_runs_with_the_rules(inits, annotations, containers, named):
    """Init containers run in order; a CNI plugin and an ambient agent program the pod before the first."""
    made = {"own": granted("own", ["NET_ADMIN"]), "sidecar": {**granted("sidecar", ["NET_ADMIN"]), "restartPolicy": "Always"}}
    pod = make({"name": "app"}, *containers, inits=[made.get(one, one) if isinstance(one, str) else one for one in inits], annotations=annotations)
    assert list(changers(pod)) == named
    assert [one.container for one in read_object(pod).rule_changers] == named


def test_a_container_that_takes_the_name_of_a_helper_of_the_mesh_counts_where_it_keeps_running():
    """Only the init container of that name is the mesh's."""
    assert list(changers(make(granted("enable-core-dump", privileged=True)))) == ["enable-core-dump"]
    assert list(changers(make(granted("istio-init", privileged=True)))) == ["istio-init"]


def test_in_an_ambient_pod_who_keeps_net_raw_is_one_note_and_by_design():
    spare = [granted(f"c{number}") for number in range(7)]
    pod = make(granted("safe", drop=["ALL"]), granted("strict", runAsUser=7, allowPrivilegeEscalation=False), *spare, granted("tool", ["NET_ADMIN"]), inits=[],
               annotations=AMBIENT)  # fmt: skip
    found = [one for one in pod_findings(pod) if one.kind.name == "mark-setter"]
    assert [(one.severity, one.subject) for one in found] == [(NOTE, "")]
    assert str(found[0]).startswith('may keep NET_RAW: "c0", "c1", "c2", "c3", "c4" and 2 more; ')
    assert "SO_MARK" in str(found[0])
    assert "mark-setter" not in [one.kind.name for one in pod_findings(make(*spare, PROXY))]
    dropping = make(granted("safe", drop=["NET_RAW"]), inits=[], annotations=AMBIENT)
    assert "mark-setter" not in [one.kind.name for one in pod_findings(dropping)]


def test_an_author_is_not_told_at_each_creation_of_the_rights_that_the_author_gave():
    pod = make(granted("app", privileged=True), PROXY)
    assert [one.kind.name for one in pod_findings(pod)] == ["rule-changer"]
    assert advise(pod, pod, load_config(None)) == []


def test_the_name_of_a_container_is_quoted_in_a_finding():
    (found,) = pod_findings(make(granted('a"\n::error::', ["NET_ADMIN"]), PROXY))
    assert '"a\\"\\n::error::"' in str(found)
