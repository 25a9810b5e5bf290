"""The functions of sprig and Istio, and the YAML and JSON that they write."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from netinit.golang import sprig
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.sprig import REFUSED, regexes
from netinit.golang.template import StringMap, Struct, Template, TemplateError, TypedList
from netinit.golang.template.builtins import BUILTINS
from netinit.golang.template.values import Function, Int32, Int64
from netinit.inject.adding import istio_functions
from netinit.inject.adding.kubernetes_types import ObjectStruct
from sweeps import together

RECORDED = json.loads((Path(__file__).parent / "sprig_answers.json").read_text())
"""What sprig 3.2.3 and sigs.k8s.io/yaml 1.3 answered to random arguments: function, arguments, printed as %v|%T|%q."""

TEMPLATES = json.loads((Path(__file__).parent / "sprig_templates.json").read_text())
"""What Go 1.27 gave for templates that call functions of sprig 3.3.0: the template, "output" or "error", and the text."""
NIL_POINTER = "runtime error: invalid memory address or nil pointer dereference"

FUNCTIONS = istio_functions.FUNCTIONS


def changed_proxy(changed):
    proxy = Struct("*v1alpha1.ProxyConfig", {})
    proxy.changed = changed
    return proxy


def decode(coded):
    kind, value = coded["t"], coded["v"]
    if kind == "map":
        return {key: decode(item) for key, item in value.items()}
    if kind == "list":
        return [decode(item) for item in value]
    if kind == "map[string]string":
        return StringMap(value)
    if kind == "[]string":
        return TypedList(value, go_type=kind)
    return float(value) if kind == "float64" else value


def call(text, **data):
    return Template("t", text, FUNCTIONS).render(data)


def test_sprig_and_yaml_answer_as_they_do_in_go():
    functions = {**sprig.FUNCTIONS, "toYaml": to_yaml}
    wrong = []
    for name, coded, wanted in RECORDED:
        args = {f"x{number}": decode(arg) for number, arg in enumerate(coded)}
        text = f"{{{{ $r := {name} {' '.join(f'.{arg}' for arg in args)} }}}}" + '{{ printf "%v|%T|%q" $r $r $r }}'
        answer = Template("t", text, functions).render(args)
        if answer != wanted:
            wrong.append(f"{name} {args}\n  Go:   {wanted!r}\n  ours: {answer!r}")
    assert len(RECORDED) > 400
    assert not wrong, "\n".join(wrong[:5])


def test_templates_that_call_sprig_give_what_they_give_in_go():
    wrong = []
    for template, *wanted in TEMPLATES:
        try:
            answer = ["output", Template("t", template, sprig.FUNCTIONS).render({})]
        except TemplateError as error:
            answer = ["error", str(error)]
        # where Go crashes on nil, we have words for it
        if answer != wanted and not (wanted[1].endswith(NIL_POINTER) and answer[0] == "error"):
            wrong.append(f"{template}\n  Go:   {wanted}\n  ours: {answer}")
    assert len(TEMPLATES) > 150
    assert not wrong, "\n".join(wrong[:5])


def test_every_function_of_sprig_is_called_in_a_template_that_go_rendered():
    called = {name for template, *_ in TEMPLATES for name in re.findall(r"[A-Za-z_0-9]+", template)}
    called |= {name for name, *_ in RECORDED}
    assert set(sprig.FUNCTIONS) - set(REFUSED) - called == set()


@together("name", sorted(REFUSED))
def test_what_is_random_or_reads_the_world_fails_when_it_is_called_and_only_then(name):
    assert (
        Template("t", f'{{{{ if false }}}}{{{{ {name} "x" 1 }}}}{{{{ end }}}}fine', sprig.FUNCTIONS).render({})
        == "fine"
    )
    with pytest.raises(TemplateError, match=f"{name} is not available in injection: it") as caught:
        Template("t", f'{{{{ {name} "x" 1 }}}}', sprig.FUNCTIONS).render({})
    assert REFUSED[name] in str(caught.value)


@together(
    ("template", "wanted"),
    [
        (r'{{ js "\x01\u00ad" }}', r"\u0001\u00AD"),
        ('{{ range list "2026-11-28" "2026-11-29" }}{{ printf "%d" (toDate "2006-01-02" .).Weekday }}{{ end }}', "60"),
        ('{{ atoi (printf "%s7" (repeat 4095 "0")) }} {{ atoi (printf "%s7" (repeat 4096 "0")) }}', "7 0"),
        ("{{ b64enc .bytes }}", "/++/vQ=="),
    ],
)  # fmt: skip
def test_functions_at_the_ends_of_what_they_take(template, wanted):
    assert Template("t", template, sprig.FUNCTIONS).render({"bytes": "\udcff\ud800"}) == wanted


@together(
    ("template", "message"),
    [
        ('{{ set .own "a" 1 }}', "set would change the template's data; change a copy of it, made by deepCopy"),
        ('{{ unset .own "a" }}', "unset would change the template's data"),
        ('{{ merge .own (dict "b" 1) }}', "merge would change the template's data"),
        ('{{ mergeOverwrite .own (dict "b" 1) }}', "mergeOverwrite would change the template's data"),
        ('{{ $d := dict "in" .own }}{{ set $d.in "a" 1 }}', "set would change the template's data"),
        ('{{ $d := dict }}{{ set $d "self" (list $d) }}', "a map cannot hold itself"),
        ('{{ $d := dict "a" (dict) }}{{ set $d.a "up" $d }}', "a map cannot hold itself"),
        ('{{ $d := dict "a" (dict "x" 1) }}{{ merge $d (dict "a" (dict "up" $d)) }}', "a map cannot hold itself"),
        ('{{ date "2006" "now" }}', "the clock, which sprig asks then, differs for every pod"),
        ('{{ dateInZone "2006" 0 "Nowhere/None" }}', 'time zone "Nowhere/None" is not known on this system'),
        ('{{ durationRound (toDate "2006" "2001") }}', "depends on the time of day"),
        ("{{ date `2006` 999999999999999 }}", "the time is outside the years 1 to 9999"),
        ("{{ chunk 0 (list 1) }}", "chunk needs a size of 1 or more"),
        ('{{ mustFromJson "{" }}', "error calling mustFromJson: the text is not JSON"),
        ('{{ urlParse "http://h%C3%A4%41/" }}', 'unable to parse url: parse "http://h%C3%A4%41/": invalid URL escape "%41"'),
        ("{{ untilStep 0 9000000 1 }}", "the value would be longer than"),
        ("{{ seq 9000000 }}", "the value would be longer than"),
        ('{{ regexReplaceAll "a" (trunc 999 .long) (repeat 9999 "x") }}', "the value would be longer than"),
        ('{{ regexFindAll "a*b|a" .long -1 }}', "the text is too long for so many matches of a regular expression"),
        ('{{ range until 999 }}{{ regexMatch "(a|b)*c(a*)d" $.long }}{{ end }}', "rendering takes more than 1000000 steps"),
    ],
)  # fmt: skip
def test_what_sprig_would_do_and_an_injector_must_not(template, message):
    data = {"own": {"a": {"b": 1}}, "long": "a" * 200_000}
    with pytest.raises(TemplateError) as caught:
        Template("t", template, sprig.FUNCTIONS).render(data)
    assert message in str(caught.value)
    assert data["own"] == {"a": {"b": 1}}


def test_merging_copies_the_data_that_it_changes():
    data = {"own": {"a": {"b": 1}}}
    text = '{{ $d := dict "own" .own }}{{ $_ := merge $d (dict "own" (dict "a" (dict "c" 2))) }}{{ $d | toJson }}'
    assert Template("t", text, sprig.FUNCTIONS).render(data) == '{"own":{"a":{"b":1,"c":2}}}'
    assert data == {"own": {"a": {"b": 1}}}


def test_regular_expressions_without_their_library_name_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    regexes._compiled.cache_clear()
    with pytest.raises(TemplateError, match=r"regular expressions need the package google-re2: pip install"):
        Template("t", '{{ regexMatch "never asked for" "x" }}', sprig.FUNCTIONS).render({})
    regexes._compiled.cache_clear()


META = Struct("v1.ObjectMeta", {"Annotations": StringMap({"a": "x", "empty": ""}), "Labels": StringMap()})
PORTS = [
    {"containerPort": 80, "name": "http"},
    {"containerPort": 53, "protocol": "UDP"},
    {"containerPort": 9, "protocol": "SCTP"},
    {"containerPort": 443, "protocol": "TCP"},
]
PORTS_AS_JSON = (
    '{"name":"http","containerPort":80}{"containerPort":53,"protocol":"UDP"}'
    '{"containerPort":9,"protocol":"SCTP"}{"containerPort":443,"protocol":"TCP"}'
)
CONTAINERS = ObjectStruct("v1.PodSpec", {"containers": [
    {"name": "app", "ports": PORTS},
    {"name": "istio-proxy", "ports": [{"containerPort": 15090}]},
    {"name": "bare"},
]}).fields["Containers"]  # fmt: skip


@together(
    ("text", "wanted"),
    [
        ('{{ annotation .meta "a" "d" }}', "x"),
        ('{{ annotation .meta "empty" "d" }}', ""),
        ('{{ annotation .meta "none" 15020 }}', "15020"),
        (
            '{{ isset .meta.Annotations "empty" }} {{ isset .meta.Annotations "none" }} {{ isset nil "x" }}',
            "true false false",
        ),
        ("{{ includeInboundPorts .containers }}", "80,443,15090"),
        ("{{ applicationPorts .containers }}", "80,443"),
        ('{{ excludeInboundPort 15020 "" }}', "15020"),
        ('{{ excludeInboundPort "15020" " 1, 2,,3 " }}', "1,2,3,15020"),
        ('{{ excludeInboundPort "2" "1, 2" }}', "1, 2"),
        ('{{ excludeInboundPort "0" "1" }} {{ excludeInboundPort "" "1" }}', "1 1"),
        (
            '{{ valueOrDefault 0 1 }} {{ valueOrDefault false 1 }} {{ valueOrDefault "" 1 }} {{ valueOrDefault nil 1 }}',
            "0 false 1 1",
        ),
        ("{{ 0 | default 1 }} {{ false | default 2 }} {{ .none | default 3 }} {{ list | default 4 }}", "1 2 3 4"),
        ('{{ quote "a\\"b" 1 nil 2.0 }}', '"a\\"b" "1" "2"'),
        ('{{ indent 2 "a\\nb" }}', "a\n  b"),
        ('{{ nindent 2 "a\\nb" }}', "\n  a\n  b"),
        ('{{ contains "/" "a/b" }} {{ list "a" "b" | join "," }}', "true a,b"),
        ("{{ toYaml .map }}", "a10: 1\na2: null\nb:\n- x\n".replace("a10: 1\na2: null", "a2: null\na10: 1")),
        ("{{ toYaml 1e19 }}{{ toYaml 3e19 }}", "10000000000000000000\n3e+19\n"),
        ("{{ omitNil .map | toJSON }}", '{"a10":1,"b":["x"]}'),
        ("{{ omitNil .nulls }}", "<no value>"),
        ("{{ range (index .containers 0).Ports }}{{ structToJSON . }}{{ end }}", PORTS_AS_JSON),
        ("{{ structToJSON .noPort }}", '{"name":"none","containerPort":0}'),
        ("{{ structToJSON (dict `b` 0 `a` .none) }} {{ structToJSON nil }}", '{"a":null,"b":0} {}'),
        ("{{ structToJSON .struct }}", '{"name":"http","containerPort":80}'),
        ("{{ protoToJSON .proxy }} {{ protoToJSON nil }}", '{"z":1,"a":"\\u003c"} {}'),
        ('{{ fromJSON "{" }} {{ (fromJSON "{\\"a\\": 1}").a }} {{ toJSON nil }}', "{} 1 {}"),
        ('{{ range fromJSON "[1, 2]" }}{{ . }};{{ end }}', "1;2;"),
        ('{{ directory "/etc/certs/ca.pem" }} {{ directory "x" }}|', "/etc/certs/ |"),
        (
            '{{ formatDuration "60s" }} {{ formatDuration 45 }} {{ formatDuration "0.5s" }} {{ formatDuration 3600.0 }}',
            "1m0s 45s 500ms 1h0m0s",
        ),
        ("{{ formatDuration .duration }} {{ formatDuration nil }}", "1.5s 0s"),
        ('{{ appendMultusNetwork "" "default/istio-cni" }}', "default/istio-cni"),
        ('{{ appendMultusNetwork "alt" "default/istio-cni" }}', "alt, default/istio-cni"),
        ('{{ appendMultusNetwork "alt, default/istio-cni" "default/istio-cni" }}', "alt, default/istio-cni"),
        (
            '{{ appendMultusNetwork `[{"name":"x"}]` `default/istio-cni` }}',
            '[{"name":"x"}, {"name": "istio-cni", "namespace": "default"}]',
        ),
        ('{{ env "PATH" "d" }}', "d"),
        ('{{ toJsonMap (strdict "b" "2" "a" "1") (strdict "a" "3") }}', '{"a":"3","b":"2"}'),
        ('{{ omit .meta.Annotations "a" }} {{ mergeMaps .map nil | len }}', "map[empty:] 3"),
        ('{{ kubevirtInterfaces "x" }}{{ excludeInterfaces "y" }}{{ toLower "ABC" }}', "xyabc"),
        ('{{ "helloworld-" | trunc 11 | trimAll "-_." }}', "helloworld"),
    ],
)
def test_istios_functions_do_what_their_table_says(text, wanted):
    data = {
        "meta": META,
        "containers": CONTAINERS,
        "map": {"b": ["x"], "a10": 1, "a2": None},
        "noPort": ObjectStruct("v1.ContainerPort", {"name": "none", "hostPort": 0}),
        "nulls": {"a": None, "b": {"c": None}, "d": [None]},
        "struct": Struct(
            "v1.ContainerPort", {"Name": "http", "HostPort": Int32(0), "ContainerPort": Int32(80), "Protocol": ""}
        ),
        "proxy": changed_proxy({"z": 1, "a": "<"}),
        "duration": Struct("*durationpb.Duration", {"Seconds": Int64(1), "Nanos": Int32(500_000_000)}),
    }
    assert call(text, **data) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{{ dig "a" "b" "none" (dict "a" (dict "b" 1)) }} {{ dig "a" "x" "none" (dict "a" dict) }}', "1 none"),
        ('{{ pick (dict "a" 1 "b" 2) "a" "z" }} {{ omit (dict "a" 1 "b" 2) "a" }}', "map[a:1] map[b:2]"),
        ('{{ keys (dict "b" 1 "a" 2) | join "," }} {{ values (dict "b" 1 "a" 2) }}', "a,b [2 1]"),
        ('{{ get (dict "a" 1) "a" }}{{ get (dict) "a" }} {{ hasKey (dict "a" 1) "a" }}', "1 true"),
        (
            '{{ kindOf nil }} {{ kindOf 1 }} {{ kindIs "map" (dict) }} {{ typeOf (list) }}',
            "invalid int true []interface {}",
        ),
        ('{{ splitn "," 2 "a,b,c" }} {{ (split "-" "x-y")._1 }}', "map[_0:a _1:b,c] y"),
        ('{{ fromJson "[1" }} {{ (fromJson "{\\"a\\":[1]}").a }}', "<no value> [1]"),
        ('{{ toPrettyJson (dict "a" (list 1 2) "e" (dict)) }}', '{\n  "a": [\n    1,\n    2\n  ],\n  "e": {}\n}'),
        (
            '{{ deepEqual (dict "a" 1) (dict "a" 2) }} {{ deepEqual (dict "a" 1) (dict "b" 1) }} {{ deepEqual (dict) (dict "a" 1) }} {{ deepEqual (dict "a" 1) (dict "a" 1) }}',
            "false false false true",
        ),
        ('{{ uniq (list 1 1 "1") }} {{ has 1 (list 1 2) }} {{ without (list 1 2) 2 }}', "[1 1] true [1]"),
        (
            '{{ ternary "y" "n" true }} {{ coalesce "" 0 "x" }} {{ empty list }} {{ all 1 "" }} {{ any 0 1 }}',
            "y x true false true",
        ),
    ],
)
def test_sprigs_functions_on_maps_and_lists(text, wanted):
    assert Template("t", text, sprig.FUNCTIONS).render(None) == wanted


def test_a_function_among_the_data_is_of_the_kind_func():
    assert Template("t", "{{ kindOf .call }}", sprig.FUNCTIONS).render({"call": Function(len, "string")}) == "func"


def test_ports_of_1_1_hold_udp_too():
    functions = istio_functions.CLASSIC_FUNCTIONS
    text = Template("t", "{{ includeInboundPorts . }}", functions).render(CONTAINERS)
    assert text == "80,53,9,443,15090"


def test_proto_json_takes_the_changes_that_the_value_tells():
    template = Template("t", "{{ protoToJSON . }}", istio_functions.FUNCTIONS)
    assert template.render(changed_proxy({"drainDuration": "23s"})) == '{"drainDuration":"23s"}'
    with pytest.raises(
        TemplateError, match=r"error calling protoToJSON: protoToJSON: a main\.T does not say what was changed$"
    ):
        template.render(Struct("main.T", {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{{ indent "2" "x" }}', 'expected integer; found "2"'),
        ('{{ nindent .f "x" }}', "wrong type for value; expected int; got float64"),
        ('{{ formatDuration "soon" }}', 'error calling formatDuration: invalid duration "soon"'),
        ('{{ nindent .o "x" }}', "wrong type for value; expected int; got python.object"),
        ('{{ strdict "a" }}', "error calling strdict: strdict needs a value for every key"),
        ('{{ repeat -1 "x" }}', "error calling repeat: strings: negative Repeat count"),
        ("{{ div 1 0 }}", "error calling div: runtime error: integer divide by zero"),
        ('{{ fail "stop" }}', "error calling fail: stop"),
        ("{{ append 1 2 }}", "error calling append: Cannot push on type int"),
        ('{{ toYaml "\x7f" }}', "error calling toYaml: yaml: control characters are not allowed"),
        ('{{ printf "%x" .f }}', "%x of a floating-point number is not supported: use %g or %f"),
        ("{{ toJSON .nan }}", "error calling toJSON: json: unsupported value: NaN"),
    ],
)
def test_functions_fail_with_words(text, message):
    with pytest.raises(TemplateError) as caught:
        call(text, f=2.0, nan=float("nan"), o=object())
    assert str(caught.value).endswith(message)


TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x7f\x85\ufeff\ufffe\uffff")
    | st.sampled_from("\n\t :-#")
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Reader(yaml.SafeLoader):
    """PyYAML's, without its type for a lone `=`, which is text to Go."""


