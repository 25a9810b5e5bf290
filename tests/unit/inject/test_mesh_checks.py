"""What Istio refuses in a mesh's configuration and in values, and where messages say that it stands."""

import json
from pathlib import Path

import pytest

from netinit.base.errors import ConfigError, OptionError
from netinit.inject.adding.config import load_config
from netinit.inject.adding.meshconfig import MeshConfig
from netinit.inject.adding.places import Files

ANSWERS = json.loads((Path(__file__).parent / "mesh_answers.json").read_text())
"""Meshes, and what ApplyMeshConfig of Istio 1.31 said of each; "" if it took the mesh."""
FILES = Files(templates="templates.yaml", values="values.yaml", mesh="mesh.yaml")


def test_a_mesh_is_refused_exactly_when_istio_refuses_it():
    wrong = []
    for text, refusal in ANSWERS:
        try:
            MeshConfig.load(text)
            ours = ""
        except ConfigError as error:
            ours = str(error)
        if bool(ours) != bool(refusal):
            wrong.append((text, refusal, ours))
    assert wrong == []
    assert sum(bool(refusal) for _, refusal in ANSWERS) > 200
    assert sum(not refusal for _, refusal in ANSWERS) > 100


@pytest.mark.parametrize("port", [0, -1, 70000])
def test_the_inbound_port_must_be_one_too_though_istio_takes_any_number(port):
    with pytest.raises(ConfigError, match=f"proxyInboundListenPort: {port} must be a port"):
        MeshConfig.load({"proxyInboundListenPort": port})


def test_fields_may_have_the_names_of_the_proto_file():
    assert MeshConfig.load("proxy_listen_port: 15002").fields["proxyListenPort"] == 15002
    assert load_config(mesh="proxy_listen_port: 15002").warnings == ()


def test_a_release_without_trust_domains_may_leave_it_empty():
    early = {"policy": "enabled", "template": "containers: []"}
    assert load_config(early, mesh="trustDomain: ''").mesh.fields["trustDomain"] == ""
    with pytest.raises(ConfigError, match="must be a domain"):
        load_config(mesh="trustDomain: ''")


def refusal(**given):
    with pytest.raises(ConfigError) as refused:
        load_config(**given)
    return str(refused.value).splitlines()


BAD_MESH = "# a comment\ndefaultConfig:\n  concurrency: 2\n  statusPort: 70000\ntrustDomainAliases:\n- ok\n- a b\n"
IN_A_CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio}\ndata:\n  mesh: |\n" + "".join(
    f"    {line}\n" for line in BAD_MESH.splitlines()
)
PROBLEMS = (
    "trustDomainAliases[1]: 'a b' must be a domain", "defaultConfig.statusPort: 70000 must be a port from 1 to 65535"
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (BAD_MESH, (7, 4)), (IN_A_CONFIG_MAP, (12, 9)),
        ("apiVersion: v1\nkind: List\nitems:\n- " + IN_A_CONFIG_MAP.replace("\n", "\n  "), (15, 12)),
        (json.dumps({"kind": "ConfigMap", "data": {"mesh": BAD_MESH}}, indent=1), (4, 4)),
        ("apiVersion: v1\nkind: Istio\nspec:\n values:\n  meshConfig:\n" + "".join(f"   {line}\n" for line in BAD_MESH.splitlines()), (12, 9)),
    ],
)  # fmt: skip
def test_messages_name_file_line_and_key(text, lines):
    assert refusal(mesh=text, files=FILES) == [f"mesh.yaml:{line}: {problem}" for line, problem in zip(lines, PROBLEMS, strict=True)]
    assert refusal(mesh=text)[0] == f"mesh: line {lines[0]}: {PROBLEMS[0]}"


