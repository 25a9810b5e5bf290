"""Hostile values in templates of every shape: no field outside of a value's own place ever differs.

    python tests/fuzz/fuzz_guard.py --cases 100000 --seed 1

A case is a template made of random lines with places for values, and a pod whose annotations, labels, names and arguments
attack it: syntax, slices of the rendered text itself with the author's words changed, quotes that another value closes.
The oracle knows nothing of the guard. It renders the template once more for a pod with harmless words in the place of
every value, and walks both trees: what has no word in it must be the same, what has one may differ there and nowhere
else. Allowed beside that is the refusal. And what is kept of
one pod for the next must not change what the next one gets: each case is rendered again after a pod of words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import time
from collections import Counter

from netinit.base.errors import ConfigError, InjectionError
from netinit.base.tree import mapping, same
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject import load_config
from netinit.inject.adding import guard
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.deciding.manifests import PodOwner

SLOW = 5.0  # seconds of the processor
TEXT_KEYS = ("a", "b", "c", "d")
WORD = re.compile(r"(?i)h\d{3}h")
EVIL = "EVIL"

SOURCES = (
    *(f"(index .ObjectMeta.Annotations `{key}`)" for key in TEXT_KEYS),
    *(f"(index .ObjectMeta.Annotations `{key}`)" for key in TEXT_KEYS),
    "(index .ObjectMeta.Labels `l`)",
    "(annotation .ObjectMeta `a` `fixed`)",
    ".ObjectMeta.Name",
    ".DeploymentMeta.Name",
    ".Spec.ServiceAccountName",
    "(index (index .Spec.Containers 0).Args 0)",
    "(index (index .Spec.Containers 0).Env 0).Value",
    "(index .ProxyConfig.ProxyMetadata `K`)",
)
TREES = ("(index .ObjectMeta.Annotations `tree`)", "(index .ObjectMeta.Annotations `list`)")
LINES = (
    'k: "{{ S }}"', 'k: "{{ S }}"', "k: '{{ S }}'", "k: {{ S }}", "k: fixed-{{ S }}", "k: fixed {{ S }} fixed", "k: {{ S }}{{ S }}",
    'k: "fixed {{ S }} {{ S }}"', "k: {{ S | quote }}", "k: {{ S | squote }}", "k: {{ S | upper }}", "k: {{ S | trunc 9 | quote }}", "k: {{ S | trim }}",
    'k: "{{ S | replace `z` `y` }}"', "w: {{ printf `fixed-%s` S }}", "k: |\n  {{ S }}", "k: |-\n  fixed\n  {{ S }}\n  fixed", "k: >\n  {{ S }} fixed",
    "k: |{{ S | nindent 2 }}", "k: |\n  {{ S | indent 2 }}", 'k: {x: {{ S }}, y: fixed, z: "{{ S }}"}', "k: ['{{ S }}', fixed, {{ S }}]", "{{ S }}: fixed",
    '"{{ S }}": fixed', "k: fixed # {{ S }}", "# {{ S }}\nk: fixed", "k: &x{{ N }} {{ S }}\nj: *x{{ N }}", "k: !!str {{ S }}", "k:\n- {{ S }}\n- fixed",
    'k:\n- name: "{{ S }}"\n  value: fixed', "k: fixed\n{{ with S }}j: {{ . }}{{ end }}", "{{ $v := S }}k: {{ $v }}", "w: {{ list S `fixed` | join `,` }}",
    "<<: {k: fixed}\nj: {{ S }}", "k: fixed{{ S }}", "k: {{ S }}: fixed", "k: {{ S | default `fixed` }}", "k: {{ printf `%q` S }}",
)  # fmt: skip
WRITTEN = (
    "w:\n  {{ toYaml (fromJSON T) | indent 2 }}", "w: {{ toJson (fromJSON T) }}", "w: {{ fromJSON T | toYaml | nindent 2 }}", "w: |\n  {{ toJson (fromJSON T) }}",
    "w: '{{ len (fromJSON T) }}'", "w:\n  k: fixed\n  {{ toYaml (fromJSON (index .ObjectMeta.Annotations `tree`)) | indent 2 }}", "w: {{ S | toJson }}",
    "w: {x: {{ toJson (fromJSON T) }}, y: fixed}", "{{ toYaml (fromJSON (index .ObjectMeta.Annotations `tree`)) | indent 0 }}", "w: |\n  {{ toYaml (fromJSON T) | indent 2 }}",
    'k:{{ range $k, $v := fromJSON T }}\n- name: {{ $k }}\n  value: "{{ $v }}"{{ end }}', "w: {{ fromJSON T | toJson | quote }}",
)  # fmt: skip
PLAIN = (
    "x",
    "v1",
    "80",
    "",
    "true",
    "no",
    "0x1f",
    "010",
    "1_000",
    "1.50",
    "1e3",
    "/a/b",
    "$(A)",
    "(x)",
    "a=b",
    "a@b",
    "a%20b",
    "x~",
    "x-",
    "_x.y",
    "x.",
)
FIXED = (
    "privileged: fixed",
    "runAs: {user: fixed, group: [fixed]}",
    "image: 'fixed'",
    'note: "fixed"',
    "text: |\n  fixed",
    "list:\n- fixed\n- k: fixed",
)
TEXTS = (
    "", " ", "x", "true", "80", "~", "null", "<<", "\n", "\n\n", "\r", "\t", "\x85", "\u2028", "\u2029", '"', "'", "\\", "\\\\", "#", " # ", "# x", ": ", ":", "- ", "-", "? ",
    "&a ", "*a", "*x1", "!!int 5", "!x ", "|", ">", "|+\n  x", "---", "--- x", "...", "%YAML 1.1", "{", "}", "[", "]", ", ", "{}", "[x]", "{k: EVIL}", "- EVIL", "k: EVIL",
    "privileged: EVIL", "\nprivileged: EVIL\n", "x\n  y: EVIL", "é", "\ue000", "\ue0000\ue000", "\ufeff", "\x00", "\ud800", "@", "`", "x" * 1100, "  ", "\n      ", "''", '""', "'\"'",
)  # fmt: skip


def hostile(rng, harmless):
    """A text that attacks: a key of the author's, fragments, or a slice of the rendered text with its words changed."""
    keys = re.findall(r"(?m)^ *(\w+):", harmless)
    if rng.random() < 0.1:
        return rng.choice(keys)
    if rng.random() < 0.5:
        return "".join(rng.choice(TEXTS) for _ in range(rng.randrange(1, 5)))
    start = rng.randrange(len(harmless) + 1)
    end = min(len(harmless), start + rng.randrange(1, 200))
    middle = harmless[start:end].replace("fixed", EVIL)
    return rng.choice(TEXTS) + rng.choice(("", "\n", "x")) + middle + rng.choice(TEXTS)


