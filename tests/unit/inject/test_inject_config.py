"""Reading the injector's configuration, choosing templates, and refusing values that break out of them."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError, InjectionError
from netinit.inject import Settings, decide, inject_pod, load_config
from netinit.inject.adding.canaries import BARE_POD, CANARIES
from netinit.questions.configuration_check import try_canaries
from sweeps import together

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def config_map(config, **more):
    return {"kind": "ConfigMap", "metadata": {"name": "istio-sidecar-injector"}, "data": {"config": config, **more}}


def test_a_config_map_gives_config_and_values():
    config = load_config(config_map("templates: {sidecar: '{{ .Values.a }}'}", values='{"a": 1}'))
    assert config.values == {"a": 1.0}
    assert not config.classic
    assert config.policy == ""
    assert "policy '' is neither enabled nor disabled" in config.warnings[0]
    assert config.default_templates == ("sidecar",)


def test_numbers_among_the_values_are_floats_as_in_go():
    template = "metadata: {annotations: {a: '{{ .Values.port }} {{ .Values.big }}'}}"
    config = load_config({"templates": {"sidecar": template}}, values="port: 15020\nbig: 1000000")
    assert inject_pod(POD, config)["metadata"]["annotations"]["a"] == "15020 1e+06"


def test_the_poison_template_for_old_injectors_is_ignored():
    config = load_config(
        {"template": "{{ Template_Version_And_Istio_Version_Mismatched }}", "templates": {"sidecar": ""}}
    )
    assert list(config.templates) == ["sidecar"]


def test_a_template_in_square_brackets_is_classic():
    config = load_config("policy: disabled\ntemplate: '[[ .ProxyConfig.ConfigPath ]]'")
    assert config.classic
    assert config.brackets
    assert config.mesh.proxy.fields["configPath"] == "/etc/istio/proxy"


def test_a_single_template_in_braces_is_of_the_releases_between():
    template = "containers:\n- name: istio-proxy\n  image: {{ .Values.global.proxy.image }}"
    config = load_config({"policy": "enabled", "template": template}, values={"global": {"proxy": {"image": "p:1.5"}}})
    assert config.classic
    assert not config.brackets
    assert inject_pod(POD, config)["spec"]["containers"][1] == {"name": "istio-proxy", "image": "p:1.5"}


def test_a_single_template_may_want_the_probes_of_the_application_at_the_agent():
    template = "rewriteAppHTTPProbe: true\ncontainers:\n- name: istio-proxy\n  image: p\n  args: [proxy, --statusPort, '15999']"
    probed = {"name": "c", "image": "i", "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}}}
    app, proxy = inject_pod({"metadata": {"name": "p"}, "spec": {"containers": [probed]}}, load_config({"template": template}))["spec"]["containers"]
    assert app["readinessProbe"]["httpGet"] == {"path": "/app-health/c/readyz", "port": 15999}
    assert json.loads(proxy["env"][0]["value"]) == {"/app-health/c/readyz": {"httpGet": {"path": "/ready", "port": 80}}}


def test_a_container_without_a_name_has_an_empty_name_in_the_path_of_its_probe():
    nameless = {"image": "i", "livenessProbe": {"httpGet": {"path": "/live", "port": 80}}}
    spec = inject_pod({"metadata": {"name": "p"}, "spec": {"containers": [nameless]}}, load_config())["spec"]
    found = {one.get("name"): one for one in (*spec["containers"], *spec["initContainers"])}
    assert found[None]["livenessProbe"]["httpGet"]["path"] == "/app-health//livez"
    (saved,) = [one["value"] for one in found["istio-proxy"]["env"] if one["name"] == "ISTIO_KUBE_APP_PROBERS"]
    assert list(json.loads(saved)) == ["/app-health//livez"]


@pytest.mark.parametrize("value", ["", ".GetValue"])  # a number before 1.7, later the pointer to a message
@pytest.mark.parametrize("threads", [0, 3])
def test_a_single_template_reads_concurrency_as_its_release_has_it(value, threads):
    concurrency = f".ProxyConfig.Concurrency{value}"
    template = f"containers:\n- name: istio-proxy\n  image: p-{{{{ if gt {concurrency} 0 }}}}{{{{ {concurrency} }}}}{{{{ end }}}}\n"
    config = load_config({"template": template}, mesh={"defaultConfig": {"concurrency": threads}})
    assert inject_pod(POD, config)["spec"]["containers"][1]["image"] == ("p-3" if threads else "p-")


def test_a_bad_selector_is_left_out_with_a_warning():
    config = load_config(
        {
            "policy": "enabled",
            "templates": {"sidecar": ""},
            "neverInjectSelector": [{"matchLabels": 5}, {}, {"matchLabels": {"a": "b"}}],
        }
    )
    assert len(config.never_inject_selectors) == 2
    assert "neverInjectSelector[0] is left out" in config.warnings[0]
    assert decide(POD, "ns", config).inject, "an empty selector matches nothing"


@together(
    ("source", "message"),
    [
        ("", "must be a mapping"),
        ("[1]", "must be a mapping"),
        ("a: [", "injector configuration: "),
        ("policy: enabled", "neither 'templates' .* nor 'template'"),
        ({"templates": {"a": "{{ if }}"}, "defaultTemplates": ["a"]}, "template 'a' cannot be parsed: template: a:1"),
        ({"templates": {"a": "ok", "b": "{{ nope }}"}, "defaultTemplates": ["a", "b"]}, "template 'b' .*function \"nope\" not defined"),
        ({"templates": {"a": 5}}, r"templates\.a: 5 must be a text"),
        ({"templates": {"a": ""}, "defaultTemplates": "a"}, "defaultTemplates: 'a' must be a list"),
        ({"templates": {"a": ""}, "aliases": {"b": "a"}}, "aliases: must map"),
        ({"templates": {"a": ""}, "alwaysInjectSelector": {}}, None),
        ({"templates": {"a": ""}, "alwaysInjectSelector": {"matchLabels": {}}}, "must be a list of selectors"),
        ({"template": "[[ .x"}, "cannot be parsed"),
        (config_map("templates: {a: [1]}"), "must be a text"),
        ({"kind": "ConfigMap", "data": {"values": "{}"}}, "no key 'config'; it has values"),
    ],
)
def test_a_bad_configuration_is_refused_as_a_whole(source, message):
    if message is None:
        load_config(source)
        return
    with pytest.raises(ConfigError, match=message):
        load_config(source)


def test_a_broken_template_is_parsed_once_however_many_pods_ask_for_it(monkeypatch):
    config = load_config({"templates": {"sidecar": "metadata: {}", "other": "{{ if }}"}})
    monkeypatch.setattr("netinit.inject.adding.config.Template", lambda *_, **__: pytest.fail("it was parsed again"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="template 'other' cannot be parsed"):
            config.templates["other"]


@pytest.mark.parametrize("lazily", [False, True])
def test_a_broken_template_refuses_the_pods_that_ask_for_it_and_no_others(lazily):
    source = {"templates": {"sidecar": "", "other": "\n{{ if }}"}, "aliases": {"both": ["sidecar", "other"]}}
    config = load_config(source, lazily=lazily)
    assert config.broken == (() if lazily else ("other",))
    warned = [line for line in config.warnings if "'other' cannot be parsed: template: other:2: missing value" in line]
    assert len(warned) == (0 if lazily else 1)
    assert inject_pod(POD, config)["spec"]["containers"][0]["name"] == "c"
    assert (list(config.templates), len(config.templates), "other" in config.templates) == (["sidecar", "other"], 2, True)
    for asked in ("other", "both"):
        with pytest.raises(ConfigError, match="template 'other' cannot be parsed: template: other:2: missing value for if"):
            inject_pod({**POD, "metadata": {"annotations": {"inject.istio.io/templates": asked}}}, config)
    with pytest.raises(ConfigError, match="template 'other' cannot be parsed"):
        load_config({**source, "defaultTemplates": ["both"]}, lazily=lazily)


def test_fields_that_no_pod_has_are_left_out_of_it():
    source = {"templates": {"sidecar": "labels: {a: b}\nmetadata: {labels: {c: d}}\nzone: 1"}}
    injected = inject_pod(POD, load_config(source))
    assert (injected.keys() - POD.keys(), injected["metadata"]["labels"]) == (set(), {"c": "d"})


def test_an_empty_type_of_the_image_counts():
    source = {"templates": {"sidecar": "metadata: {annotations: {a: {{ .ProxyImage }}, b: {{ .ProxyInitImage }}}}"}}
    values = {"global": {"hub": "h", "tag": "latest", "variant": "distroless"}}

    def images(**annotations):
        injected = inject_pod({**POD, "metadata": {"annotations": annotations}}, load_config(source, values=values))
        return [injected["metadata"]["annotations"][name] for name in "ab"]

    assert images() == ["h/proxyv2:latest-distroless"] * 2
    assert images(**{"sidecar.istio.io/proxyImageType": ""}) == ["h/proxyv2:latest"] * 2
    assert images(**{"sidecar.istio.io/proxyImageType": "debug"}) == ["h/proxyv2:latest-debug"] * 2


def of_one(template):
    return load_config({"templates": {"sidecar": template}}, values={"of": {"number": 5}})


def try_one(template):
    return {one.canary for one in try_canaries(of_one(template), Settings()) if one.problem}


def annotated(expression):
    return f"metadata: {{annotations: {{a: '{expression}'}}}}"


FOR_EVERY_POD = {
    '{{ fail "never" }}': "error calling fail: never",
    "{{ fail .ObjectMeta.Name }}": "error calling fail",
    annotated("{{ .Values.none.of.it }}"): "nil pointer|no value",
    annotated("{{ .ObjectMeta.Nope }}"): "can't evaluate field Nope",
    annotated("{{ if .ObjectMeta.Labels }}{{ end }}{{ index .Values.of 1 }}"): "error calling index",
    "a: [": "the rendered text is not valid YAML",
    "metadata: {labels: [a]}": "labels",
    "- {{ .ObjectMeta.Labels.none }}": "it must render a mapping",
}


@pytest.mark.parametrize(("template", "why"), FOR_EVERY_POD.items())
def test_what_fails_for_every_pod_refuses_the_configuration(template, why):
    with pytest.raises(ConfigError, match=f"(?s)a canary pod cannot be injected with it: .*({why})"):
        try_one(template)


DEFAULTED = (
    ".Spec.TerminationGracePeriodSeconds", ".Spec.RestartPolicy", ".Spec.DNSPolicy", ".Spec.SchedulerName", ".Spec.ServiceAccountName", ".Spec.EnableServiceLinks",
    ".Spec.PreemptionPolicy", ".Spec.Priority", "(index .Spec.Tolerations 1).TolerationSeconds", "(index .Spec.Containers 0).TerminationMessagePath",
    "(index .Spec.Containers 0).ImagePullPolicy", "(index (index .Spec.Volumes 0).Projected.Sources 0).ServiceAccountToken.Path", "len .Spec.SecurityContext.Sysctls",
)  # fmt: skip


@together("field", DEFAULTED)
def test_a_template_may_read_what_an_api_server_adds_to_every_pod(field):
    assert try_one(annotated(f"{{{{ {field} }}}}")) == set()


def test_an_error_that_depends_on_the_pod_refuses_the_pods_that_have_it():
    probed = annotated("{{ (index .Spec.Containers 0).ReadinessProbe.HTTPGet.Port }}")
    assert try_one(probed) == set(CANARIES) - {"a pod of a Deployment with probes"}
    owned = annotated("{{ (index .ObjectMeta.OwnerReferences 0).Kind }}")
    assert try_one(owned) == {"a pod without an owner"}
    assert try_one('{{ if eq .Spec.RestartPolicy "Never" }}{{ fail "no Jobs" }}{{ end }}{}') == {"a pod of a Job"}


OF_THE_POD = (
    "{{ .ObjectMeta.Labels.team }}", "{{ .Spec.SecurityContext.FSGroup }}", "{{ .Spec.SecurityContext.RunAsNonRoot }}", "{{ .Spec.Affinity.NodeAffinity }}",
    "{{ $labels := .ObjectMeta.Labels }}{{ $labels.team }}", "{{ with .ObjectMeta }}{{ .Annotations.a }}{{ end }}",
    '{{ if not .ObjectMeta.Labels.team }}{{ fail "a team is needed" }}{{ end }}', '{{ define "t" }}{{ .team }}{{ end }}{{ template "t" .ObjectMeta.Labels }}',
    "{{ $x := 0 }}{{ if .Spec.RestartPolicy }}{{ $x = .Values.none }}{{ end }}{{ $x.of.it }}", "{{ index .Spec.ImagePullSecrets 0 }}",
)  # fmt: skip


@together("expression", OF_THE_POD)
def test_what_no_canary_has_but_another_pod_may_have_is_no_error_of_the_configuration(expression):
    assert try_one(annotated(expression)) >= set(CANARIES) - {"a pod on OpenShift"}


def test_pods_like_a_refused_canary_are_refused_and_others_injected():
    config = of_one(annotated("{{ .ObjectMeta.Labels.team }}"))
    with pytest.raises(InjectionError, match="no value"):
        inject_pod(BARE_POD, config)
    labelled = {**BARE_POD, "metadata": {"labels": {"team": "x"}}}
    assert inject_pod(labelled, config)["metadata"]["annotations"]["a"] == "x"


def templates(**sources):
    return load_config({"templates": sources, "defaultTemplates": ["one"], "aliases": {"both": ["one", "two"]}})


MARK = "metadata: {{labels: {{{0}: yes-{0}}}}}"


@pytest.mark.parametrize(
    ("asked", "labels"),
    [(None, ["one"]), ("two", ["two"]), ("both", ["one", "two"]), (" two , one,two", ["one", "two"])],
)
def test_the_annotation_chooses_the_templates(asked, labels):
    config = templates(one=MARK.format("one"), two=MARK.format("two"))
    pod = {"metadata": {"annotations": {"inject.istio.io/templates": asked} if asked else {}}, "spec": {}}
    assert sorted(inject_pod(pod, config)["metadata"]["labels"]) == labels


def test_an_unknown_template_is_an_error_that_lists_the_known_ones():
    pod = {"metadata": {"annotations": {"inject.istio.io/templates": "tow"}}, "spec": {}}
    with pytest.raises(InjectionError, match="requested template 'tow' not found; the configuration has one, two"):
        inject_pod(pod, templates(one="", two=""))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a: [", "the rendered text is not valid YAML: line 2"),
        ("- a", "it must render a mapping"),
        ("{{ .Spec.Nope }}", "can't evaluate field Nope"),
        ("{{ range .Spec.Containers }}{{ index .Ports 5 }}{{ end }}", "index out of range"),
        ("spec: {containers: [{image: x}]}", "containers: an item has no name"),
        ('{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}', "template"),
    ],
)
def test_a_template_that_fails_is_a_clear_error(template, message):
    with pytest.raises(InjectionError, match=message):
        inject_pod(POD, load_config({"templates": {"sidecar": template}}))


QUOTED = """
spec:
  containers:
  - name: istio-proxy
    image: "{{ annotation .ObjectMeta `sidecar.istio.io/proxyImage` `none` }}"
    env:
    - {name: A, value: '{{ index .ObjectMeta.Labels "app" }}', more: x}
    - name: B
      value: {{ index .ObjectMeta.Annotations "plain" }}
    - name: C
      value: {{ .Spec.ServiceAccountName }}
