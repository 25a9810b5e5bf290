"""The client and its cache against an API of the tests' own on a real socket: lists, watches, 410 Gone, silence, refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import ssl
import threading
import time
from urllib.parse import parse_qsl, urlsplit

import pytest

from netinit.base.errors import ClusterError
from netinit.kube import client as client_module
from netinit.kube.access import Access
from netinit.kube.client import Cache, Client, write_event
from netinit.kube.resources import CONFIG_MAPS, JSON_PATCH, SECRETS
from netinit.webhook.certificates import make_pair


def thing(name, version, **data):
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}, "data": data}


class Api(http.server.BaseHTTPRequestHandler):
    """Does what `server.script` says: a list of (what to answer), each used once; and writes down what it was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        query = dict(parse_qsl(urlsplit(self.path).query))
        script = self.server.watches if query.get("watch") else self.server.answers
        given = script.pop(0) if script else None
        if given is None:
            self.server.idle.wait(20)  # silence
            self.close_connection = True
            return
        status, told = given
        if status == "events":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for kind, tree in told:
                line = json.dumps({"type": kind, "object": tree}).encode() + b"\n"
                for part in (line[:7], line[7:]):  # an event may come in pieces
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        text = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def api(answers=(), watches=()):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.daemon_threads = True
    server.answers, server.watches, server.asked, server.idle = list(answers), list(watches), [], threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.access = Access(server=f"http://127.0.0.1:{server.server_port}", token="t")
    try:
        yield server
    finally:
        server.idle.set()
        server.shutdown()
        server.server_close()


def listed(version, *items, following=""):
    return 200, {"metadata": {"resourceVersion": str(version), "continue": following}, "items": list(items)}


def with_client(server, work, **more):
    async def run():
        async with Client(server.access, **more) as client:
            return await work(client)

    return asyncio.run(run())


