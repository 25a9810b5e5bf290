"""Files of whole installations are read for what they set, or refused by their kind: none is taken without effect."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError
from netinit.golang import goyaml
from netinit.inject import inject_pod
from netinit.inject.adding.config import load_config

POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
VALUES = {"global": {"proxy": {"excludeIPRanges": "10.9.0.0/16", "excludeOutboundPorts": "5432"}}}
MESH = {"defaultConfig": {"interceptionMode": "TPROXY"}}
TEMPLATE = "spec:\n  containers:\n  - {name: istio-proxy, image: '{{ .Values.global.hub }}/{{ .MeshConfig.RootNamespace }}'}\n"


def document(kind, spec=None, name="installed", **more):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec else {}), **more}


def config_map(name, **data):
    return document("ConfigMap", name=name, data=data)


def stream(*trees):
    return "---\n".join(goyaml.dump(tree) for tree in trees)


def arguments(**given):
    pod = inject_pod(POD, load_config(**given))
    return next(one for one in pod["spec"]["initContainers"] if one["name"] == "istio-init")["args"]


def after(words, flag):
    return words[words.index(flag) + 1]


RENDERED = (
    document("Namespace"), document("ServiceAccount"), document("Deployment", {"replicas": 1}),
    config_map("istio-sidecar-injector", config=f"templates: {{sidecar: {json.dumps(TEMPLATE)}}}", values='{"global": {"hub": "example.org"}}'),
    config_map("istio", mesh="rootNamespace: mesh-root"), config_map("values", **{"merged-values": "{}"}),
)  # fmt: skip


@pytest.mark.parametrize("text", [
    stream(document("IstioOperator", {"values": VALUES, "meshConfig": MESH})),
    stream(document("Istio", {"values": {**VALUES, "meshConfig": MESH}})),
    stream(document("Namespace"), document("IstioRevision", {"values": {**VALUES, "meshConfig": MESH}})),
    json.dumps(document("IstioOperator", {"values": VALUES, "meshConfig": MESH}), indent=1),
    stream({"apiVersion": "v1", "kind": "List", "items": [document("IstioOperator", {"values": VALUES, "meshConfig": MESH})]}),
    stream({**VALUES, "meshConfig": MESH}),
])  # fmt: skip
@pytest.mark.parametrize("given", [("values",), ("values", "mesh")])
def test_values_and_mesh_of_an_operators_resource_count(text, given):
    words = arguments(**dict.fromkeys(given, text))
    assert (after(words, "-m"), after(words, "-x"), after(words, "-o")) == ("TPROXY", "10.9.0.0/16", "5432")


def test_what_an_operator_says_beside_its_values_counts_below_them():
    spec = {"hub": "registry.example", "tag": "1.2.3", "revision": "canary", "values": {"global": {"tag": "own"}}}
    values = load_config(values=stream(document("IstioOperator", spec))).values
    assert (values["global"]["hub"], values["global"]["tag"], values["revision"]) == ("registry.example", "own", "canary")


@pytest.mark.parametrize("text", [
    json.dumps({"apiVersion": "v1", "kind": "ConfigMapList", "items": [{**one, "kind": None} for one in RENDERED[3:]]}),
    "\n".join(json.dumps(one) for one in RENDERED), json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"kind": "List", "items": [*RENDERED]}]}),
], ids=["a list of a kind", "a stream of JSON", "a list in a list"])  # fmt: skip
def test_lists_and_streams_are_read_as_kubectl_writes_them(text):
    pod = inject_pod(POD, load_config(source=text, mesh=text, values=text))
    assert [one["image"] for one in pod["spec"]["containers"] if one["name"] == "istio-proxy"] == ["example.org/mesh-root"]


@pytest.mark.parametrize("given", [("source",), ("source", "mesh"), ("source", "mesh", "values")])
def test_a_rendered_chart_is_given_as_it_is(given):
    pod = inject_pod(POD, load_config(**dict.fromkeys(given, stream(*RENDERED))))
    assert [one["image"] for one in pod["spec"]["containers"] if one["name"] == "istio-proxy"] == ["example.org/mesh-root"]


def test_the_mesh_of_the_same_revision_is_taken():
    others = [config_map("istio-canary", mesh="rootNamespace: other"), config_map("istio", mesh="rootNamespace: mesh-root")]
    injector = RENDERED[3] | {"metadata": {"name": "istio-sidecar-injector-canary"}}
    assert load_config(stream(injector, *others)).mesh.fields["rootNamespace"] == "other"


MAISTRA = document("ServiceMeshControlPlane", {"version": "v2.6"})
OPERATOR = document("IstioOperator", {"values": VALUES})


@pytest.mark.parametrize(("given", "words"), [
    ({"source": stream(OPERATOR)}, 'injector configuration: it is of kind "IstioOperator", which sets none: give a ConfigMap with the key config'),
    ({"values": stream(MAISTRA)}, "values: a ServiceMeshControlPlane has settings of its own form; give the ConfigMaps"),
    ({"values": stream(document("Pod"), document("Service"))}, 'values: none of its 2 documents has it ("Pod", "Service"): give the values themselves'),
    ({"mesh": stream(OPERATOR)}, 'mesh: it is of kind "IstioOperator", which sets none'),
    ({"mesh": stream(document("Deployment"))}, 'mesh: it is of kind "Deployment"'),
    ({"values": stream(document("IstioOperator", {"profile": "minimal"}))}, 'values: it is of kind "IstioOperator", which sets none'),
    ({"values": stream(OPERATOR, OPERATOR)}, "each have it; give only that document"),
    ({"source": stream(RENDERED[3], RENDERED[3] | {"metadata": {"name": "istio-sidecar-injector-old"}})}, "each have it"),
    (
        {"source": stream(*[RENDERED[3] | {"metadata": {"name": "istio-sidecar-injector", "namespace": one}} for one in ("a", "b")])},
        'ConfigMap "a/istio-sidecar-injector" and ConfigMap "b/istio-sidecar-injector" each have it',
    ),
    ({"mesh": stream(config_map("istio", meshNetworks="{}"))}, 'mesh: it is of kind "ConfigMap", which sets none'),
])  # fmt: skip
def test_a_file_without_effect_is_refused_by_its_kind(given, words):
    with pytest.raises(ConfigError) as refused:
        load_config(**given)
    assert words in str(refused.value)


UNKNOWN = 'values: "global.proxy.{}" is not a value of Istio\'s charts, and has no effect on pods'


UMBRELLA = (
    'values: "istiod" is not a value of Istio\'s charts, and has no effect on pods; it holds values of a chart inside a chart: '
    "give what is below it"
)
PROFILE = (
    'Istio: spec.profile "openshift" sets more than is in the file, which is not known here; give the ConfigMaps of the installation,'
    " such as `istioctl manifest generate -f FILE` prints them"
)


@pytest.mark.parametrize(("given", "warning"), [
    ({"values": "global: {proxy: {excludeIPRange: 10.9.0.0/16}}"}, f"{UNKNOWN.format('excludeIPRange')}; did you mean excludeIPRanges?"),
    ({"values": "global: {proxy: {unheardOf: 1}}"}, UNKNOWN.format("unheardOf")),
    ({"values": "zzz: 2"}, 'values: "zzz" is not a value of Istio\'s charts, and has no effect on pods'),
    ({"values": "istiod: {global: {hub: a}}"}, UMBRELLA),
    ({"values": stream(document("IstioOperator", {"meshconfig": {}, "values": VALUES}))},
     'IstioOperator: "spec.meshconfig" is not a field of it, and has no effect; did you mean meshConfig?'),
    ({"values": stream(document("Istio", {"profile": "openshift", "values": VALUES}))},
     PROFILE),
    ({"mesh": "outboundTrafficPolice: {}"}, 'mesh: "outboundTrafficPolice" is not a field of MeshConfig, and has no effect; did you mean outboundTrafficPolicy?'),
    ({"mesh": "defaultConfig: {interceptMode: TPROXY}"}, 'mesh: "defaultConfig.interceptMode" is not a field of ProxyConfig, and has no effect; did you mean interceptionMode?'),
])  # fmt: skip
def test_an_unknown_key_is_a_warning_with_the_nearest_name(given, warning):
    assert warning in load_config(**given).warnings


@pytest.mark.parametrize("given", [
    {"values": "pilot: {autoscaleMin: 2}\ngateways: {x: 1}\nglobal: {logAsJson: true, platform: openshift}"},
    {"mesh": "defaultConfig: {interception_mode: TPROXY}\nrootNamespace: a"},
    {"values": "global: {proxy: {mine: 1}}", "source": {"templates": {"sidecar": "metadata: {labels: {a: '{{ .Values.global.proxy.mine }}'}}"}}},
])  # fmt: skip
def test_keys_of_other_parts_of_a_chart_or_of_ones_own_templates_are_no_warning(given):
    assert load_config(**given).warnings == () or all("policy" in one for one in load_config(**given).warnings)


def test_a_number_is_named_as_it_was_written():
    with pytest.raises(ConfigError, match=r"excludeOutboundPorts: 5432 must be a text"):
        load_config(values=json.dumps({"global": {"proxy": {"excludeOutboundPorts": 5432}}}))


@pytest.mark.parametrize(("kind", "spec"), [
    ("Istio", {"rawValues": VALUES}),
    ("IstioOperator", {"unvalidatedValues": VALUES}),
    ("IstioOperator", {"values": {"global": {"proxy": {"excludeIPRanges": "0.0.0.0/0"}}}, "unvalidatedValues": VALUES}),
])  # fmt: skip
def test_values_under_their_other_names_count(kind, spec):
    words = arguments(values=stream(document(kind, spec)))
    assert (after(words, "-x"), after(words, "-o")) == ("10.9.0.0/16", "5432")


def test_a_cni_plugin_that_an_operator_installs_is_known_to_the_templates():
    pod = inject_pod(POD, load_config(values=stream(document("IstioOperator", {"components": {"cni": {"enabled": True}}}))))
    assert pod["spec"]["initContainers"][0]["name"] == "istio-validation"


def test_many_unknown_keys_are_counted():
    warnings = load_config(values=json.dumps({f"wrong{number}": 1 for number in range(100)})).warnings
    assert len(warnings) == 21
    assert warnings[-1] == "values: 80 more keys are not values of Istio's charts, and have no effect on pods"


def test_values_that_the_chart_writes_into_the_injectors_configuration_are_there():
    webhook = {
        "defaultTemplates": ["sidecar", "hello"], "templates": {"hello": "metadata: {labels: {hello: world}}"},
        "injectedAnnotations": {"a/b": "c"}, "neverInjectSelector": [{"matchLabels": {"x": "y"}}],
    }  # fmt: skip
    config = load_config(values={"sidecarInjectorWebhook": webhook}, settings=("global.proxy.autoInject=disabled",))
    pod = inject_pod(POD, config)
    assert (pod["metadata"]["labels"]["hello"], pod["metadata"]["annotations"]["a/b"]) == ("world", "c")
    assert (config.policy, len(config.never_inject_selectors)) == ("disabled", 1)


@pytest.mark.parametrize("number", [5432, 15432123])
def test_a_number_keeps_its_form_however_large(number):
    pod = inject_pod(POD, load_config(settings=(f"global.proxy.readinessPeriodSeconds={number}",)))
    probes = [one["readinessProbe"]["periodSeconds"] for one in pod["spec"]["initContainers"] if "readinessProbe" in one]
    assert [(one, type(one)) for one in probes] == [(number, int)]
