"""Values of a pod stay in their scalars: one value, values that cooperate, Istio's own template, and what must go on working."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from netinit.base.errors import InjectionError
from netinit.golang import goyaml
from netinit.inject import inject_pod, load_config
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.deciding.manifests import PodOwner
from sweeps import together

DATA = Path(os.environ.get("NETINIT_CONFORMANCE") or Path(__file__).parents[4] / "shared" / "conformance")
DATADOG = DATA / "inject" / "current" / "settings" / "12a7d007"
APM, MOUNT = "apm.datadoghq.com/env", "sidecar.istio.io/userVolumeMount"


def config_of(template):
    return load_config({"templates": {"sidecar": template}})


def pod_of(annotations=None, labels=None, **spec):
    containers = spec.pop("containers", [{"name": "app", "image": "i"}])
    return {
        "metadata": {"annotations": annotations or {}, "labels": labels or {}},
        "spec": {"containers": containers, **spec},
    }


def proxy_of(template, pod):
    """What the template makes of the pod, before it is merged with anything."""
    config = config_of(template) if isinstance(template, str) else template
    proxy = config.mesh.proxy.overlaid(goyaml.load(pod["metadata"]["annotations"].get("proxy.istio.io/config", "")) or {})
    spec = render("sidecar", config, pod, template_data(config, pod, Subject(owner=PodOwner.of_pod(pod, ""), proxy=proxy)))["spec"]
    found = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return next(item for item in found if item["name"] == "istio-proxy")


def refusal(template, pod):
    with pytest.raises(InjectionError) as caught:
        inject_pod(pod, config_of(template) if isinstance(template, str) else template)
    return str(caught.value)


# --- values that cooperate ---------------------------------------------------------------------------------------

TWO = """
spec:
  containers:
  - name: istio-proxy
    args:
    - "{{ index .ObjectMeta.Annotations `one` }}"
    securityContext:
      privileged: false
      runAsUser: 1337
    env:
    - name: A
      value: "{{ index .ObjectMeta.Annotations `two` }}"
"""


def swallowing(rendered, first, second, opening):
    """Values for two places: the first writes everything between them anew, with privileges, and swallows the original."""
    start, end = rendered.index(first) + len(first), rendered.index(second)
    between = rendered[start:end]
    evil = between.replace("privileged: false", "privileged: true").replace("runAsUser: 1337", "runAsUser: 0")
    assert evil != between, "nothing to win between these places"
    return evil.removesuffix(opening), between


def test_two_annotations_cannot_rewrite_what_stands_between_them():
    harmless = TWO.replace("{{ index .ObjectMeta.Annotations `one` }}", "FIRST")
    harmless = harmless.replace("{{ index .ObjectMeta.Annotations `two` }}", "SECOND")
    evil, _ = swallowing(harmless, "FIRST", "SECOND", '"')
    attack = {"one": f"x{evil}'", "two": "' #"}
    text = TWO.replace("{{ index .ObjectMeta.Annotations `one` }}", attack["one"])
    text = text.replace("{{ index .ObjectMeta.Annotations `two` }}", attack["two"])
    assert goyaml.load(text)["spec"]["containers"][0]["securityContext"]["privileged"] is True, "no attack at all"
    told = refusal(TWO, pod_of(attack))
    assert "template 'sidecar': the value of annotation 'one' breaks out of its place in the rendered YAML" in told


def test_three_annotations_cannot_either():
    template = TWO + '    - name: B\n      value: "{{ index .ObjectMeta.Annotations `three` }}"\n    hostPort: false\n'
    attack = {
        "one": 'x"\n    securityContext:\n      privileged: true\n      runAsUser: 0\n    env:\n    - name: A\n      value: "y"\n    - name: \'',
        "two": "'\n      value: \"z",
        "three": "w",
    }
    assert "breaks out of its place" in refusal(template, pod_of(attack))


@pytest.fixture(scope="module")
def datadog():
    if not DATADOG.is_dir():
        pytest.skip(
            f"Istio's template with the Datadog tracer is not in {DATADOG}; NETINIT_CONFORMANCE names its folder"
        )
    texts = [(DATADOG / name).read_text() for name in ("config.yaml", "values.json", "mesh.yaml")]
    values = json.loads(texts[1])
    values["global"]["proxy"]["tracer"] = "datadog"
    return load_config(texts[0], values=values, mesh=texts[2])


def istio_attack(config):
    """Two annotations for Istio's template: a variable's name in a plain scalar, and a mount's name in double quotes."""
    calm = pod_of({APM: json.dumps({"FIRST": "v"}), MOUNT: json.dumps({"SECOND": {"mountPath": "/m"}})})
    subject = Subject(owner=PodOwner.of_pod(calm, ""), proxy=config.mesh.proxy)
    rendered = config.templates["sidecar"].render(template_data(config, calm, subject))
    evil, between = swallowing(rendered, "FIRST", "SECOND", '"')
    assert "'" not in between
    return {APM: json.dumps({f"x{evil}'": "v"}), MOUNT: json.dumps({"' #": {"mountPath": "/m"}})}


