"""The answer that ends a connection: connections do not last for ever, so that a new replica gets work."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from dataclasses import replace

import pytest

from netinit.inject.adding.settings import Settings
from netinit.serving import client_connections
from netinit.serving.event_log import EventLog
from netinit.serving.listener import HttpListener
from netinit.webhook.configuration import Texts, load
from netinit.webhook.review import ReviewAnswer
from netinit.webhook.server import Application
from netinit.webhook.serving_state import Metrics, ServingState
from webhook_server import make_pod, make_review

BODY = json.dumps(make_review(make_pod())).encode()
REQUEST = b"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


async def ask(reader, writer):
    """The answer's head; its body is read."""
    writer.write(REQUEST)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    return head


async def serve(visit):
    state = ServingState(served=load(Texts(), Settings(), 1))
    metrics = Metrics(state, lambda: 0)
    application = Application(state, log=EventLog("error", stream=io.StringIO()), metrics=metrics, max_reviews=8, max_bytes=1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        listening.settimeout(0)
        listener = HttpListener(application, listening, max_connections=8)
        listener.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await visit(reader, writer)
        finally:
            writer.close()
            await listener.close(5.0)


@pytest.mark.parametrize(("lifetime", "ends"), [(0.0, True), (1e6, False)], ids=["old", "young"])
def test_a_review_on_an_old_connection_is_answered_and_its_answer_says_that_it_is_the_last(monkeypatch, lifetime, ends):
    monkeypatch.setattr(client_connections, "_LIFETIME_SECONDS", (lifetime, lifetime))

    async def visit(reader, writer):
        head = await ask(reader, writer)
        assert b" 200 " in head.split(b"\r\n")[0]
        assert (b"connection: close" in head) is ends
        if ends:
            assert await reader.read() == b""
        else:
            assert b" 200 " in (await ask(reader, writer)).split(b"\r\n")[0]

    asyncio.run(serve(visit))


def test_a_connection_that_was_answered_gives_way_to_another_of_its_peer():
    async def visit(reader, writer):
        host, port = writer.get_extra_info("peername")
        await ask(reader, writer)
        others = [await asyncio.open_connection(host, port) for _ in range(4)]  # with the first one too many for one peer
        assert b" 200 " in (await ask(*others[-1])).split(b"\r\n")[0]
        assert await reader.read() == b"", "the idle one was closed"
        for _, other in others:
            other.close()

    asyncio.run(asyncio.wait_for(serve(visit), 30))


def test_no_header_says_who_the_client_is():
    async def visit(reader, writer):
        writer.write(get(b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n"))
        await reader.readuntil(b"\r\n\r\n")

    seen = []
    told = Application.__call__

    async def note(self, scope, receive, send):
        seen.append((scope["client"][0], scope["scheme"]))
        await told(self, scope, receive, send)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Application, "__call__", note)
        asyncio.run(serve(visit))
    assert seen == [("127.0.0.1", "http")]


def get(more=b""):
    return b"GET /livez HTTP/1.1\r\nHost: x\r\n" + more + b"\r\n"


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ([get() * 600], [b"200"] * 600),  # 20 kB of heads in one piece
        ([get(b"X: " + b"a" * 9000 + b"\r\n")] * 3, [b"200"] * 3),
        ([get(b"X: " + b"a" * 17000 + b"\r\n")], [b"431"]),
        ([get(b"X: " + b"a" * 9000 + b"\r\nY: " + b"a" * 9000 + b"\r\n")], [b"431"]),
        ([get() + get(b"X: " + b"a" * 17000 + b"\r\n")], [b"431"]),  # of pipelined requests the bad one ends the connection
        ([b"no request\r\n\r\n"], [b"400"]),
        ([get(), b"no request\r\n\r\n"], [b"200", b"400"]),
    ],
    ids=["many", "long ones", "one header", "two headers", "the second", "no head", "no second head"],
)
def test_each_head_of_a_connection_has_the_whole_limit_and_what_is_no_head_is_another_error(pieces, answers):
    async def visit(reader, writer):
        found = []
        for piece in pieces:
            writer.write(piece)
            for _ in range(len(answers) // len(pieces)):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0))
                found.append(head.split()[1])
        assert found == answers

    asyncio.run(asyncio.wait_for(serve(visit), 30))


@pytest.mark.parametrize(
    ("outcome", "detail", "level", "line"),
    [
        ("injected", "", "info", "info"), ("denied", "", "warn", "warn"), ("skipped", "", "debug", "debug"), ("skipped", "", "info", ""),
        ("skipped", "why", "error", "error"), ("denied", "", "error", ""), ("injected", "", "warn", ""),
    ],
)  # fmt: skip
def test_a_review_is_one_line_whose_level_is_that_of_its_outcome(outcome, detail, level, line):
    state, stream = ServingState(served=load(Texts(), Settings(), 1)), io.StringIO()
    log = EventLog(level, as_json=True, stream=stream)
    application = Application(state, log=log, metrics=Metrics(state, lambda: 0), max_reviews=8, max_bytes=1 << 20)
    who = {"namespace": "shop", "pod": "web", "owner": "Deployment/web", "uid": "u", "dry_run": True}
    answer = ReviewAnswer(status=200, body=b"", outcome=outcome, reason="r", detail=detail, message="said", **who)
    application._record(answer, 0.25)
    if not line:
        assert stream.getvalue() == ""
        return
    found = json.loads(stream.getvalue())
    expected = {
        "level": line, "msg": f"{outcome}: said", "pod": "shop/web", "owner": "Deployment/web", "decision": outcome, "milliseconds": 250.0,
        "uid": "u", "dryRun": True,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    application._record(replace(answer, pod="", message="", detail=detail), 0.0)
    second = json.loads(stream.getvalue().splitlines()[1])
    assert ("pod" in second, second["msg"]) == (False, outcome)


@pytest.mark.parametrize(("outcome", "detail", "lines"), [("denied", "", 60), ("denied", "why", 60), ("injected", "", 70)])
def test_lines_that_clients_cause_are_sixty_a_minute_at_most(outcome, detail, lines):
    state, stream = ServingState(served=load(Texts(), Settings(), 1)), io.StringIO()
    log = EventLog("info", as_json=True, stream=stream)
    application = Application(state, log=log, metrics=Metrics(state, lambda: 0), max_reviews=8, max_bytes=1 << 20)
    for _ in range(70):
        application._record(ReviewAnswer(status=200, body=b"", outcome=outcome, reason="r", detail=detail), 0.0)
    assert len(stream.getvalue().splitlines()) == lines


def test_readiness_names_each_check_with_its_result():
    state = ServingState()
    assert [(name, passed) for name, passed, _ in state._checks()][:2] == [("serving", True), ("configuration", False)]
    state = ServingState(served=load(Texts(), Settings(), 1), draining=True, certificate_expires=4e9, awaited={"b", "a"})
    assert state._checks()[0] == ("serving", False, "draining: it is stopping")
    assert state._checks()[2:] == [("cluster", False, "waiting for a, b"), ("certificate", True, "valid until 2096-10-02T07:06:40Z")]
    state.draining = False
    assert state._checks()[0] == ("serving", True, "ok")


HELP = {
    "sidecar_injection_requests_total": "Reviews received.",
    "sidecar_injection_success_total": "Reviews that injected a pod.",
    "sidecar_injection_failure_total": "Reviews of pods that cannot be injected.",
    "sidecar_injection_skip_total": "Reviews of pods that are not to be injected.",
    "sidecar_injection_time_seconds": "From the request's head to the answer.",
    "netinit_webhook_reviews_total": "Reviews by outcome.",
    "netinit_webhook_heavy_reviews_total": "Reviews computed outside the event loop.",
    "netinit_webhook_reviews_in_flight": "Reviews being answered.",
    "netinit_webhook_connections_dropped_total": "Connections that made room for others, by their stage; or refused.",
    "netinit_webhook_ready": "1 while the replica is ready.",
    "netinit_webhook_connections": "Open connections, counted from accept.",
    "netinit_webhook_configuration_generation": "The configuration in use, counted from 1.",
    "netinit_webhook_configuration_error": "1 while the newest configuration is invalid and an older one is in use.",
    "netinit_webhook_configuration_restored": "1 while a configuration from before a restart is in use, since the newest one is invalid.",
    "netinit_webhook_refused_canaries": "Canary pods that the configuration in use cannot inject; pods like them are refused.",
    "netinit_webhook_broken_templates": "Templates of the configuration in use that cannot be parsed; pods that ask for one are refused.",
    "netinit_webhook_certificate_start_timestamp_seconds": "From when on the serving certificate is valid.",
    "netinit_webhook_certificate_expiry_timestamp_seconds": "When the serving certificate expires.",
    "netinit_webhook_cluster_error": "1 while the webhook cannot read or write its objects: the API is unreachable, refuses, or lacks one.",
}


def test_each_metric_says_what_it_counts():
    lines = Metrics(ServingState(), lambda: 0).text().decode().splitlines()
    texts = dict(line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP"))
    assert {name: text for name, text in texts.items() if not name.startswith("process_") and name != "netinit_build_info"} == HELP


INTERNAL, STOPPING = "internal error; the injector's log has details", "the server is stopping, and has no time left; try again"


@pytest.mark.parametrize(("error", "status", "reason", "text", "retry", "logged"), [
    (KeyError("secret"), 500, "internal", INTERNAL, None, "internal error: KeyError: 'secret'"),
    (asyncio.CancelledError(), 503, "ended", STOPPING, b"1", ""),
])  # fmt: skip
def test_a_review_that_fails_or_is_cut_off_is_answered_and_counted(error, status, reason, text, retry, logged, monkeypatch):
    state, stream = ServingState(served=load(Texts(), Settings(), 1)), io.StringIO()
    metrics = Metrics(state, lambda: 0)
    application = Application(state, log=EventLog("error", stream=stream), metrics=metrics, max_reviews=8, max_bytes=1 << 20)

    async def fail(*_):
        raise error

    monkeypatch.setattr(application, "_review", fail)
    sent = []

    async def send(event):
        sent.append(event)

    async def ask():
        scope = {"path": "/inject", "state": {"arrived": asyncio.get_running_loop().time(), "last": False}}
        await application(scope, None, send)

    asyncio.run(ask())
    start, body = sent
    assert (start["status"], body["body"].decode()) == (status, f"{text}\n")
    headers = dict(start["headers"])
    assert headers == {
        b"content-type": b"text/plain; charset=utf-8", b"content-length": b"%d" % (len(text) + 1), b"connection": b"close",
        **({b"retry-after": retry} if retry else {}),
    }  # fmt: skip
    assert stream.getvalue().endswith(f"\terror\t{logged}\n" if logged else "")
    found = metrics.text().decode()
    assert f'netinit_webhook_reviews_total{{outcome="refused",reason="{reason}"}} 1.0' in found
    assert "netinit_webhook_reviews_in_flight 0.0" in found
