"""Values: laid over each other and set one by one, as Helm does; what is missing in a rendered field is an error."""

from __future__ import annotations

import copy

import pytest

from netinit.base.errors import ConfigError, InjectionError, OptionError
from netinit.base.sanitize import quote
from netinit.inject import inject_pod, load_config
from netinit.inject.adding.values import TextSetting, merge_values, set_values
from sweeps import together


def test_maps_are_merged_and_everything_else_replaces():
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": {"f": 1}}
    over = {"a": {"c": [3], "g": 2}, "d": {"x": 1}, "e": 5}
    before = copy.deepcopy((base, over))
    assert merge_values(base, over) == {"a": {"b": 1, "c": [3], "g": 2}, "d": {"x": 1}, "e": 5}
    assert (base, over) == before


def test_null_removes_a_key_also_where_there_was_none():
    assert merge_values({"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": None}, "d": None, "e": None}) == {"a": {"c": 2}}
    assert merge_values({}, {"a": {"b": None, "c": 1}}) == {"a": {"c": 1}}


# What Helm 3 makes of these; the grammar is that of its package strvals.
SET = [
    ("name1=value1", {"name1": "value1"}),
    ("name1=value1,name2=value2", {"name1": "value1", "name2": "value2"}),
    ("name1=,name2=value2", {"name1": "", "name2": "value2"}),
    ("name1=value1,", {"name1": "value1"}),
    (r"name1=one\,two,name2=three\,four", {"name1": "one,two", "name2": "three,four"}),
    (r"name1=one\=two,name2=three", {"name1": "one=two", "name2": "three"}),
    ("name1=one two three", {"name1": "one two three"}),
    ("a=b=c", {"a": "b=c"}),
    ("leading_zeros=00009", {"leading_zeros": "00009"}),
    ("zero=0,long=1234567890", {"zero": 0, "long": 1234567890}),
    ("boolean=true,no=False", {"boolean": True, "no": False}),
    ("f=1.5,e=1e3,n=-4,p=+4", {"f": "1.5", "e": "1e3", "n": -4, "p": 4}),
    ("big=99999999999999999999", {"big": "99999999999999999999"}),
    ("outer.inner=value", {"outer": {"inner": "value"}}),
    ("outer.middle.inner=value", {"outer": {"middle": {"inner": "value"}}}),
    ("outer.inner1=value,outer.inner2=value2", {"outer": {"inner1": "value", "inner2": "value2"}}),
    (r"a\.b=c", {"a.b": "c"}),
    (r"nodeSelector.kubernetes\.io/role=master", {"nodeSelector": {"kubernetes.io/role": "master"}}),
    ("name1={value1,value2}", {"name1": ["value1", "value2"]}),
    ("name1={value1,value2},name2={value1,value2}", {"name1": ["value1", "value2"], "name2": ["value1", "value2"]}),
    ("name1={1021,902},n={}", {"name1": [1021, 902], "n": [""]}),
    (r"name1={a\,b,c\}}", {"name1": ["a,b", "c}"]}),
    ("name1.name2={value1,value2}", {"name1": {"name2": ["value1", "value2"]}}),
    ("list[0]=foo", {"list": ["foo"]}),
    ("list[0].foo=bar", {"list": [{"foo": "bar"}]}),
    ("list[0].foo=bar,list[0].hello=world", {"list": [{"foo": "bar", "hello": "world"}]}),
    ("list[0]=foo,list[1]=bar", {"list": ["foo", "bar"]}),
    ("list[2]=foo", {"list": [None, None, "foo"]}),
    ("nested[0][1]=1", {"nested": [[None, 1]]}),
    ("a[0].b[1].c={x}", {"a": [{"b": [None, {"c": ["x"]}]}]}),
    ("noval[0]=", {"noval": [""]}),
    ("name1=null,f=false", {"f": False}),
]


@together(("setting", "made"), SET)
def test_settings_are_read_by_helms_grammar(setting, made):
    assert set_values({}, (setting,)) == made


@pytest.mark.parametrize(
    ("setting", "made"),
    [
        ("a=80,b=true,c=null", {"a": "80", "b": "true", "c": "null"}), ("a={1,false}", {"a": ["1", "false"]}), ("a[1].b=0", {"a": [None, {"b": "0"}]}),
    ],
)  # fmt: skip
def test_values_of_set_string_are_texts(setting, made):
    assert set_values({}, (TextSetting(setting),)) == made