def aligned(rng, template, harmless, words):
    """Two values that cooperate: the first ends its scalar, writes what follows anew, and opens a quote that the second closes."""
    places = sorted((harmless.find(word), word) for word in words if word in harmless)
    if len(places) < 2:
        return {}
    left, right = sorted(rng.sample(places, 2))
    between = harmless[left[0] + len(left[1]) : right[0]].replace("fixed", EVIL)
    quote = rng.choice(("'", '"', "|", "# "))
    opened = rng.choice((f"{quote}", f"\nj: {quote}", f", j: {quote}", f"\n    j: {quote}", f"\n      j: {quote}"))
    first = rng.choice(("x", '"', "x'", "")) + between + rng.choice(("x", "", 'x"', "x'")) + opened
    return {left[1]: first, right[1]: rng.choice((quote, f"{quote} ", f"{quote}\n", f"x{quote}", f"{quote} #"))}


def make_template(rng):
    lines = []
    for number in range(rng.randrange(1, 7)):
        kind = rng.random()
        line = rng.choice(FIXED) if kind < 0.25 else rng.choice(WRITTEN) if kind < 0.4 else rng.choice(LINES)
        line = line.replace("{{ N }}", str(number))
        line = re.sub(r"(?m)^(\s*)([kjw]|privileged|runAs|image|note|text|list):", rf"\1\g<2>{number}:", line, count=0)
        while "S" in re.findall(r"\bS\b", line):
            line = re.sub(r"\bS\b", rng.choice(SOURCES).replace("\\", ""), line, count=1)
        line = re.sub(r"\bT\b", rng.choice(TREES), line)
        lines.append(line)
    body = "\n".join(lines).replace("\n", "\n    ")
    return f"spec:\n  containers:\n  - name: istio-proxy\n    {body}\n    end: fixed\n"