"""
BREAK_OUTS = [
    ({"annotations": {"sidecar.istio.io/proxyImage": 'x"\n    securityContext: {privileged: true}\n    a: "'}}, "annotation 'sidecar.istio.io/proxyImage'"),
    ({"annotations": {"sidecar.istio.io/proxyImage": 'x"\n    image: "y'}}, "annotation 'sidecar.istio.io/proxyImage'"),
    ({"labels": {"app": "a', valueFrom: {x: y}, z: 'b"}}, "label 'app'"),
    ({"annotations": {"plain": "x\n      valueFrom: {secretKeyRef: {name: s, key: k}}"}}, "annotation 'plain'"),
    ({"annotations": {"plain": "x\n    securityContext: {privileged: true}"}}, "annotation 'plain'"),
    ({"annotations": {"plain": "[a]"}}, "annotation 'plain'"),
    ({"annotations": {"plain": "&a x"}}, "annotation 'plain'"),
    ({"annotations": {"plain": "{{ not a template }}"}}, "annotation 'plain'"),
    ({"annotations": {"plain": "# gone"}}, "annotation 'plain'"),
    ({"annotations": {"unread": 'x"\n    evil: true'}}, None),
    ({"annotations": {"plain": "a: b"}}, "annotation 'plain'"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "culprit"), BREAK_OUTS)
def test_a_value_that_breaks_out_of_its_place_is_refused(metadata, culprit):
    config = load_config({"templates": {"sidecar": QUOTED}})
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    if culprit is None:
        result = inject_pod(pod, config)
        (proxy,) = [item for item in result["spec"]["containers"] if item["name"] == "istio-proxy"]
        assert proxy.keys() == {"name", "image", "env"}
        return
    with pytest.raises(InjectionError) as caught:
        inject_pod(pod, config)
    assert culprit in str(caught.value)


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {}, "spec": {"serviceAccountName": "x\n    evil: 1"}},
        {
            "metadata": {
                "annotations": {"proxy.istio.io/config": json.dumps({"proxyMetadata": {"A": 'x"\n    evil: "1'}})}
            },
            "spec": {},
        },
        {"metadata": {}, "spec": {"containers": [{"name": 'x"\n    evil: "1'}]}},
        {
            "metadata": {},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "x\n      evil: 1", "containerPort": 1}]}]},
        },
        {"metadata": {"name": 'x"\n    evil: "1'}, "spec": {}},
    ],
)
def test_names_accounts_and_metadata_cannot_break_out_either(pod):
    template = """