def test_an_object_is_read_with_the_token_and_without_a_proxy_of_the_environment(monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with api([(200, thing("a", 1))]) as server:
        found = with_client(server, lambda client: client.get(CONFIG_MAPS, "a", "ns"))
    assert found["metadata"]["name"] == "a"
    (method, path, headers, _) = server.asked[0]
    assert (method, path, headers["Authorization"]) == ("GET", "/api/v1/namespaces/ns/configmaps/a", "Bearer t")


def test_an_answer_without_a_body_is_an_empty_object():
    with api([(200, b"")]) as server:
        assert with_client(server, lambda client: client.get(CONFIG_MAPS, "a", "ns")) == {}


def test_a_kubeconfigs_user_name_and_password_are_sent():
    with api([(200, thing("a", 1))]) as server:
        server.access = Access(server=server.access.server, username="me", password="secret:1")
        with_client(server, lambda client: client.get(CONFIG_MAPS, "a", "ns"))
    assert server.asked[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:secret:1").decode()


@pytest.mark.parametrize(("most", "refused"), [(0, False), (-1, True)])
def test_an_answer_is_read_up_to_a_limit(monkeypatch, most, refused):
    monkeypatch.setattr(client_module, "_MAX_BYTES", len(json.dumps(thing("a", 1))) + most)
    with api([(200, thing("a", 1))]) as server, pytest.raises(ClusterError, match="longer than") if refused else contextlib.nullcontext():
        assert with_client(server, lambda client: client.get(CONFIG_MAPS, "a", "ns")) == thing("a", 1)


def test_a_list_is_read_in_pages():
    with api([listed(5, thing("a", 1), following="more"), listed(5, thing("b", 2))]) as server:
        found, version = with_client(server, lambda client: client.list(CONFIG_MAPS, "ns", fields="metadata.name=a"))
    assert ([one["metadata"]["name"] for one in found], version) == (["a", "b"], "5")
    assert "fieldSelector=metadata.name%3Da" in server.asked[0][1]
    assert "continue=more" in server.asked[1][1]
    assert all("limit=500&" in path for _, path, *_ in server.asked)


def test_objects_are_written_typed_and_patches_by_their_kind():
    async def work(client):
        await client.create(SECRETS, {"metadata": {"name": "s"}}, "ns")
        await client.replace(SECRETS, {"metadata": {"name": "s"}}, "s", "ns")
        await client.patch(SECRETS, "s", [{"op": "test"}], "ns", kind=JSON_PATCH)
        await client.delete(SECRETS, "s", "ns", uid="u")

    with api([(200, {})] * 4) as server:
        with_client(server, work)
    assert [asked[0] for asked in server.asked] == ["POST", "PUT", "PATCH", "DELETE"]
    assert json.loads(server.asked[0][3]) == {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    assert server.asked[2][2]["Content-Type"] == JSON_PATCH
    assert json.loads(server.asked[3][3]) == {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u"}}


def test_an_event_says_what_happened_when_in_utc_and_to_whom(monkeypatch):
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2026, 3, 4, 5, 6, 7, 0, 0, 0)))
    about = {"kind": "Pod", "name": "web", "namespace": "shop"}
    with api([(201, {}), (403, {"message": "forbidden"}), (201, {})]) as server:
        write = lambda client: write_event(client, about, reason="Odd", message="m" * 2000, component="netinit")  # noqa: E731 - twice
        assert with_client(server, write) == ""
        assert "403 forbidden" in with_client(server, write), "why it is not written"
        with_client(server, lambda client: write_event(client, {"kind": "Node", "name": "n"}, reason="r", message="m", component="netinit"))
    assert server.asked[2][1] == "/api/v1/namespaces/default/events", "a node has no namespace"
    method, path, _, body = server.asked[0]
    event = json.loads(body)
    assert (method, path, event.pop("metadata")) == ("POST", "/api/v1/namespaces/shop/events", {"generateName": "web.", "namespace": "shop"})
    assert 900 < len(event.pop("message")) <= 1024, "the API refuses longer ones"
    assert event == {
        "apiVersion": "v1", "kind": "Event", "involvedObject": about, "type": "Warning", "reason": "Odd", "source": {"component": "netinit"},
        "firstTimestamp": "2026-03-04T05:06:07Z", "lastTimestamp": "2026-03-04T05:06:07Z", "count": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            403,
            {"message": "configmaps is forbidden", "reason": "Forbidden"},
            "refuses GET /api/v1/configmaps/a: 403 configmaps is forbidden",
        ),
        (400, {"message": "no such field"}, "400 no such field"),
        (500, b"<html>\x1b[2J", "500 <html>"),
        (200, b"[1]", "is not an object"),
        (200, b"{", "is not JSON"),
        (404, {"message": "x\ny" * 1000}, "404 x"),
    ],
)
def test_what_the_api_says_is_one_bounded_line(status, body, said):
    with api([(status, body)]) as server, pytest.raises(ClusterError) as error:
        with_client(server, lambda client: client.get(CONFIG_MAPS, "a"))
    assert said in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600
    assert error.value.status == (status if status >= 400 else 0)


def test_an_api_that_is_silent_is_late():
    with api() as server, pytest.raises(ClusterError, match=r"cannot be asked \(GET /api/v1/configmaps/a\): was late"):
        with_client(server, lambda client: client.get(CONFIG_MAPS, "a"), seconds=0.2)


def test_an_api_that_is_away_is_told():
    with api() as server:
        pass
    with pytest.raises(ClusterError, match="cannot be asked"):
        with_client(server, lambda client: client.get(CONFIG_MAPS, "a"))


def test_a_token_of_a_file_is_read_again_when_it_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("old\n")
    with api([(200, {}), (401, {}), (200, {})]) as server:
        server.access = Access(server=server.access.server, token_file=str(path))

        async def work(client):
            await client.get(CONFIG_MAPS, "a")
            path.write_text("new\n")
            await client.get(CONFIG_MAPS, "a")

        with_client(server, work)
    assert [asked[2]["Authorization"] for asked in server.asked] == ["Bearer old", "Bearer old", "Bearer new"]


async def cached(client, enough, **more):
    """The cache when `enough` of it says so."""
    changed = asyncio.Event()
    cache = Cache(client, CONFIG_MAPS, "ns", changed=changed.set, **more)
    running = asyncio.create_task(cache.run())
    try:
        async with asyncio.timeout(60):
            while not enough(cache):
                await asyncio.wait_for(changed.wait(), 60)
                changed.clear()
    finally:
        running.cancel()
    return cache