def test_an_error_names_the_file_that_it_is_in():
    assert refusal(mesh="a: [", files=FILES)[0].startswith("mesh.yaml: mesh: line ")
    assert refusal(values="[1]", files=FILES)[0].startswith("values.yaml: values: ")
    assert refusal(source="templates: {sidecar: '{{ if }}'}", files=FILES)[0].startswith("templates.yaml: template 'sidecar'")
    both = {"kind": "ConfigMap", "data": {"config": "templates: {sidecar: '{{ .Values.global.proxy.statusPort }}'}", "values": '{"global": {"proxy": {"statusPort": 99999}}}'}}
    assert refusal(source=json.dumps(both, indent=1), files=FILES)[0].startswith("templates.yaml:5: global.proxy.statusPort: 99999")
    beside = "meshConfig:\n  proxyListenPort: 0\nglobal: {}\n"
    assert refusal(values=beside, files=FILES) == ["values.yaml:2: proxyListenPort: 0 must be a port from 1 to 65535"]


UNFIT = {
    "includeIPRanges": "foo", "excludeIPRanges": "10.0.0.0", "excludeInboundPorts": "x", "excludeOutboundPorts": "70000", "includeInboundPorts": "a-b",
    "includeOutboundPorts": "x", "statusPort": 99999, "clusterDomain": "a b", "logLevel": "loud", "readinessPeriodSeconds": -1,
    "readinessFailureThreshold": "x", "image": "r/a b",
}  # fmt: skip
ISTIOS = "spec: {{containers: [{{name: istio-proxy, args: ['{{{{ .Values.global.proxy.{key} }}}}']}}]}}"


@pytest.mark.parametrize(("key", "value"), UNFIT.items())
def test_a_value_that_no_pod_could_run_with_is_refused_by_its_key_and_line(key, value):
    values = f"global:\n  proxy:\n    {key}: {json.dumps(value)}\n"
    assert refusal(values=values, files=FILES)[0].startswith(f"values.yaml:3: global.proxy.{key}: ")
    named = {"templates": {"sidecar": ISTIOS.format(key=key)}}
    assert refusal(source=named, values=values)[0].startswith(f"values: line 3: global.proxy.{key}: ")
    assert load_config({"templates": {"sidecar": ISTIOS.format(key="other")}}, values=values).classic is False, "nothing reads it"
    with pytest.raises(OptionError, match=f"--set: global.proxy.{key}: "):
        load_config(settings=(f"global.proxy.{key}={value}",), files=FILES)


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("global.proxy.resources.limits.cpu", "1Gb", "toYaml .Values.global.proxy.resources"), ("global.hub", "http://a", ".ProxyInitImage"),
        ("global.tag", "a b", ".ProxyImage"), ("global.proxy_init.image", "a b", ".Values.global.proxy_init.image"),
        ("pilot.cni.enabled", "false", ".Values.pilot.cni.enabled"), ("global.nativeNftables", "no", ".Values.global.nativeNftables"),
        ("global.imagePullPolicy", "always", ".Values.global.imagePullPolicy"),
    ],
)  # fmt: skip
def test_images_quantities_and_switches_are_checked_where_templates_read_them(path, value, read):
    tree = value
    for key in reversed(path.split(".")):
        tree = {key: tree}
    template = "spec: {containers: [{name: istio-proxy, args: ['{{ READ }}']}]}"
    (problem,) = refusal(source={"templates": {"sidecar": template.replace("READ", read)}}, values=json.dumps(tree))
    assert problem.startswith(f"values: line 1: {path}: '{value}'")
    assert load_config({"templates": {"sidecar": template.replace("READ", ".Revision")}}, values=tree).values == tree


@pytest.mark.parametrize("value", [True, False, "true", "", None])
def test_a_switch_may_be_true_as_a_text_which_templates_take_for_true(value):
    assert load_config(values={"pilot": {"cni": {"enabled": value}}}).warnings == ()


def test_a_setting_may_mend_a_value_of_a_file():
    mended = load_config(values={"global": {"proxy": {"includeIPRanges": "foo"}}}, settings=("global.proxy.includeIPRanges=*",))
    assert mended.values["global"]["proxy"]["includeIPRanges"] == "*"


@pytest.mark.parametrize("value", ["*", "", "10.0.0.0/8,fd00::/8"])
def test_values_that_annotations_may_have_are_taken(value):
    assert load_config(values={"global": {"proxy": {"includeIPRanges": value}}}).values["global"]["proxy"]["includeIPRanges"] == value
