"""The language of templates: what Go answered to hundreds of them, and the rules that charts and injectors rely on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gotemplate_grammar import FUNCTIONS, rich_data
from netinit.golang.template import (
    NO_VALUE,
    Function,
    FunctionError,
    StringMap,
    Struct,
    Template,
    TemplateError,
    TypedList,
)
from netinit.golang.template.values import Enum
from sweeps import together

ANSWERS = json.loads((Path(__file__).parent / "go_answers.json").read_text())
DATA = rich_data()
NO_OPERAND = " or ", "{{or", "(or", " and ", "{{and", "(and"


def render(text, data=None, **functions):
    return Template("t", text, functions).render(data)


def said(answer):
    """The error without the place."""
    return answer[0], answer[1].rpartition(">: ")[2]


def test_templates_give_what_go_recorded_for_them():
    wrong = []
    for text, delimiters, *wanted in ANSWERS:
        try:
            answer = ["output", Template("t", text, FUNCTIONS, tuple(delimiters)).render(DATA)]
        except TemplateError as error:
            answer = ["error", str(error)]
        # the operand that and/or stopped at is not told
        vague = any(word in text for word in NO_OPERAND) and wanted[0] == "error"
        if answer != wanted and not (vague and said(answer) == said(wanted)):
            wrong.append(f"{text!r}\n  Go:   {wanted}\n  ours: {answer}")
    assert len(ANSWERS) > 400
    assert not wrong, "\n".join(wrong[:5])


@together(
    ("text", "wanted"),
    [
        ("{{ .Values.port }}", "15020"),
        ("{{ .Values.big }}", "1e+06"),
        ("{{ .Values.missing }}", "<no value>"),
        ("{{ .Values.missing.deeper }}", "<no value>"),
        ('{{ index .Labels "missing" }}', ""),
        ("{{ eq .Values.missing 1 }}", "false"),
        ("{{ range $k, $v := .Labels }}{{ $k }}={{ $v }} {{ end }}", "app=web tier=front "),
        ("{{ or .Values.missing .Values.port }}", "15020"),
        ("{{ and .Values.port .Values.missing.x }}", "<no value>"),
        ("{{ or .Values.port (index .Values.nothing 1) }}", "15020"),
        ("{{ (.Values.pilot.env).FLAG }}", "<no value>"),
        ("{{ .Mode }} {{ .Mode.String }}", "REDIRECT REDIRECT"),
        ("a {{- /* gone */ -}} b", "ab"),
        ("{{ with $x := .Values.port }}{{ $x }}{{ end }}", "15020"),
    ],
)
def test_the_rules_that_injection_templates_rely_on(text, wanted):
    data = {
        "Values": {"port": 15020.0, "big": 1000000.0, "nothing": None, "pilot": {}},
        "Labels": StringMap({"tier": "front", "app": "web"}),
        "Mode": Enum(0, "REDIRECT"),
    }
    assert render(text, data) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ .null.x }}", 'template: t:1:8: executing "t" at <.null.x>: nil pointer evaluating interface {}.x'),
        (
            "{{ eq .f 15020 }}",
            'template: t:1:3: executing "t" at <eq .f 15020>: error calling eq: incompatible types for comparison: float64 and int',
        ),
        ("é {{ .f.x }}", 'template: t:1:8: executing "t" at <.f.x>: can\'t evaluate field x in type interface {}'),
        ("a\n\n{{ nope }}", 'template: t:3: function "nope" not defined'),
        ("{{ 1i }}", "template: t:1: complex constants are not supported: 1i"),
        ("{{ 'a }}", "template: t:1: unterminated character constant"),
        ("\n{{ 'a\n' }}", "template: t:2: unterminated character constant"),
        ("{{ 'ab' }}", "template: t:1: malformed character constant: 'ab'"),
        ('{{ "a }}', "template: t:1: unterminated quoted string"),
        ("{{ `a }}", "template: t:1: unterminated raw quoted string"),
        ("{{/* x }}", "template: t:1: unclosed comment"),
        ("{{/* x */ y}}", "template: t:1: comment ends before closing delimiter"),
        ("{{ (1 }}", "template: t:1: unclosed left paren"),
        ("{{ 1) }}", "template: t:1: unexpected right paren"),
        ("{{ 1", "template: t:1: unclosed action"),
        ("{{ 1x }}", 'template: t:1: bad number syntax: "1x"'),
        ("\n{{ 0b2 }}", 'template: t:2: bad number syntax: "0b2"'),
        ("{{ .a# }}", "template: t:1: bad character U+0023 '#'"),
        ("{{ \x01 }}", "template: t:1: unrecognized character in action: U+0001"),
    ],
)
def test_errors_name_template_line_and_column_in_bytes(text, message):
    with pytest.raises(TemplateError) as caught:
        render(text, {"null": None, "f": 15020.0})
    assert str(caught.value) == message


def test_an_error_inside_a_defined_template_names_both():
    text = '{{ define "inner" }}\n {{ .a.b }}{{ end }}{{ template "inner" . }}'
    with pytest.raises(TemplateError, match=r'^template: t:2:6: executing "inner" at <\.a\.b>: '):
        render(text, {"a": 1})


def test_methods_of_nil_pointers_can_be_called_and_their_fields_not():
    holder = {}
    none = Struct("*v1.Tracing", {"Tls": None}, {"GetTls": lambda: holder["none"]}, nil=True)
    holder["none"] = none
    assert render("{{ if .Tracing.GetTls.GetTls }}yes{{ else }}no{{ end }}", {"Tracing": none}) == "no"
    with pytest.raises(TemplateError, match=r"nil pointer evaluating interface \{\}\.Tls$"):
        render("{{ .Tracing.Tls }}", {"Tracing": none})


def test_a_variable_is_the_one_that_is_visible_where_it_stands():
    data = {"T": Struct("T", {}, {"M": Function(lambda number: f"<{number}>", "int")}), "L": [5, 6]}
    several = "{{ $x := 1 }}{{ .T.M $x }}{{ if true }}{{ $x := 3 }}{{ .T.M $x }}{{ end }}{{ $x | .T.M }}{{ $x := 2 }}{{ .T.M $x }}"
    assert render(several, data) == "<1><3><1><2>"
    assert render("{{ $x := 0 }}{{ if false }}{{ $x := 1 }}{{ else }}{{ $x }}{{ end }}", data) == "0"
    assert render("{{ $a := 1 }}{{ $b := 2 }}{{ range $a, $b = .L }}{{ end }}{{ $a }}{{ $b }}", data) == "16"
    for text in ("{{ if false }}{{ $x := 1 }}{{ else }}{{ $x }}{{ end }}", "{{ $x := $x }}"):
        with pytest.raises(TemplateError, match=r"undefined variable: \$x$"):
            render(text, data)


def test_functions_get_their_types_from_annotations():
    def repeat(text: str, count: int) -> str:
        return text * count

    assert render('{{ repeat "ab" 2 }}', None, repeat=repeat) == "abab"
    with pytest.raises(TemplateError, match=r"<1>: expected string; found 1$"):
        render("{{ repeat 1 2 }}", None, repeat=repeat)
    with pytest.raises(TemplateError, match=r"wrong number of args for repeat: want 2 got 1$"):
        render('{{ repeat "a" }}', None, repeat=repeat)
    with pytest.raises(TemplateError, match=r"wrong type for value; expected int; got float64$"):
        render('{{ repeat "a" .f }}', {"f": 2.0}, repeat=repeat)


def test_a_failing_function_fails_the_template_with_its_own_words():
    def fail():
        raise FunctionError("no such thing")

    with pytest.raises(TemplateError, match=r"<fail>: error calling fail: no such thing$") as caught:
        render("{{ fail }}", None, fail=fail)
    assert isinstance(caught.value.__cause__, FunctionError)


def test_functions_see_none_for_what_is_missing_and_no_value_when_they_ask():
    seen = []

    def note(value):
        seen.append(value)
        return ""

    render(
        "{{ note .missing }}{{ look .missing }}{{ look .null }}",
        {"null": None},
        note=note,
        look=Function(note, "reflect.Value"),
    )
    assert seen == [None, NO_VALUE, None]


def test_break_and_continue_are_names_where_functions_are_called_so():
    assert render("{{ break }}", None, **{"break": lambda: "fine"}) == "fine"


def test_text_is_counted_in_bytes_as_in_go():
    assert render('{{ len "é" }} {{ index "é" 0 }} {{ slice "é" 0 2 }} {{ printf "%x" "é" }}') == "2 195 é c3a9"
    halves = render('{{ slice "é" 0 1 }}')
    assert halves.encode("utf-8", "surrogateescape") == b"\xc3"
    assert render('{{ slice "é" 0 1 }}{{ slice "é" 1 2 }}') == "é"


def test_templates_are_shared_by_threads():
    template = Template(
        "t",
        '{{ $x := .n }}{{ range $i, $e := .l }}{{ $x = $e }}{{ end }}{{ $x }} {{ .n }}{{ define "d" }}{{ . }}{{ end }}{{ template "d" .n }}',
    )

    def one(number):
        return template.render({"n": number, "l": list(range(number))}) == f"{number - 1} {number}{number}"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(1, 200)))


def test_data_is_never_changed():
    data = {"l": [1, 2], "m": {"a": 1}}
    render("{{ $l := .l }}{{ range $i, $e := $l }}{{ $l = slice $l 1 }}{{ end }}{{ $m := .m }}{{ $m = 3 }}", data)
    assert data == {"l": [1, 2], "m": {"a": 1}}


def test_values_of_python_that_stand_for_nothing_in_go_are_refused_when_printed():
    with pytest.raises(TemplateError, match=r"can't print \{\{\.o\}\}: a Python object has no Go value$"):
        render("{{ .o }}", {"o": object()})


def test_functions_in_the_data_can_be_called_and_not_printed():
    data = {"twice": Function(lambda n: n * 2, "int"), "words": Function(lambda *w: "-".join(w), variadic="string")}
    assert render('{{ call .twice 4 }} {{ call .words "a" "b" }}{{ call .words }}', data) == "8 a-b"
    for text, message in {
        "{{ call .twice }}": "error calling call: wrong number of args for .twice: got 0 want 1",
        '{{ call .twice "x" }}': "error calling call: arg 0: value has type string; should be int",
        "{{ call .twice nil }}": "error calling call: arg 0: value is nil; should be of type int",
        "{{ call .none 1 }}": "error calling call: call of nil",
        "{{ .twice }}": "can't print {{.twice}} of type func(int) interface {}",
    }.items():
        with pytest.raises(TemplateError) as caught:
            render(text, data)
        assert str(caught.value).endswith(message)


@together(
    ("text", "wanted"),
    [
        ('{{ slice .l 1 2 }} {{ slice .l 0 1 2 }} {{ slice .typed 1 | printf "%T" }}', "[2] [1] []string"),
        ("{{ slice .l 1 9 }}", "index out of range: 9"),
        ("{{ slice .l 1 2 3 4 }}", "too many slice indexes: 4"),
        ("{{ slice .l 0 3 2 }}", "invalid slice index: 3 > 2"),
        ('{{ slice "abc" 0 1 2 }}', "cannot 3-index slice a string"),
        ("{{ slice .m 1 }}", "can't slice item of type map[string]interface {}"),
        ("{{ slice nil }}", "slice of untyped nil"),
        ("{{ slice .nil }}", "slice of untyped nil"),
        ('{{ slice .l "x" }}', "cannot index slice/array with type string"),
        ("{{ index .l nil }}", "cannot index slice/array with nil"),
        ("{{ index .np 1 }}", "index of nil pointer"),
        ("{{ len .np }}", "len of nil pointer"),
        ("{{ and | len }}", "wrong number of args for and: want at least 1 got 0"),
    ],
)
def test_parts_of_lists_are_taken_as_in_go(text, wanted):
    data = {
        "l": [1, 2, 3],
        "m": {},
        "nil": None,
        "np": Struct("*main.T", {}, nil=True),
        "typed": TypedList(["a", "b"], go_type="[]string"),
    }
    try:
        answer = render(text, data)
    except TemplateError as error:
        answer = str(error)
    assert answer.endswith(wanted)


def test_structs_are_equal_by_type_and_fields_and_pointers_by_identity():
    one, same, other = (Struct("v1.Port", {"Number": number}) for number in (1, 1, 2))
    pointer, copy = (Struct("*v1.Port", {"Number": 1}) for _ in range(2))
    pairs = [(one, one), (one, same), (one, other), (one, Struct("v1.Probe", {"Number": 1})), (pointer, pointer), (pointer, copy)]
    found = [render("{{ eq .a .b }}", {"a": left, "b": right}) for left, right in pairs]
    assert found == ["true", "true", "false", "false", "true", "false"]
