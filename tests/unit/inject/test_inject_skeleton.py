"""An outline is parsed once for many pods: what a pod gets is what its own text says, and no trick changes that."""


from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netinit.base.errors import InjectionError
from netinit.base.tree import same
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject import load_config
from netinit.inject.adding import guard
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.deciding.manifests import PodOwner
from randomness import some
from sweeps import together

HEAD = "spec:\n  containers:\n  - name: istio-proxy\n"
A, B = "{{ index .ObjectMeta.Annotations `a` }}", "{{ index .ObjectMeta.Annotations `b` }}"
WORDS = (
    "x",
    "80",
    "010",
    "0x1f",
    "1_000",
    "1e3",
    "true",
    "no",
    "null",
    "y",
    "/etc/x",
    "$(POD)",
    "(x)",
    "a=b",
    "x~",
    "x.",
)


def config_of(*lines):
    return load_config({"templates": {"sidecar": HEAD + "".join(f"    {line}\n" for line in lines)}})


def pod_of(config, a, b="b"):
    pod = {"metadata": {"annotations": {"a": a, "b": b}}, "spec": {"containers": []}}
    return pod, template_data(config, pod, Subject(owner=PodOwner.of_pod(pod, ""), proxy=config.mesh.proxy))


def rendered(config, a, b="b"):
    return render("sidecar", config, *pod_of(config, a, b))["spec"]["containers"][0]


def read_as_it_is(config, a, b="b"):
    """What the text with the values says, without any guard."""
    return goyaml.load(config.templates["sidecar"].render(pod_of(config, a, b)[1]))["spec"]["containers"][0]


LINES = [
    f"k: {A}",
    f'k: "{A}"',
    f"k: '{A}'",
    f"k: 1{A}",
    f"k: {A}{B}",
    f"k: fixed {A} fixed",
    f"k: {{{{ quote (index .ObjectMeta.Annotations `a`) }}}}-{B}",
    "k: {{ quote (index .ObjectMeta.Annotations `a`) }}",
    f"k: |\n      {A}\n      fixed",
    f"k: >+\n      {A}\n\n      fixed\n",
    f"k: [{A}, {{x: {B}}}]",
    f"k: {{ {A}: {B}}}",
    f"k: !!str {A}",
    f"k: !!int {A}",
    f"k: !!binary {A}",
    f"{A}: fixed",
    f'"{A}": fixed',
    f"k: &x {A}\n    j: *x",
    f"k: &x [{A}]\n    j: *x",
    f"? &x {A}\n    : fixed\n    j: *x",
    f"? {A}\n    : fixed",
    f"k: {{? {A}\n      : fixed}}",
    f"k: [? {A} : fixed]",
    f"{A}  : fixed",
    f"k: &x\n    - |\n      {A}",
    f"k: fixed # {A}",
    f"k:\n    - {A}\n    - fixed: {A}",
    "k: {{ toJson (dict `x` (index .ObjectMeta.Annotations `a`)) }}",
    "k: {{ toYaml (list (index .ObjectMeta.Annotations `a`)) | nindent 4 }}",
    "k: {{ toYaml (index .ObjectMeta.Annotations `a`) | trim | indent 4 }}",
    "{{ toYaml (index .ObjectMeta.Annotations `a`) | trim }}: fixed",
    "k: {{ if index .ObjectMeta.Annotations `a` }}{{ toYaml (omit .ObjectMeta.Labels `l`) }}{{ end }}",
    "k: {{ toYaml (dict `x` (list (index .ObjectMeta.Annotations `a`))) | nindent 6 }}",
    "{{ toYaml (dict `x` (index .ObjectMeta.Annotations `a`) `y` 1) | indent 4 }}",
    "k: {x: y, {{ toYaml (dict `z` (index .ObjectMeta.Annotations `a`)) }}}",
    "k: |\n      {{ toYaml (dict `x` (index .ObjectMeta.Annotations `a`)) | indent 6 }}",
]


@together("line", LINES)
def test_words_give_what_the_text_itself_says(line):
    config = config_of(line, f"last: {B}")
    for word in WORDS:
        try:
            wanted = read_as_it_is(config, word, "z")
        except YamlError:
            with pytest.raises(InjectionError):
                rendered(config, word, "z")
        else:
            assert same(rendered(config, word, "z"), wanted), word


@pytest.mark.parametrize("line", LINES)
@settings(max_examples=some(15))
@given(data=st.data())
def test_whatever_is_accepted_is_what_the_text_itself_says(line, data):
    texts = st.text("ab01.:-#'\"\\ \n{}[],&*!|>%@~_/$()=\t", min_size=1, max_size=8)
    text, word = data.draw(texts), data.draw(st.sampled_from(WORDS))
    config = config_of(line, f"last: {B}")
    try:
        found = rendered(config, text, word)
    except InjectionError:
        return
    assert same(found, read_as_it_is(config, text, word))


@pytest.mark.parametrize("line", [f"? {A}\n    : fixed", f"? &x {A}\n    : fixed", f"k:\n      ? {A}\n      : fixed", f"{A}  : fixed"])
@pytest.mark.parametrize("text", [":", "a:", "-", "?"])
def test_a_text_that_is_no_key_where_the_template_has_it_is_refused(line, text):
    with pytest.raises(InjectionError, match="breaks out of its place"):
        rendered(config_of(line, f"last: {B}"), text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("? {A}\n    : fixed", "two words"),
        ("? &x {A}\n    : fixed", "a:b"),
        ("? {A}\n    : fixed", "'a:'"),
        ("{A}  : fixed", "two words"),
        ('k: "{A}"', "two words"),
        ('k: "{A}"', "\\x41"),
        ("k: '{A}'", '"quoted"'),
        ("k: {A}", "'quoted'"),
        ("k: {A}", "two words"),
        ("k: {A}", "two\n      lines"),
        ("k: |\n      {A}\n      fixed", "two\n      lines: #"),
        ("k: [{A}]", "two\nlines"),
        ("{A}: x", "two words"),
        ("k: fixed # {A}", "x: [y"),
    ],
)
def test_texts_that_stay_in_their_scalar_are_accepted(line, text):
    config = config_of(line.replace("{A}", A), f"last: {B}")
    assert same(rendered(config, text), read_as_it_is(config, text))


