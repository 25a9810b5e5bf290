"""Hostile YAML, pods, annotations, manifests and configurations against injection.

    python tests/fuzz/fuzz_inject.py --cases 100000 --seed 1

Allowed is a result that keeps the laws, or one of our own errors; a traceback, a slow case or a value that breaks out
of its place is a find, which is printed with the seed and number that make it again. With atheris installed,
`--atheris` lets coverage guide the choice of cases.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from netinit.base.errors import ConfigError, InjectionError, NetinitError, ParseError
from netinit.golang import goyaml
from netinit.inject import apply_patch, inject_pod, json_patch, load_config
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.annotations import CHECKS

sys.path.insert(0, str(Path(__file__).parents[1]))
from recorded_yaml import TAGS
from streams import inject_stream

SLOW = 5.0  # seconds, on a busy machine
DEFAULT = load_config()
PLACES = load_config(
    {
        "templates": {
            "sidecar": """
spec:
  containers:
  - name: istio-proxy
    a: "{{ index .ObjectMeta.Annotations `double` }}"
    b: '{{ index .ObjectMeta.Annotations `single` }}'
    c: {{ index .ObjectMeta.Annotations `plain` }}
    d: {flow: "{{ index .ObjectMeta.Labels `flow` }}", bare: {{ index .ObjectMeta.Labels `bare` }}, end: x}
    e: {{ index .ObjectMeta.Annotations `quoted` | quote }}
    f: |
      {{ index .ObjectMeta.Annotations `block` }}
    g: end
"""
        }
    }
)
PROXY_KEYS = set("abcdefg") | {"name"}

POD = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"prometheus.io/port": "8080", "proxy.istio.io/config": "concurrency: 2"},
    },
    "spec": {
        "serviceAccountName": "web",
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "ports": [{"name": "http", "containerPort": 80}],
                "readinessProbe": {"httpGet": {"port": "http", "path": "/"}},
                "livenessProbe": {"grpc": {"port": 5}},
                "lifecycle": {"preStop": {"tcpSocket": {"port": 80}}},
                "env": [{"name": "A", "value": "1"}],
                "securityContext": {"runAsUser": 1},
            },
            {"name": "istio-proxy", "image": "auto", "resources": {"limits": {"cpu": "1"}}},
        ],
        "initContainers": [{"name": "init", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}
TEXTS = (
    "", " ", "a", "true", "no", "010", "1e999", "null", "~", "80", "80,443", "*", "10.0.0.0/8", "TPROXY", "15020", "\n", "\t", '"', "'",
    "\\", "a: b", "- a", "a #b", "{{ .x }}", "[[ .x ]]", "${A}", "&a", "*a", "!!int 5", "<<", "{a: b}", "[a, b]", "x\ny", "x\n    y: z",
    'x"\n    privileged: true\n    h: "', "x', y: 'z", "}, g: {", "\x00", "\x07", "\x85", "\ufeff", "\u2028", "\ud800", "é" * 50, "a" * 5000,
    "---", "...", "%YAML 1.2", "? a", "|", ">", "@", "`", "concurrency: 2", '{"a": 1}', '{"containers": [{"name": "istio-proxy"}]}',
    "proxyMetadata: {A: 'x\"'}", '{"initContainers":["istio-init"],"containers":["web"],"volumes":["v"]}', "[" * 500, '{"a":' * 500,
    *[f"concurrency: {tag} {scalar}" for tag in TAGS for scalar in ("on", "0o17", "x", "")],
)  # fmt: skip
ANNOTATIONS = (
    *CHECKS, "sidecar.istio.io/inject", "sidecar.istio.io/status", "proxy.istio.io/overrides", "inject.istio.io/templates",
    "sidecar.istio.io/nativeSidecar", "sidecar.istio.io/proxyImage", "sidecar.istio.io/userVolume", "sidecar.istio.io/logLevel",
    "sidecar.istio.io/rewriteAppHTTPProbers", "prometheus.io/scrape", "prometheus.io.port", "kubectl.kubernetes.io/default-container",
)  # fmt: skip
MANIFESTS = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n",
    "# comment\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  template:\n    spec:\n      containers:\n      - name: c\n        args: [-a, 5, yes]\n",
    "apiVersion: v1\nkind: List\nitems:\n- &x {apiVersion: v1, kind: Pod, spec: {containers: []}}\n- *x\n- {kind: Service}\n",
    "kind: ConfigMap\ndata:\n  a: |\n    x\n    --- y\n  b: 'z'\n",
    "a: &a [lol, lol]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\nd: {<<: {x: 1}, y: 2}\n",
    "%YAML 1.1\n--- # x\na: !!binary aGk=\n...\n",
    "a: !!float 0o17\nb: !!int '0x1F'\n!!float 08: !!timestamp 2001-1-1\n",
)
CONFIGS = (
    """policy: enabled
templates:
  sidecar: |
    metadata: {labels: {a: b}}
