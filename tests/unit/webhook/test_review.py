"""A review, bytes in and bytes out: what is answered, what is refused, and that nothing ever comes out but an answer."""

from __future__ import annotations

import base64
import functools
import json

import pytest

from netinit.base.errors import ConfigError
from netinit.inject.adding.settings import Namespace, Settings
from netinit.webhook import configuration, review
from netinit.webhook.configuration import Served, Texts, load
from netinit.webhook.review import Fault, answer, environment_of
from sweeps import together
from webhook_server import CONFIG, make_pod, make_review, patched


@functools.cache
def served_config():
    """Tried on canaries, which takes a tenth of a second: not in every worker that collects this file."""
    return load(Texts(config=json.dumps(CONFIG), values='{"release": "r1"}', mesh="trustDomain: td"), Settings(revision="default"))


@functools.cache
def own_config():
    return load(Texts(), Settings())


def ask(pod, served=None, **more):
    given = answer(json.dumps(make_review(pod, **more)).encode(), served or served_config())
    assert given.status == 200, given
    return given, json.loads(given.body)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_answer_is_of_the_requests_version_and_has_its_uid_and_a_patch(version):
    pod = make_pod()
    given, told = ask(pod, version=version, uid="u-1")
    response = told["response"]
    assert (told["kind"], told["apiVersion"]) == ("AdmissionReview", f"admission.k8s.io/{version}")
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    result = patched(pod, response)
    assert [one["name"] for one in result["spec"]["containers"]] == ["app", "istio-proxy"]
    assert result["metadata"]["annotations"]["release"] == "r1"
    assert (given.outcome, given.pod, given.namespace, given.owner) == ("injected", "web", "shop", "Pod/web")


def test_the_patch_touches_only_what_changes():
    _, told = ask(make_pod(annotations={"a": "b"}, volumes=[{"name": "v"}]))
    paths = [one["path"] for one in json.loads(base64.b64decode(told["response"]["patch"]))]
    assert not [path for path in paths if path.startswith(("/spec/volumes", "/spec/containers/0", "/kind"))], paths
    assert "/metadata/annotations" not in paths


def test_injecting_again_changes_nothing():
    pod = make_pod()
    _, told = ask(pod)
    given, again = ask(patched(pod, told["response"]))
    assert (given.outcome, "patch" in again["response"], again["response"]["allowed"]) == ("unchanged", False, True)


def test_a_dry_run_gets_the_same_answer():
    assert ask(make_pod(), dryRun=True)[1] == ask(make_pod())[1]
    assert ask(make_pod(), dryRun=True)[0].dry_run


@pytest.mark.parametrize(
    ("pod", "reason", "said"),
    [
        (make_pod(hostNetwork=True), "host-network", "the pod uses the host's network"),
        (make_pod(labels={"sidecar.istio.io/inject": "false"}), "label", 'label sidecar.istio.io/inject: "false"'),
        (make_pod(annotations={"sidecar.istio.io/inject": "false"}), "annotation", "annotation"),
    ],
)
def test_a_pod_that_is_not_to_be_injected_is_let_through_and_the_audit_says_why(pod, reason, said):
    given, told = ask(pod)
    assert (given.outcome, given.reason) == ("skipped", reason)
    assert told["response"]["allowed"]
    assert "patch" not in told["response"]
    assert said in told["response"]["auditAnnotations"]["decision"]


def test_the_audit_names_decision_and_template():
    _, told = ask(make_pod())
    assert told["response"]["auditAnnotations"] == {
        "decision": "injected: the injector's policy is enabled",
        "template-version": served_config().version,
    }


@pytest.mark.parametrize(
    "more",
    [
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "batch.volcano.sh", "version": "v1", "kind": "Pod"}},
        {"subResource": "ephemeralcontainers"},
        {"resource": {"group": "", "version": "v1", "resource": "services"}},
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
    ],
)
def test_what_is_no_new_pod_is_let_through_untouched(more):
    given, told = ask(make_pod(), **more)
    assert given.outcome == "skipped"
    assert told["response"] == {"uid": "c0ffee", "allowed": True}


def test_a_bad_annotation_is_named_with_the_pod():
    given, told = ask(make_pod(annotations={"status.sidecar.istio.io/port": "no"}))
    status = told["response"]["status"]
    assert (told["response"]["allowed"], given.outcome, given.reason) == (False, "denied", "pod")
    assert status["message"].startswith(
        "pod shop/web: invalid value 'no' for annotation 'status.sidecar.istio.io/port'"
    )
    assert status["code"] == 400


def test_a_template_that_fails_is_named(monkeypatch):
    config = {"policy": "enabled", "templates": {"sidecar": "spec: {x: {{ index .ObjectMeta.Labels 1 2 3 }}}"}}
    monkeypatch.setattr(configuration, "try_canaries", lambda *_: ())
    served = load(Texts(config=json.dumps(config)), Settings())
    given, told = ask(make_pod(), served)
    assert given.outcome == "denied"
    assert "sidecar" in told["response"]["status"]["message"]


