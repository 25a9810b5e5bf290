"""No template hangs the one who renders it, and no text crashes the one who parses it."""

from __future__ import annotations

import threading
import time
from unittest import mock

import pytest

from netinit.golang import sprig
from netinit.golang.template import Template, TemplateError, limits
from netinit.inject.adding import istio_functions
from netinit.inject.adding.kubernetes_types import ObjectStruct
from sweeps import choose


def render(text, data=None, **given):
    with mock.patch.dict(vars(limits), {f"MAX_{name.upper()}": value for name, value in given.items()}):
        return Template("t", text, sprig.FUNCTIONS).render(data)


def test_recursion_ends_at_the_depth_of_templates():
    text = '{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}'
    with pytest.raises(
        TemplateError, match=r'executing "a" at <\{\{template "a"\}\}>: exceeded maximum template depth \(7\)$'
    ):
        render(text, depth=7)


def test_templates_may_go_as_deep_as_the_limit_says():
    text = '{{ define "a" }}{{ if . }}{{ len . }}{{ template "a" substr 1 -1 . }}{{ end }}{{ end }}{{ template "a" . }}'
    assert render(text, "x" * 9, depth=10) == "987654321"
    with pytest.raises(TemplateError, match="exceeded maximum template depth"):
        render(text, "x" * 10, depth=10)


def test_loops_end_at_the_steps():
    with pytest.raises(TemplateError, match=r"^template: t: rendering takes more than 1000 steps$"):
        render("{{ range 1000000000 }}{{ range 1000000000 }}{{ end }}{{ end }}", steps=1000)


def test_templates_that_call_the_next_one_twice_each_end_too():
    text = '{{ template "0" }}{{ define "30" }}{{ end }}'
    for number in range(30):
        call = f'{{{{ template "{number + 1}" }}}}'
        text += f'{{{{ define "{number}" }}}}{call}{call}{{{{ end }}}}'
    with pytest.raises(TemplateError, match="rendering takes more than 100000 steps"):
        render(text, steps=100_000)


def test_output_ends_at_its_length():
    with pytest.raises(TemplateError, match=r"^template: t: the output is longer than 100 characters$"):
        render("{{ range 1000 }}abc{{ end }}", output=100)
    assert render("{{ range 33 }}abc{{ end }}", output=99) == "abc" * 33


@pytest.mark.parametrize(
    "text",
    [
        '{{ repeat 2000000 "x" }}',
        '{{ indent 2000000 "x" }}',
        '{{ printf "%900000d%900000d" 1 2 }}',
        '{{ printf "%.900000f%.900000f" 1.0 2.0 }}',
        '{{ replace "" "xxxxxxxxxx" (repeat 1000000 "y") }}',
        '{{ join (repeat 10000 "x") (splitList "" (repeat 1000 "y")) }}',
        "{{ until 2000000 }}",
        '{{ $x := "ab" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}',
        "{{ $x := list 1 }}{{ range 100 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}",
        "{{ $x := list 1 }}{{ range 100 }}{{ $x = list $x $x }}{{ end }}{{ $x }}",
    ],
)  # fmt: skip
def test_no_function_builds_a_value_without_bounds(text):
    started = time.process_time()
    with pytest.raises(TemplateError, match="the value would be longer than 1048576 characters"):
        render(text, output=1 << 30)
    assert time.process_time() - started < 20


def test_a_value_may_be_as_long_as_the_limit():
    assert render('{{ len (repeat 1048576 "x") }}') == "1048576"


def test_work_on_large_values_costs_steps():
    text = '{{ $x := repeat 500000 "x" }}{{ range 1000000 }}{{ if contains "y" $x }}{{ end }}{{ end }}'
    with pytest.raises(TemplateError, match="rendering takes more than 1000000 steps"):
        render(text)


def test_a_value_nested_without_end_is_refused():
    with pytest.raises(TemplateError, match=r"the value is nested deeper than 200 levels|nested too deeply"):
        render("{{ $x := list }}{{ range 5000 }}{{ $x = list $x }}{{ end }}{{ toJson $x }}")
    with pytest.raises(TemplateError):
        render("{{ $x := list }}{{ range 5000 }}{{ $x = list $x }}{{ end }}{{ $x }}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{{ if 1 }}", "{{ end }}"),
        ("{{ range 1 }}", "{{ end }}"),
        ("{{ with 1 }}{{ else }}", "{{ end }}"),
        ('{{ block "b" . }}', "{{ end }}"),
    ],
)
def test_blocks_nested_without_end_are_an_error_of_the_template(before, after):
    for depth in (101, 5000):
        with pytest.raises(
            TemplateError, match=r"^template: t:1: blocks and parentheses are nested deeper than 100 levels$"
        ):
            Template("t", before * depth + after * depth)
    if "block" not in before:
        assert Template("t", before * 90 + after * 90).render(None) == ""


def test_parentheses_nested_without_end_are_an_error_of_the_template():
    for depth in (101, 5000):
        with pytest.raises(TemplateError, match="nested deeper than 100 levels"):
            Template("t", "{{" + "(" * depth + "1" + ")" * depth + "}}")
    assert Template("t", "{{" + "(" * 90 + "1" + ")" * 90 + "}}").render(None) == "1"


