"""Strangers load the real server, each kind with a bounded number of connections on the loopback; the API server is answered."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import time
from pathlib import Path

import pytest

from netinit.webhook.certificates import make_pair
from sweeps import choose
from webhook_attackers import attackers, review_of
from webhook_server import Server, make_pod, make_review

CONNECTIONS = choose(32, 64)
REVIEWS = choose(6, 12)
HEAVY = json.dumps(make_review(make_pod(), object={**make_pod(), "spec": {"containers": [
    {"name": f"c{number}", "image": "i", "env": [{"name": f"e{at}", "value": "v"} for at in range(20)]} for number in range(900)
]}})).encode()  # fmt: skip


def samples(server, name):
    """The values of a metric, by its labels."""
    lines = server.monitor("/metrics")[1].splitlines()
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)}


def dropped(server):
    return sum(samples(server, "netinit_webhook_connections_dropped_total").values())


@pytest.mark.parametrize("kind", ["silent", "idle", "half_heads", "half_bodies", "handshakes"])
def test_connections_of_strangers_hold_up_no_review(tmp_path, kind):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path, "--maxConnections", CONNECTIONS, "--log_output_level=warn"))
        told = server.log.read_text()  # of a start that took long
        stack.enter_context(attackers(server, nice=0, **{kind: 3 * CONNECTIONS}))
        if kind != "handshakes":  # which end by themselves
            server.until(lambda: dropped(server) > CONNECTIONS, "more of them come than there is room for")
        with contextlib.closing(server.connect()) as kept:
            for _ in range(REVIEWS):
                assert server.review(make_pod())["allowed"], "on a new connection"
                assert server.review(make_pod(), connection=kept)["allowed"], "on a kept one"
                assert server.get("/readyz")[0] == 200
        assert samples(server, "netinit_webhook_connections")[""] <= CONNECTIONS
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) <= CONNECTIONS + 320
        assert server.log.read_text() == told, "strangers cannot write the log"


def test_all_of_them_at_once_hold_up_no_review(tmp_path):
    mixture = {"silent": 100, "half_heads": 60, "half_bodies": 60, "handshakes": 10, "large_bodies": 4, "containers": 2}
    with Server(tmp_path, "--maxConnections", CONNECTIONS) as server, attackers(server, nice=0, **mixture):
        server.until(lambda: dropped(server) > CONNECTIONS, "more of them come than there is room for")
        for _ in range(REVIEWS):
            assert server.review(make_pod())["allowed"]
            assert server.get("/readyz")[0] == 200
        lines = [line for line in server.log.read_text().splitlines() if "decision=injected" not in line]
        assert len(lines) < 100


def test_heavy_reviews_are_computed_beside_light_ones(tmp_path):
    with Server(tmp_path) as server, contextlib.closing(server.connect()) as slow:
        slow.request("POST", "/inject?timeout=30s", HEAVY, {"Content-Type": "application/json"})
        for _ in range(REVIEWS):
            assert server.review(make_pod())["allowed"]
        answer = slow.getresponse()
        assert json.loads(answer.read())["response"]["allowed"]
        assert samples(server, "netinit_webhook_heavy_reviews_total") == {"": 1.0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"containers": [{"name": f"c{number}", "image": "i"} for number in range(1001)]}}, "its 1001 containers are more than 1000"),
        (
            {"spec": {"initContainers": [{"name": "i"}] * 600, "containers": [{"name": "c"}] * 600}},
            "its 1200 containers are more than 1000",
        ),
        ({"metadata": {"annotations": {"a": "x" * (256 << 10)}}}, "the API server takes 256 KiB of them"),
        ({"spec": {"containers": [{"name": "c", "args": ["x" * (3 << 20)]}]}}, "more than the 3 MiB that the API server takes"),
    ],
    ids=["containers", "init containers", "annotations", "bytes"],
)
def test_a_pod_beyond_the_api_servers_own_limits_is_denied(tmp_path, change, said):
    with Server(tmp_path) as server:
        response = server.review({**make_pod(), **change})
        assert not response["allowed"]
        assert said in response["status"]["message"]


def test_a_body_of_more_values_than_a_pod_can_have_is_refused_before_it_is_parsed(tmp_path):
    with Server(tmp_path) as server:
        assert server.post(b'{"a":[' + b"[]," * 200_000 + b"[]]}")[0] == 413
        assert server.post(review_of(60_000))[0] == 200, "with so many containers it is denied"


def test_reviews_beyond_the_queue_get_503_and_are_asked_to_try_again(tmp_path):
    """The only place is taken by a heavy review whose child stands still; it is sent again if its time is over before the other came."""
    refused = []

    def is_refused():
        with contextlib.closing(server.connect()) as slow:
            slow.request("POST", "/inject?timeout=30s", HEAVY, {"Content-Type": "application/json"})
            found = []
            server.until(lambda: found.extend(children_of(server.process.pid)) or found, "it is computed in a child")
            signal_to(found[0], signal.SIGSTOP)
            with contextlib.closing(server.connect()) as connection:
                connection.request("POST", "/inject", json.dumps(make_review(make_pod())), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
            signal_to(found[0], signal.SIGCONT)
            assert slow.getresponse().status in {200, 503}
        refused.extend([answer] if answer.status != 200 else [])
        return refused

    with Server(tmp_path, "--maxReviews", "1") as server:
        server.until(is_refused, "there is no place")
        assert samples(server, 'netinit_webhook_reviews_total{outcome="refused",reason="busy"}')[""] == 1.0
        assert server.review(make_pod())["allowed"], "there is a place again"
    ((status, wait),) = [(answer.status, answer.headers["retry-after"]) for answer in refused]
    assert (status, wait) == (503, "1")


def signal_to(pid, number):
    with contextlib.suppress(ProcessLookupError):  # its work is done, or its time over
        os.kill(pid, number)


def children_of(pid):
    return [int(child) for one in Path(f"/proc/{pid}/task").glob("*/children") for child in one.read_text().split()]


def test_from_the_first_moment_health_is_answered_and_reviews_get_503(tmp_path):
    """Without a certificate and a configuration: nobody waits for a timeout."""
    server = Server(tmp_path, wait=False, config="{{ broken")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).unlink()
    with server:
        server.until(lambda: not_ready(server), "it answers")
        assert server.monitor("/readyz")[0] == 503


def not_ready(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.closing(server.connect(context)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok\n"
        connection.request("POST", "/inject", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, b"no configuration yet" in answer.read()) == (503, True)
    return True


def test_a_stand_in_certificate_gives_way_to_the_real_one(tmp_path):
    later = make_pair(("localhost",), now=time.time(), seconds=3600)
    server = Server(tmp_path, wait=False)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).unlink()
    with server:
        server.until(lambda: "none yet" in server.monitor("/readyz?verbose")[1], "it runs without one")
        server.pair = later
        server.write_certificate(later)
        server.until(lambda: server.monitor("/readyz")[0] == 200, "it is ready")
        assert server.review(make_pod())["allowed"]
