"""The fields that templates read of pods and of the mesh, as Go's types have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netinit.base.errors import InjectionError
from netinit.golang import sprig
from netinit.golang.template import Struct, Template, TemplateError
from netinit.golang.template.values import Int64
from netinit.inject import inject_pod, load_config
from netinit.inject.adding import rendering
from netinit.inject.adding.kubernetes_types import ObjectStruct, encode_json, ordered
from netinit.inject.deciding.manifests import PodOwner
from recorded_templates import read_mesh

RECORDED = json.loads((Path(__file__).parent / "template_fields.json").read_text())
"""A pod, a mesh, and what Go 1.27 gave for templates with both in k8s.io/api 0.37 and istio.io/api 1.31: as for sprig."""
NOTHING = ("<nil>", "<no value>")


def template_data(pod, mesh):
    settings = read_mesh(mesh)
    proxy, mesh = settings.structs(settings.proxy)
    owner = PodOwner(name="d", namespace="n", kind="Deployment", api_version="apps/v1")
    subject = rendering.Subject(owner=owner, proxy=settings.proxy)
    known = rendering.template_data(load_config({"templates": {"sidecar": ""}}), {}, subject).fields
    return {
        "TypeMeta": known["TypeMeta"],
        "DeploymentMeta": known["DeploymentMeta"],
        "ObjectMeta": ObjectStruct("v1.ObjectMeta", pod["metadata"]),
        "Spec": ObjectStruct("v1.PodSpec", pod["spec"]),
        "ProxyConfig": proxy,
        "MeshConfig": mesh,
        "Values": {"global": {"hub": "h"}},
        "Revision": "",
        "NativeSidecars": False,
        "ProxyImage": "",
        "ProxyUID": Int64(1337),
    }


def render(template, pod=RECORDED["pod"], mesh=RECORDED["mesh"]):
    return Template("inject", template, sprig.FUNCTIONS).render(template_data(pod, mesh))


def test_fields_are_what_they_are_in_go():
    wrong = []
    for template, kind, text in RECORDED["answers"]:
        try:
            answer = ["output", render(template)]
        except TemplateError as error:
            answer = ["error", str(error)]
        # Go prints a missing object as "nil", which an injected pod must not hold: injection refuses what we print
        refused = "nil" in text and any(word in answer[1] for word in NOTHING)
        both_fail = kind == answer[0] == "error"
        if answer != [kind, text] and not refused and not both_fail:
            wrong.append(f"{template}\n  Go:   {text!r}\n  ours: {answer[1]!r}")
    assert len(RECORDED["answers"]) > 80
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{{ .ObjectMeta.Labels | toJson }} {{ .ObjectMeta.Finalizers | toJson }}", "null null"),
        ("{{ len .ObjectMeta.Labels }} {{ index .ObjectMeta.Labels `a` }}", "0 "),
        ("{{ .ObjectMeta.CreationTimestamp }}", "0001-01-01 00:00:00 +0000 UTC"),
        ("{{ .Spec.Containers | toJson }}", "null"),
        ('{{ printf "%T" .ObjectMeta.DeletionTimestamp }}', "*v1.Time"),
        ("{{ .ProxyConfig.GetImage.GetImageType }}|{{ .ProxyConfig.GetTracing.GetZipkin.GetAddress }}|", "||"),
        ("{{ .ProxyConfig.DrainDuration }} {{ .ProxyConfig.GetDrainDuration.GetSeconds }}", "seconds:45 45"),
        ("{{ .MeshConfig.OutboundTrafficPolicy.Mode }} {{ .MeshConfig.IngressClass }}", "ALLOW_ANY istio"),
    ],
)
def test_what_is_absent_is_what_go_makes_of_it(template, wanted):
    assert render(template, {"metadata": {}, "spec": {}}, {}) == wanted


def test_a_message_in_json_is_protobufs_and_a_nil_one_is_null():
    wanted = '{"zipkin":{"address":"z:1"},"customTags":{"t":{"literal":{"value":"v"}}},"sampling":12.5,"tlsSettings":{"caCertificates":"/ca"}}'
    assert render("{{ toJson .ProxyConfig.Tracing }} {{ toJson .ProxyConfig.EnvoyAccessLogService }}") == f"{wanted} null"


def test_a_pointer_is_nil_for_a_template_where_its_field_is_absent():
    template = "{{ eq .ProxyConfig.EnvoyAccessLogService nil }} {{ eq nil .ProxyConfig.EnvoyAccessLogService }} {{ eq .ProxyConfig.Tracing nil }}"
    assert render(template) == "true true false"


def test_saved_containers_are_spelled_as_go_spells_them():
    container = {
        "name": "istio-proxy",
        "readinessProbe": {"grpc": {"port": 9, "service": ""}},
        "env": [{"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}, "name": "A"}],
        "volumeMounts": [{"mountPath": "/m", "name": "v", "readOnly": False}],
        "newer": {"b": 1, "a": None},
    }
    assert encode_json(ordered("v1.Container", container)) == (
        '{"name":"istio-proxy","env":[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}}],'
        '"resources":{},"volumeMounts":[{"name":"v","mountPath":"/m"}],'
        '"readinessProbe":{"grpc":{"port":9,"service":""}},"newer":{"b":1,"a":null}}'
    )


def test_an_object_without_a_tree_is_a_nil_pointer():
    assert not Struct("*v1.Probe", {}, nil=True)
    with pytest.raises(TemplateError, match=r"nil pointer evaluating \*v1\.Probe\.HTTPGet"):
        render("{{ (index .Spec.Containers 1).LivenessProbe.HTTPGet }}")
    with pytest.raises(TemplateError, match=r"can't evaluate field Nope in type \*v1\.Probe"):
        render("{{ (index .Spec.Containers 1).LivenessProbe.Nope }}")


CHANGED = {
    "a variable": '{{ $d := dict }}{{ $_ := set $d "a" (index .ObjectMeta.Annotations "x") }}metadata: {annotations: {seen: "{{ $d.a }}"}}',
    "another name": '{{ $d := dict }}{{ $e := $d }}{{ $_ := set $d "a" .ObjectMeta.Annotations.x }}metadata: {annotations: {seen: "{{ $e.a }}"}}',
    "the dot": '{{ with dict "z" 1 }}{{ $_ := set . "a" $.ObjectMeta.Annotations.x }}metadata: {annotations: {seen: "{{ .a }}"}}{{ end }}',
    "a pipe": '{{ $d := dict }}{{ $_ := .ObjectMeta.Annotations.x | set $d "a" }}metadata: {annotations: {seen: "{{ $d.a }}"}}',
    "a merge": '{{ $d := dict }}{{ $_ := merge $d (dict "a" .ObjectMeta.Annotations.x) }}metadata: {annotations: {seen: "{{ $d.a }}"}}',
    "a template": '{{ define "f" }}{{ $_ := set .to "a" .from }}{{ end }}{{ $d := dict }}'
    '{{ template "f" (dict "to" $d "from" .ObjectMeta.Annotations.x) }}metadata: {annotations: {seen: "{{ $d.a }}"}}',
    "a nested call": '{{ $d := dict }}{{ $_ := len (set $d "a" .ObjectMeta.Annotations.x) }}metadata: {annotations: {seen: "{{ $d.a }}"}}',
}


@pytest.mark.parametrize("template", CHANGED.values(), ids=CHANGED)
def test_a_value_that_goes_through_a_changed_map_stays_in_its_place(template):
    config = load_config({"templates": {"sidecar": template}})
    pod = {"metadata": {"name": "p", "annotations": {"x": 'a", z: "evil'}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    with pytest.raises(InjectionError, match="breaks out of its place"):
        inject_pod(pod, config)
    pod["metadata"]["annotations"]["x"] = "harmless"
    assert inject_pod(pod, config)["metadata"]["annotations"]["seen"] == "harmless"
