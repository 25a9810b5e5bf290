"""Manifests as repositories hold them, not injected yet: they are judged as the pods that they will become."""

from __future__ import annotations

import json
import re

import pytest

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web, more: ""}
      annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5433", a: b}
    spec: {containers: [{name: app, image: a}]}
"""
NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {LABEL}}\n"
ASKING = DEPLOYMENT.replace('more: ""', 'sidecar.istio.io/inject: "true"')
ASSERTION = "outbound ipv4 tcp on port 5432 not by proxy not to pod is captured"


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="web.yaml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write_text


def explain(run, file, *words):
    return run(["netinit", "explain", "--pod", file, "--to", "10.2.3.4:5432", *words]).out.partition(":")[0]


def without_places(text):
    """What is said, without the lines of the file, which injection moves."""
    return [re.sub(r"^(  \S+:\d+:\d+|\S+\.yaml): ", "  ", line) for line in text.splitlines() if not line.startswith("    at: ")]


def test_a_pod_gets_the_answers_that_it_gets_after_its_injection(run, write, tmp_path):
    before, after = write(ASKING), str(tmp_path / "injected.yaml")
    assert run(["netinit", "inject", "-f", before, "-o", after]).code == 0
    for words in (
        ["explain", "--to", "10.2.3.4:5432", "--pod"], ["explain", "--to", "10.2.3.4:5433", "--pod"], ["explain", "--from", "10.9.9.9", "--to-port", "8080", "--pod"],
        ["audit", "--fail-on", "bypass:port"], ["audit", "--assert", ASSERTION], ["lint", "--strict"],
    ):  # fmt: skip
        first, second = (run(["netinit", *words, file]) for file in (before, after))
        assert (first.code, without_places(first.out)) == (second.code, without_places(second.out)), words
    assert run(["netinit", "diff", before, after]).code == 0
    told = run(["netinit", "explain", "--to", "10.2.3.4:5432", "--pod", before])
    assert told.out.startswith("captured: ")
    assert "as the webhook would inject it (webhook object; label sidecar.istio.io/inject: " in told.err


@pytest.mark.parametrize(("label", "of_pod", "verdict"), [
    ("istio-injection: enabled", "", "captured"), ("istio-injection: disabled", "", "direct"), ("team: a", "", "direct"),
    ("istio.io/rev: canary", "", "captured"), ("team: a", "istio.io/rev: canary", "captured"),
    ("istio-injection: enabled", 'sidecar.istio.io/inject: "false"', "direct"), (None, 'sidecar.istio.io/inject: "false"', "direct"),
    (None, "istio.io/rev: canary", "captured"), (None, "", "unknown"),
])  # fmt: skip
def test_labels_decide_like_check_inject(run, write, label, of_pod, verdict):
    text = DEPLOYMENT.replace('more: ""', of_pod or 'more: ""') + (NAMESPACE.replace("LABEL", label) if label else "")
    file = write(text)
    assert explain(run, file) == verdict
    decided = {"captured": 0, "direct": 3}.get(verdict)
    revision = ["--revision", "canary"] if "canary" in text else []
    assert decided is None or run(["netinit", "check-inject", "-f", file, *revision]).code == decided


def test_a_namespace_in_another_file_of_the_folder_counts(run, write, tmp_path):
    write(DEPLOYMENT)
    write(NAMESPACE.replace("LABEL", "istio-injection: enabled"), "namespace.yaml")
    assert explain(run, str(tmp_path)) == "captured"
    assert run(["netinit", "lint", "--strict", str(tmp_path)]).code == 0


def test_where_it_is_not_known_gates_fail_and_say_so_once(run, write):
    other = DEPLOYMENT.replace("name: web,", "name: other,")
    file = write(f"{DEPLOYMENT}---{other}")
    for words in (["lint", "--strict"], ["audit", "--fail-on", "bypass:port"], ["audit", "--assert", ASSERTION]):
        done = run(["netinit", *words, file])
        assert (done.code, done.out.count("NI102"), "2 pods" in done.out) == (1 if "lint" in words else 4, 1, True), words
    assert run(["netinit", "audit", file]).code == 0
    assert run(["netinit", "audit", file, "--fail-on", "bypass:port", "--ignore", "NI102"]).code == 0
    sarif = json.loads(run(["netinit", "audit", file, "--format", "sarif"]).out)
    assert [one["ruleId"] for one in sarif["runs"][0]["results"]] == ["NI102"]
    (ruling,) = json.loads(run(["netinit", "audit", write(DEPLOYMENT), "--assert", ASSERTION, "--json"]).out)["pods"][0]["assertions"]
    assert ruling["result"] == "unknown"


@pytest.mark.parametrize(("assume", "verdict"), [("injected", "captured"), ("cni", "captured"), ("none", "direct")])
def test_what_is_not_known_can_be_assumed(run, write, assume, verdict):
    file = write(DEPLOYMENT)
    assert explain(run, file, "--assume", assume) == verdict
    done = run(["netinit", "lint", "--strict", file, "--assume", assume])
    assert (done.code, done.out) == (0, "no problems found in 1 pod\n")
    assert explain(run, write(DEPLOYMENT.replace('more: ""', 'sidecar.istio.io/inject: "false"')), "--assume", assume) == "direct"


def test_the_installations_own_settings_count(run, write):
    values = write("global: {proxy: {excludeIPRanges: 10.0.0.0/8}}", "values.yaml")
    assert explain(run, write(ASKING), "--valuesFile", values) == "direct"
    broken = run(["netinit", "lint", write(ASKING), "--valuesFile", write("global: [", "broken.yaml")])
    assert (broken.code, "--valuesFile" in broken.err) == (1, True), broken


def test_a_pod_that_the_injector_would_refuse_is_a_finding_under_the_annotations_name(run, write):
    done = run(["netinit", "lint", write(ASKING.replace('"5433"', "POSTGRES_PORT_PLACEHOLDER"))])
    assert (done.code, done.out.count("error NI112")) == (1, 1)
    assert "'traffic.sidecar.istio.io/excludeOutboundPorts'" in done.out
    config = write("policy: enabled\ntemplates: {sidecar: '{spec: {}}'}\n", "config.yaml")
    pod = write(ASKING.replace("a: b", "inject.istio.io/templates: nonesuch"))
    refused = run(["netinit", "explain", "--to", "10.2.3.4:80", "--pod", pod, "--injectConfigFile", config])
    assert (refused.code, "requested template" in refused.err) == (2, True)


def test_what_templates_do_of_an_injector_whose_configuration_is_not_given_is_not_known(run, write):
    pod = write(ASKING.replace("a: b", "inject.istio.io/templates: 'sidecar, nonesuch'"))
    told = run(["netinit", "explain", "--to", "10.2.3.4:80", "--pod", pod])
    assert (told.code, told.out.partition(":")[0], "asks for the template 'nonesuch'" in told.out) == (0, "unknown", True)
    linted = run(["netinit", "lint", pod])
    assert (linted.code, linted.out.count("NI102"), "give the injector's (--injectConfigFile)" in linted.out) == (0, 1, True)
    assert "to close it: give the injector's configuration: --injectConfigFile\n" in run(["netinit", "audit", pod]).out
    checked = run(["netinit", "check-inject", "-f", pod])
    assert (checked.code, checked.out.splitlines()[1].split()[4], "not known: annotation" in checked.out) == (1, "?", True)
    assert json.loads(run(["netinit", "check-inject", "--json", "-f", pod]).out)["objects"][0]["doubt"].startswith("annotation ")
    refused = run(["netinit", "inject", "-f", pod])  # it has these templates and no others
    assert (refused.code, "'nonesuch' not found; netinit's own configuration has init, sidecar" in refused.err) == (1, True)


def test_pods_of_which_nothing_is_known_on_both_sides_are_compared_with_each_other(run, write):
    one, other = write(DEPLOYMENT), write(DEPLOYMENT.replace("5433", "5434"), "other.yaml")
    assert (run(["netinit", "diff", one, one]).code, run(["netinit", "diff", one, other]).code) == (0, 3)
    assert run(["netinit", "diff", one, write(ASKING, "asking.yaml")]).code == 3


@pytest.mark.parametrize("line", ["explain --to 1.2.3.4:80 --assume cni", "lint -b 80 --valuesFile x", "diff --pid 1 --assume none"])
def test_what_is_said_of_pods_without_any_is_refused(run, line):
    done = run(f"netinit {line}")
    assert (done.code, "is about pods of manifests" in done.err) == (2, True), done


MODE = "sidecar.istio.io/interceptionMode"


@pytest.mark.parametrize("way", ["annotation", "mesh", "plugin"])
def test_a_pod_of_mode_none_gets_no_init_container_and_so_no_rules(run, write, way):
    """As Istio's template has it, and ours; a CNI plugin decides itself."""
    file = write(ASKING.replace("a: b", f"{MODE}: NONE") if way != "mesh" else ASKING)
    more = {"mesh": ["--meshConfigFile", write("defaultConfig: {interceptionMode: NONE}\n", "mesh.yaml")], "annotation": []}
    words = more.get(way) or (["--valuesFile", write("pilot: {cni: {enabled: true}}\n", "values.yaml")] if way == "plugin" else [])
    told = run(["netinit", "explain", "--pod", file, "--to", "10.2.3.4:80", *words])
    assert told.out.partition(":")[0] == ("captured" if way == "plugin" else "direct"), told
    if way != "plugin":
        assert "NONE it gets no init container; nothing is intercepted" in told.err
        assert "it gets no init container" in run(["netinit", "audit", file, *words]).out
        assert f'remedy: annotation {MODE}: "REDIRECT"' in run(["netinit", "why", file, *words]).out