defaultTemplates: [sidecar]
aliases: {x: [sidecar]}
neverInjectSelector:
- matchLabels: {a: b}
- matchExpressions: [{key: a, operator: In, values: [b]}]
""",
    "policy: disabled\ntemplate: |-\n  containers:\n  - name: istio-proxy\n    image: [[ .ProxyConfig.ConfigPath ]]\n",
)
SYNTAX = "\n\n  \t:-?,[]{}#&*!|>'\"%@`~<=./0aé\u2028\x00{}[]"


def leaf(rng):
    return rng.choice(
        (
            None,
            True,
            False,
            0,
            1,
            -5,
            1.5,
            10**20,
            [],
            {},
            [{}],
            [None],
            {"name": "x"},
            {"": ""},
            rng.choice(TEXTS),
            rng.choice(TEXTS),
        )
    )


def mutate_tree(rng, tree, times):
    """A copy of the tree with some of its nodes replaced, removed, doubled or given new keys."""
    tree = copy.deepcopy(tree)
    for _ in range(times):
        node, steps = tree, rng.randrange(1, 7)
        for _ in range(steps):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(node[key], (dict, list)) and rng.random() < 0.8:
                node = node[key]
                continue
            change(rng, node, key)
            break
    return tree


def change(rng, node, key):
    kind = rng.randrange(4)
    if kind == 0:
        node[key] = leaf(rng)
    elif kind == 1:
        del node[key]
    elif isinstance(node, list):
        node.append(copy.deepcopy(node[key]) if kind == 2 else leaf(rng))
    else:
        node[rng.choice((*ANNOTATIONS, *map(str, node), "name", "spec", "$patch", "<<"))] = leaf(rng)


def mutate_text(rng, text, times):
    for _ in range(times):
        place = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:place] + rng.choice(SYNTAX) + text[place:]
        elif kind == 1:
            text = text[:place] + text[place + rng.randrange(1, 9) :]
        elif kind == 2:
            other = rng.randrange(len(text) + 1)
            text = text[:place] + text[min(place, other) : max(place, other)] + text[place:]
        elif kind == 3:
            text = text[:place] + rng.choice(TEXTS) + text[place:]
        else:
            text = text[:place] + rng.choice(SYNTAX) * rng.randrange(1, 300) + text[place:]
        text = text[:20_000]
    return text


def same(left, right):
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def fuzz_yaml(rng):
    text = mutate_text(rng, rng.choice((*MANIFESTS, *CONFIGS)), rng.randrange(1, 6))
    for tree in yaml_texts.load_all(text):
        assert same(goyaml.load(goyaml.dump(tree)), tree), "dump and load disagree"


def fuzz_dump(rng):
    text = "".join(rng.choice((rng.choice(TEXTS), rng.choice(SYNTAX))) for _ in range(rng.randrange(1, 6)))
    text = text.encode("utf-8", "replace").decode()
    tree = {text: [text, {"k": text}], "k": text}
    assert same(goyaml.load(goyaml.dump(tree)), tree), "dump and load disagree"


def as_read(tree):
    """The tree as a document can hold it: no reader gives a lone surrogate, which JSON in annotations could not keep."""
    if isinstance(tree, dict):
        return {as_read(key): as_read(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [as_read(value) for value in tree]
    return tree.encode("utf-8", "replace").decode() if isinstance(tree, str) else tree


def fuzz_pod(rng):
    pod = as_read(mutate_tree(rng, POD, rng.randrange(1, 8)))
    before = json.dumps(pod)
    try:
        result = inject_pod(pod, DEFAULT)
    finally:
        assert json.dumps(pod) == before, "the pod given was changed"
    assert same(apply_patch(pod, json_patch(pod, result)), result), "the patch does not make the result"
    if "sidecar.istio.io/status" in str(before):  # a forged one is believed once
        result = inject_pod(result, DEFAULT)
    assert same(inject_pod(result, DEFAULT), result), "injecting again changes the pod"


def fuzz_annotations(rng):
    annotations = {
        key: rng.choice(TEXTS) + rng.choice(("", "", rng.choice(TEXTS)))
        for key in rng.sample(ANNOTATIONS, rng.randrange(1, 5))
    }
    pod = copy.deepcopy(POD)
    pod["metadata"]["annotations"] = annotations
    result = inject_pod(pod, DEFAULT)
    keys = {key for item in result["spec"]["initContainers"] if item["name"] == "istio-init" for key in item}
    assert keys <= {"name", "image", "args", "resources", "securityContext", "env"}, f"istio-init got {keys}"


def fuzz_places(rng):
    def text():
        return "".join(rng.choice((rng.choice(TEXTS), rng.choice(SYNTAX))) for _ in range(rng.randrange(1, 5)))

    metadata = {
        "annotations": {
            key: text() for key in rng.sample(("double", "single", "plain", "quoted", "block"), rng.randrange(1, 4))
        },
        "labels": {key: text() for key in rng.sample(("flow", "bare"), rng.randrange(3))},
    }
    result = inject_pod({"metadata": metadata, "spec": {}}, PLACES)
    (proxy,) = result["spec"]["containers"]
    assert proxy.keys() <= PROXY_KEYS, f"broke out: {proxy}"
    assert proxy["g"] == "end", f"broke out: {proxy}"
    assert proxy["d"].keys() <= {"flow", "bare", "end"}, f"broke out: {proxy}"
    assert not any(isinstance(proxy.get(key), (dict, list)) for key in "abcef"), f"broke out: {proxy}"


def fuzz_stream(rng):
    text = "---\n".join(rng.choice(MANIFESTS) for _ in range(rng.randrange(1, 4)))
    text = mutate_text(rng, text, rng.randrange(4))
    result = inject_stream(text, DEFAULT)
    assert inject_stream(result.text, DEFAULT).text == result.text, "injecting again changes the stream"


def fuzz_config(rng):
    if rng.random() < 0.5:
        source = mutate_text(rng, rng.choice(CONFIGS), rng.randrange(1, 6))
    else:
        source = mutate_tree(rng, goyaml.load(rng.choice(CONFIGS)), rng.randrange(1, 6))
    values = rng.choice((None, "{}", rng.choice(TEXTS)))
    mesh = rng.choice(
        (
            None,
            rng.choice(TEXTS),
            mutate_tree(
                rng, {"defaultConfig": {"concurrency": 1, "proxyMetadata": {"A": "b"}}, "proxyListenPort": 5}, 2
            ),
        )
    )
    config = load_config(source, values=values, mesh=mesh)
    inject_pod(POD, config)


TARGETS = (fuzz_yaml, fuzz_dump, fuzz_pod, fuzz_annotations, fuzz_places, fuzz_places, fuzz_stream, fuzz_config)
EXPECTED = (ConfigError, InjectionError, ParseError)


def run(seed, number):
    """One case: the target's name and what came of it. Raises whatever is not allowed."""
    rng = random.Random(f"{seed}/{number}")
    target = TARGETS[number % len(TARGETS)]
    started = time.process_time()
    try:
        target(rng)
        outcome = "passed"
    except EXPECTED as error:
        assert str(error).strip(), "an error without words"
        outcome = "refused"
    took = time.process_time() - started
    assert took < SLOW, f"took {took:.1f} s of the processor"
    return target.__name__, outcome


