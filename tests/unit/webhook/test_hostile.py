"""Hostile bodies against the real server: each gets the right status, the log stays a line an event, and it goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
from pathlib import Path

import pytest

import hostile_reviews
from netinit.webhook.review import MAX_REVIEW_BYTES
from prefork import SECONDS
from sweeps import choose
from webhook_server import Server, make_pod

CASES = choose(200, 400)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("hostile"), "--log_output_level=default:debug", "--log_as_json") as made:
        yield made


def ask(server, headers, body, connection):
    """Status and body; a connection that the server has closed is made anew."""
    for _ in range(2):
        try:
            return server.post(body, headers=headers, connection=connection)
        except (OSError, http.client.HTTPException):  # it had closed the connection, or cut this one off
            connection.close()
    return None, b""


def test_hostile_bodies_get_their_status_and_never_a_traceback(server):
    drawn = random.Random(13)
    seen = {}
    with contextlib.closing(server.connect()) as connection:
        for number in range(CASES):
            headers, body = hostile_reviews.request(drawn)
            status, told = ask(server, headers, body, connection)
            seen[status] = seen.get(status, 0) + 1
            assert status in {200, 400, 413, 415}, (
                number,
                status,
                told[:200],
                body[:300],
            )
            assert b"Traceback" not in told
            if status == 200:
                response = json.loads(told)["response"]
                assert isinstance(response["allowed"], bool)
                assert "internal error" not in json.dumps(response), (number, told[:300], body[:1000])
    assert {200, 400, 415} <= set(seen), seen
    lines = server.log.read_text().splitlines()
    assert [line for line in lines if not isinstance(json.loads(line), dict)] == []
    assert server.review(make_pod())["allowed"]


def test_so_many_annotations_are_answered_in_time_and_a_million_are_refused(server):
    body = hostile_reviews.largest(150_000)
    status, _ = server.post(body, path="/inject?timeout=30s")
    assert status in {200, 503}
    status, _ = server.post(hostile_reviews.largest())
    assert status == 413
    assert server.review(make_pod())["allowed"]


@pytest.mark.parametrize(
    "text",
    [
        "GARBAGE\r\n\r\n",
        "POST /inject HTTP/9.9\r\n\r\n",
        "POST /inject HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /inject HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /inject HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST /inject HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
        "POST /inject HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST //inject%00/\u0001 HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda text: re.sub(r"\W+", " ", text)[:40],
)
def test_what_is_no_request_is_refused_or_cut_off(server, text):
    with (
        socket.create_connection(("127.0.0.1", server.port)) as raw,
        server.context.wrap_socket(raw, server_hostname="localhost") as end,
    ):
        end.settimeout(30)
        end.sendall(text.encode())
        end.sendall(b"")
        data = b""
        with contextlib.suppress(OSError):
            data = end.recv(100)
    assert not data or re.match(rb"HTTP/1\.1 4\d\d ", data), data
    assert server.review(make_pod())["allowed"]


def test_a_header_that_does_not_end_is_refused_at_the_limit_in_whatever_pieces_it_comes(server):
    with socket.create_connection(("127.0.0.1", server.port)) as raw, server.context.wrap_socket(raw, server_hostname="localhost") as end:
        end.sendall(b"POST /inject HTTP/1.1\r\nX-Long: ")
        sent, answer = 0, b""
        with contextlib.suppress(OSError):  # it may be cut off while this still sends
            while not answer and sent < 20 << 10:
                end.sendall(b"a" * 1024)
                sent += 1024
                end.settimeout(0.05 if sent < 20 << 10 else SECONDS)  # one that takes more would wait for it now
                with contextlib.suppress(TimeoutError):
                    answer = end.recv(100)
    assert answer.startswith(b"HTTP/1.1 431 "), answer


@pytest.mark.parametrize("level", ["default:info", "default:error"])
def test_denied_pods_write_no_more_lines_a_minute_than_the_limit(tmp_path, level):
    """Who may create pods causes these lines."""
    refused = make_pod(annotations={"traffic.sidecar.istio.io/includeOutboundPorts": "99999"})
    with Server(tmp_path, f"--log_output_level={level}") as server:
        with contextlib.closing(server.connect()) as connection:
            for _ in range(75):
                assert not server.review(refused, connection=connection)["allowed"]
        lines = server.log.read_text().count("decision=denied")
    assert lines == (60 if level == "default:info" else 0)


def test_idle_and_half_open_connections_are_bounded_and_others_are_served(tmp_path):
    with Server(tmp_path, "--maxConnections", "32") as server, contextlib.ExitStack() as stack:
        for _ in range(120):  # more than it takes; the rest waits in the kernel, or is cut off
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(5):
            server.until(lambda: server.review(make_pod())["allowed"], "handshakes that do not come are given up")
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) <= 32 + 64


def begin(server, size, sent=b""):
    """A review of so many bytes whose body does not come, or not all of it."""
    connection = server.connect()
    connection.putrequest("POST", "/inject?timeout=30s")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(size))
    connection.endheaders(sent)
    return connection


def test_bodies_that_do_not_come_take_no_place_of_others(tmp_path):
    with Server(tmp_path, "--maxReviews", "2") as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(contextlib.closing(begin(server, 100))) for _ in range(8)]
        for _ in range(5):
            assert server.review(make_pod())["allowed"]
        assert [one.getresponse().status for one in slow] == [408] * 8


def test_large_bodies_that_do_not_end_give_way_to_small_ones(tmp_path):
    size = MAX_REVIEW_BYTES - 1
    with Server(tmp_path) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(contextlib.closing(begin(server, size, b" " * (size - 1)))) for _ in range(8)]
        for _ in range(5):
            assert server.review(make_pod())["allowed"]
        assert {one.getresponse().status for one in slow} <= {408, 503}


def test_idle_connections_give_way_to_new_ones(tmp_path):
    with Server(tmp_path, "--maxConnections", "16") as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(contextlib.closing(server.connect())) for _ in range(24)]
        for one in idle:
            one.request("GET", "/livez")
            assert one.getresponse().read() == b"ok\n", "each finds room"
        for _ in range(5):
            assert server.review(make_pod())["allowed"]
        youngest = idle[-1]
        youngest.auto_open = False
        youngest.request("GET", "/livez")
        assert youngest.getresponse().status == 200, "the oldest gave way"