def tree_of(rng, text):
    """A JSON object whose keys and values are texts."""
    return {text(): rng.choice((text(), [text()], {text(): text()}, 5, None, True)) for _ in range(rng.randrange(1, 3))}


class Words:
    """Texts and the harmless words in their place."""

    def __init__(self):
        self.texts = {}

    def word(self, text):
        word = f"h{len(self.texts):03d}h"
        self.texts[word] = text
        return word if text else ""

    def tree(self, value):
        """The tree with words; those of keys sort as the keys do."""
        if isinstance(value, dict):
            return {self.word(key) or key: self.tree(item) for key, item in sorted(value.items())}
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        return self.word(value) if isinstance(value, str) else value


def make_pod(texts, trees):
    metadata = {
        "name": texts["name"],
        "labels": {"l": texts["l"]},
        "annotations": {
            **{key: texts[key] for key in TEXT_KEYS},
            "tree": json.dumps(trees[0]),
            "list": json.dumps(trees[1]),
            "proxy.istio.io/config": json.dumps({"proxyMetadata": {"K": texts["metadata"]}}),
        },
    }
    container = {"name": "app", "args": [texts["arg"]], "env": [{"name": "E", "value": texts["env"]}]}
    return {"metadata": metadata, "spec": {"serviceAccountName": texts["account"], "containers": [container]}}


NAMES = (*TEXT_KEYS, "l", "name", "arg", "env", "account", "metadata")


def differs(harmless, real, texts, path="", written=False):
    """Where the trees differ outside of the words' places, or None."""
    if isinstance(harmless, dict):
        return (
            "a mapping became something else at " + path
            if not isinstance(real, dict)
            else differs_in_mapping(harmless, real, texts, path, written)
        )
    if isinstance(harmless, list):
        if not isinstance(real, list) or len(real) != len(harmless):
            return f"the list {path} has other items"
        found = (
            differs(left, right, texts, f"{path}[{n}]", written)
            for n, (left, right) in enumerate(zip(harmless, real, strict=True))
        )
        return next((where for where in found if where), None)
    if not isinstance(harmless, str) or not WORD.search(harmless):
        return None if type(real) is type(harmless) and real == harmless else f"{path} is {real!r}, not {harmless!r}"
    if isinstance(real, dict | list):
        return f"{path} became {real!r}"
    if written and harmless in texts:
        text = re.sub("[\ud800-\udfff]", "\ufffd", texts[harmless])  # as Go's JSON has it
        return None if real == text else f"{path} is {real!r}, not {text!r}"
    pieces = WORD.split(harmless)
    told = "" if real is None else str(real).strip()
    if pieces != ["", ""] and not (told.startswith(pieces[0].strip()) and told.endswith(pieces[-1].strip())):
        return f"{path} is {told!r}, not {harmless!r} with values"
    return None


def differs_in_mapping(harmless, real, texts, path, written):
    foreign = [key for key in harmless if WORD.search(key)]
    for key in harmless.keys() - set(foreign):
        if key not in real:
            return f"{path} has lost {key}"
        replaced = bool(foreign) and is_of_the_pod(
            key, harmless[key]
        )  # then another value of the pod's may stand there
        where = (
            None if replaced else differs(harmless[key], real[key], texts, f"{path}.{key}", written or key[:1] == "w")
        )
        if where:
            return where
    spelled = {spelling for place in foreign for spelling in spellings(place, texts)}  # `010` and "010" are two keys
    if len(real.keys() - harmless.keys() - spelled) > len(foreign):
        return f"{path} has new keys: {sorted(real.keys() - harmless.keys())}"
    for key, place in zip([key for key in real if key not in harmless], foreign, strict=False):
        if len(real) == len(harmless) and (
            where := differs(harmless[place], real[key], texts, f"{path}.{key}", written)
        ):
            return where
    return None