def test_istios_own_template_gives_no_privileges_for_annotations(datadog):
    calm = {APM: json.dumps({"DD_ENV": "prod"}), MOUNT: json.dumps({"data": {"mountPath": "/data"}})}
    proxy = proxy_of(datadog, pod_of(calm))
    assert proxy["securityContext"]["privileged"] is False
    assert {"name": "DD_ENV", "value": "prod"} in proxy["env"]
    assert {"name": "data", "mountPath": "/data"} in proxy["volumeMounts"]
    told = refusal(datadog, pod_of(istio_attack(datadog)))
    assert "breaks out of its place" in told
    assert f"annotation '{APM}'" in told or f"annotation '{MOUNT}'" in told
    assert len(told) < 2000


SHAPED_LIKE_ISTIO = """
spec:
  containers:
  - name: istio-proxy
    env:
    {{- range $key, $value := fromJSON (index .ObjectMeta.Annotations `apm.datadoghq.com/env`) }}
    - name: {{ $key }}
      value: "{{ $value }}"
    {{- end }}
    securityContext:
      privileged: false
      runAsUser: 1337
    volumeMounts:
    {{ range $index, $value := fromJSON (index .ObjectMeta.Annotations `sidecar.istio.io/userVolumeMount`) }}
    - name: "{{  $index }}"
      {{ toYaml $value | indent 6 }}
    {{ end }}
"""


def test_a_template_of_the_same_shape_gives_none_either():
    config = config_of(SHAPED_LIKE_ISTIO)
    told = refusal(config, pod_of(istio_attack(config)))
    assert "breaks out of its place" in told


# --- one value ---------------------------------------------------------------------------------------------------

PLACES = {
    "double": 'a: "{{ V }}"', "single": "a: '{{ V }}'", "plain": "a: {{ V }}", "middle": "a: --x={{ V }}", "block": "a: |\n      {{ V }}",
    "folded": "a: >-\n      {{ V }} end", "flow": "a: {x: {{ V }}, y: z}", "item": "a: [x, {{ V }}]", "key": "{{ V }}: a", "comment": "a: x # {{ V }}",
    "entry": "a:\n    - {{ V }}\n    - x", "value of an anchor": "a: &x {{ V }}\n    c: *x", "squote": "a: {{ V | squote }}", "nindent": "a: |{{ V | nindent 6 }}",
}  # fmt: skip
FRAGMENTS = (
    "\n    privileged: true", '"\n    privileged: true\n    b: "', "'\n    privileged: true\n    b: '", "x\n    privileged: true #", "&a x", "*x", "!!binary aGk=", "! x",
    "x\n---\nprivileged: true", "\n...\n", "%TAG ! x", "x\r    privileged: true", "x\x85    privileged: true", "x\u2028    privileged: true", "\tprivileged: true",
    "x, privileged: true", "}, privileged: true, b: {c: d", "], privileged: true, b: [", "|", ">", "|2\n     privileged: true", "? x", "- x", "privileged: true",
    "x: {privileged: true}", "{privileged: true}", "[privileged]", "<<", "privileged", "# x", "x # y", "x\\", "\\", "'", '"', "''", '""', "x: ", ":", " ", "\n", "\u2029", "~", "",
)  # fmt: skip


