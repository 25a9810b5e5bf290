"""A text is read once for all words: what fills a mould is what reading the text itself gives, and no trick makes one wrong."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.more_errors import InjectionError
from netinit.base.tree import same
from netinit.inject import guard, load_config
from netinit.inject.guard import moulds
from netinit.inject.owner import PodOwner
from netinit.inject.rendering import Subject, render

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


def rendered(config, a, b="b"):
    pod = {"metadata": {"annotations": {"a": a, "b": b}}, "spec": {"containers": []}}
    subject = Subject(owner=PodOwner.of_pod(pod, ""), proxy=config.mesh.proxy)
    return render("sidecar", config, pod, subject)["spec"]["containers"][0]


def read_alone(config, a, b="b"):
    """As without moulds."""
    with mock.patch.object(guard, "mould_of", return_value=(None, [])):
        return rendered(config, a, b)


@pytest.mark.parametrize(
    "line",
    [
        f"k: {A}",
        f'k: "{A}"',
        f"k: '{A}'",
        f"k: 1{A}",
        f"k: {A}{B}",
        f"k: fixed {A} fixed",
        f"k: {{{{ quote (index .ObjectMeta.Annotations `a`) }}}}-{B}",
        "k: {{ quote (index .ObjectMeta.Annotations `a`) }}",
        f"k: |\n      {A}\n      fixed",
        f"k: [{A}, {{x: {B}}}]",
        f"k: !!str {A}",
        f"k: !!int {A}",
        f"k: !!binary {A}",
        f"{A}: fixed",
        f"k: &x {A}\n    j: *x",
        f"? &x {A}\n    : fixed\n    j: *x",
        f"k: fixed # {A}",
        "k: {{ toJson (dict `x` (index .ObjectMeta.Annotations `a`)) }}",
        "k: {{ toYaml (list (index .ObjectMeta.Annotations `a`)) | nindent 4 }}",
    ],
)
def test_words_give_what_they_give_by_themselves(line):
    config = config_of(line, f"last: {B}")
    for word in WORDS:
        try:
            wanted = read_alone(config, word, "z")
        except InjectionError:
            with pytest.raises(InjectionError):
                rendered(config, word, "z")
        else:
            assert same(rendered(config, word, "z"), wanted), word


@given(st.text("ab0.:-#'\"\\ \n{}[],&*!|>%@~_/$()=", min_size=1, max_size=8), st.sampled_from(WORDS))
def test_a_text_that_is_no_word_is_the_same_beside_one(text, word):
    config = config_of(f'k: "{A}"', f"j: {B}")
    try:
        wanted = read_alone(config, text, word)
    except InjectionError as refused:
        with pytest.raises(InjectionError) as caught:
            rendered(config, text, word)
        assert str(caught.value) == str(refused)
    else:
        assert same(rendered(config, text, word), wanted)


def readings(config, *pairs):
    """How often a text is read for these pods."""
    moulds._made.cache_clear()
    with (
        mock.patch.object(moulds, "checked", wraps=moulds.checked) as inner,
        mock.patch.object(guard, "checked", wraps=guard.checked) as outer,
    ):
        found = [rendered(config, a, b) for a, b in pairs]
    return inner.call_count + outer.call_count, found


def test_pods_that_differ_in_words_are_read_once():
    config = config_of(f"plain: {A}", f'quoted: "{B}"', "port: {{ index .ObjectMeta.Annotations `a` | quote }}")
    count, found = readings(config, ("web", "v1"), ("80", "v2"), ("true", "v3"))
    assert count == 1
    assert found == [
        {"name": "istio-proxy", "plain": plain, "quoted": quoted, "port": port}
        for plain, quoted, port in (("web", "v1", "web"), (80, "v2", "80"), (True, "v3", "true"))
    ]


def test_pods_that_differ_in_other_texts_are_not():
    count, found = readings(config_of(f'k: "{A}"'), ("a b", "x"), ("a c", "x"))
    assert (count, [item["k"] for item in found]) == (2, ["a b", "a c"])


@pytest.mark.parametrize("forged", ["\ue0000\ue000", '"\\ue0000\\ue000"', '"\\U0000E0000\\U0000e000"'])
def test_no_text_can_pass_for_a_token(forged):
    for line in (f"k: {A}", f"k: fixed # {B}\n    j: {A}"):
        config = config_of(line, f"last: {B}")
        assert same(rendered(config, forged, "word"), read_alone(config, forged, "word"))


def test_what_fills_a_mould_leaves_it_as_it_was():
    config = config_of(f"k: {{list: [{A}]}}")
    first = rendered(config, "x")
    first["k"]["list"].append("more")
    assert rendered(config, "z")["k"] == {"list": ["z"]}


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
