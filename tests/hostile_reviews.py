"""Bodies that somebody else than an API server might send, or an API server for somebody: drawn at random from a seed."""

from __future__ import annotations

import copy
import gzip
import json

from webhook_server import make_pod, make_review

JSON = {"Content-Type": "application/json"}
SCALARS = [
    None,
    True,
    0,
    -1,
    1.5,
    10**40,
    "",
    "x",
    "\x00",
    "a\r\nb: c",
    "\ud800",
    "\u202e\u200e",
    "{{ .Values }}",
    "$(x)",
    "*" * 5000,
    "💥",
]
ANNOTATIONS = [
    "sidecar.istio.io/inject",
    "status.sidecar.istio.io/port",
    "traffic.sidecar.istio.io/includeInboundPorts",
    "proxy.istio.io/config",
    "proxy.istio.io/overrides",
    "sidecar.istio.io/status",
    "inject.istio.io/templates",
    "sidecar.istio.io/userVolume",
    "prometheus.io/port",
    "sidecar.istio.io/nope",
]
TEXTS = [
    "true",
    "false",
    "",
    "80,81",
    "80,",
    "{",
    "[]",
    "{}",
    "null",
    '{"containers": [null]}',
    "a: &a [*a]",
    "concurrency: 2",
    "x" * 4000,
    "\n- a",
    "'",
    '"',
    "{{",
    "% ^",
]


def tree(random, depth=0):
    """Any JSON value."""
    if depth > 4 or random.random() < 0.4:
        return random.choice(SCALARS)
    if random.random() < 0.5:
        return [tree(random, depth + 1) for _ in range(random.randrange(4))]
    return {
        str(random.choice([*SCALARS, "name", "metadata", "spec", "containers"])): tree(random, depth + 1)
        for _ in range(random.randrange(4))
    }


def places(value, found=None):
    """Every container of the tree with each of its keys."""
    found = [] if found is None else found
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            places(value[key], found)
    return found


def spoilt(random):
    """A good review in which some values are others."""
    pod = make_pod(
        annotations={random.choice(ANNOTATIONS): random.choice(TEXTS) for _ in range(3)},
        initContainers=[{"name": "i", "image": "i"}],
        volumes=[{"name": "v", "emptyDir": {}}],
        securityContext={"runAsUser": 1000},
    )
    review = copy.deepcopy(make_review(pod, version=random.choice(["v1", "v1beta1"]), uid="u"))
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        holder, key = random.choice(places(review))
        holder[key] = tree(random)
    return json.dumps(review).encode()


def truncated(random):
    body = spoilt(random)
    return body[: random.randrange(len(body))]


def flipped(random):
    body = bytearray(spoilt(random))
    for _ in range(random.randrange(1, 6)):
        body[random.randrange(len(body))] = random.randrange(256)
    return bytes(body)


def nested(random):
    depth = random.choice([100, 400, 900, 5000, 200_000])
    opening, closing = random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = opening * depth + b"1" + closing * depth
    if random.random() < 0.5:
        return inner
    return json.dumps(make_review("HERE")).encode().replace(b'"HERE"', b'{"spec": {"x": ' + inner + b"}}")


def doubled(random):
    return spoilt(random).replace(b'"uid": "u"', b'"uid": "u", "uid": 7, "object": {}, "object": null')


def numbers(random):
    word = random.choice([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"9" * 6000, b"1e-999", b"00", b"0x1"])
    return spoilt(random).replace(b'"shop"', word, 1)


def others(random):
    kind = {
        "group": random.choice(["", "apps", "x"]),
        "version": "v1",
        "kind": random.choice(["Pod", "Deployment", "", "pod"]),
    }
    more = {
        "kind": kind,
        "operation": random.choice(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]),
        "subResource": random.choice(["", "exec", "\r\n"]),
    }
    return json.dumps(make_review(tree(random), **more)).encode()


def annotated(random):
    count = random.choice([1000, 20_000])
    return json.dumps(
        make_review(make_pod(annotations={f"sidecar.istio.io/{number}": "x" for number in range(count)}))
    ).encode()


BODIES = [spoilt] * 8 + [truncated] * 3 + [flipped] * 3 + [nested, doubled, numbers, others, others]


def request(random):
    """The headers and the body of one request."""
    draw = random.random()
    if draw < 0.01:
        return JSON, annotated(random)
    if draw < 0.02:
        return JSON, b" " * ((6 << 20) + 1)
    if draw < 0.05:
        return {
            "Content-Type": random.choice(
                ["", "text/plain", "application/yaml", "application/json5", "application/x-www-form-urlencoded"]
            )
        }, spoilt(random)
    if draw < 0.07:
        return {**JSON, "Content-Encoding": "gzip"}, gzip.compress(b" " * (1 << 20))
    return JSON, random.choice(BODIES)(random)


def largest(annotations=1_000_000):
    """One pod with a million annotations, cut to what a request may hold."""
    short = {f"a/{number:x}": "" for number in range(annotations)}
    return json.dumps(make_review(make_pod(annotations=short)), separators=(",", ":")).encode()