def readings(config, *pairs):
    """How often an outline is parsed for these pods, and what they get."""
    guard.forget()
    found = [rendered(config, a, b) for a, b in pairs]
    return guard._kept.cache_info().misses, found


def test_pods_that_take_the_same_branches_share_a_skeleton():
    config = config_of(f"plain: {A}", f'quoted: "{B}"', "port: {{ index .ObjectMeta.Annotations `a` | quote }}")
    count, found = readings(config, ("web", "v1"), ("80", "v 2"), ("a b", "v3"))
    assert count == 1
    assert found == [
        {"name": "istio-proxy", "plain": plain, "quoted": quoted, "port": port}
        for plain, quoted, port in (("web", "v1", "web"), (80, "v 2", "80"), ("a b", "v3", "a b"))
    ]


def test_another_branch_is_another_skeleton():
    config = config_of("{{ if eq (index .ObjectMeta.Annotations `a`) `x` }}j: fixed{{ end }}", f"k: {A}")
    count, found = readings(config, ("x", ""), ("z", ""))
    assert (count, [item.get("j") for item in found]) == (2, ["fixed", None])


@pytest.mark.parametrize("forged", ["\ue0000\ue000", '"\\ue0000\\ue000"', '"\\U0000E0000\\U0000e000"'])
def test_no_text_can_pass_for_a_placeholder(forged):
    for line in (f"k: {A}", f"k: fixed # {B}\n    j: {A}"):
        config = config_of(line, f"last: {B}")
        assert same(rendered(config, forged, "word"), read_as_it_is(config, forged, "word"))


def test_what_a_pod_gets_is_its_own():
    config = config_of(f"k: &k {{list: [{A}]}}", "j: *k", "i: [{{ toJson (list 1) }}]")
    first = rendered(config, "x")
    first["k"]["list"].append("more")
    assert first["j"] == {"list": ["x"]}
    assert rendered(config, "z")["k"] == {"list": ["z"]}


def test_a_tree_of_the_wrong_indentation_is_refused_where_its_text_would_read_as_more():
    config = config_of("privileged: false", "{{ toYaml (dict `note` (index .ObjectMeta.Annotations `a`)) | indent 0 }}")
    assert rendered(config, "x")["note"] == "x"
    for evil in ("\n\n    runAsUser: 0", "\nx\n    runAsUser: 0", "x\n    runAsUser: 0", "\n# x"):
        with pytest.raises(InjectionError, match="breaks out of its place"):
            rendered(config, evil)


def test_yaml_that_the_template_breaks_is_an_error_at_its_place_in_the_rendered_text():
    with pytest.raises(InjectionError, match="line 4, column 9: no key is possible here; indent it"):
        rendered(config_of(f"k: {A}: x"), "x")


def test_half_a_character_in_a_written_tree_is_what_go_makes_of_it():
    config = config_of("k:", "  {{ toYaml (fromJSON (index .ObjectMeta.Annotations `a`)) | indent 6 | trim }}")
    assert rendered(config, '{"x": "\\ud800"}')["k"] == {"x": "\ufffd"}


def test_an_escape_of_the_templates_cannot_pass_for_a_placeholder():
    config = config_of(f'k: "\\uE0000\\ue000 {A}"')
    assert rendered(config, "x")["k"] == "\ue0000\ue000 x"


def test_a_text_with_every_reserved_character_is_refused():
    with pytest.raises(InjectionError, match="reserved for placeholders"):
        rendered(config_of(f'k: "{A}"'), "".join(map(chr, range(0xE000, 0xE010))))


def test_a_foreign_key_beside_a_merged_mapping_is_refused():
    config = config_of("x: &x {privileged: false}", f"k: {{<<: *x, {A}: fixed}}")
    with pytest.raises(InjectionError, match="breaks out of its place"):
        rendered(config, "other")


def test_two_values_cannot_make_a_key_that_merges():
    config = config_of(f"k: {{x: fixed, {A}{B}: {{v: fixed}}}}")
    assert rendered(config, "x", "z")["k"] == {"x": "fixed", "xz": {"v": "fixed"}}
    with pytest.raises(InjectionError, match="breaks out of its place"):
        rendered(config, "<", "<")


def test_a_value_that_a_loop_prints_before_it_is_set_is_foreign():
    config = config_of(
        "{{ $v := `` }}k:{{ range until 2 }}",
        "- privileged: {{ $v }}",
        "{{ $v = index $.ObjectMeta.Annotations `a` }}{{ end }}",
    )
    assert rendered(config, "x")["k"] == [{"privileged": None}, {"privileged": "x"}]
    with pytest.raises(InjectionError, match="breaks out of its place"):
        rendered(config, "x\n      runAsUser: 0")


def test_a_template_that_is_called_with_a_value_of_the_pod_prints_a_foreign_one():
    text = (
        '{{ define "x" }}{{ $v := . }}{{ $v }}{{ end }}'
        + HEAD
        + '    k: {{ template "x" (index .ObjectMeta.Annotations `a`) }}\n'
    )
    config = load_config({"templates": {"sidecar": text}})
    assert rendered(config, "x")["k"] == "x"
    with pytest.raises(InjectionError, match="breaks out of its place"):
        rendered(config, "x\n    privileged: true")
