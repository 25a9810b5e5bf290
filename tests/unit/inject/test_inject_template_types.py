"""Methods, pointers and named types in templates: Istio's answer, or Istio's error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netinit.golang.template import Struct, Template, TemplateError
from netinit.inject import inject_pod, load_config
from netinit.inject.adding import istio_functions, rendering
from netinit.inject.adding.kubernetes_types import ObjectStruct
from netinit.inject.deciding.manifests import PodOwner
from recorded_templates import RECORDED, cases, read_mesh
from template_methods import missing_methods

ANSWERS = json.loads(RECORDED.read_text())
"""What Go 1.27 answered with k8s.io/api 0.37, istio.io/api 1.31 and the functions of Istio 1.31."""
NOTHING = ("<nil>", "<no value>")
"""What a missing object prints, which no injected pod may hold."""
REFUSED = {
    "but not here": "a method that docs/templates.md names",
    "Go prints the address of": "it differs in each run",
    "private fields": "they depend on what was done with a quantity before",
    "does not fit into 64 bits": "Go's number depends on how the quantity is written",
}
"""What is an error here and an answer in Go, by the error's words, with the reason."""


def data_of(pod, mesh):
    settings = read_mesh(mesh)
    owner = PodOwner(name="web", namespace="shop", kind="Deployment", api_version="apps/v1")
    subject = rendering.Subject(owner=owner, proxy=settings.proxy)
    known = rendering.template_data(load_config({"templates": {"sidecar": ""}}), {}, subject).fields
    proxy, whole = settings.structs(settings.proxy)
    objects = {"ObjectMeta": ObjectStruct("v1.ObjectMeta", pod["metadata"]), "Spec": ObjectStruct("v1.PodSpec", pod["spec"])}
    return Struct("inject.SidecarTemplateData", {**known, **objects, "ProxyConfig": proxy, "MeshConfig": whole})


def render(template, data):
    """Return the text, or the error in a list."""
    try:
        return Template("inject", template, istio_functions.FUNCTIONS).render(data)
    except TemplateError as error:
        return [str(error)]


@pytest.mark.parametrize("case", ANSWERS)
def test_a_template_gives_istios_answer_or_istios_error(case):
    pod, mesh, templates = cases()[case]
    data, wrong, refused = data_of(pod, mesh), [], 0
    for template, answer in zip(templates, ANSWERS[case], strict=True):
        ours = render(template, data)
        if ours == answer:
            continue
        if isinstance(answer, str) and isinstance(ours, list) and any(words in ours[0] for words in REFUSED):
            refused += 1
        elif "nil" not in answer or not any(word in ours for word in NOTHING):
            wrong.append(f"{template}\n  Go:   {answer!r}\n  ours: {ours!r}")
    assert not wrong, "\n".join(wrong[:5])
    assert len(templates) > 400
    assert refused < len(templates) / 10


def test_the_page_on_templates_names_each_method_that_they_do_not_have():
    page = (Path(__file__).parents[3] / "docs" / "templates.md").read_text()
    assert [name for name in missing_methods() if f"`{name}`" not in page] == []


def injected(template, pod=None):
    whole = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}], **(pod or {})}}
    return inject_pod(whole, load_config({"templates": {"sidecar": template}}))


def test_an_annotation_can_hold_what_a_container_requests():
    request = "(index .Spec.Containers 0).Resources.Requests"
    template = f'metadata: {{annotations: {{cpu: {{{{ {request}.Cpu | quote }}}}, memory: "{{{{ {request}.Memory.Value }}}}"}}}}'
    annotations = injected(template)["metadata"]["annotations"]
    assert (annotations["cpu"], annotations["memory"]) == ("100m", "0")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (".Spec.DNSPolicy | lower", "expected string; got v1.DNSPolicy"),
        ('index (index .Spec.Containers 0).Resources.Requests "cpu"', "value has type string; should be v1.ResourceName"),
        ("eq .Spec.Priority 5", "incompatible types for comparison: *int32 and int"),
        ("quote .Spec.Priority", "Go prints the address of this *int32"),
    ],
)
def test_injection_refuses_what_istio_refuses(expression, words):
    with pytest.raises(Exception, match="template 'sidecar'") as refusal:
        injected(f'metadata: {{annotations: {{a: "{{{{ {expression} }}}}"}}}}', {"dnsPolicy": "Default", "priority": 5})
    assert words in str(refusal.value)


def test_a_pointer_to_false_is_true_as_in_go():
    template = 'metadata: {annotations: {links: "{{ if .Spec.EnableServiceLinks }}given{{ end }}"}}'
    assert injected(template, {"enableServiceLinks": False})["metadata"]["annotations"]["links"] == "given"


def test_a_message_prints_one_field_of_a_oneof():
    data = data_of({"metadata": {}, "spec": {}}, {"defaultConfig": {"tracingServiceName": "CANONICAL_NAME_ONLY"}})
    text = render("{{ .ProxyConfig }}", data)
    assert "tracing_service_name:CANONICAL_NAME_ONLY" in text
    assert "service_cluster" not in text


def test_the_metadata_of_a_volume_claim_template_are_an_object_of_their_own():
    claim = {"metadata": {"labels": {"a": "b"}, "name": "n"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}
    data = data_of({"metadata": {}, "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}]}}, {})
    place = "(index .Spec.Volumes 0).Ephemeral.VolumeClaimTemplate"
    assert render(f"{{{{ {place}.Labels.a }}}} {{{{ {place}.ObjectMeta.Name }}}} {{{{ {place}.GetName }}}}", data) == "b n n"
    assert json.loads(render(f"{{{{ toJson {place} }}}}", data)) == claim


@pytest.mark.parametrize("power", [2_000_000_000, -2_000_000_000])
def test_a_quantity_in_an_absurd_unit_takes_no_time(power):
    data = data_of({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]}}, {})
    place = "(index .Spec.Containers 0).Resources.Requests"
    assert render(f"{{{{ {place}.Cpu.ScaledValue {power} }}}}", data) == "0"
    answer = render(f"{{{{ {place}.Memory.ScaledValue {power} }}}}", data)
    assert answer == "1" if power > 0 else "does not fit into 64 bits" in answer[0]