def spellings(place, texts):
    """The keys that a key with words may become: its text, and what that is as a plain scalar."""
    text = WORD.sub(lambda word: texts.get(word[0], ""), place)
    with contextlib.suppress(YamlError):
        return {text, *(goyaml.load(f"{text}: x") if re.fullmatch(r"\w+", text) else ())}
    return {text}


def is_of_the_pod(key, value):
    """Whether all of the value comes from the pod."""
    if value == "":  # an empty text of the pod's, which the harmless pod has too
        return True
    if isinstance(value, str):
        return bool(WORD.search(value) or value.isdigit() if key[:1] == "w" else WORD.fullmatch(value))  # digits: a length
    told = json.dumps(value)
    return key[:1] == "w" and bool(WORD.search(told)) and "fixed" not in told


def make_case(seed, number):
    """A template, its configuration, and a pod's texts and trees."""
    rng = random.Random(f"{seed}/{number}")
    source = make_template(rng)
    config = load_config({"templates": {"sidecar": source}})
    words = Words()
    first = {name: words.word("x") for name in NAMES}
    calm = [tree_of(rng, lambda: words.word("x")) for _ in range(2)]
    outline = render_unguarded(config, make_pod(first, calm))
    rate = rng.choice((0.1, 0.7, 0.7))
    texts = {name: hostile(rng, outline) if rng.random() < rate else rng.choice(PLAIN) for name in NAMES}
    if rng.random() < 0.4:
        by_word = {word: name for name, word in first.items()}
        texts |= {by_word[word]: text for word, text in aligned(rng, source, outline, by_word).items()}
    trees = [tree_of(rng, lambda: hostile(rng, outline)[:60]) for _ in range(2)]
    return source, config, texts, trees


def run(seed, number):
    """One case: what came of it. Raises AssertionError for what is not allowed."""
    source, config, texts, trees = make_case(seed, number)
    pod = make_pod(texts, trees)
    started = time.process_time()
    try:
        real = render("sidecar", config, pod, data_of(config, pod))
    except InjectionError as error:
        assert EVIL not in re.sub(r"'[^']*'|\"[^\"]*\"", "", str(error)) or len(str(error)) < 20_000, "an endless error"
        return "refused"
    finally:
        assert time.process_time() - started < SLOW, "slow"
    check(source, config, real, texts, trees)
    guard.forget()
    with contextlib.suppress(InjectionError):
        other = make_pod({name: text and "word" for name, text in texts.items()}, trees)
        render("sidecar", config, other, data_of(config, other))
    again = render("sidecar", config, pod, data_of(config, pod))
    assert same(again, real), f"first {real}, then {again}\n{source}"
    return "passed"


def check(source, config, real, texts, trees):
    words = Words()
    harmless_texts = {name: words.word(text) for name, text in texts.items()}
    calm = render_unguarded(config, make_pod(harmless_texts, [words.tree(tree) for tree in trees]))
    where = differs(goyaml.load(calm), real, words.texts)
    assert where is None, f"{where}\n{source}\n{json.dumps([texts, trees])}"


def data_of(config, pod):
    try:  # what annotations.validate does before
        proxy = config.mesh.proxy.overlaid(mapping(goyaml.load(pod["metadata"]["annotations"]["proxy.istio.io/config"])))
    except (ConfigError, YamlError) as error:
        raise InjectionError(str(error)) from None
    return template_data(config, pod, Subject(owner=PodOwner.of_pod(pod, ""), proxy=proxy))


def render_unguarded(config, pod):
    return config.templates["sidecar"].render(data_of(config, pod))


def fuzz(cases, seed):
    """The outcomes of so many cases, counted. Raises at the first find."""
    counted = Counter()
    for number in range(cases):
        try:
            counted[run(seed, number)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {number}: {type(error).__name__}: {error}") from error
    return counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    started = time.monotonic()
    counted = fuzz(arguments.cases, arguments.seed)
    took = time.monotonic() - started
    print(f"guard: {arguments.cases} cases, seed {arguments.seed}, {took:.0f} s, nothing found")
    for outcome, count in sorted(counted.items()):
        print(f"  {outcome:8} {count}")


if __name__ == "__main__":
    sys.exit(main())