def shape_of(tree):
    """The tree with a mark in the place of every leaf that the value may fill."""
    if isinstance(tree, dict):
        return {key: shape_of(value) for key, value in tree.items()}
    return [shape_of(item) for item in tree] if isinstance(tree, list) else "leaf"


@together("place", PLACES)
@pytest.mark.parametrize("source", ["annotation", "label", "name", "argument"])
def test_a_value_is_one_scalar_or_refused(place, source):
    expression = {
        "annotation": "(index .ObjectMeta.Annotations `k`)",
        "label": "(index .ObjectMeta.Labels `k`)",
        "name": ".Spec.ServiceAccountName",
        "argument": "(index (index .Spec.Containers 0).Args 0)",
    }[source]
    line = PLACES[place].replace("V", expression)
    config = config_of(f"spec:\n  containers:\n  - name: istio-proxy\n    privileged: false\n    {line}\n    end: x\n")

    def pod(value):
        container = {"name": "app", "args": [value]}
        return pod_of({"k": value}, {"k": value}, serviceAccountName=value, containers=[container])

    calm = shape_of(proxy_of(config, pod("calm")))
    accepted = 0
    for fragment in FRAGMENTS:
        try:
            proxy = proxy_of(config, pod(fragment))
        except InjectionError as error:
            assert "breaks out of its place" in str(error) or "not valid YAML" in str(error), (fragment, str(error))
            continue
        accepted += 1
        assert proxy["privileged"] is False, (fragment, proxy)
        assert proxy["end"] == "x", (fragment, proxy)
        if place == "key":
            assert len(proxy) == len(calm), (fragment, proxy)
        elif fragment:
            assert shape_of(proxy) == calm, (fragment, proxy)
    assert accepted, "nothing at all is accepted here"


# --- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "{{ index .ObjectMeta.Annotations `k` }}: true",
        '"{{ index .ObjectMeta.Annotations `k` }}": true',
        "{{ toYaml (fromJSON (index .ObjectMeta.Annotations `tree`)) | indent 4 }}",
        "? {{ index .ObjectMeta.Annotations `k` }}\n    : true",
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_key_of_the_pod_replaces_no_field_of_the_author(line, before):
    lines = [line, "privileged: false"] if before else ["privileged: false", line]
    template = "spec:\n  containers:\n  - name: istio-proxy\n    " + "\n    ".join(lines) + "\n"
    tree = {"tree": json.dumps({"privileged": True})}
    assert "breaks out" in refusal(template, pod_of({"k": "privileged", **tree}))
    other = {"k": "other", "tree": json.dumps({"other": True})}
    proxy = proxy_of(template, pod_of(other))
    assert (proxy["privileged"], proxy["other"]) == (False, True)


def test_a_key_of_the_pod_hides_nothing_that_is_merged():
    template = """
x: &defaults {privileged: false}
spec:
  containers:
  - name: istio-proxy
    securityContext:
      <<: *defaults
      {{ index .ObjectMeta.Annotations `k` }}: true
"""
    assert "breaks out" in refusal(template, pod_of({"k": "privileged"}))
    assert "breaks out" in refusal(
        "spec: {a: {b: c, {{ index .ObjectMeta.Annotations `k` }}: {d: e}}}", pod_of({"k": "<<"})
    )


