"""The application without a server: for each request its whole response, what is counted, and its line in the log."""

from __future__ import annotations

import asyncio
import functools
import io
import json
from types import SimpleNamespace

import pytest

from netinit.inject.adding.settings import Settings
from netinit.serving.event_log import EventLog
from netinit.webhook import review, server
from netinit.webhook.configuration import Texts, load
from netinit.webhook.review import MAX_REVIEW_BYTES, Fault, Interruption
from netinit.webhook.server import Application, check_head, discard, request_seconds
from netinit.webhook.serving_state import Metrics, ServingState
from webhook_server import CONFIG, make_pod, make_review

TEMPLATES = Texts(config=json.dumps(CONFIG), values='{"release": "r1"}', mesh="trustDomain: td")
JSON_TYPE = (b"content-type", b"application/json")
TEXT = "text/plain; charset=utf-8"
BODY = json.dumps(make_review(make_pod())).encode()
STOPPING = "the server is stopping, and has no time left; try again"


@functools.cache
def served_config():
    """Tried on canaries: not in every worker that collects this file."""
    return load(TEMPLATES, Settings(revision="default"))


@pytest.fixture
def ask():
    """`ask(path, body, …)`: the response of one request; `log` are the lines it wrote, `counted` the reviews by labels."""

    def request(path="/inject", body=BODY, *, headers=(JSON_TYPE,), method="POST", query=b"", level="debug", state=None, **more):
        state = state or ServingState(served=served_config())
        written, sent = io.StringIO(), []
        metrics = Metrics(state, lambda: 0)
        wanted = {key: more.pop(key) for key in ("wants_certificate", "max_reviews", "max_bytes") if key in more}
        application = Application(
            state, log=EventLog(level, as_json=True, stream=written), metrics=metrics,
            **{"max_reviews": 8, "max_bytes": 1 << 20, **wanted},
        )  # fmt: skip

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            sent.append(message)

        async def do():
            arrived = asyncio.get_running_loop().time()
            scope = {
                "path": path, "raw_path": path.encode(), "query_string": query, "method": method, "headers": headers,
                "client": ("10.0.0.1", 4711), "state": {"arrived": arrived, "last": False, "certified": False, **more},
            }  # fmt: skip
            await application(scope, receive, send)

        asyncio.run(do())
        start, end = sent
        assert (start["type"], end["type"]) == ("http.response.start", "http.response.body")
        found = {
            family.name: {
                tuple(one.labels.values()): one.value for one in family.samples if one.name.endswith(("_total", "flight"))
            }
            for family in metrics._registry.collect()
        }
        assert found["netinit_webhook_reviews_in_flight"] == {(): 0.0}
        return SimpleNamespace(
            status=start["status"], body=end["body"],
            headers=[(name.decode(), value.decode()) for name, value in start["headers"]],
            log=[json.loads(line) for line in written.getvalue().splitlines()],
            counted=[labels for labels, number in found["netinit_webhook_reviews"].items() if number == 1],
            heavy=found["netinit_webhook_heavy_reviews"][()],
        )  # fmt: skip

    return request


def refused(status, text):
    """The headers and the body of a refusal: it closes the connection, and 503 says when to try again."""
    retry = [("retry-after", "1")] if status == 503 else []
    body = (text + "\n").encode()
    return [("content-type", TEXT), ("content-length", str(len(body))), *retry, ("connection", "close")], body


def test_a_pod_is_injected_and_its_line_has_the_facts(ask):
    done = ask()
    assert done.status == 200
    assert done.headers == [("content-type", "application/json"), ("content-length", str(len(done.body)))]
    assert json.loads(done.body)["response"]["allowed"] is True
    assert (done.counted, done.heavy) == ([("injected", "policy")], 0)
    (line,) = done.log
    assert (line.pop("milliseconds") > 0, bool(line.pop("time"))) == (True, True)
    assert line == {
        "level": "info", "scope": "default", "msg": "injected: the injector's policy is enabled", "pod": "shop/web",
        "owner": "Pod/web", "decision": "injected", "reason": "policy", "uid": "c0ffee",
    }  # fmt: skip


@pytest.mark.parametrize(("draining", "more"), [(True, {}), (False, {"last": True})])
def test_the_last_answer_of_a_connection_says_that_it_closes(ask, draining, more):
    done = ask(state=ServingState(served=served_config(), draining=True) if draining else None, **more)
    assert (done.status, done.headers[-1]) == (200, ("connection", "close"))