def test_what_the_injection_adds_is_not_held_against_the_author(run, write):
    """Istio's template excludes the proxy's own ports of each pod; nobody can remove that."""
    mine = 'traffic.sidecar.istio.io/includeInboundPorts: "8080"'
    quiet = write(ASKING.replace("a: b", mine))
    assert run(["netinit", "lint", "--strict", quiet]).out == "no problems found in 1 pod\n"
    assert "excludeInboundPorts" not in run(["netinit", "inject", "--explain", "-f", quiet]).out
    assert "15020" not in run(["netinit", "inject", "--explain", "-f", quiet]).out
    own = write(ASKING.replace("a: b", f'{mine}, traffic.sidecar.istio.io/excludeInboundPorts: "9090"'))
    assert "NI002: annotation traffic.sidecar.istio.io/excludeInboundPorts" in run(["netinit", "lint", own]).out
    assert "--istio-local-exclude-ports" in run(["netinit", "inject", "--explain", "-f", own]).out


def test_a_value_that_closes_a_bypass_is_written_as_in_the_manifest(run, write):
    file = write(ASKING.replace("a: b", f"{MODE}: NONE"))
    values = write("pilot: {cni: {enabled: true}}\n", "values.yaml")
    assert f'to close it: annotation {MODE}: "REDIRECT"\n' in run(["netinit", "audit", file, "--valuesFile", values]).out
