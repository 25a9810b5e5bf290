"""What depends on constants alone is computed once, and never for other constants, another dot or a value that may change."""

from __future__ import annotations

import pytest

from netinit.golang.errors import TemplateError
from netinit.golang.template import Struct, Template
from netinit.golang.template.values import OwnMap

VALUES = {"name": "mesh", "limits": {"cpu": "1"}, "list": [1, 2]}


def template(text, calls):
    """The template, whose function `seen` records its calls."""

    def seen(value):
        calls.append(value)
        return f"<{value}>"

    def own(value):
        calls.append(value)
        return OwnMap(value=value)

    def put(held, value):
        held["value"] = value
        return ""

    return Template("t", text, {"seen": seen, "own": own, "put": put}, constants=("Values", "Mesh"))


def render(parsed, values=VALUES, mesh="m", pod="web"):
    return parsed.render(Struct("Data", {"Values": values, "Mesh": mesh, "Pod": pod}))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{ seen .Values.name }}", "<mesh>"),
        ("{{ .Values.name | seen | seen }}", "<<mesh>>"),
        ("{{ if eq (seen .Values.name) `<mesh>` }}yes{{ end }}", "yes"),
        ("{{ $x := 1 }}{{ seen (.Values.limits).cpu }}", "<1>"),
        ("{{ define `inner` }}{{ seen .Values.name }}{{ end }}{{ template `inner` . }}", "<mesh>"),
    ],
)
def test_what_depends_on_constants_alone_is_computed_once(text, wanted):
    calls = []
    parsed = template(text, calls)
    assert [render(parsed), render(parsed, pod="other")] == [wanted, wanted]
    assert len(calls) == text.count("seen")


def test_what_depends_on_more_is_computed_each_time():
    calls = []
    parsed = template("{{ seen (print .Values.name .Pod) }}{{ $p := .Pod }}{{ seen $p }}{{ seen `literal` }}", calls)
    assert render(parsed) == "<meshweb><web><literal>"
    assert render(parsed, pod="api") == "<meshapi><api><literal>"


def test_other_constants_have_other_values():
    calls = []
    parsed = template("{{ seen .Values.name }} {{ seen .Mesh }}", calls)
    other = {"name": "second"}
    assert [render(parsed), render(parsed, values=other), render(parsed, mesh="n"), render(parsed)] == [
        "<mesh> <m>", "<second> <m>", "<mesh> <n>", "<mesh> <m>",
    ]  # fmt: skip


def test_another_dot_with_a_field_of_the_same_name_is_no_constant():
    calls = []
    parsed = template("{{ seen .Values.name }}{{ with .Pod }}{{ seen .Values.name }}{{ end }}", calls)
    pod = {"Values": {"name": "inner"}}
    assert render(parsed, pod=pod) == "<mesh><inner>"
    assert render(parsed, pod={"Values": {"name": "later"}}) == "<mesh><later>"


def test_a_map_that_a_template_may_change_is_made_anew():
    calls = []
    parsed = template("{{ $m := own .Values.name }}{{ with (own .Values.name) }}{{ .value }}{{ put . `changed` }}{{ end }}{{ $m.value }}", calls)
    assert [render(parsed), render(parsed)] == ["meshmesh", "meshmesh"]


def test_a_failure_is_reported_each_time():
    parsed = template("{{ index .Values.list 9 }}", [])
    said = []
    for _ in range(2):
        with pytest.raises(TemplateError) as caught:
            render(parsed)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "index out of range: 9" in said[0]