def fuzz(cases, seed):
    """The outcomes of so many cases, counted. Raises at the first find."""
    counted = Counter()
    for number in range(cases):
        try:
            counted[run(seed, number)] += 1
        except NetinitError as error:
            raise AssertionError(f"seed {seed}, case {number}: unexpected {type(error).__name__}: {error}") from error
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {number}: {type(error).__name__}: {error}") from error
    return counted


def fuzz_with_atheris():
    """Endless or for atheris' own `-max_total_time`, guided by coverage of the modules; stops at the first find."""
    import atheris

    def one(data):
        run_text(TEXT_TARGETS[data[0] % len(TEXT_TARGETS)] if data else TEXT_TARGETS[0], data[1:].decode("utf-8", "replace"))

    atheris.instrument_all()
    with tempfile.TemporaryDirectory() as corpus:
        for number, text in enumerate((*MANIFESTS, *CONFIGS, "\n".join(TEXTS[: len(ANNOTATIONS)]))):
            for target in range(len(TEXT_TARGETS)):
                Path(corpus, f"{number}-{target}").write_bytes(bytes([target]) + text.encode("utf-8", "replace"))
        atheris.Setup([sys.argv[0], *(word for word in sys.argv[1:] if word != "--atheris"), corpus], one)
        atheris.Fuzz()


def run_text(target, text):
    """One case that is all in one text. Raises whatever is not allowed."""
    started = time.process_time()
    try:
        target(text)
    except EXPECTED as error:
        assert str(error).strip(), "an error without words"
    assert time.process_time() - started < 10 * SLOW, "slow"  # modules that count their lines are slower


def read_yaml(text):
    for tree in yaml_texts.load_all(text):
        assert same(goyaml.load(goyaml.dump(tree)), tree), "dump and load disagree"


def inject_text(text):
    result = inject_stream(text, DEFAULT)
    if text.isascii():  # names of Kubernetes are; Go's trunc cuts others within a character, and what is left is cut again
        assert inject_stream(result.text, DEFAULT).text == result.text, "injecting again changes the stream"


def annotate_text(text):
    """Each annotation of a pod has a line of the text."""
    pod = copy.deepcopy(POD)
    pod["metadata"]["annotations"] = dict(zip(ANNOTATIONS, text.split("\n"), strict=False))
    inject_pod(pod, DEFAULT)


def configure_text(text):
    inject_pod(POD, load_config(text))


TEXT_TARGETS = (read_yaml, inject_text, annotate_text, configure_text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--atheris", action="store_true")
    arguments, of_atheris = parser.parse_known_args()
    if arguments.atheris:
        fuzz_with_atheris()
    if of_atheris:
        parser.error(f"unknown: {' '.join(of_atheris)}")
    started = time.monotonic()
    counted = fuzz(arguments.cases, arguments.seed)
    print(
        f"injection: {arguments.cases} cases, seed {arguments.seed}, {time.monotonic() - started:.0f} s, nothing found"
    )
    for (target, outcome), count in sorted(counted.items()):
        print(f"  {target:18} {outcome:8} {count}")


if __name__ == "__main__":
    main()