@pytest.mark.parametrize(
    ("request_", "status", "reason", "text"),
    [
        ({"method": "GET"}, 405, "no-review", "reviews are sent by POST"),
        ({"headers": ()}, 415, "no-json", "the Content-Type must be application/json"),
        ({"headers": (JSON_TYPE, (b"content-encoding", b"gzip"))}, 415, "no-json", "compressed bodies are not accepted"),
        ({"headers": (JSON_TYPE, (b"content-length", b"x"))}, 400, "no-review", "the Content-Length is not a number"),
        ({"headers": (JSON_TYPE, (b"content-length", b"7000000"))}, 413, "too-large", "the body is longer than 6 MiB"),
        ({"wants_certificate": True}, 403, "no-certificate", "reviews are only answered to clients with a certificate"),
        ({"state": ServingState()}, 503, "not-ready", "there is no configuration yet; try again"),
        ({"arrived": 0.0}, 503, "late", "the review waited too long; try again"),
    ],
)
def test_what_is_refused_gets_its_status_reason_and_text(ask, request_, status, reason, text):
    done = ask(**request_)
    headers, body = refused(status, text)
    assert (done.status, done.headers, done.body, done.counted) == (status, headers, body, [("refused", reason)])
    (line,) = done.log
    assert (line["level"], line["msg"], line["decision"], line["reason"]) == ("debug", f"refused: {text}", "refused", reason)
    assert not {"pod", "owner", "uid", "dryRun", "detail"} & line.keys()


def test_a_client_with_a_certificate_is_answered(ask):
    assert ask(wants_certificate=True, certified=True).status == 200


@pytest.mark.parametrize(
    ("error", "status", "reason", "text", "told"),
    [
        (ZeroDivisionError("oops"), 500, "internal", "internal error; the injector's log has details",
         ["internal error: ZeroDivisionError: oops"]),
        (asyncio.CancelledError(), 503, "ended", STOPPING, []),
        (TimeoutError(), 503, "late", "the review waited too long; try again", []),
        (Fault(418, "teapot", "an answer"), 418, "teapot", "an answer", []),
    ],
)  # fmt: skip
def test_a_review_that_fails_gets_an_answer_without_internals(ask, monkeypatch, error, status, reason, text, told):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(review, "answer", fail)
    done = ask()
    headers, body = refused(status, text)
    assert (done.status, done.headers, done.body, done.counted) == (status, headers, body, [("refused", reason)])
    assert [line["msg"] for line in done.log if line["level"] == "error"] == told


def test_a_review_that_takes_too_long_in_the_loop_starts_over_in_a_child(ask, monkeypatch):
    answered = review.refuse(Fault(418, "teapot", "an answer"))
    limits = []

    def run_limited(seconds, work):
        limits.append(seconds)
        raise Interruption

    async def run_in_child(work, deadline):
        return answered

    monkeypatch.setattr(server, "run_limited", run_limited)
    monkeypatch.setattr(server, "run_in_child", run_in_child)
    done = ask()
    assert (done.status, done.heavy, limits) == (418, 1, [0.05])
    done = ask(body=b" " * ((32 << 10) + 1))
    assert (done.status, done.heavy, limits) == (418, 1, [0.05]), "a large one starts there"
    ask(body=b" " * (32 << 10))
    assert limits == [0.05, 0.05]

    async def interrupt(work, deadline):
        raise Interruption

    monkeypatch.setattr(server, "run_in_child", interrupt)
    done = ask()
    headers, body = refused(503, "the review exceeds its time or memory; the pod is too large")
    assert (done.status, done.headers, done.body, done.counted) == (503, headers, body, [("refused", "late")])


