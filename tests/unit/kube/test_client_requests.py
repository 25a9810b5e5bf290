"""What the client sends, to the byte, and what it makes of answers: with a transport of the tests' own instead of a network."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from netinit.base.errors import ClusterError
from netinit.kube import client as client_module
from netinit.kube.access import Access
from netinit.kube.client import Client, write_event
from netinit.kube.one_request import ask_once
from netinit.kube.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS

SERVER = Access(server="http://api", token="t")
MAP = "/api/v1/namespaces/ns/configmaps/a"
SYNTAX = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
ENCODING = "'utf-8' codec can't decode byte 0xc3 in position 0: unexpected end of data"


class Parts(httpx2.AsyncByteStream):
    """A body that arrives in these parts."""

    def __init__(self, *parts):
        self.parts = parts

    async def __aiter__(self):
        for part in self.parts:
            yield part


class Api:
    """Gives the answers one after the other (parts of a body, with 200 or a status before them), or raises them."""

    def __init__(self):
        self.answers, self.requests = [], []

    async def handle(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else b"{}"
        if isinstance(answer, Exception):
            raise answer
        status, *parts = answer if isinstance(answer, tuple) else (200, answer)
        return httpx2.Response(status, stream=Parts(*parts), request=request)

    @property
    def sent(self):
        """Method, path with query, type and body of each request."""
        return [
            (one.method, one.url.raw_path.decode(), one.headers.get("Content-Type"), json.loads(one.content or "null"))
            for one in self.requests
        ]

    def ask(self, work, *answers, access=SERVER, **more):
        """What the work with a client returns, where the API gives these answers."""

        async def run():
            async with Client(access, **more) as client:
                return await work(client)

        self.answers = list(answers)
        return asyncio.run(run())

    def refuse(self, *answers, **more):
        """The error of a request for a ConfigMap to which the API gives these answers."""
        with pytest.raises(ClusterError) as error:
            self.ask(lambda client: client.get(CONFIG_MAPS, "a", "ns"), *answers, **more)
        return error.value

    def watch(self, *parts, status=200, **more):
        """The changes of a watch that gets these parts, and how often it was said to be open."""
        opened = []

        async def run(client):
            changes = client.watch(CONFIG_MAPS, "ns", version="5", seconds=60, opened=lambda: opened.append(True), **more)
            return [change async for change in changes]

        try:
            return self.ask(run, (status, *parts)), len(opened)
        except ClusterError as error:
            return error, len(opened)


@pytest.fixture
def api(monkeypatch):
    api = Api()
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", api.handle)
    return api


async def get(client):
    return await client.get(CONFIG_MAPS, "a", "ns")


@pytest.mark.parametrize(("more", "seconds"), [({}, (5, 10)), ({"seconds": 2.0}, (2, 2)), ({"seconds": 30.0}, (5, 30))])
def test_a_request_has_its_headers_and_deadlines(api, more, seconds):
    assert api.ask(get, access=Access(server="http://api", token="t", certificate_authority="not read without TLS"), **more) == {}
    (request,) = api.requests
    assert str(request.url) == f"http://api{MAP}"
    headers = {name: request.headers.get(name) for name in ("Accept", "User-Agent", "Authorization", "Content-Type")}
    assert headers == {"Accept": "application/json", "User-Agent": "netinit", "Authorization": "Bearer t", "Content-Type": None}
    connect, others = seconds
    assert request.extensions["timeout"] == {"connect": connect, "read": others, "write": others, "pool": others}
    assert "sni_hostname" not in request.extensions


def test_a_server_name_of_the_kubeconfig_is_that_of_the_handshake(api):
    api.ask(get, access=Access(server="http://api", server_name="api.example"))
    assert api.requests[0].extensions["sni_hostname"] == "api.example"
    assert "Authorization" not in api.requests[0].headers


def test_one_request_is_made_with_a_client_of_its_own(api):
    api.answers = [b'{"kind": "ConfigMap"}']
    assert ask_once(SERVER, get) == {"kind": "ConfigMap"}
    assert api.sent == [("GET", MAP, None, None)]


def test_a_list_has_all_pages_and_the_version_of_the_last(api):
    pages = [
        b'{"metadata": {"continue": "more", "resourceVersion": "1"}, "items": [{"a": 1}, "odd"]}',
        b'{"metadata": {"resourceVersion": "2"}, "items": [{"b": 2}]}',
    ]
    assert api.ask(lambda client: client.list(CONFIG_MAPS), *pages) == ([{"a": 1}, {"b": 2}], "2")
    assert api.ask(lambda client: client.list(CONFIG_MAPS, "ns", fields="metadata.name=a"), b"{}") == ([], "")
    assert [path for _, path, *_ in api.sent] == [
        "/api/v1/configmaps?limit=500",
        "/api/v1/configmaps?limit=500&continue=more",
        "/api/v1/namespaces/ns/configmaps?limit=500&fieldSelector=metadata.name%3Da",
    ]
    kept = []
    assert api.ask(lambda client: client.list(CONFIG_MAPS, keep=lambda tree: kept.append(len(api.sent)) or tree.get("b")), *pages) == ([2], "2")
    assert kept == [4, 5], "what is kept of a page is chosen before the next one is asked for"


def test_objects_are_written_replaced_patched_and_deleted(api):
    async def work(client):
        yield await client.create(SECRETS, {"metadata": {}}, "ns")
        yield await client.replace(DEPLOYMENTS, {"spec": 1}, "d", "ns")
        yield await client.patch(SECRETS, "s", {"data": {}})
        yield await client.patch(DEPLOYMENTS, "d", [{"op": "test"}], "ns", kind="application/json-patch+json", part="status")
        yield await client.delete(SECRETS, "s", "ns")
        yield await client.delete(SECRETS, "s", "ns", version="7")
        yield await client.delete(SECRETS, "s", "ns", uid="u", version="7")

    async def collect(client):
        return [answer async for answer in work(client)]

    answers = [b'{"n": %d}' % number for number in range(7)]
    assert api.ask(collect, *answers) == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, None, None, None]
    secret, deployment = "/api/v1/namespaces/ns/secrets/s", "/apis/apps/v1/namespaces/ns/deployments/d"
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert api.sent == [
        ("POST", "/api/v1/namespaces/ns/secrets", "application/json", {"apiVersion": "v1", "kind": "Secret", "metadata": {}}),
        ("PUT", deployment, "application/json", {"apiVersion": "apps/v1", "kind": "Deployment", "spec": 1}),
        ("PATCH", "/api/v1/secrets/s", "application/merge-patch+json", {"data": {}}),
        ("PATCH", f"{deployment}/status", "application/json-patch+json", [{"op": "test"}]),
        ("DELETE", secret, None, None),
        ("DELETE", secret, "application/json", {**options, "preconditions": {"resourceVersion": "7"}}),
        ("DELETE", secret, "application/json", {**options, "preconditions": {"uid": "u", "resourceVersion": "7"}}),
    ]


def test_an_event_can_be_of_the_normal_kind_and_is_about_something_without_a_name(api):
    def write(client):
        return write_event(client, {}, reason="r", message="m" * 1001, component="c", kind="Normal")

    assert api.ask(write, b"{}") == ""
    (_, path, _, event), *_ = api.sent
    assert (path, event["type"], event["message"], event["metadata"]) == (
        "/api/v1/namespaces/default/events", "Normal", "m" * 1000, {"generateName": "None.", "namespace": "default"},
    )  # fmt: skip
    assert api.ask(write, (403, b"")) == "the API refuses POST /api/v1/namespaces/default/events: 403 "


@pytest.mark.parametrize(
    ("answer", "message", "status", "reason"),
    [
        ((400, b'{"message": "no\\nway", "reason": "Bad"}'), f"the API refuses GET {MAP}: 400 no\\nway", 400, "Bad"),
        ((404, b'{"message": "', b"x" * 401, b'"}'), f"the API refuses GET {MAP}: 404 {'x' * 400}…", 404, ""),
        ((500, b"\xff" + b"x" * 200), f"the API refuses GET {MAP}: 500 \ufffd{'x' * 199}", 500, ""),
        ((503, b'["\\n"]'), f'the API refuses GET {MAP}: 503 ["\\n"]', 503, ""),
        (b"[1]", f"the API's answer to {MAP} is not an object", 0, ""),
        (b"\xc3", f"the API's answer to {MAP} is not JSON: {ENCODING}", 0, ""),
        (b"{]", f"the API's answer to {MAP} is not JSON: {SYNTAX}", 0, ""),
        (httpx2.ReadTimeout("slow"), f"the API at http://api cannot be asked (GET {MAP}): was late", 0, ""),
        (httpx2.ConnectError("no\nroute"), f"the API at http://api cannot be asked (GET {MAP}): no\\nroute", 0, ""),
        (httpx2.ReadError(""), f"the API at http://api cannot be asked (GET {MAP}): ReadError", 0, ""),
    ],
)
def test_an_error_says_what_was_asked_and_what_came(api, answer, message, status, reason):
    error = api.refuse(answer)
    assert (str(error), error.status, error.reason) == (message, status, reason)


def test_an_answer_that_is_nested_too_deeply_is_refused(api):
    assert " is not JSON: it is nested too deeply" in str(api.refuse(b"[" * 100_000))


@pytest.mark.parametrize(("status", "refused"), [(399, False), (400, True)])
def test_answers_from_400_on_are_refusals(api, status, refused):
    if refused:
        assert api.refuse((status, b"{}")).status == status
    else:
        assert api.ask(get, (status, b"{}")) == {}


def test_an_answer_is_bounded_whatever_its_parts(api, monkeypatch):
    monkeypatch.setattr(client_module, "_MAX_BYTES", 1 << 20)
    half = 1 << 19
    assert api.ask(get, (200, b"{", b" " * (half - 1), b" " * (half - 1), b"}")) == {}
    assert str(api.refuse((200, b"{", b" " * half, b" " * (half - 1), b"}"))) == f"the API's answer to {MAP} is longer than 1 MiB"


def test_a_watch_asks_for_changes_after_a_version_and_reads_a_line_for_each(api):
    parts = [
        b'{"type": "ADDED", "obj', b'ect": {"a": 1}}\n\n  \n{"type": "DELETED", "object"', b': {"b": 2}}\n{"type": "',
        b'BOOKMARK"}\n{"ty',
    ]  # fmt: skip
    assert api.watch(*parts) == ([("ADDED", {"a": 1}), ("DELETED", {"b": 2}), ("BOOKMARK", {})], 1)
    query = "watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=60"
    assert [path for _, path, *_ in api.sent] == [f"/api/v1/namespaces/ns/configmaps?{query}"]
    assert api.requests[0].extensions["timeout"] == {"connect": 5.0, "read": 75.0, "write": 10.0, "pool": 10.0}
    assert api.watch(fields="metadata.name=a") == ([], 1)
    assert api.sent[1][1] == f"/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da&{query}"


def test_a_watch_that_is_refused_is_not_open(api):
    error, opened = api.watch(b'{"message": "too old", "reason": "Expired"}', status=410)
    assert (str(error), error.status, error.reason, opened) == (
        "the API refuses GET /api/v1/namespaces/ns/configmaps: 410 too old", 410, "Expired", 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("event", "message", "status", "reason"),
    [
        ({"code": 410, "message": "too\nold", "reason": "Expired"}, "too\\nold", 410, "Expired"),
        ({"code": "410"}, "", 0, ""),
    ],
)
def test_an_error_ends_a_watch(api, event, message, status, reason):
    error, opened = api.watch(json.dumps({"type": "ERROR", "object": event}).encode() + b"\n")
    assert (str(error), error.status, error.reason, opened) == (
        f"the watch of /api/v1/namespaces/ns/configmaps ended: {message}", status, reason, 1,
    )  # fmt: skip


def test_an_event_of_a_watch_is_bounded(api, monkeypatch):
    monkeypatch.setattr(client_module, "_MAX_LINE_BYTES", 1 << 20)
    assert api.watch(b"{" + b" " * ((1 << 20) - 1), b"}\n") == ([("", {})], 1)
    error, _ = api.watch(b"{" + b" " * (1 << 20), b"}\n")
    assert str(error) == "an event of /api/v1/namespaces/ns/configmaps is longer than 1 MiB"
