"""What the files of a repository hold: pods, templates of Helm, manifests that cannot be read, and others."""

from __future__ import annotations

import pytest

from netinit.base.errors import ParseError
from netinit.inject.deciding.manifest_survey import survey_files
from netinit.inject.deciding.manifests import ManifestFile

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n"
HEAD = "apiVersion: v1\nkind: Pod\n"


def survey(*texts, select=""):
    return survey_files([ManifestFile(name=f"{number}.yaml", text=text) for number, text in enumerate(texts)], select)


def kinds(found):
    return [(one.finding.kind.name, one.at[0]) for one in found.findings]


@pytest.mark.parametrize("text", [
    'name: {{ include "web.name" . }}\n', "a: 1\n{{- if .Values.x }}\nb: 2\n{{- end }}\n", "{{/*\nA comment.\n*/}}\na: 1\n",
    'image: "{{ .Values.tag | default "latest" }}"\n', "{{ .Values.key }}: 1\nb: [\n  {{- range .x }}\n  {{ . }},\n  {{- end }}\n]\n",
    'labels:\n  {{- include "labels" . | nindent 4 }}\n  a: b\n',
])  # fmt: skip
def test_a_template_of_helm_is_a_note_with_its_first_line(text):
    found = survey(HEAD + text, POD)
    assert kinds(found) == [("helm-template", (HEAD + text).partition("{{")[0].count("\n") + 1)]
    assert len(found.pods) == 1


@pytest.mark.parametrize("text", [
    POD.replace("web", "'{{ .Release.Name }}'"), POD.replace("web}", 'web, namespace: "{{ .Values.ns }}"}'), POD.replace("name: app", "name: app, image: '{{ .Values.image }}'"),
    POD.replace("containers", "initContainers: [{name: '{{ .Values.init }}'}], containers"), (POD.replace("web", "'{{ .Values.a }}'") + "---\n") * 2,
    "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: '{{ .Values.a }}'}, spec: {containers: [{name: app}]}}]\n",
])  # fmt: skip
def test_a_template_whose_actions_stand_in_quotes_is_a_note_and_no_pod(text):
    found = survey(text, POD)
    assert kinds(found) == [("helm-template", text.partition("{{")[0].count("\n") + 1)]
    assert [one.file for one in found.pods] == ["1.yaml"]


def test_what_only_looks_like_an_action_stays_a_pod():
    annotated = POD.replace("web}", "web, annotations: {a: '{{ with secret \"x\" }}'}}").replace("name: app", "name: app, args: ['{{ .Name }}']")
    mixed = POD + "---\n" + POD.replace("web", "'{{ .Release.Name }}'")
    found = survey(annotated, mixed)
    assert [one.file for one in found.pods] == ["0.yaml", "1.yaml"]
    assert kinds(found) == [("helm-template", 8)]


@pytest.mark.parametrize("text", [
    "metadata:\n  name: x\n   labels: {}\n", "# {{ a comment }}\nmetadata:\n  name: x\n   labels: {}\n",
    'metadata:\n  name: x\n  annotations: {a: "{{ $labels.pod }}"}\n   labels: {}\n', "metadata: [\n", "a: {{\n",
])  # fmt: skip
def test_a_manifest_that_cannot_be_read_is_one_finding_with_its_line(text):
    found = survey(HEAD + text, POD)
    ((kind, line),) = kinds(found)
    assert (kind, line > 0, len(found.pods), found.without) == ("unreadable-manifest", True, 1, 0)


def test_what_is_no_manifest_is_counted():
    found = survey("{\n // a comment\n}", "a: 1", "", "{apiVersion: v1, kind: Service}")
    assert (found.pods, found.findings, found.summary) == ((), (), "no pod in 4 files")


@pytest.mark.parametrize(("text", "line"), [("", True), ("{apiVersion: v1, kind: Pod, é", True), ("no manifest", False)])
def test_a_file_that_cannot_be_decoded_is_a_finding_unless_it_is_seen_to_be_no_manifest(text, line):
    found = survey_files([ManifestFile(name="a.yaml", text=text, problem="not UTF-8")])
    assert (bool(found.findings), found.without) == (line, not line)


def test_every_pod_that_is_wrong_is_a_finding_of_its_own_under_the_names_of_its_author():
    annotated = POD.replace("name: web}", "name: a, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: PLACEHOLDER}}")
    ambient = POD.replace("name: web}", "name: b, annotations: {ambient.istio.io/redirection: enabled, istio.io/reroute-virtual-interfaces: 'a b c/'}}")
    by_variable = POD.replace("{name: app}", "{name: istio-proxy, env: [{name: ISTIO_META_DNS_CAPTURE, value: 'true'}]}")
    arguments = POD.replace("spec: {", "spec: {initContainers: [{name: istio-init, args: [istio-iptables, -p, x]}], ")
    number = POD.replace("spec: {containers: [{name: app}]}", "spec: 5")
    found = survey(annotated + "---\n" + ambient, arguments, number, by_variable, POD)
    told = [(one.file, one.pod, one.finding.text) for one in found.findings if one.finding.severity == "error"]
    assert [(file, pod) for file, pod, _ in told] == [("2.yaml", ""), ("0.yaml", 'Pod "a"'), ("0.yaml", 'Pod "b"'), ("1.yaml", 'Pod "web"')]
    assert told[1][2].startswith("annotation traffic.sidecar.istio.io/excludeOutboundPorts: 'PLACEHOLDER' is not a port")
    assert told[2][2].startswith("annotation istio.io/reroute-virtual-interfaces: ")
    assert "-p: 'x' is not" in told[3][2]
    assert len(found.pods) == 2


def test_a_pod_that_is_asked_for_and_missing_is_an_error():
    with pytest.raises(ParseError, match="has no workload"):
        survey(POD, select="other")


def test_many_openings_without_an_end_take_no_time_of_their_own():
    found = survey(HEAD + "a: {{ }}\n" + "{{" * 400_000)
    assert len(found.findings) == 1