@pytest.mark.parametrize("pod", [None, [], "pod", 7])
def test_a_review_without_a_pod_is_denied(pod):
    assert ask(pod)[0].reason == "no-pod"


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None, "spec": None},
        {"metadata": [], "spec": {}},
        {"metadata": {"annotations": []}, "spec": {"containers": {}}},
        {"metadata": {"labels": {"a": [1]}}, "spec": {"containers": [None, 1, {"name": {}}]}},
        {"metadata": {"name": {"x": 1}}, "spec": []},
    ],
)
def test_a_pod_of_any_shape_gets_an_answer(pod):
    given = answer(json.dumps(make_review(pod)).encode(), served_config())
    assert given.status == 200
    assert given.reason != "internal", given.detail


def test_a_fault_of_ours_is_one_sentence_and_the_traceback_is_for_the_log(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(review, "decide", fails)
    given, told = ask(make_pod())
    assert not told["response"]["allowed"]
    assert "internal error (ZeroDivisionError)" in told["response"]["status"]["message"]
    assert "secret detail" not in given.body.decode()
    assert "secret detail" in given.detail


def nest(depth):
    return json.dumps(make_review(make_pod(x="deep"))).replace('"deep"', '{"x":' * depth + "{}" + "}" * depth).encode()


def test_a_nested_abyss_is_refused():
    given = answer(nest(200_000), served_config())
    assert (given.outcome in {"denied", "refused"}, given.reason) == (True, "too-large"), given


def test_what_only_some_versions_of_python_can_read_is_refused_or_answered_as_any_pod():
    given, shallow = answer(nest(2000), served_config()), answer(nest(2), served_config())
    assert (given.outcome, given.reason) in {("denied", "too-large"), ("refused", "too-large"), (shallow.outcome, shallow.reason)}, given


@together(
    ("body", "status", "reason"),
    [
        (b"", 400, "empty"),
        (b" \n", 400, "empty"),
        (b"{", 400, "not-json"),
        (b"\xff\xfe", 400, "not-json"),
        (b'{"kind": NaN}', 400, "not-json"),
        (b"[1]", 400, "no-review"),
        (b'{"kind": "Pod"}', 400, "no-review"),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v2", "request": {"uid": "a"}}',
            400,
            "no-review",
        ),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', 400, "no-review"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": 7}}', 400, "no-review"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": ""}}', 400, "no-review"),
        (b"[" * 100_000, 400, "too-large"),
        (b'"' + b"x" * (6 << 20), 413, "too-large"),
        (b'{"n": ' + b"9" * 5000 + b"}", 400, "not-json"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else str(value),
)
def test_what_is_no_review_gets_a_status_and_a_line(body, status, reason):
    given = answer(body, served_config())
    assert (given.status, given.reason, given.outcome) == (status, reason, "refused")
    assert given.body.decode().count("\n") == 1
    assert b"sys." not in given.body


@pytest.mark.parametrize("name", ["a\nb", "a\r\nevil\t", "\x1b[2J", "x" * 5000, "\u202e"])
def test_names_cannot_forge_a_line(name):
    given, told = ask(make_pod(name, annotations={"status.sidecar.istio.io/port": name}))
    message = told["response"]["status"]["message"]
    assert message.isprintable()
    assert len(message) < 2500
    assert given.outcome == "denied"


def warnings_of(pod, served=None):
    return ask(pod, served)[1]["response"].get("warnings", [])


def with_init(*arguments):
    text = f"spec:\n  initContainers:\n  - {{name: istio-init, image: i, args: {json.dumps(list(arguments))}}}\n"
    return load(
        Texts(config=json.dumps({"policy": "enabled", "templates": {"sidecar": text}})), Settings(native_sidecars=False)
    )


def test_a_warning_names_an_unknown_annotation_and_the_nearest():
    (told,) = warnings_of(make_pod(annotations={"traffic.sidecar.istio.io/excludeInbuondPorts": "80"}))
    assert told == (
        'annotation "traffic.sidecar.istio.io/excludeInbuondPorts" has no effect: nothing reads it; '
        "did you mean traffic.sidecar.istio.io/excludeInboundPorts?"
    )


@pytest.mark.parametrize(
    "key",
    [
        "sidecar.istio.io/inject",
        "example.com/anything",
        "prometheus.istio.io/merge-metrics",
        "istio.io/rev",
        "proxy.istio.io/config",
    ],
)
def test_no_warning_for_what_is_known_or_somebody_elses(key):
    assert warnings_of(make_pod(annotations={key: "true" if key.startswith(("sidecar", "prom")) else ""})) == []


def test_the_warnings_of_manual_injection_are_given_for_ignored_scrape_targets_and_a_dns_policy():
    pod = make_pod(dnsPolicy="Default", annotations={"prometheus.istio.io/scrape-targets": ":/metrics"})
    ignored, resolver = warnings_of(pod)
    assert ignored.endswith("has a target without a port and is ignored; write PORT:PATH")
    assert resolver == 'dnsPolicy "Default" is not ClusterFirst: the proxy may not find its control plane by name'


def test_an_annotation_that_a_template_reads_is_known():
    text = 'metadata: {labels: {x: "{{ annotation .ObjectMeta "sidecar.istio.io/ours" "" }}"}}'
    served = load(Texts(config=json.dumps({"policy": "enabled", "templates": {"sidecar": text}})), Settings())
    assert warnings_of(make_pod(annotations={"sidecar.istio.io/ours": "1"}), served) == []


def test_a_warning_for_an_init_container_without_network_and_for_the_proxys_user():
    served = with_init("-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*")
    pod = make_pod(initContainers=[{"name": "migrate", "image": "m"}], securityContext={"runAsUser": 1337})
    pod["spec"]["initContainers"].insert(0, {"name": "istio-init", "image": "x"})
    del pod["spec"]["initContainers"][0]
    told = warnings_of(pod, served)
    assert [one for one in told if 'container "app" runs as uid 1337' in one], told


def test_a_warning_for_a_port_that_is_included_and_excluded():
    told = warnings_of(make_pod(), with_init("-u", "1337", "-i", "*", "-b", "80,81", "-d", "81"))
    captured = "it is captured, since exclusions only count with all ports (*)"
    assert f"inbound port 81 is included and excluded at once: {captured}; remove one of the two" in told
    told = warnings_of(make_pod(), with_init("-u", "1337", "-q", "80,81", "-o", "81"))
    assert "outbound port 81 is included and excluded at once: it is not captured; remove one of the two" in told


@pytest.mark.parametrize("direction", ["Inbound", "Outbound"])
def test_lists_of_twenty_thousand_ports_are_answered(direction):
    """Compared each with each they would take minutes, and with them the server."""
    ports = [str(number) for number in range(1, 20_001)]  # the API server takes 256 KiB of annotations
    names = f"traffic.sidecar.istio.io/include{direction}Ports", f"traffic.sidecar.istio.io/exclude{direction}Ports"
    pod = make_pod(annotations=dict(zip(names, (",".join(ports), ",".join(reversed(ports))), strict=True)))
    given = answer(json.dumps(make_review(pod)).encode(), own_config())
    assert given.outcome == "injected", given
    warnings = json.loads(given.body)["response"]["warnings"]
    assert any(f"{direction.lower()} port 1-20000 is included and excluded" in one for one in warnings), warnings


def test_a_template_that_is_asked_for_thousands_of_times_is_refused():
    given = answer(json.dumps(make_review(make_pod(annotations={"inject.istio.io/templates": ",".join(["sidecar"] * 20_000)}))).encode(), served_config())
    assert given.outcome == "denied"
    assert "20000 templates are more than 64" in given.message


def test_warnings_are_few_and_short():
    many = {f"sidecar.istio.io/{'x' * 300}{number}": "1" for number in range(200)}
    told = warnings_of(make_pod(annotations=many))
    assert 0 < len(told) <= 10
    assert max(map(len, told)) <= 256


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/inject", {}),
        ("/inject/", {}),
        ("/inject/cluster/c1/net/n1", {"ISTIO_META_CLUSTER_ID": "c1", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/my_var/a--slash--b", {"MY_VAR": "a/b"}),
        ("/inject/cluster/c1/odd", {"ISTIO_META_CLUSTER_ID": "c1"}),
        ("/inject/cluster/a%20b", {"ISTIO_META_CLUSTER_ID": "a b"}),
        ("/inject/Cluster/c1", {"CLUSTER": "c1"}),
        ("/inject/:ENV:cluster=c1:ENV:net=n1", {"ISTIO_META_CLUSTER_ID": "c1", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/%3AENV%3Aurl=a/b=c:ENV:=x:ENV:none:ENV:empty=/", {"URL": "a/b=c", "EMPTY": ""}),
    ],
)
def test_the_path_gives_variables(path, wanted):
    assert environment_of(path) == wanted


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/injected", 404),
        ("/inject/" + "a/b/" * 40, 414),
        ("/inject/a%0Ab/c", 400),
        ("/inject/a/b%0Ac", 400),
        ("/inject/:ENV:a%0Ab=c", 400),
        ("/inject/" + ":ENV:a=b" * 33, 414),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path, status):
    with pytest.raises(Fault) as fault:
        environment_of(path)
    assert fault.value.status == status


def test_the_paths_variables_reach_the_proxy():
    pod = make_pod()
    given = answer(json.dumps(make_review(pod)).encode(), served_config(), environment={"ISTIO_META_CLUSTER_ID": "c1"})
    proxy = patched(pod, json.loads(given.body)["response"])["spec"]["containers"][1]
    assert {"name": "ISTIO_META_CLUSTER_ID", "value": "c1"} in proxy["env"]


def test_the_namespaces_annotations_give_openshifts_user():
    text = "spec: {containers: [{name: istio-proxy, image: p, securityContext: {runAsUser: {{ .ProxyUID }}}}]}"
    served = load(Texts(config=json.dumps({"policy": "enabled", "templates": {"sidecar": text}})), Settings())
    asked = []

    def find(name):
        asked.append(name)
        return Namespace(name=name, annotations={"openshift.io/sa.scc.uid-range": "1000620000/10000"})

    pod = make_pod()
    given = answer(json.dumps(make_review(pod)).encode(), served, namespace=find)
    assert patched(pod, json.loads(given.body)["response"])["spec"]["containers"][-1]["securityContext"] == {
        "runAsUser": 1000629999
    }
    assert asked == ["shop"]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (Texts(config="policy: [", origin="ConfigMap mesh/x"), "ConfigMap mesh/x:2:1: "),
        (Texts(config="policy: enabled"), "neither 'templates'"),
        (
            Texts(config='{"policy": "enabled", "templates": {"sidecar": "{{ nope }}"}}'),
            "template 'sidecar' cannot be parsed",
        ),
        (
            Texts(
                config='{"policy": "enabled", "templates": {"sidecar": "spec: {containers: {{ .Values.x.y.z }}"}}',
                values='{"x": null}',
            ),
            "canary",
        ),
        (Texts(mesh="[1]"), "netinit's own templates"),
    ],
)
def test_a_bad_configuration_is_an_error_that_names_it(texts, said):
    with pytest.raises(ConfigError, match="(?s)" + said.replace("'", ".")):
        load(texts, Settings())


def test_without_any_text_our_own_templates_are_served():
    served = load(Texts(), Settings())
    assert isinstance(served, Served)
    assert ask(make_pod(), served)[0].outcome == "injected"


def test_classic_configurations_are_told_apart_by_their_templates_hash():
    import hashlib

    text = "containers:\n- name: istio-proxy\n  image: p\n"
    served = load(Texts(config=json.dumps({"policy": "enabled", "template": text})), Settings())
    assert served.version == hashlib.sha256(text.encode()).hexdigest()
    assert ask(make_pod(), served)[0].outcome == "injected"


def shared_pod(uid=1337, **metadata):
    pod = make_pod(securityContext={"runAsUser": uid})
    pod["metadata"] |= metadata
    return pod


CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d", "uid": "u-5d", "controller": True}


def test_an_application_with_the_proxys_user_is_a_warning_and_an_event_on_its_controller():
    given, told = ask(shared_pod(ownerReferences=[{"name": "other"}, CONTROLLER]), own_config())
    assert given.outcome == "injected"
    message = 'container "app" runs as uid 1337, which is the proxy\'s: its outbound traffic counts as the proxy\'s'
    assert any(text.startswith(message) for text in told["response"]["warnings"])
    assert dict(given.event.involved) == {"namespace": "shop", "kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web-5d", "uid": "u-5d"}
    assert given.event.reason == "SharedProxyUser"
    assert given.event.message.startswith(message)


def test_the_event_of_a_pod_without_a_controller_is_on_the_pod():
    given, _ = ask(shared_pod(), own_config())
    assert dict(given.event.involved) == {"namespace": "shop", "kind": "Pod", "apiVersion": "v1", "name": "web"}


def test_no_event_is_of_a_dry_run_or_of_a_pod_that_is_right():
    assert ask(shared_pod(), own_config(), dryRun=True)[0].event is None
    assert ask(shared_pod(uid=5), own_config())[0].event is None
    assert ask(make_pod(), own_config())[0].event is None


def test_a_hostile_reference_to_a_controller_is_bounded_and_on_one_line():
    given, _ = ask(shared_pod(ownerReferences=[{"controller": True, "kind": ["x"], "name": "a\n\x1b" * 9999, "uid": {}}]), own_config())
    assert all(len(value) < 1100 and value.isprintable() for _, value in given.event.involved)


def test_by_a_setting_such_a_pod_is_denied_with_the_reason():
    served = load(Texts(), Settings(refuse_shared_user=True))
    given, told = ask(shared_pod(), served)
    assert (given.outcome, given.reason, told["response"]["allowed"]) == ("denied", "pod", False)
    assert 'container "app" runs as uid 1337' in told["response"]["status"]["message"]
    assert ask(shared_pod(uid=5), served)[0].outcome == "injected"