def test_long_chains_are_no_nesting():
    conditions = "{{ if eq . 0 }}0" + "".join(f"{{{{ else if eq . {n} }}}}{n}" for n in range(1, 1500)) + "{{ end }}"
    assert Template("t", conditions).render(1499) == "1499"
    assert Template("t", "{{ " + ".a" * 5000 + " }}").render({}) == "<no value>"


def test_a_thread_with_a_deep_stack_gets_an_error_and_no_crash():
    caught = []

    def descend(levels):
        if levels:
            descend(levels - 1)
        else:
            try:
                Template("t", "{{ if 1 }}" * 90 + "{{ end }}" * 90).render(None)
            except TemplateError as error:
                caught.append(str(error))

    thread = threading.Thread(target=descend, args=(850,))
    thread.start()
    thread.join()
    assert caught == ["template: t: the text is nested too deeply"]



def containers(*trees):
    return ObjectStruct("v1.PodSpec", {"containers": list(trees)}).fields["Containers"]


STEPS = choose(100_000, 1_000_000)
DOUBLED = "{{ $a := list 1 }}{{ $b := list 1 }}{{ range until 30 }}{{ $a = list $a $a }}{{ $b = list $b $b }}{{ end }}"
GREEDY = {
    "has": "{{ $l := until 100000 }}{{ range until 20000 }}{{ $y := has -1 $l }}{{ end }}",
    "without": "{{ $l := until 100000 }}{{ range until 20000 }}{{ $y := len (without $l 1) }}{{ end }}",
    "uniq of trees": "{{ $l := list }}{{ range until 2000 }}{{ $l = append $l (dict `a` .) }}{{ end }}{{ $y := uniq $l }}",
    "has of doubled lists": DOUBLED + "{{ has $a (list $b) }}",
    "uniq of doubled lists": DOUBLED + "{{ $z := uniq (list $a $b) }}",
    "without doubled lists": DOUBLED + "{{ $z := without (list $a) $b }}",
    "compact": "{{ $l := splitList `,` (repeat 1000000 `,`) }}{{ range until 100000 }}{{ $y := compact $l }}{{ end }}",
    "join": "{{ $l := list (until 100000) }}{{ range until 10 }}{{ $l = concat $l $l }}{{ end }}{{ join `,` $l }}",
    "trimAll": "{{ trimAll .set .set }}",
    "splitn": "{{ $s := repeat 1000000 `,` }}{{ range until 10000 }}{{ $y := splitn `,` 2 $s }}{{ end }}",
    "fromJSON": "{{ $s := printf `[%s1]` (repeat 300000 `1,`) }}{{ range until 100000 }}{{ $y := len (fromJSON $s) }}{{ end }}",
    "excludeInboundPort": "{{ $s := repeat 500000 `1,` }}{{ range until 100000 }}{{ $y := excludeInboundPort 1 $s }}{{ end }}",
    "includeInboundPorts": "{{ range until 100000 }}{{ $y := includeInboundPorts $.containers }}{{ end }}",
    "sortAlpha": "{{ $l := until 100000 }}{{ range until 10000 }}{{ $y := len (sortAlpha $l) }}{{ end }}",
    "toYaml": "{{ range until 10000 }}{{ $y := len (toYaml $.map) }}{{ end }}",
    "toJson": "{{ $l := until 100000 }}{{ range until 10000 }}{{ $y := len (toJson $l) }}{{ end }}",
    "omitNil": "{{ $m := fromJSON (printf `[%snull]` (repeat 100000 `null,`)) }}{{ range until 10000 }}{{ $y := omitNil $m }}{{ end }}",
    "int64": "{{ $s := repeat 1000000 `1` }}{{ range until 10000 }}{{ $y := int64 $s }}{{ end }}",
    "keys": "{{ range until 100000 }}{{ $y := len (keys $.map) }}{{ end }}",
    "range": "{{ range until 100000 }}{{ range $k, $v := $.map }}{{ break }}{{ end }}{{ end }}",
}  # fmt: skip


@pytest.mark.parametrize("text", GREEDY.values(), ids=GREEDY)
def test_functions_that_walk_their_arguments_are_charged_for_it(text, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STEPS", STEPS)
    data = {
        "set": "".join(map(chr, range(0x4E00, 0x9E00))) * 20,
        "map": {"a" * 900 + str(number): 1 for number in range(1000)},
        "containers": containers({"ports": [{"containerPort": number} for number in range(20_000)]}),
    }
    template = Template("greedy", text, functions=istio_functions.FUNCTIONS)
    with pytest.raises(TemplateError, match=rf"takes more than {STEPS} steps|would be longer than|nested deeper"):
        template.render(data)


def test_what_real_templates_do_with_lists_stays_cheap():
    text = "{{ len (uniq (until 50000)) }} {{ has 4999 (until 5000) }} {{ first (until 5000) }} {{ len (without (until 5000) 1 2) }}"
    assert Template("t", text, functions=istio_functions.FUNCTIONS).render({}) == "50000 true 0 4998"
    text = '{{ uniq (list 1 1.0 "1" (list 1) (list 1) (dict "a" 1) (dict "a" 1) true) | toJson }}'
    assert Template("t", text, functions=istio_functions.FUNCTIONS).render({}) == '[1,1,"1",[1],{"a":1},true]'


def test_indenting_counts_every_line_before_it_builds_a_terabyte():
    template = Template("t", "{{ indent 1000000 . }}", istio_functions.FUNCTIONS)
    with pytest.raises(TemplateError, match="the value would be longer than"):
        template.render("\n" * 1_000_000)