def test_an_item_that_is_no_map_is_replaced_by_one_as_by_helm():
    assert set_values({"a": [1, {"c": 2}]}, ("a[0].b=1", "a[1].b=1")) == {"a": [{"b": 1}, {"c": 2, "b": 1}]}


def test_settings_change_what_is_there_and_nothing_else():
    base = {"a": {"b": 1, "c": 2}, "l": [1, 2], "gone": {"x": 1}}
    before = copy.deepcopy(base)
    assert set_values(base, ("a.b=5,l[1]=9", "gone=null", "a.b=6")) == {"a": {"b": 6, "c": 2}, "l": [1, 9]}
    assert base == before


KEY, INDEX, BELOW = "write KEY=VALUE, such as", "is not a list index: write a whole number, such as a[0]=VALUE", "there is no key below it"
BAD = [
    ("", f"is empty; {KEY} global.tag=1.26.2"),
    ("name", 'the key "name" has no value; write name=VALUE'),
    ("a=1,name", 'the key "name" has no value; write name=VALUE'),
    ("name1,name2=1", 'the key "name1" has no value; write name1=VALUE'),
    ("n" * 41, f'the key "{"n" * 41}" has no value; write KEY=VALUE'),
    ("=1", f"a key is empty; {KEY} a.b=c"),
    ("a.=1", f'a key is empty below "a"; {KEY} a.b=c'),
    ("a..b=1", f'a key is empty below "a"; {KEY} a.b=c'),
    ("a.b", 'the key "a.b" has no value; write a.b=VALUE'),
    ("a={1,2", "a list does not end with }"),
    ("a={1}x", 'the key "x" has no value; write x=VALUE'),
    ("a[X]=1", f'"X" {INDEX}'),
    ("a[-1]=1", f'"-1" {INDEX}'),
    ("a[]=1", f'"" {INDEX}'),
    ("a[1=1", 'the index of "a" does not end with ]'),
    ("a[70000]=1", 'the index 70000 of "a" is greater than 65536'),
    ("a[65537]=1", 'the index 65537 of "a" is greater than 65536'),
    ("a[0]x=1", '"x" follows the index of "a[0]"; write = or . or [ there'),
    ("a[0]", 'the key "a[0]" has no value; write a[0]=VALUE'),
    ("a\\", "ends with a backslash, which takes the next character as it is"),
    ("m.x.y=1", f'"m.x" is a single value, not a map: {BELOW}'),
    ("m[0]=1", '"m" is a map, not a list: there is no item below it'),
    ("l.x=1", f'"l" is a list, not a map: {BELOW}'),
    (".".join(["a"] * 31) + "=1", "has more than 30 keys inside each other"),
    ("a" + "[0]" * 40 + "=1", "has more than 30 keys inside each other"),
]


@together(("setting", "said"), BAD)
def test_a_setting_that_is_wrong_says_what_and_changes_nothing(setting, said):
    base = {"m": {"x": 1}, "l": []}
    with pytest.raises(OptionError) as error:
        set_values(base, (setting,))
    assert str(error.value) == f"--set: {quote(setting)}: {said}"
    assert base == {"m": {"x": 1}, "l": []}


def test_every_setting_that_is_wrong_is_told():
    with pytest.raises(OptionError) as error:
        set_values({}, ("a", "b=1", "c[x]=1"))
    assert error.value.problems == (
        '--set: "a": the key "a" has no value; write a=VALUE',
        '--set: "c[x]=1": "x" is not a list index: write a whole number, such as c[0]=VALUE',
    )


def test_a_map_may_become_a_value_and_keys_lie_thirty_deep():
    assert set_values({"m": {"x": 1}}, ("m=1",)) == {"m": 1}
    assert set_values({}, (".".join(["a"] * 30) + "=1",))
    assert len(set_values({}, ("a[65536]=1",))["a"]) == 65537


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}


def images(config):
    spec = inject_pod(POD, config)["spec"]
    return {item["name"]: item.get("image") for item in spec["initContainers"]}


def test_values_given_to_the_own_templates_are_laid_over_their_values():
    found = images(load_config(values="global: {proxy_init: {image: mesh/netinit:1}}"))
    assert found["istio-init"] == "mesh/netinit:1"
    assert found["istio-proxy"].startswith("istio/proxyv2:")


