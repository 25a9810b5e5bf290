"""Canary pods are tried to the end: their rules are read, made, linted and simulated before a configuration is used."""

import json
import re

import pytest

from netinit.base.errors import ConfigError
from netinit.inject.adding.canaries import CANARIES
from netinit.inject.adding.config import load_config
from netinit.inject.adding.places import Files
from netinit.inject.adding.settings import Settings
from netinit.questions.canary_fields import find_field_problems
from netinit.questions.canary_rules import find_rule_problems, find_unreadable_arguments, refuses_to_start
from netinit.questions.configuration_check import find_template_problems, try_canaries, warnings_of

TEMPLATE = """\
spec:
  initContainers:
  - name: istio-init
    image: {image}
    args: {arguments}
    env: {variables}
  containers:
  - {{name: istio-proxy, image: p}}
"""
PLAIN = "spec: {containers: [{name: istio-proxy, image: p}]}"
INNOCENT = ["istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15020"]


def of(arguments, variables=(), image="mesh/netinit:1"):
    text = TEMPLATE.format(image=image, arguments=json.dumps(arguments), variables=json.dumps(list(variables)))
    return load_config({"templates": {"sidecar": text}})


def test_all_canaries_of_our_own_templates_pass():
    assert [one for one in try_canaries(load_config(), Settings()) if one.problem] == []
    assert {"a pod with an own istio-proxy", "a pod on OpenShift", "a pod of a Job"} <= set(CANARIES)


@pytest.mark.parametrize(
    ("arguments", "variables", "why"),
    [
        ([*INNOCENT, "-p", "70000"], (), "istio-init would not start: -p: '70000' is not a port"),
        ([*INNOCENT, "-i", "foo"], (), "istio-init would not start: -i: 'foo'"),
        (INNOCENT, [{"name": "DRY_RUN", "value": "maybe"}], "istio-init would not start: environment variable DRY_RUN"),
        ([*INNOCENT, "--unheard-of", "x", "-z", "0"], (), "-z: '0' is not a port"),
        ([*INNOCENT, "-q", "15001"], (), "the rules of its init container: "),
        ([*INNOCENT, "-b", "15006"], (), "the rules of its init container: "),
    ],
)
def test_rules_that_no_pod_could_run_with_refuse_the_configuration(arguments, variables, why):
    with pytest.raises(ConfigError, match=r"(?s)a canary pod cannot be injected with it: .*") as refused:
        try_canaries(of(arguments, variables), Settings())
    assert why in str(refused.value)


def test_an_option_that_only_istios_program_knows_is_no_error():
    assert all(not one.problem for one in try_canaries(of([*INNOCENT, "--unheard-of", "x"]), Settings()))


@pytest.mark.parametrize("split", [0, 1, 3, 5])
def test_an_option_that_only_istios_program_knows_is_no_error_in_the_command_or_its_arguments(split):
    words = ["istio-iptables", "--unheard-of", "x", "-b", "80"]
    assert find_unreadable_arguments({"name": "i", "command": words[:split], "args": words[split:]}) == []
    (found,) = find_unreadable_arguments({"name": "i", "command": words[:split], "args": [*words[split:], "-z", "0"]})
    assert found.startswith("its init container i would not start: -z: '0' is not a port")


def test_rules_that_some_pods_cannot_run_with_refuse_these_pods():
    jobs = '{{ if eq .Spec.RestartPolicy "Never" }}70000{{ else }}15001{{ end }}'
    text = TEMPLATE.format(image="i", arguments=json.dumps(["-p", "PORT", "-b", "*", "-i", "*"]), variables="[]").replace("PORT", jobs.replace('"', "`"))
    refused = [one for one in try_canaries(load_config({"templates": {"sidecar": text}}), Settings()) if one.problem]
    assert [one.canary for one in refused] == ["a pod of a Job"]
    assert "'70000' is not a port" in str(refused[0])


def test_what_lint_warns_of_in_the_rules_of_canaries_is_a_warning_of_the_configuration():
    tried = try_canaries(of([*INNOCENT, "-z", "15001"]), Settings())
    assert all(not one.problem for one in tried)
    (warning,) = warnings_of(tried)
    assert warning.startswith("the rules of its init container: --inbound-capture-port: 15001 is --envoy-port too")


def test_annotations_for_a_cni_plugin_are_read_too():
    text = "metadata: {annotations: {traffic.sidecar.istio.io/includeOutboundIPRanges: foo}}\nspec: {containers: [{name: istio-proxy, image: p}]}"
    with pytest.raises(ConfigError, match=r"annotation traffic\.sidecar\.istio\.io/includeOutboundIPRanges: 'foo'"):
        try_canaries(load_config({"templates": {"sidecar": text}}), Settings())