def test_lists_of_volumes_may_bring_names_of_their_own():
    volumes = [{"name": "wasm", "mountPath": "/wasm"}, {"name": "data", "mountPath": "/data", "readOnly": True}]
    proxy = proxy_of(SHAPED_LIKE_ISTIO, pod_of({APM: "{}", MOUNT: json.dumps(volumes)}))
    assert proxy["volumeMounts"] == volumes


# --- trees -------------------------------------------------------------------------------------------------------

TEXTS = [
    'x"\n  y: z',
    "a\nb",
    "a\n",
    "\n\na",
    "  a",
    "- x",
    "a: b",
    "*x",
    "&x y",
    "!!int 5",
    "true",
    "80",
    "",
    "#",
    "'",
    "\t",
    "\\",
    "\x85",
    "\u2028",
    "é",
    "---",
    "<<",
    "|",
    "{}",
]


@pytest.mark.parametrize(
    "line",
    [
        "a:\n      {{ toYaml (fromJSON V) | indent 6 }}", "a: {{ toYaml (fromJSON V) | nindent 6 }}", "a: {{ toJson (fromJSON V) }}", "a: {{ toJSON (fromJSON V) }}",
        "a: {{ toPrettyJson (fromJSON V) }}", "a: {x: y, z: {{ toJson (fromJSON V) }}}", "a:\n      b: c\n      {{ toYaml (fromJSON V) | indent 6 }}",
        "a: {{ toYaml (fromJSON V) | trim | nindent 6 }}", "a: {{ toYaml (fromJSON V) | trimSuffix `\n` | nindent 6 }}",
    ],
)  # fmt: skip
@together("text", TEXTS)
def test_a_written_tree_is_exactly_the_values_tree(line, text):
    tree = {"k" + text: text, "list": [text, {"deep": text}, [], {}], "n": None, "yes": True, "one": 1}
    template = (
        "spec:\n  containers:\n  - name: istio-proxy\n    "
        + line.replace("V", "(index .ObjectMeta.Annotations `v`)")
        + "\n    end: x\n"
    )
    pod = pod_of({"v": json.dumps(tree)})
    if text == "\x85" and "{{ toYaml" not in line:
        assert "breaks out" in refusal(template, pod), "YAML takes this for a line break: the tree would not come back"
        return
    proxy = proxy_of(template, pod)
    found = proxy["a"].get("z", proxy["a"])
    assert {key: value for key, value in found.items() if key != "b"} == tree
    assert proxy["end"] == "x"


def test_lists_and_scalars_are_written_too():
    template = """
spec:
  containers:
  - name: istio-proxy
    args:
    - fixed
    {{ toYaml (index .Spec.Containers 0).Args | indent 4 }}
    image: {{ toYaml (index .ObjectMeta.Labels `l`) }}
    command: {{ toJson (index .Spec.Containers 0).Args }}
"""
    pod = pod_of(labels={"l": "a: b"}, containers=[{"name": "app", "args": ["x: y", "- z"]}])
    proxy = proxy_of(template, pod)
    assert (proxy["args"], proxy["image"], proxy["command"]) == (["fixed", "x: y", "- z"], "a: b", ["x: y", "- z"])


# --- what is the operator's --------------------------------------------------------------------------------------


def test_the_operators_values_may_be_any_yaml():
    template = """
spec:
  containers:
  - name: istio-proxy
    {{ .Values.more }}
    {{- define "part" }}{{ with .Values }}{{ .part }}{{ end }}{{ end }}
    {{ template "part" . }}
    {{ $text := .Values.text }}{{ range $n, $line := splitList "," $text }}
    {{ $line }}
    {{- end }}
    app: {{ .Spec.ServiceAccountName }}
"""
    values = {
        "more": "ports: [{containerPort: 1}]\n    tty: true",
        "part": "stdin: true",
        "text": "a: {b: c},d: {e: f}",
    }
    config = load_config({"templates": {"sidecar": template}}, values=values)
    proxy = proxy_of(config, pod_of(serviceAccountName="web"))
    assert proxy["ports"] == [{"containerPort": 1}]
    assert (proxy["tty"], proxy["stdin"], proxy["a"], proxy["d"]) == (True, True, {"b": "c"}, {"e": "f"})
    assert "breaks out" in refusal(config, pod_of(serviceAccountName="web\n    tty: false"))