Reader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


@given(TREES)
@example("=")
@example(-(2.0**-24))  # between two numbers of so many digits
def test_yaml_reads_back_as_what_was_written(tree):
    read = yaml.load(to_yaml(tree), Reader)
    # PyYAML reads 1e+20, which is a float to YAML 1.2 and to Go, as text
    assert json.loads(json.dumps(read), parse_float=float) == tree or floats_as_text(read) == floats_as_text(tree)


def floats_as_text(tree):
    if isinstance(tree, dict):
        return {key: floats_as_text(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [floats_as_text(item) for item in tree]
    if isinstance(tree, str):
        try:
            return float(tree)
        except ValueError:
            return tree
    return float(tree) if type(tree) in (int, float) else tree


class Sample:
    def plain(self, count: int, text: str, *rest: bool) -> None: ...

    @classmethod
    def of_class(cls, share: float) -> None: ...

    @staticmethod
    def of_none(anything, *, quiet: bool = True) -> None: ...


@together(
    "call",
    [Sample().plain, Sample.plain, Sample.of_class, Sample.of_none, lambda: 0, lambda *rest: rest, lambda a, b=1: b,
     *[one.call for one in (*BUILTINS.values(), *sprig.FUNCTIONS.values()) if hasattr(one.call, "__code__")]],
)  # fmt: skip
def test_a_function_has_the_parameters_that_its_signature_tells(call):
    types = {"int": "int", "str": "string", "float": "float64", "bool": "bool"}
    parameters = inspect.signature(call).parameters.values()
    wanted = [
        parameter for parameter in parameters if parameter.kind in (0, 1) and parameter.default is parameter.empty
    ]
    rest = [parameter for parameter in parameters if parameter.kind == parameter.VAR_POSITIONAL]
    found = Function.of(call)
    assert len(found.params) == len(wanted)
    assert (found.variadic is None) == (not rest)
    for go_type, parameter in zip((*found.params, *filter(None, [found.variadic])), (*wanted, *rest), strict=True):
        assert go_type == types.get(parameter.annotation, go_type)


def test_a_function_that_wants_a_keyword_is_none_for_templates():
    def wants(*, name):
        return name

    with pytest.raises(TypeError, match="a template cannot give the keyword argument 'name'"):
        Function.of(wants)


@pytest.mark.parametrize("call", [len, str.upper, functools.partial(Sample.of_none)])
def test_a_callable_that_is_not_written_in_python_needs_types(call):
    with pytest.raises(TypeError, match="its parameters are unknown; give their types"):
        Function.of(call)
