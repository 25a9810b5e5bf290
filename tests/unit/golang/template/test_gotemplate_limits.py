"""No template hangs the one who renders it, and no text crashes the one who parses it."""

from __future__ import annotations

import threading
import time

import pytest

from netinit.golang import sprig
from netinit.golang.template import Limits, Template, TemplateError


def render(text, data=None, **limits):
    return Template.parse("t", text, sprig.FUNCTIONS).render(data, limits=Limits(**limits))


def test_recursion_ends_at_the_depth_of_templates():
    text = '{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}'
    with pytest.raises(
        TemplateError, match=r'executing "a" at <\{\{template "a"\}\}>: exceeded maximum template depth \(7\)$'
    ):
        render(text, depth=7)


def test_templates_may_go_as_deep_as_the_limit_says():
    text = '{{ define "a" }}{{ if . }}{{ len . }}{{ template "a" slice . 1 }}{{ end }}{{ end }}{{ template "a" . }}'
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
            Template.parse("t", before * depth + after * depth)
    if "block" not in before:
        assert Template.parse("t", before * 90 + after * 90).render(None) == ""


def test_parentheses_nested_without_end_are_an_error_of_the_template():
    for depth in (101, 5000):
        with pytest.raises(TemplateError, match="nested deeper than 100 levels"):
            Template.parse("t", "{{" + "(" * depth + "1" + ")" * depth + "}}")
    assert Template.parse("t", "{{" + "(" * 90 + "1" + ")" * 90 + "}}").render(None) == "1"


def test_long_chains_are_no_nesting():
    conditions = "{{ if eq . 0 }}0" + "".join(f"{{{{ else if eq . {n} }}}}{n}" for n in range(1, 1500)) + "{{ end }}"
    assert Template.parse("t", conditions).render(1499) == "1499"
    assert Template.parse("t", "{{ " + ".a" * 5000 + " }}").render({}) == "<no value>"


def test_a_thread_with_a_deep_stack_gets_an_error_and_no_crash():
    caught = []

    def descend(levels):
        if levels:
            descend(levels - 1)
        else:
            try:
                Template.parse("t", "{{ if 1 }}" * 90 + "{{ end }}" * 90).render(None)
            except TemplateError as error:
                caught.append(str(error))

    thread = threading.Thread(target=descend, args=(850,))
    thread.start()
    thread.join()
    assert caught == ["template: t: the text is nested too deeply"]