@together(
    "expression",
    [
        ".ObjectMeta.Labels.k", "$.ObjectMeta.Labels.k", "(index .ObjectMeta.Labels `k`)", "(annotation .ObjectMeta `k` .Values.x)", ".MeshConfig.DefaultConfig.ProxyMetadata.K",
        "(.MeshConfig.GetDefaultConfig).ProxyMetadata.K", "(index . `ObjectMeta`).Labels.k" , "(printf `%s` .ObjectMeta.Labels.k)", "(list .Values.x .ObjectMeta.Labels.k | last)",
        "(dict `a` .ObjectMeta.Labels.k).a", "(.ObjectMeta.Labels.k | default .Values.x)", ".ProxyConfig.ProxyMetadata.K", "(or .Values.none .ObjectMeta.Labels.k)",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "frame",
    [
        "b: {{ V }}", "{{ with V }}b: {{ . }}{{ end }}", "{{ $x := V }}b: {{ $x }}", "{{ $x := `` }}{{ $y := V }}{{ range until 2 }}{{ if $x }}b: {{ $x }}{{ end }}{{ $x = $y }}{{ end }}",
        "{{ define `t` }}b: {{ . }}{{ end }}{{ template `t` V }}", "{{ range $n, $x := list V }}b: {{ $x }}{{ end }}", "{{ if $x := V }}b: {{ $x }}{{ end }}",
        "{{ define `t` }}b: {{ .k }}{{ end }}{{ template `t` (dict `k` V) }}",
    ],
)  # fmt: skip
def test_every_way_of_a_pods_value_is_known(frame, expression):
    if "index . `" in expression:
        expression = "(index (list .ObjectMeta) 0).Labels.k"
    template = "spec:\n  containers:\n  - name: istio-proxy\n    " + frame.replace("V", expression) + "\n"
    evil = "x\n    privileged: true"
    config = json.dumps({"proxyMetadata": {"K": evil}})
    pod = pod_of({"k": evil, "proxy.istio.io/config": config}, {"k": evil})
    assert "breaks out" in refusal(template, pod)


# --- errors ------------------------------------------------------------------------------------------------------


def test_an_error_shows_neither_long_values_nor_the_applications_environment():
    secret = "hunter2-very-secret"
    container = {
        "name": "app",
        "env": [{"name": "PASSWORD", "value": f"{secret}\n    privileged: true"}],
        "args": [f"--token={secret}: *x"],
    }
    for expression in ("(index (index .Spec.Containers 0).Env 0).Value", "(index (index .Spec.Containers 0).Args 0)"):
        for line in (
            f"a: {{{{ {expression} }}}}",
            f"{{{{ range {expression} }}}}{{{{ end }}}}",
            f"{{{{ fail {expression} }}}}",
            f"- {{{{ {expression} }}}}",
        ):
            told = refusal(f"spec:\n  containers:\n  - name: istio-proxy\n    {line}\n", pod_of(containers=[container]))
            assert "hunter2" not in told, told
    told = refusal("a: {{ index .ObjectMeta.Annotations `k` }}", pod_of({"k": "x: {" + "y" * 500_000}))
    assert "annotation 'k'" in told
    assert len(told) < 1000


def test_a_text_that_is_no_yaml_by_itself_is_the_templates_error():
    told = refusal("a: [{{ .Spec.ServiceAccountName }}", pod_of(serviceAccountName="web"))
    assert "template 'sidecar': the rendered text is not valid YAML: line 2" in told
