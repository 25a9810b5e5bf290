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
    assert refusal(mesh="a: [", files=FILES) == ["mesh.yaml:2:1: a value is missing here, or a bracket is not closed before this"]
    assert refusal(values="[1]", files=FILES)[0].startswith("values.yaml: values: ")
    assert refusal(source="templates: {sidecar: '{{ if }}'}", files=FILES)[0].startswith("templates.yaml: template 'sidecar'")
    both = {"kind": "ConfigMap", "data": {"config": "templates: {sidecar: '{{ .Values.global.proxy.statusPort }}'}", "values": '{"global": {"proxy": {"statusPort": 99999}}}'}}
    assert refusal(source=json.dumps(both, indent=1), files=FILES)[0].startswith("templates.yaml:5: global.proxy.statusPort: 99999")
    beside = "meshConfig:\n  proxyListenPort: 0\nglobal: {}\n"
    assert refusal(values=beside, files=FILES) == ["values.yaml:2: proxyListenPort: 0 must be a port from 1 to 65535"]


BROKEN = "policy: enabled\ntemplates:\n  sidecar: 'x\n"
OF_A_CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  config: |\n" + "".join(f"    {line}\n" for line in BROKEN.splitlines())


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("source", BROKEN, "templates.yaml:3:12: this quote is not closed"),
        ("source", OF_A_CONFIG_MAP.replace("{{", "{").replace("}}", "}"), "templates.yaml:8:16: this quote is not closed"),
        ("source", json.dumps({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config": BROKEN}}, indent=1),
         "templates.yaml:7: ConfigMap c, key config: line 3, column 12: this quote is not closed"),
        ("values", "global:\n  hub: [\n", "values.yaml:3:1: a value is missing here"),
        ("values", '{"global": {"hub": "x",,}}', "values.yaml:1:24: a value is missing here"),
        ("mesh", "defaultConfig:\n\tstatusPort: 1\n", "mesh.yaml:2:1: a tab stands where YAML wants spaces"),
        ("mesh", "kind: ConfigMap\ndata:\n  mesh: |\n\n      defaultConfig:\n        a: b: c\n", "mesh.yaml:6:13: no key is possible here"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_yaml_is_told_with_file_line_and_column(name, text, place):
    assert refusal(**{name: text}, files=FILES)[0].startswith(place)


@pytest.mark.parametrize("key", ["bad key!", "a.b/c.d e", "a/b/c", "x[0]"])
def test_the_key_of_an_annotation_that_no_pod_may_have_is_told_with_its_line(key):
    text = f"templates: {{sidecar: 'spec: {{}}'}}\ninjectedAnnotations:\n  a.b/c.d: x\n  {json.dumps(key)}: x\n"
    assert refusal(source=text, files=FILES)[0].startswith(f"templates.yaml:4: injectedAnnotations.{key}: the key must be NAME or DOMAIN/NAME")


UNFIT = {
    "includeIPRanges": "foo", "excludeIPRanges": "10.0.0.0", "excludeInboundPorts": "x", "excludeOutboundPorts": "70000", "includeInboundPorts": "a-b",
    "includeOutboundPorts": "x", "statusPort": 99999, "clusterDomain": "a b", "logLevel": "loud", "readinessPeriodSeconds": -1,
    "readinessFailureThreshold": "x", "image": "r/a b", "componentLogLevel": "misc=error",
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


@pytest.mark.parametrize(("value", "kind"), [(["10.0.0.0/8"], "list"), ({"a": 1}, "map")])
def test_a_list_or_a_map_is_refused_where_an_argument_is_made_of_the_value(value, kind):
    (problem,) = refusal(values=json.dumps({"global": {"proxy": {"includeIPRanges": value}}}), files=FILES)
    assert problem.startswith("values.yaml:1: global.proxy.includeIPRanges: ")
    assert problem.endswith(f"must be a single value, not a {kind}")


@pytest.mark.parametrize("level", ["misc:error", "misc:error,http2:trace", ""])
def test_levels_of_envoys_components_are_taken(level):
    assert load_config(values={"global": {"proxy": {"componentLogLevel": level}}}).warnings == ()


@pytest.mark.parametrize(
    ("mesh", "problem"),
    [
        ("proxyListenPort: 15006\n", "mesh.yaml:1: proxyListenPort: 15006 is the port of proxyInboundListenPort too: choose another"),
        ("a: 1\ndefaultConfig:\n  statusPort: 15001\n", "mesh.yaml:3: defaultConfig.statusPort: 15001 is the port of proxyListenPort too: choose another"),
        ("proxyListenPort: 2\nproxyInboundListenPort: 2", "mesh.yaml:2: proxyInboundListenPort: 2 is the port of proxyListenPort too: choose another"),
        ("defaultConfig: {proxyAdminPort: 15020}", "mesh.yaml:1: defaultConfig.proxyAdminPort: 15020 is the port of defaultConfig.statusPort too: choose another"),
    ],
)
def test_a_port_on_which_the_proxy_would_listen_twice_is_refused(mesh, problem):
    assert refusal(mesh=mesh, files=FILES) == [problem]


def test_one_port_for_both_directions_is_a_mesh_of_the_first_releases():
    early = {"policy": "enabled", "template": "containers: []"}
    assert load_config(early, mesh="proxyListenPort: 15006").mesh.fields["proxyListenPort"] == 15006


TEMPLATES = "policy: enabled\ntemplates:\n  sidecar: ''\n"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("defaultTemplates: sidecar", "4: defaultTemplates: 'sidecar' must be a list of names"), ("aliases: {a: b}", "4: aliases: must map"),
        ("alwaysInjectSelector: x", "4: alwaysInjectSelector: 'x' must be a list of selectors"),
        ("injectedAnnotations:\n  a: b\n  c: [1]", "6: injectedAnnotations.c: [1] must be a text"), ("injectedAnnotations: x", "4: injectedAnnotations: 'x' must be"),
    ],
)  # fmt: skip
def test_keys_of_an_injectors_configuration_are_named_with_file_and_line(more, problem):
    assert refusal(source=TEMPLATES + more, files=FILES)[0].startswith(f"templates.yaml:{problem}")
    data = {"kind": "ConfigMap", "data": {"config": TEMPLATES + more}}
    assert refusal(source=json.dumps(data, indent=1), files=FILES)[0].startswith("templates.yaml:4: ")


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
