"""Istio's injection templates through the engine alone: the rendered text of 61 pods, and every template parses."""

from __future__ import annotations

import functools
import json

import pytest
import yaml

from inject_data import CLASSIC, CURRENT, needs_data
from netinit.golang.template import StringMap, Struct, Template, TypedList
from netinit.golang.template.values import Enum, Int32, Int64
from netinit.inject.adding import istio_functions
from sweeps import together

pytestmark = needs_data
VECTORS = CURRENT / "render-vectors.json"
ROWS = json.loads(VECTORS.read_text()) if VECTORS.exists() else []
FOREIGN = "Template_Version_And_Istio_Version_Mismatched_Check_Installation"


def quoted_yaml(value, indent=""):
    """toYaml as the vectors were made with: block style, every text in double quotes."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    lines = []
    for key in sorted(value):
        item = value[key]
        nested = isinstance(item, dict) and item
        lines.append(f"{indent}{key}:" + ("\n" if nested else " ") + quoted_yaml(item, indent + "  "))
    return "\n".join(lines) + ("" if indent else "\n")


FUNCTIONS = istio_functions.FUNCTIONS


def port(tree):
    return Struct(
        "v1.ContainerPort",
        {
            "Name": tree.get("name", ""),
            "HostPort": Int32(tree.get("hostPort", 0)),
            "ContainerPort": Int32(tree["containerPort"]),
            "Protocol": tree.get("protocol", ""),
            "HostIP": tree.get("hostIP", ""),
        },
    )


def containers(trees):
    def one(tree):
        ports = TypedList(map(port, tree.get("ports", ())), go_type="[]v1.ContainerPort")
        return Struct("v1.Container", {"Name": tree["name"], "Image": tree["image"], "Ports": ports})

    return TypedList(map(one, trees), go_type="[]v1.Container")


def proxy_config(tree):
    hold = tree["HoldApplicationUntilProxyStarts"]
    holds = bool(hold and hold["Value"])
    no_tls = Struct("*v1alpha3.ClientTLSSettings", {"CaCertificates": ""}, {"GetCaCertificates": str}, nil=True)
    tracing = Struct("*v1alpha1.Tracing", {}, {"GetTlsSettings": lambda: no_tls}, nil=not tree["Tracing"])
    fields = {
        "InterceptionMode": Enum(0, tree["InterceptionMode"]),
        "ProxyMetadata": StringMap(tree["ProxyMetadata"]),
        "HoldApplicationUntilProxyStarts": Struct(
            "*wrapperspb.BoolValue", {"Value": holds}, {"GetValue": lambda: holds}, nil=hold is None
        ),
    }
    proxy = Struct("*v1alpha1.ProxyConfig", fields, {"GetTracing": lambda: tracing})
    proxy.changed = json.loads(tree["JSON"])
    return proxy


def template_data(row):
    data = row["data"]
    meta, spec = data["ObjectMeta"], data["Spec"]
    values = json.loads((CURRENT / "settings" / row["settings"] / "values.json").read_text(), parse_int=float)
    mesh = {name: Int32(value) if type(value) is int else value for name, value in data["MeshConfig"].items()}
    return {
        **data,
        "TypeMeta": Struct("v1.TypeMeta", data["TypeMeta"]),
        "DeploymentMeta": Struct("types.NamespacedName", data["DeploymentMeta"]),
        "ObjectMeta": Struct(
            "v1.ObjectMeta",
            {**meta, "Labels": StringMap(meta["Labels"]), "Annotations": StringMap(meta["Annotations"])},
        ),
        "Spec": Struct(
            "v1.PodSpec",
            {
                "Containers": containers(spec["containers"]),
                "InitContainers": containers(spec["initContainers"]),
                "ServiceAccountName": spec["serviceAccountName"],
            },
        ),
        "ProxyConfig": proxy_config(data["ProxyConfig"]),
        "MeshConfig": Struct("*v1alpha1.MeshConfig", {**mesh, "ExtensionProviders": []}),
        "ProxyUID": Int64(data["ProxyUID"]),
        "ProxyGID": Int64(data["ProxyGID"]),
        "Values": values,
    }


@functools.cache
def texts(settings):
    tree = yaml.load((CURRENT / "settings" / settings / "config.yaml").read_text(), Loader=yaml.CSafeLoader)
    return tree["templates"], tree.get("template")


@functools.cache
def template(settings, name, *, quoted):
    functions = {**FUNCTIONS, "toYaml": quoted_yaml} if quoted else FUNCTIONS
    return Template("inject", texts(settings)[0][name], functions)


def known(row):
    return f"{row['case']}-{row['template']}"


@together("row", ROWS, ids=known)
def test_a_pod_renders_to_the_letter(row):
    rendered = template(row["settings"], row["template"], quoted=True).render(template_data(row))
    assert rendered == row["rendered"]


@together("row", ROWS, ids=known)
def test_a_pod_renders_to_the_same_tree_with_yaml_as_kubernetes_writes_it(row):
    rendered = template(row["settings"], row["template"], quoted=False).render(template_data(row))
    assert yaml.load(rendered, yaml.CSafeLoader) == yaml.load(row["rendered"], yaml.CSafeLoader)


@together("settings", sorted({path.parent.name for path in CURRENT.glob("settings/*/config.yaml")}))
def test_every_current_template_parses_and_the_poison_for_old_injectors_does_not(settings):
    templates, poison = texts(settings)
    for name, text in templates.items():
        Template(name, text, FUNCTIONS)
    if poison is not None:
        with pytest.raises(Exception, match=f'^template: old:1: function "{FOREIGN}" not defined$'):
            Template("old", poison, FUNCTIONS)


@pytest.mark.parametrize("path", sorted(CLASSIC.glob("templates/*.tpl")), ids=lambda path: path.stem)
def test_every_classic_template_parses(path):
    assert list(Template(path.name, path.read_text(), FUNCTIONS, ("[[", "]]"))._trees) == [path.name]
