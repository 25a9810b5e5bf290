"""The library of Go's languages by itself: plain data, no Istio, nothing else of netinit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from netinit.golang import gojson, goyaml
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.sprig import FUNCTIONS
from netinit.golang.template import Template, TemplateError

CHART = """\
{{- define "labels" }}
app: {{ .name }}
{{- end -}}
labels: {{- include .chart | nindent 2 }}
ports:
{{- range $number, $port := .ports }}
- {name: {{ printf "port-%d" $number }}, port: {{ $port }}}
{{- else }}
- none
{{- end }}
"""


def test_a_template_renders_plain_data():
    functions = {**FUNCTIONS, "include": lambda chart: f"app: {chart['name']}"}
    text = Template("chart", CHART, functions).render({"chart": {"name": "shop"}, "ports": [80, 443]})
    assert goyaml.load(text) == {
        "labels": {"app": "shop"},
        "ports": [{"name": "port-0", "port": 80}, {"name": "port-1", "port": 443}],
    }


def test_what_a_template_writes_is_read_back_as_its_data():
    data = {"on": "yes", "list": [1, 1.5, None, {"a": "b: c"}], "script": "set -e\nrun\n", "b10": 1, "b9": 2}
    render = Template("all", "{{ toJson . }}", FUNCTIONS).render
    assert goyaml.load(render(data)) == goyaml.load(to_yaml(data)) == goyaml.load(goyaml.dump(data)) == data


def test_errors_are_in_the_words_of_go():
    with pytest.raises(TemplateError, match=r'^template: t:1: function "nope" not defined$'):
        Template("t", "{{ nope }}")
    with pytest.raises(TemplateError, match=r"template: t:1:3: executing \"t\" at <index .a 7>: error calling index: "):
        Template("t", "{{ index .a 7 }}").render({"a": [1]})


def test_nothing_else_of_netinit_is_imported():
    program = (
        "import sys, netinit.golang.sprig, netinit.golang.gojson, netinit.golang.goyaml.values, netinit.golang.goyaml as y;"
        "y.load('a: 1');"
        "print(*sorted(name for name in sys.modules if name.startswith('netinit.') and 'golang' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not done.stdout.split(), done.stdout


def test_json_keeps_the_given_order_or_sorts():
    tree = {"b": [1.0, 1e21, "<&>\u2028"], "a": {"d": None, "c": True}}
    assert gojson.encode(tree) == '{"b":[1,1e+21,"\\u003c\\u0026\\u003e\\u2028"],"a":{"d":null,"c":true}}'
    assert gojson.encode(tree, sort=True).startswith('{"a":{"c":true,"d":null},"b":')
    assert gojson.encode({"a": []}, indent="  ") == '{\n  "a": []\n}'