FIELDS = [
    ("image: a b", "container istio-proxy: image: 'a b'"), ("resources: {limits: {cpu: -1}}", "resources.limits.cpu: -1 must be a quantity from 0"),
    ("resources: {limits: {cpu: 1x}}", "resources.limits.cpu: '1x' must be a quantity from 0"),
    ("resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}", "resources.requests.memory: '2Gi' is more than the limit '1Gi'"),
    ("readinessProbe: {periodSeconds: -1}", "readinessProbe.periodSeconds: -1 must not be negative"),
    ("ports: [{containerPort: 0}]", "ports[0].containerPort: 0 must be a port"),
    ("env: [{name: 'A=', value: b}]", "env: 'A=' is not a variable's name"),
    ("securityContext: {seccompProfile: {type: Localhost}}", "seccompProfile.type: 'Localhost' must be RuntimeDefault, Unconfined, or Localhost with a localhostProfile"),
    ("securityContext: {seccompProfile: {type: Strict}}", "seccompProfile.type: 'Strict' must be RuntimeDefault"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "why"), FIELDS)
def test_fields_that_the_api_server_would_refuse_in_every_pod_refuse_the_configuration(field, why):
    template = f"spec:\n  containers:\n  - name: istio-proxy\n    {field}\n"
    with pytest.raises(ConfigError, match=re.escape(why)):
        try_canaries(load_config({"templates": {"sidecar": template}}), Settings())


SECCOMP = [({}, ""), ({"type": "RuntimeDefault"}, ""), ({"type": "Unconfined"}, ""), ({"type": "Localhost", "localhostProfile": "p"}, ""), ({"type": "RuntimeDefault", "localhostProfile": "p"}, "RuntimeDefault"),
           ({"type": "Localhost"}, "Localhost"), ({"type": "Strict"}, "Strict")]  # fmt: skip


@pytest.mark.parametrize(("profile", "wrong"), SECCOMP)
@pytest.mark.parametrize("of_pod", [True, False])
def test_a_seccomp_profile_of_the_pod_or_of_a_container_is_one_that_there_is(of_pod, profile, wrong):
    context = {"securityContext": {"seccompProfile": profile} if profile else {}}
    container = {"name": "a", "image": "i"}
    spec = {"containers": [container], **context} if of_pod else {"containers": [container | context]}
    said = f"securityContext.seccompProfile.type: '{wrong}' must be RuntimeDefault, Unconfined, or Localhost with a localhostProfile"
    assert list(find_field_problems({"spec": spec})) == [f"{'' if of_pod else 'container a: '}{said}"] * bool(wrong)


def test_a_label_that_no_pod_may_have_refuses_the_configuration():
    with pytest.raises(ConfigError, match=r"label topology\.istio\.io/network: 'a b' must be at most 63 letters"):
        try_canaries(load_config(values={"global": {"network": "a b"}}), Settings())


@pytest.mark.parametrize("key", ["bad key!", "a/b/c", "A.example/b", "-b", "x" * 64, "/b"])
def test_an_annotation_whose_key_no_pod_may_have_refuses_the_configuration(key):
    with pytest.raises(ConfigError, match="the key must be NAME or DOMAIN/NAME"):
        try_canaries(load_config({"templates": {"sidecar": PLAIN}, "injectedAnnotations": {key: "x"}}), Settings())


VALUES_TEMPLATE = """\
{{- if or .Values.global.proxy.privileged .ObjectMeta.Annotations }}{{ end }}
metadata:
  labels: {topology.istio.io/network: '{{ .Values.global.network }}'}
  annotations: {{ toJson .Values.global.annotations }}
spec:
  initContainers:
  - name: istio-init
    image: i
    args: [-p, '15001', -z, '15006', -b, '*', -i, '*', --log_output_level, '{{ .Values.global.logging.level }}']
    env: [{{ range $key, $value := .ProxyConfig.ProxyMetadata }}{name: '{{ $key }}', value: '{{ $value }}'},{{ end }}]
  containers:
  - name: istio-proxy
    image: p
    resources: {{ toJson .Values.global.proxy.resources }}
"""
GOOD_VALUES = """\
global:
  network: n1
  logging:
    level: default:info
  proxy:
    privileged: false
    resources:
      limits: {cpu: 2}
"""
GOOD_MESH = "defaultConfig:\n  proxyMetadata:\n    DRY_RUN: 'false'\n"


