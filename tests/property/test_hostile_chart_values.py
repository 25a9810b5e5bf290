"""Values of the chart from somebody who may set one text: it never becomes more of a manifest than that text."""

from __future__ import annotations

import functools
import json
import subprocess

import pytest

from chart_places import BEYOND, SCHEMA, list_places, put, resolve
from helm import HELM, needs_helm
from netinit.base.errors import ConfigError
from netinit.cli.webhook.manifests import CHART, read_chart
from netinit.golang import goyaml
from netinit.inject.adding.values import merge_values
from netinit.inject.deciding import yaml_texts
from netinit.installation.chart import find_problems, render
from sweeps import choose

CHART_FILES = read_chart()
OWN = yaml_texts.load(CHART_FILES["values.yaml"])
HARMLESS = ("x", "/x", "x.conflist", "5s", f"sha256:{'a' * 64}", "info", "x:NoSchedule", "50%", "self", "k3s")
HOSTILE = (
    'a"\n        securityContext: {privileged: true}\n        x: "', "a\n        privileged: true", "x\rINJECTED: 1", "x: INJECTED", "- x", "x #", "}", "]", '"', "'", "\\", '\\"',
    "{a: b}", "[a]", "&a", "*a", "!!int 1", "!tag", "| ", ">-\n  a", "%YAML 1.2", "---", "...\n---\na: b", "? a", "@a", "`a`", ",", "a, b: c", "a\tb", "a\u2028b: c", "a\u0085b: c",
    "{{ .Release.Name }}", '{{ fail "x" }}', "<a>&b", "", " ", "a ", " a", "$(POD_NAMESPACE)", "漢字", "\ufeff", "x" * 300,
    "012", "0x10", "0o7", "1e3", "1_000", ".5", "true", "yes", "on", "null", "~", "2026-01-01", "12:30:45", "=", "<<", ".inf", ".nan", "-1", "/etc/a\n- b", "/a: b", "a.conflist\n- b",
)  # fmt: skip
TEXTS = [path for path in list_places() if path[0] != "global"]
SERVICE_MONITOR = ("monitoring", "serviceMonitor")
BASES = {False: BEYOND, True: merge_values(BEYOND, {"monitoring": {"podMonitor": {"enabled": False}, "serviceMonitor": {"enabled": True}}})}


def render_with(*trees):
    values = OWN
    for tree in trees:
        values = merge_values(values, tree)
    if problems := list(find_problems(values, SCHEMA)):
        raise ConfigError("\n".join(problems))
    return render(CHART_FILES, values, name="netinit", namespace="mesh")


def shape(tree):
    """A document without its texts: keys, lengths of lists, types. Texts of JSON are looked into; keys of ours stay, as `k`."""
    if isinstance(tree, dict):
        return {key: shape(one) for key, one in tree.items()}
    if isinstance(tree, list):
        return [shape(one) for one in tree]
    if isinstance(tree, str) and tree.startswith("{"):
        try:
            return shape(json.loads(tree))
        except ValueError:
            return str
    return type(tree)


def is_text(path):
    schema = SCHEMA
    for step in path:
        schema = resolve(schema.get("items", {}) if isinstance(step, int) else schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {})
    return schema.get("type") in ("string", None) and "anyOf" not in schema and "enum" not in schema


def find_shape(path, base, texts):
    """The shape that the first text that is taken there leads to; the empty list where none is."""
    for text in texts:
        try:
            return [shape(render_with(base, put(path, text)))]
        except ConfigError:
            continue
    return []


@functools.cache
def shape_without(has_service_monitor):
    """The shape of the chart with nothing but a base."""
    return shape(render_with(BASES[has_service_monitor]))


@pytest.mark.parametrize("path", [path for path in TEXTS if is_text(path)], ids=lambda path: ".".join(map(str, path)))
def test_a_text_adds_nothing_to_the_manifests_but_itself(path):
    base = BASES[path[:2] == SERVICE_MONITOR]
    usual = [*find_shape(path, base, HARMLESS), *find_shape(path, base, ("",)), shape_without(path[:2] == SERVICE_MONITOR)]  # the others: where something is left out
    tried = 0
    for text in choose(HOSTILE[TEXTS.index(path) % 24 :: 24] + HOSTILE[:1], HOSTILE):
        try:
            made = render_with(base, put(path, text))
        except ConfigError as error:
            assert str(error), text
            continue
        tried += 1
        assert shape(made) in usual, text
    assert len(usual) > 1 or tried == 0, "a harmless text must be taken where any is"


@pytest.mark.parametrize("text", choose(HOSTILE[:-4:4] + HOSTILE[-4:], HOSTILE), ids=repr)
@needs_helm
def test_helm_makes_the_same_of_hostile_texts_everywhere(text, tmp_path):
    """All places that take the text at once; what Helm's schema refuses, ours refuses."""
    values = dict(BEYOND)
    for path in TEXTS:
        if is_text(path) and path[:2] not in {("injection", "configMap"), ("injection", "meshConfigMap"), SERVICE_MONITOR}:
            tree = put(path, text)
            if not list(find_problems(merge_values(OWN, tree), SCHEMA)):
                values = merge_values(values, tree)
    (tmp_path / "values.json").write_text(json.dumps(values))
    done = subprocess.run([HELM, "template", "netinit", CHART, "-n", "mesh", "-f", tmp_path / "values.json"], capture_output=True, text=True, check=False, timeout=60)
    try:
        ours = render_with(values)
    except ConfigError:
        assert done.returncode != 0, "Helm takes what netinit refuses"
        return
    assert done.returncode == 0, done.stderr
    theirs = [tree for tree in goyaml.load_all(done.stdout) if tree and "helm.sh/hook" not in (tree["metadata"].get("annotations") or {})]
    ours = json.loads(json.dumps(ours).replace('"app.kubernetes.io/managed-by": "netinit"', '"app.kubernetes.io/managed-by": "Helm"'))
    key = lambda tree: (tree["kind"], tree["metadata"]["name"])  # noqa: E731
    assert sorted(ours, key=key) == sorted(theirs, key=key)


@pytest.mark.parametrize("path", [path for path in TEXTS if 0 not in path and "k" not in path], ids=".".join)
def test_null_is_a_value_like_the_chart_without_it_or_told_by_name(path):
    try:
        made = render_with(BEYOND, put(path, None))
    except ConfigError as error:
        assert f'"{".".join(path)}" has no value' in str(error)
        return
    assert "null" not in json.dumps(made).replace('"null"', ""), path
    assert "<nil>" not in json.dumps(made)


NAMES = [path for path in TEXTS if len(path) == 1]


@needs_helm
@pytest.mark.parametrize("path", choose(NAMES[::4], NAMES), ids=".".join)
def test_helm_tells_null_by_name(path):
    done = subprocess.run([HELM, "template", "netinit", CHART, "--set", f"{path[0]}=null"], capture_output=True, text=True, check=False, timeout=60)
    assert f"{path[0]} is required" in done.stderr