spec:
  containers:
  - name: istio-proxy
    a: {{ .Spec.ServiceAccountName }}
    b: "{{ range .Spec.Containers }}{{ .Name }}{{ end }}"
    c: "{{ range $k, $v := .ProxyConfig.ProxyMetadata }}{{ $v }}{{ end }}"
    d: "{{ .DeploymentMeta.Name }}"
    e: {{ range .Spec.Containers }}{{ range .Ports }}{{ .Name }}{{ end }}{{ end }}
"""
    with pytest.raises(InjectionError, match=r"breaks out|not valid YAML"):
        inject_pod(pod, load_config({"templates": {"sidecar": template}}))


def test_json_annotations_may_hold_any_text():
    volume = {"v": {"configMap": {"name": 'it\'s: "x"\n[y]'}}}
    template = """
spec:
  volumes:
  {{ range $name, $value := fromJSON (index .ObjectMeta.Annotations `sidecar.istio.io/userVolume`) }}
  - name: "{{ $name }}"
    {{ toYaml $value | indent 4 }}
  {{ end }}
"""
    pod = {"metadata": {"annotations": {"sidecar.istio.io/userVolume": json.dumps(volume)}}, "spec": {}}
    result = inject_pod(pod, load_config({"templates": {"sidecar": template}}))
    assert result["spec"]["volumes"] == [{"name": "v", **volume["v"]}]


def test_injection_works_without_any_configuration():
    result = inject_pod(POD, load_config())
    assert [item["name"] for item in result["spec"]["initContainers"]] == ["istio-init", "istio-proxy"]
    result = inject_pod(POD, load_config(), settings=Settings(native_sidecars=False))
    assert [item["name"] for item in result["spec"]["containers"]] == ["c", "istio-proxy"]


def test_the_pod_that_is_given_is_never_changed():
    before = json.dumps(POD)
    inject_pod(POD, load_config())
    assert json.dumps(POD) == before


@pytest.mark.parametrize("pod", [{"metadata": [], "spec": {}}, {"metadata": {}, "spec": "x"}])
def test_something_that_is_no_pod_is_a_clear_error(pod):
    with pytest.raises(InjectionError, match="must be a mapping"):
        inject_pod(pod, load_config())