def test_settings_come_last_and_reach_every_configuration():
    config = load_config(values={"global": {"proxy": {"image": "a/b:1"}}}, settings=("global.proxy.image=c/d:2",))
    assert images(config)["istio-proxy"] == "c/d:2"
    template = "spec: {containers: [{name: istio-proxy, image: '{{ .Values.i }}:{{ .Values.t }}'}]}"
    config = load_config({"templates": {"sidecar": template}}, values="i: x\nt: y", settings=("i=r/p,t=3",))
    assert inject_pod(POD, config)["spec"]["containers"][-1]["image"] == "r/p:3"
    config_map = {"kind": "ConfigMap", "data": {"config": f'templates: {{sidecar: "{template}"}}', "values": '{"i": "x"}'}}
    assert inject_pod(POD, load_config(config_map, settings=("t=4",)))["spec"]["containers"][-1]["image"] == "x:4"


def one(template, values=None, pod=POD):
    return inject_pod(pod, load_config({"templates": {"sidecar": template}}, values=values))


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("{{ .Values.missing }}", "<no value>"),
        ("{{ .Values.a.missing }}", "<no value>"),
        ('{{ printf "%s" .Values.missing }}', "%!s(<nil>)"),
        ('{{ printf "%d" .Values.text }}', "%!d(string=t)"),
        ('{{ printf "%s" }}', "%!s(MISSING)"),
        ('{{ annotation .ObjectMeta "x" .Values.missing }}', "<nil>"),
    ],
)
def test_a_rendered_field_without_a_value_is_an_error_that_names_template_line_and_value(action, value):
    template = f"# one\nspec:\n  containers:\n  - name: istio-proxy\n    image: 'r/{action}:1'\n"
    with pytest.raises(InjectionError) as error:
        one(template, {"a": {}, "text": "t"})
    said = str(error.value)
    assert said.startswith("template 'sidecar': ")
    assert f"spec.containers[0].image is 'r/{value}:1'; a value is missing or unfit: give it with --set" in said
    assert "line 5, {{" in said or "MISSING" in value


def test_every_field_without_a_value_is_told_with_its_own_line():
    template = "spec:\n  containers:\n  - name: istio-proxy\n    image: '{{ .Values.x }}'\n    args: ['{{ .Values.y }}{{ .Values.z }}', '{{ .Values.v }}']\n"
    with pytest.raises(InjectionError) as error:
        one(template)
    lines = [line.partition(" is ")[0] for line in str(error.value).splitlines()]
    assert lines == [
        "template 'sidecar': line 4, {{.Values.x}}: spec.containers[0].image",
        "template 'sidecar': line 5, {{.Values.y}}: spec.containers[0].args[0]",
        "template 'sidecar': line 5, {{.Values.v}}: spec.containers[0].args[1]",
    ]


def test_a_key_without_a_value_is_an_error_too():
    with pytest.raises(InjectionError, match=r"a key of metadata\.labels is '<no value>'"):
        one("metadata: {labels: {'{{ .Values.x }}': a}}")


def test_comments_of_the_template_are_not_fields():
    assert one("# {{ .Values.x }}\nspec: {containers: [{name: istio-proxy}]}")["spec"]["containers"]


@pytest.mark.parametrize("text", ["<nil>", "<no value>", "100%!s(x)"])
def test_a_text_of_the_pod_may_look_like_a_missing_value(text):
    pod = {"metadata": {"name": "p", "annotations": {"x": text}}, "spec": {"containers": []}}
    template = "metadata: {annotations: {copied: {{ .ObjectMeta.Annotations.x | quote }}}}"
    assert one(template, pod=pod)["metadata"]["annotations"]["copied"] == text


def test_values_that_are_no_mapping_are_refused():
    with pytest.raises(ConfigError, match="values: must be a mapping"):
        load_config(values="[1]")


def test_a_number_where_istio_has_a_text_is_refused_and_set_makes_a_text_of_it():
    template = {"templates": {"sidecar": "spec: {containers: [{name: istio-proxy, image: {{ .Values.global.hub | quote }}}]}"}}
    with pytest.raises(ConfigError, match=r"values: line 1: global\.hub: 5 must be a text: put it in quotes"):
        load_config(template, values="global: {hub: 5, tag: 1}")
    config = load_config(template, settings=("global.hub=5",))
    assert inject_pod(POD, config)["spec"]["containers"][-1]["image"] == "5"
    spec = inject_pod(POD, load_config(settings=("global.proxy.includeInboundPorts=80",)))["spec"]
    arguments = spec["initContainers"][0]["args"]
    assert arguments[arguments.index("-b") + 1] == "80"