def test_the_time_that_is_left_is_what_the_request_says(ask, monkeypatch):
    left = []

    async def run_in_child(work, deadline):
        left.append(deadline - asyncio.get_running_loop().time())
        return review.refuse(Fault(418, "teapot", "an answer"))

    monkeypatch.setattr(server, "run_in_child", run_in_child)
    ask(body=b" " * (33 << 10), query=b"timeout=20s")
    assert 17 < left[0] <= 18


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        (b"", 9.0), (b"timeout=10s", 9.0), (b"timeout=5s", 4.5), (b"a=b&timeout=1s", 0.9), (b"timeout=0s", 0.9),
        (b"timeout=30s", 27.0), (b"timeout=99s", 27.0), (b"timeout=100s", 9.0), (b"timeout=5", 9.0), (b"timeout=5m", 9.0),
        (b"timeout=-5s", 9.0), (b"time=5s", 9.0), (b"timeout=s", 9.0),
    ],
)  # fmt: skip
def test_the_time_for_a_review_is_nine_tenths_of_the_servers_timeout(query, seconds):
    assert request_seconds(query) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ([JSON_TYPE, JSON_TYPE], 400, "the header content-type is given twice"),
        ([JSON_TYPE, (b"content-length", b"1"), (b"content-length", b"1")], 400, "the header content-length is given twice"),
        ([JSON_TYPE, (b"content-encoding", b"identity")] * 2, 400, "the header content-type is given twice"),
        ([(b"content-encoding", b"identity")] * 2, 400, "the header content-encoding is given twice"),
        ([JSON_TYPE, (b"content-length", b"6291457")], 413, "the body is longer than 6 MiB"),
        ([JSON_TYPE, (b"content-length", b"00000000001")], 413, "the body is longer than 6 MiB"),
        ([JSON_TYPE, (b"content-length", b"-1")], 400, "the Content-Length is not a number"),
        ([(b"content-type", b"application/jsonp")], 415, "the Content-Type must be application/json"),
        ([JSON_TYPE, (b"connection", b"Upgrade, HTTP2-Settings"), (b"upgrade", b"h2c")], 400, "the header Upgrade asks for h2c, which is not served: send the review without it"),
        ([JSON_TYPE, (b"connection", b"upgrade"), (b"upgrade", b"\x1b[2J")], 400, r"the header Upgrade asks for \x1b[2J, which is not served: send the review without it"),
    ],
)
def test_a_head_that_is_none_of_a_review_is_refused(headers, status, text):
    with pytest.raises(Fault) as fault:
        check_head("POST", headers)
    assert (fault.value.status, str(fault.value)) == (status, text)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-type", b" Application/JSON ; charset=utf-8")], [JSON_TYPE, (b"content-encoding", b" Identity ")],
        [JSON_TYPE, (b"content-length", str(MAX_REVIEW_BYTES).encode())], [JSON_TYPE, (b"content-length", b"0000000001")],
        [JSON_TYPE, (b"accept", b"a"), (b"accept", b"b")], [JSON_TYPE, (b"upgrade", b"h2c")],
    ],
)  # fmt: skip
def test_a_head_of_a_review_passes(headers):
    check_head("POST", headers)


def test_of_a_body_that_is_too_long_more_is_read_up_to_a_bound():
    def read(*messages):
        left = list(messages)

        async def receive():
            return left.pop(0)

        asyncio.run(discard(receive))
        return len(left)

    assert read({"body": b"x", "more_body": True}, {"more_body": True}, {"body": b"x"}, {}) == 1
    assert read({"body": b"x" * (32 << 20), "more_body": True}, {}) == 1
    assert read({"body": b"x" * ((32 << 20) - 1), "more_body": True}, {"more_body": True}, {}) == 0


@pytest.mark.parametrize(("status", "times"), [(413, 1), (400, 0)])
def test_the_rest_of_a_body_that_is_too_long_is_read_before_the_answer(ask, monkeypatch, status, times):
    read = []

    async def discard(receive):
        read.append(receive)

    def fail(*_, **__):
        raise Fault(status, "too-large", "long")

    monkeypatch.setattr(server, "discard", discard)
    monkeypatch.setattr(review, "answer", fail)
    assert ask().status == status
    assert len(read) == times


def test_the_health_of_a_draining_server_closes_the_connection_and_counts_no_review():
    async def do(state):
        sent = []
        metrics = Metrics(state, lambda: 0)
        application = Application(state, log=EventLog("debug"), metrics=metrics, max_reviews=8, max_bytes=1 << 20)

        async def send(message):
            sent.append(message)

        await application({"path": "/livez", "query_string": b""}, None, send)
        return sent[0]["headers"][2:], sent[1]["body"]

    assert asyncio.run(do(ServingState())) == ([], b"ok\n")
    assert asyncio.run(do(ServingState(draining=True))) == ([(b"connection", b"close")], b"ok\n")
