"""Init containers by name whose traffic is not captured: their users are excluded, or the reason is told why they cannot be."""

from __future__ import annotations

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod, load_config
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.inject.deciding.pod_options import make_cni_options
from netinit.inject.deciding.warnings import pod_findings
from netinit.options import Options
from sweeps import together

KEY, EXCLUDED = "netinit.io/uncaptured-init-containers", "netinit.io/exclude-outbound-for-uids"


def container(name, uid=None, **more):
    return {"name": name, "image": name, **({"securityContext": {"runAsUser": uid}} if uid is not None else {}), **more}


def pod(value, init, apps, *, user=None, annotations=None):
    security = {} if user is None else {"securityContext": {"runAsUser": user}}
    metadata = {"name": "web", "annotations": {KEY: value, **(annotations or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**security, "initContainers": init, "containers": apps}}


@pytest.fixture(params=[False, True], ids=["by istio-init", "by a CNI plugin"])
def injection(request):
    return load_config(values='{"istio_cni": {"enabled": true}}') if request.param else load_config()


def users_of(injected):
    return [str(one) for one in options_of(find_init(injected["spec"])).exclude_outbound_for_uids]


def test_their_users_are_excluded_and_they_have_a_network(injection):
    given = pod("migrate, fetch", [container("migrate", 7001), container("fetch", 7002), container("other", 7003)], [container("app", 1000)])
    injected = inject_pod(given, injection)
    assert users_of(injected) == ["tcp:*:7001", "udp:*:7001", "tcp:*:7002", "udp:*:7002"]
    found = [one.subject for one in pod_findings(injected) if one.kind.name == "no-network"]
    assert found in ([], ["other"])
    assert {"migrate", "fetch"} & {*found} == set()


def test_a_cni_plugin_reads_their_users_from_the_annotation_that_the_injection_writes():
    injected = inject_pod(pod("migrate", [container("migrate", 7001)], [container("app", 1000)]), load_config())
    made = make_cni_options(injected["metadata"]["annotations"], {}, Options(), uid=None, gid=None)
    assert [str(one) for one in made.exclude_outbound_for_uids] == ["tcp:*:7001", "udp:*:7001"]


def test_a_second_injection_changes_nothing_and_what_the_pod_excluded_itself_stays():
    given = pod("migrate", [container("migrate", 7001)], [container("app", 1000)], annotations={EXCLUDED: "tcp:22:5"})
    injected = inject_pod(given, load_config())
    assert injected["metadata"]["annotations"][EXCLUDED] == "tcp:22:5;*:*:7001"
    assert inject_pod(injected, load_config()) == injected
    assert given["metadata"]["annotations"] == {KEY: "migrate", EXCLUDED: "tcp:22:5"}, "the argument is not modified"


def test_the_pods_user_is_that_of_a_container_without_one():
    injected = inject_pod(pod("migrate", [container("migrate")], [container("app", 1000)], user=7001), load_config())
    assert users_of(injected) == ["tcp:*:7001", "udp:*:7001"]


@together(
    ("value", "init", "apps", "said"),
    [
        ("gone", [container("migrate", 7001)], [container("app", 1000)], 'the pod has no init container "gone"; it has "migrate"'),
        ("gone", [], [container("app", 1000)], 'the pod has no init container "gone"; it has none'),
        ("app", [], [container("app", 1000)], 'the pod has no init container "app"'),
        ("migrate", [container("migrate")], [container("app", 1000)], 'the user of init container "migrate" is not known, its image decides: set'),
        ("migrate", [container("migrate", 1000)], [container("app", 1000)], 'has the user 1000 of "app", whose traffic would bypass the proxy'),
        ("migrate", [container("migrate", 7001)], [container("a", 1), container("b")], 'has the user 7001, and "b" may have it too, as the image decides'),
        ("log", [container("log", 7001, restartPolicy="Always")], [container("app", 1000)], "is a native sidecar, which runs beside the application"),
        ("migrate", [container("migrate", 5), container("log", 5, restartPolicy="Always")], [container("app", 1)], 'has the user 5 of "log"'),
        ("migrate", [container("migrate", "5")], [container("app", 1)], 'the user of init container "migrate" is not known'),
    ],
)
def test_what_cannot_be_excluded_is_refused_with_the_reason(value, init, apps, said):
    with pytest.raises(InjectionError) as caught:
        inject_pod(pod(value, init, apps), load_config())
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"annotation {KEY}: ")


def test_every_container_that_cannot_be_excluded_is_named():
    with pytest.raises(InjectionError) as caught:
        inject_pod(pod("a,b", [container("a")], [container("app", 1000)]), load_config())
    assert len(str(caught.value).splitlines()) == 2


def test_an_init_container_of_the_pods_own_without_annotation_is_captured_as_before():
    assert users_of(inject_pod(pod("", [container("migrate", 7001)], [container("app", 1000)]), load_config())) == []


def test_resources_of_the_init_container_are_given_in_the_pod_itself():
    resources = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    given = pod("", [container("migrate"), {"name": "istio-init", "image": "auto", "resources": resources}], [container("app", 1000)])
    init, usual = (find_init(inject_pod(one, load_config())["spec"]) for one in (given, pod("", [], [container("app", 1000)])))
    assert init["resources"] == resources != usual["resources"]
    assert {**init, "resources": usual["resources"]} == usual
