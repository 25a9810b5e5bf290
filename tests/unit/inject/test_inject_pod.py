"""Injection of one pod in the current format: the steps that the golden files show too little of."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import Namespace, Settings, inject_pod, load_config
from netinit.inject.deciding.containers import find

TEMPLATE = """
metadata: {annotations: {template: one}}
spec:
  initContainers:
  - name: {{ if .Values.cni }}istio-validation{{ else }}istio-init{{ end }}
    args: ["-p", "15001", "-u", "{{ .ProxyUID }}"]
  {{- if not .NativeSidecars }}
  containers:
  {{- end }}
  - name: istio-proxy
    image: proxy:1
    env:
    - {name: ISTIO_META_CLUSTER_ID, value: Kubernetes}
    - {name: LAST, value: "1"}
    securityContext: {runAsUser: {{ .ProxyUID }}}
"""


def config(mesh=None, **values):
    extra = values.pop("config", {})
    return load_config({"policy": "enabled", "templates": {"sidecar": TEMPLATE}, **extra}, values=values, mesh=mesh)


def pod(*containers, labels=None, annotations=None):
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "app"}, *containers]}}


def proxy(result):
    spec = result["spec"]
    return find(spec.get("containers"), "istio-proxy") or find(spec["initContainers"], "istio-proxy")


MULTI = {"multiCluster": {"clusterName": "values-cluster"}, "network": "values-net"}


@pytest.mark.parametrize(
    ("values", "environment", "labels", "wanted"),
    [
        ({}, {}, {}, [("ISTIO_META_CLUSTER_ID", "Kubernetes"), ("LAST", "1")]),
        (MULTI, {}, {}, [("LAST", "1"), ("ISTIO_META_CLUSTER_ID", "values-cluster"), ("ISTIO_META_NETWORK", "values-net")]),
        (MULTI, {"ISTIO_META_NETWORK": "url-net", "X": "y"}, {}, [("LAST", "1"), ("ISTIO_META_CLUSTER_ID", "values-cluster"), ("ISTIO_META_NETWORK", "url-net"), ("X", "y")]),
        (MULTI, {"ISTIO_META_NETWORK": "url-net"}, {"topology.istio.io/network": "label-net"}, [("LAST", "1"), ("ISTIO_META_CLUSTER_ID", "values-cluster"), ("ISTIO_META_NETWORK", "label-net")]),
    ],
)  # fmt: skip
def test_cluster_and_network_stand_sorted_at_the_end_of_the_environment(values, environment, labels, wanted):
    settings = Settings(environment=environment)
    result = inject_pod(pod(labels=labels), config(**{"global": values}), settings=settings)
    assert [(item["name"], item["value"]) for item in proxy(result)["env"]] == wanted
    network = dict(wanted).get("ISTIO_META_NETWORK")
    assert result["metadata"]["labels"].get("topology.istio.io/network") == network


def test_the_pod_that_is_given_stays_as_it_is():
    given = pod(labels={"app": "web"})
    given["metadata"]["annotations"] = {"sidecar.istio.io/rewriteAppHTTPProbers": "true"}
    given["spec"]["initContainers"] = [{"name": "first", "image": "i", "env": []}]
    given["spec"]["containers"] = [{"name": "app", "image": "i", "readinessProbe": {"httpGet": {"path": "/", "port": 80}}}]
    before = copy.deepcopy(given)
    assert inject_pod(given, config()) != before
    assert given == before


def test_labels_and_annotations_that_are_no_texts_are_left_out():
    given = pod(labels={"app": "web", "count": 5})
    given["metadata"]["annotations"] = {"a": "b", "listed": ["x"]}
    injected = inject_pod(given, config())["metadata"]
    assert (injected["labels"]["app"], injected["annotations"]["a"]) == ("web", "b")
    assert all(type(value) is str for key in ("labels", "annotations") for value in injected[key].values())


def test_injected_annotations_win():
    extra = {"injectedAnnotations": {"template": "two", "more": 5}}
    annotations = inject_pod(pod(), config(config=extra))["metadata"]["annotations"]
    assert (annotations["template"], annotations["more"]) == ("two", "5")


@pytest.mark.parametrize(
    ("hook", "annotations", "rewritten"),
    [
        ({}, {}, False),
        ({"rewriteAppHTTPProbe": True}, {}, True),
        ({"rewriteAppHTTPProbe": False}, {}, False),
        ({"rewriteAppHTTPProbe": None}, {}, False),
        ({}, {"sidecar.istio.io/rewriteAppHTTPProbers": "true"}, True),
        ({"rewriteAppHTTPProbe": True}, {"sidecar.istio.io/rewriteAppHTTPProbers": "false"}, False),
    ],
)
def test_probes_are_rewritten_where_the_values_or_the_pod_say_so(hook, annotations, rewritten):
    probed = pod(annotations=annotations)
    probed["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/ready", "port": 80}}
    result = inject_pod(probed, config(sidecarInjectorWebhook=hook))
    probe = find(result["spec"]["containers"], "app")["readinessProbe"]["httpGet"]
    assert (probe["path"] == "/app-health/app/readyz") is rewritten, probe


USER = {"name": "istio-proxy", "image": "auto", "securityContext": {"runAsUser": 1234, "runAsGroup": 4321}}


@pytest.mark.parametrize("native", [True, False])
def test_the_init_container_exempts_the_uid_that_the_user_chose(native):
    result = inject_pod(pod(USER), config(), settings=Settings(native_sidecars=native))
    init = find(result["spec"]["initContainers"], "istio-init")
    assert init["args"][-2:] == ["-u", "1234"]
    assert "securityContext" not in init
    assert proxy(result)["securityContext"] == {"runAsUser": 1234, "runAsGroup": 4321}
    assert proxy(result)["image"] == "proxy:1", "auto means the template's image"
    place = "initContainers" if native else "containers"
    assert [
        item["name"] for item in json.loads(result["metadata"]["annotations"]["proxy.istio.io/overrides"])[place]
    ] == ["istio-proxy"]


def test_a_validation_runs_as_the_user_that_it_validates():
    result = inject_pod(pod(USER), config(cni=True))
    validation = find(result["spec"]["initContainers"], "istio-validation")
    assert validation["securityContext"] == {"runAsUser": 1234, "runAsGroup": 4321}
    assert validation["args"][-1] == "1234"


@pytest.mark.parametrize("source", ["mesh", "annotation"])
def test_tproxy_keeps_the_proxy_root_but_the_rules_follow_the_user(source):
    mesh = {"defaultConfig": {"interceptionMode": "TPROXY"}} if source == "mesh" else None
    annotations = {"sidecar.istio.io/interceptionMode": "TPROXY"} if source == "annotation" else {}
    result = inject_pod(pod(USER, annotations=annotations), config(mesh, cni=True))
    assert proxy(result)["securityContext"]["runAsUser"] == 0
    validation = find(result["spec"]["initContainers"], "istio-validation")
    assert "securityContext" not in validation
    assert validation["args"][-1] == "1234"
    assert inject_pod(result, config(mesh, cni=True)) == result


def test_uid_0_is_never_exempted():
    user = {"name": "istio-proxy", "securityContext": {"runAsUser": 0}}
    result = inject_pod(pod(user), config())
    assert find(result["spec"]["initContainers"], "istio-init")["args"][-1] == "1337"


def test_a_change_of_the_user_after_an_injection_is_kept_through_the_next():
    first = inject_pod(pod(USER), config())
    again = inject_pod(
        first, load_config({"policy": "enabled", "templates": {"sidecar": TEMPLATE.replace("proxy:1", "proxy:2")}})
    )
    assert proxy(again)["image"] == "proxy:2", "a new template reaches an injected pod"
    assert proxy(again)["securityContext"]["runAsUser"] == 1234


def test_the_application_waits_where_the_annotation_says_so():
    annotations = {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}
    result = inject_pod(pod(annotations=annotations), config(), settings=Settings(native_sidecars=False))
    assert [item["name"] for item in result["spec"]["containers"]] == ["istio-proxy", "app"]


@pytest.mark.parametrize(("value", "native"), [("true", True), ("false", False), ("", False), ("nonsense", True)])
def test_the_annotation_decides_on_where_a_users_proxy_belongs(value, native):
    template = TEMPLATE.replace(
        "{{- if not .NativeSidecars }}",
        '{{- if eq (index .ObjectMeta.Annotations "sidecar.istio.io/nativeSidecar" | default (printf "%t" .NativeSidecars)) "false" }}',
    )
    given = pod(USER, annotations={"sidecar.istio.io/nativeSidecar": value})
    settings = Settings(native_sidecars=False)
    result = inject_pod(
        given, load_config({"policy": "enabled", "templates": {"sidecar": template}}), settings=settings
    )
    names = [item["name"] for item in result["spec"]["containers"]]
    assert ("istio-proxy" in names) is not native


def test_a_second_template_for_the_proxy_joins_the_native_sidecar():
    spire = "spec: {containers: [{name: istio-proxy, volumeMounts: [{name: s, mountPath: /s}]}], volumes: [{name: s, csi: {driver: d}}]}"
    both = load_config(
        {
            "policy": "enabled",
            "templates": {"sidecar": TEMPLATE, "spire": spire},
            "defaultTemplates": ["sidecar", "spire"],
        }
    )
    result = inject_pod(pod(), both)
    assert [item["name"] for item in result["spec"]["containers"]] == ["app"]
    assert proxy(result)["volumeMounts"] == [{"name": "s", "mountPath": "/s"}]
    assert inject_pod(result, both) == result


def test_one_configuration_serves_many_threads():
    shared = config()
    pods = [pod(labels={"app": str(number)}) for number in range(40)]
    alone = [inject_pod(given, shared) for given in pods]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda given: inject_pod(given, shared), pods)) == alone


OPENSHIFT = Namespace(
    name="bank",
    annotations={"openshift.io/sa.scc.uid-range": "1000980000/10000", "openshift.io/sa.scc.supplemental-groups": "1000970000/10000"},
)
ASSIGNED = {"runAsUser": 1000980000, "readOnlyRootFilesystem": False}


def ids_of(result):
    """User and group of the proxy, user of the container that validates, and the user that the rules exempt."""
    init = next(one for one in result["spec"]["initContainers"] if one["name"] in {"istio-init", "istio-validation"})
    own, other = proxy(result)["securityContext"], init.get("securityContext", {})
    return own.get("runAsUser"), own.get("runAsGroup"), other.get("runAsUser"), init["args"][-1]


@pytest.mark.parametrize("cni", [False, True])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("app", "more", "own", "wanted"),
    [
        (ASSIGNED, {}, ASSIGNED, (1000989999, None)),
        ({}, {"securityContext": {"runAsUser": 1000980000}}, ASSIGNED, (1000989999, None)),
        (ASSIGNED, {}, {**ASSIGNED, "runAsGroup": 1000970000}, (1000989999, None)),
        (ASSIGNED, {"initContainers": [{"name": "setup", "securityContext": {"runAsUser": 5}}]}, ASSIGNED, (1000989999, None)),
        ({"runAsUser": 5}, {"initContainers": [{"name": "setup", "securityContext": {"runAsUser": 1000980000}}]}, ASSIGNED, (1000989999, None)),
        (ASSIGNED, {}, {"runAsUser": 1000980005, "runAsGroup": 7}, (1000980005, 7)),
        ({}, {}, ASSIGNED, (1000980000, None)),
    ],
)  # fmt: skip
def test_on_openshift_a_proxy_with_an_applications_user_gets_that_of_the_template(cni, native, app, more, own, wanted):
    given = pod({"name": "istio-proxy", "image": "auto", "securityContext": own})
    given["spec"]["containers"][0]["securityContext"] = app
    given["spec"].update(copy.deepcopy(more))
    before = copy.deepcopy(given)
    settings = Settings(native_sidecars=native)
    result = inject_pod(given, config(cni=cni), namespace=OPENSHIFT, settings=settings)
    uid, gid, validating, exempted = ids_of(result)
    assert ((uid, gid), exempted, given) == (wanted, str(uid), before)
    assert validating == (uid if cni and uid != 1000989999 else None)  # the template's own otherwise
    assert proxy(result)["securityContext"].get("readOnlyRootFilesystem") is own.get("readOnlyRootFilesystem")
    assert inject_pod(result, config(cni=cni), namespace=OPENSHIFT, settings=settings) == result


def test_elsewhere_a_user_that_is_an_applications_too_is_kept_or_refused_by_a_setting():
    given = pod({"name": "istio-proxy", "image": "auto", "securityContext": ASSIGNED})
    given["spec"]["containers"][0]["securityContext"] = ASSIGNED
    assert ids_of(inject_pod(given, config()))[0] == 1000980000
    with pytest.raises(InjectionError, match=r'container "app" runs as uid 1000980000, which is the proxy\'s'):
        inject_pod(given, config(), settings=Settings(refuse_shared_user=True))
    assert inject_pod(given, config(), namespace=OPENSHIFT, settings=Settings(refuse_shared_user=True))
    assert inject_pod(pod(), config(), settings=Settings(refuse_shared_user=True))