def names(cache):
    return sorted(name for _, name in cache.items)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(client_module, "_MAX_PAUSE", 0.01)


def test_a_cache_lists_and_then_follows(quick):
    events = (
        "events",
        [
            ("ADDED", thing("c", 6)),
            ("MODIFIED", thing("a", 7, x="y")),
            ("DELETED", thing("b", 8)),
            ("DELETED", thing("never-heard-of", 9)),
            ("BOOKMARK", thing("", 20)),
        ],
    )
    with api([listed(5, thing("a", 1), thing("b", 2))], [events, ("events", [("ADDED", thing("d", 21))])]) as server:
        cache = with_client(server, lambda client: cached(client, lambda cache: "d" in names(cache)))
    assert names(cache) == ["a", "c", "d"]
    assert cache.get("a", "ns")["data"] == {"x": "y"}
    watches = [asked[1] for asked in server.asked if "watch=true" in asked[1]]
    assert "resourceVersion=5&" in watches[0]
    assert "allowWatchBookmarks=true" in watches[0]
    assert "resourceVersion=20&" in watches[1], "it goes on from the bookmark"
    assert len(server.asked) - len(watches) == 1, "it lists once"


@pytest.mark.parametrize(
    "gone",
    [("events", [("ERROR", {"code": 410, "message": "too old"})]), (410, {"message": "too old", "reason": "Expired"})],
)
def test_after_410_the_cache_lists_anew_and_loses_what_was_deleted(quick, gone):
    with api([listed(5, thing("a", 1), thing("b", 2)), listed(90, thing("b", 2))], [gone]) as server:
        cache = with_client(server, lambda client: cached(client, lambda cache: names(cache) == ["b"]))
    assert names(cache) == ["b"]


def test_errors_leave_the_cache_as_it_is_and_repeated_ones_list_anew(quick):
    answers = [listed(5, thing("a", 1)), (503, {"message": "down"}), listed(9, thing("b", 2))]
    with api(answers, [(500, {}), (500, {}), (500, {})]) as server:
        cache = with_client(server, lambda client: cached(client, lambda cache: names(cache) == ["b"]))
    assert names(cache) == ["b"]
    assert cache.error == ""


def test_an_error_is_told_at_once_and_over_as_soon_as_the_watch_is_taken_again(quick):
    seen = []

    def enough(cache):
        seen.append(bool(cache.error))
        return seen[-2:] == [True, False]

    with api([listed(5, thing("a", 1))], [(500, {}), ("events", [])]) as server:  # nothing changes after that
        with_client(server, lambda client: cached(client, enough))
    assert True in seen


def test_what_keep_does_not_want_is_not_remembered(quick):
    events = ("events", [("MODIFIED", thing("a", 6)), ("ADDED", thing("c", 7, wanted="1"))])
    with api([listed(5, thing("a", 1, wanted="1"), thing("b", 2))], [events]) as server:
        cache = with_client(
            server,
            lambda client: cached(
                client, lambda cache: "c" in names(cache), keep=lambda tree: tree["data"].get("wanted")
            ),
        )
    assert cache.items == {("ns", "c"): "1"}


def test_waiting_for_a_list_can_be_ended():
    async def work(client):
        await asyncio.wait_for(Cache(client, CONFIG_MAPS).wait(), 0.01)

    with api() as server, pytest.raises(TimeoutError):
        with_client(server, work)


@pytest.mark.parametrize(("name", "answered"), [("api.example", True), ("", False), ("another.example", False)])
def test_a_certificate_is_held_to_the_name_that_a_kubeconfig_gives(name, answered, tmp_path):
    pair = make_pair(("api.example",), now=time.time(), seconds=3600)
    (tmp_path / "both.pem").write_text(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    with api([(200, thing("a", 7))]) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        access = Access(
            server=f"https://127.0.0.1:{server.server_port}", server_name=name, certificate_authority=pair.authority, token="t"
        )

        async def ask():
            async with Client(access, seconds=5.0) as client:
                return await client.get(CONFIG_MAPS, "a", "ns")

        if answered:
            assert asyncio.run(ask()) == thing("a", 7)
        else:
            with pytest.raises(ClusterError, match="certificate"):
                asyncio.run(ask())