@pytest.mark.parametrize(
    ("good", "bad", "where"),
    [
        ("network: n1", "network: a b", "values.yaml:2: global.network: a canary pod cannot be injected with it: label "),
        ("level: default:info", "level: default:chatty", "values.yaml:4: global.logging.level: a canary pod cannot be injected with it: "),
        ("{cpu: 2}", "{cpu: -1}", "values.yaml:8: global.proxy.resources.limits.cpu: a canary pod cannot be injected with it: "),
        ("resources:\n      limits: {cpu: 2}", "resources: small", "values.yaml:7: global.proxy.resources: a canary pod cannot be injected"),
        ("{cpu: 2}", "small", "values.yaml:8: global.proxy.resources.limits: a canary pod cannot be injected with it: "),
        ("\n    privileged: false\n    resources:\n      limits: {cpu: 2}", " null", "values.yaml:5: global.proxy.privileged: a canary pod cannot"),
        ("DRY_RUN: 'false'", "DRY_RUN: maybe", "mesh.yaml:3: defaultConfig.proxyMetadata.DRY_RUN: a canary pod cannot be injected with it: "),
        ("DRY_RUN: 'false'", "a.b: c\n    'A= B.c': d", "mesh.yaml:4: defaultConfig.proxyMetadata.A= B.c: a canary pod cannot be injected with it: "),
        ("level: default:info", "level: default:info\n  annotations: {a: b, 'a b': c}", "values.yaml:5: global.annotations.a b: a canary pod cannot be"),
    ],
)
def test_the_setting_whose_value_no_pod_could_have_is_named_with_its_file_and_line(good, bad, where):
    def load(change):
        values, mesh = GOOD_VALUES.replace(*change), GOOD_MESH.replace(*change)
        return load_config({"templates": {"sidecar": VALUES_TEMPLATE}}, values=values, mesh=mesh, files=Files(values="values.yaml", mesh="mesh.yaml"))

    assert good in GOOD_VALUES + GOOD_MESH
    assert all(not one.problem for one in try_canaries(load(("x" * 9, "")), Settings()))
    with pytest.raises(ConfigError, match=re.escape(where)):
        try_canaries(load((good, bad)), Settings())


@pytest.mark.parametrize(
    ("good", "bad", "line", "problem"),
    [
        ("'15001'", "n1", 9, "-p: 'n1' is not a port"),
        ("image: p\n", "image: p q\n", 13, "container istio-proxy: image: 'p q': it must be an image"),
        ("  annotations: {{ toJson .Values.global.annotations }}", '  annotations: {"a": b, "bad key!": c}', 4, 'annotation "bad key!": the key must be'),
        ("[{{ range", "[{name: 'A=', value: b}, {{ range", 10, "env: 'A=' is not a variable's name"),
    ],
)
def test_the_templates_line_is_named_if_it_alone_is_wrong(good, bad, line, problem):
    assert good in VALUES_TEMPLATE
    text = VALUES_TEMPLATE.replace(good, bad)
    config = load_config({"templates": {"sidecar": text}}, values=GOOD_VALUES, files=Files(templates="inject.yaml", values="values.yaml"))
    with pytest.raises(ConfigError, match=rf"\Ainject\.yaml: templates\.sidecar: line {line}: a canary pod cannot be injected with it: .*{re.escape(problem)}"):
        try_canaries(config, Settings())


@pytest.mark.parametrize("values", [{"proxy": {"statusPort": None}}, {"proxy": {"image": None}}, {"imagePullSecrets": "x"}])
def test_values_with_which_netinits_own_templates_fail_for_all_canaries_are_refused(values):
    with pytest.raises(ConfigError, match="a canary pod cannot be injected with it: template 'sidecar'"):
        try_canaries(load_config(values={"global": values}), Settings())


def test_a_template_that_reads_what_no_canary_has_refuses_pods_and_not_the_configuration():
    text = "metadata: {annotations: {team: '{{ .ObjectMeta.Labels.team }}'}}\nspec: {containers: [{name: istio-proxy, image: p}]}"
    assert all(one.problem for one in try_canaries(load_config({"templates": {"sidecar": text}}), Settings()))


def test_a_configuration_without_rules_has_none_to_try():
    assert list(find_rule_problems(CANARIES["a pod of a Job"].pod)) == []


@pytest.mark.parametrize(("image", "starts"), [("mesh/netinit:1", False), ("docker.io/istio/proxyv2:1.26", True), ("r:5000/istio/pilot@sha256:0", True)])
def test_istios_own_program_is_not_judged_by_what_ours_reads(image, starts):
    init = {"name": "istio-init", "image": image, "args": ["-b", "0"]}
    assert (refuses_to_start({"spec": {"initContainers": [init], "containers": []}}) == []) is starts


CHECKED = {"sidecar": "{}", "mine": 'metadata:\n  name: {{ uuidv4 }}{{ env "A" "" }}', "bad": "{{ nope }}"}


def test_what_is_wrong_with_templates_is_found_before_a_pod_asks():
    found = list(find_template_problems(load_config({"templates": CHECKED}), Settings()))
    assert [(one.template, one.stops_pods) for one in found] == [("mine", False), ("bad", True)]
    assert found[0].message == "template 'mine': line 2 names uuidv4, which is refused when it is called: its result is random"
    assert 'function "nope" not defined' in found[1].message


def test_fields_that_no_pod_has_are_found_before_and_stop_none():
    source = {"templates": {"sidecar": "labels: {a: b}\nmetadata: {labels: {c: d}}\nzone: 1"}}
    found = list(find_template_problems(load_config(source), Settings()))
    assert [one.message.partition(" at ")[0] for one in found] == ["template 'sidecar': renders labels", "template 'sidecar': renders zone"]
    assert [one.stops_pods for one in found] == [False, False]
