"""The listener's answers, limits and log, with an application of the tests' own on a socket of this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from types import SimpleNamespace

import pytest

from netinit.serving import client_connections, listener
from netinit.serving.client_connections import Stage
from netinit.serving.listener import HttpListener, reply, reply_health, reply_monitoring
from netinit.serving.server_process import listen

GET = b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n"
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def collect(answer, *arguments, **more):
    """What an answer sends, and what it returns."""
    sent = []

    async def send(message):
        sent.append(message)

    found = asyncio.run(answer(*(send if one is collect else one for one in arguments), **more))
    return sent, found


def made(status, body, kind=b"text/plain; charset=utf-8", *more):
    length = (b"content-length", str(len(body)).encode())
    return [
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), length, *more]},
        {"type": "http.response.body", "body": body},
    ]


def test_a_reply_has_its_type_and_length_and_closes_if_it_should():
    assert collect(reply, collect, 418, b"tea") == (made(418, b"tea"), None)
    found, _ = collect(reply, collect, 503, b"", "application/json", close=True, more=[(b"retry-after", b"1")])
    assert found == made(503, b"", b"application/json", (b"retry-after", b"1"), (b"connection", b"close"))


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize(
    ("path", "query", "ready", "status", "body"),
    [
        ("/livez", b"", False, 200, b"ok\n"), ("/healthz", b"", False, 200, b"ok\n"), ("/readyz", b"", True, 200, b"False"),
        ("/readyz", b"a&verbose=1", True, 200, b"True"), ("/readyz", b"verbos", False, 503, b"False"),
        ("/else", b"", True, None, b""),
    ],
)  # fmt: skip
def test_health_is_answered_on_its_paths(path, query, ready, status, body, closes):
    scope = {"path": path, "query_string": query}
    found = collect(reply_health, scope, collect, lambda verbose: (ready, str(verbose)), close=closes)
    close = [(b"connection", b"close")] if closes else []
    assert found == ((made(status, body, b"text/plain; charset=utf-8", *close), True) if status else ([], False))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/metrics", made(200, b"m", b"text/plain; version=0.0.4; charset=utf-8")),
        ("/livez", made(200, b"ok\n")),
        ("/readyz", made(503, b"not yet False")),
        ("/else", made(404, b"there are /metrics, /livez and /readyz\n")),
    ],
)
def test_the_monitoring_port_answers_metrics_and_health(path, expected):
    scope = {"path": path, "query_string": b""}
    report = lambda verbose: (False, f"not yet {verbose}")  # noqa: E731 - of one test
    assert collect(reply_monitoring, scope, None, collect, metrics=lambda: b"m", report=report) == (expected, None)


def test_another_path_of_readiness_may_be_named_and_its_answers_may_close():
    more = {"metrics": lambda: b"m", "report": lambda _: (True, "ok"), "readiness": "/startup", "closes": lambda: True}
    scopes = ({"path": path, "query_string": b""} for path in ("/startup", "/readyz"))
    startup, readyz = (collect(reply_monitoring, scope, None, collect, **more)[0] for scope in scopes)
    assert startup == made(200, b"ok", b"text/plain; charset=utf-8", (b"connection", b"close"))
    assert readyz[0]["status"] == 404


class Server:
    """A listener whose application answers a path's name, after `released` is set for /slow."""

    def __init__(self, most=8):
        self.scopes, self.dropped, self.cut_off, self.clients, self.released = [], [], [], [], asyncio.Event()
        self.listening = listen("127.0.0.1", 0)
        self.listener = HttpListener(self.answer, self.listening, max_connections=most, dropped=self.dropped.append)
        self.listener.start()

    async def answer(self, scope, receive, send):
        self.scopes.append(scope)
        if scope["path"] == "/slow":
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cut_off.append(scope["path"])
                raise
        if scope["path"] == "/body":
            while (await receive()).get("more_body"):
                continue
        await reply(send, 200, scope["path"].encode())

    async def connect(self):
        reader, writer = await asyncio.open_connection(*self.listening.getsockname())
        self.clients.append(writer)
        return reader, writer

    async def until(self, *stages):
        """Wait until the connections have these stages."""
        while [connection.stage for connection in self.listener._table] != list(stages):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)


def serve(work, **more):
    async def run():
        server = Server(**more)
        try:
            async with asyncio.timeout(60.0):
                await work(server)
        finally:
            for client in server.clients:
                client.close()
                with contextlib.suppress(ConnectionError):
                    await client.wait_closed()
            server.released.set()
            await server.listener.close(1.0)

    asyncio.run(run())


async def answered(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head.partition(b"\r\n")[0], await reader.readexactly(length)


OK = b"HTTP/1.1 200 OK"


def test_requests_are_answered_in_order_without_headers_about_the_server():
    async def work(server):
        reader, writer = await server.connect()
        writer.write(GET % b"a" + GET % b"b" + b"GET /c HTTP/1.1\r\nx-forwarded-for: 1.2.3.4\r\nconnection: close\r\n\r\n")
        first = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n"
        body = await reader.read()
        assert body == b"".join([first + b"\r\n/a", first + b"\r\n/b", first + b"connection: close\r\n\r\n/c"])
        now = asyncio.get_running_loop().time()
        for scope in server.scopes:
            assert (scope["client"][0], scope["state"]["last"], scope["state"]["certified"]) == ("127.0.0.1", False, False)
            assert now - 5.0 < scope["state"]["arrived"] <= now

    serve(work)


def test_a_connection_is_busy_while_it_is_answered_and_then_idle():
    async def work(server):
        reader, writer = await server.connect()
        writer.write(b"GET /slow HTTP/1.1\r\n")
        await server.until(Stage.UNFINISHED)
        writer.write(b"\r\n")
        await server.until(Stage.BUSY)
        assert server.listener.connections == 1
        server.released.set()
        assert await answered(reader) == (OK, b"/slow")
        await server.until(Stage.IDLE)
        writer.write(b"GET /body HTTP/1.1\r\ncontent-length: 2\r\n\r\na")
        await server.until(Stage.UNFINISHED)
        writer.write(b"b")
        assert await answered(reader) == (OK, b"/body")
        await server.until(Stage.IDLE)
        writer.close()
        await server.until()

    serve(work)


def test_a_connection_is_in_its_last_request_when_it_is_old(monkeypatch):
    monkeypatch.setattr(client_connections, "_LIFETIME_SECONDS", (0.0, 0.0))

    async def work(server):
        reader, writer = await server.connect()
        writer.write(GET % b"a")
        await answered(reader)
        assert server.scopes[0]["state"]["last"] is True

    serve(work)


@pytest.mark.parametrize(
    ("limit", "sent"),
    [("_HEAD_SECONDS", b"GET /"), ("_HEAD_SECONDS", GET % b"a" + b"GET /"), ("_ANSWER_SECONDS", GET % b"slow"),
     ("_ANSWER_SECONDS", b"POST /body HTTP/1.1\r\ncontent-length: 2\r\n\r\na")],
)  # fmt: skip
def test_a_head_and_an_answer_have_their_time(monkeypatch, limit, sent):
    assert (listener._HEAD_SECONDS, listener._ANSWER_SECONDS) == (5.0, 45.0)
    monkeypatch.setattr(listener, limit, 0.05)

    async def work(server):
        reader, writer = await server.connect()
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            assert not (await reader.read()).partition(b"/a")[2]
        await server.until()

    serve(work)


def test_an_idle_connection_has_no_deadline_of_a_head_or_an_answer():
    async def work(server):
        reader, writer = await server.connect()
        writer.write(GET % b"slow")
        await server.until(Stage.BUSY)
        (connection,) = server.listener._table
        assert connection._timer is not None
        server.released.set()
        assert await answered(reader) == (OK, b"/slow")
        await server.until(Stage.IDLE)
        assert connection._timer is None

    serve(work)


@pytest.mark.parametrize(("shift", "first"), [(0, OK), (1, TOO_LONG)])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_is_bounded_to_the_byte(monkeypatch, shift, first, pieces):
    assert listener._HEAD_BYTES == 16 << 10
    head = b"GET / HTTP/1.1\r\nx: %s" % (b"y" * 200)
    monkeypatch.setattr(listener, "_HEAD_BYTES", len(head) - shift)

    async def work(server):
        reader, writer = await server.connect()
        half = len(head) // pieces
        writer.write(head[:half])
        await asyncio.sleep(0.02)
        writer.write(head[half:])
        await asyncio.sleep(0.02)
        if shift:
            assert await reader.read() == TOO_LONG
        else:
            monkeypatch.setattr(listener, "_HEAD_BYTES", 16 << 10)
            writer.write(b"\r\n\r\n")
            assert await answered(reader) == (OK, b"/")

    serve(work)


def test_a_head_that_is_no_http_is_refused():
    async def work(server):
        reader, writer = await server.connect()
        writer.write(b"what?\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")

    serve(work)


def test_a_connection_beyond_the_limit_is_closed_at_once():
    async def work(server):
        first = await server.connect()
        first[1].write(GET % b"slow")
        await server.until(Stage.BUSY)
        second = await server.connect()
        assert await second[0].read() == b""
        assert server.dropped == ["refused"]
        server.released.set()
        assert await answered(first[0]) == (OK, b"/slow")

    serve(work, most=2)


def test_closing_finishes_what_has_begun_and_accepts_nothing_more():
    async def work(server):
        slow, idle = await server.connect(), await server.connect()
        slow[1].write(GET % b"slow")
        idle[1].write(GET % b"a")
        await answered(idle[0])
        queued = socket.create_connection(server.listening.getsockname())  # not accepted yet
        queued.sendall(GET % b"queued")
        address = server.listening.getsockname()
        closing = asyncio.create_task(server.listener.close(5.0))
        assert await idle[0].read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        assert (await asyncio.to_thread(queued.recv, 100)).startswith(OK)
        queued.close()
        assert not closing.done()
        server.released.set()
        assert await answered(slow[0]) == (OK, b"/slow")
        assert await closing is True
        assert server.listener.connections == 0
        assert await server.listener.close(0.0) is True, "it is closed already"

    serve(work)


def test_what_is_not_finished_in_time_is_cut_off():
    async def work(server):
        _, writer = await server.connect()
        writer.write(GET % b"slow")
        await server.until(Stage.BUSY)
        start = time.monotonic()
        assert await server.listener.close(0.1) is False
        assert time.monotonic() - start >= 0.1
        await asyncio.sleep(0)
        assert server.cut_off == ["/slow"]

    serve(work)


def test_without_descriptors_it_says_so_and_tries_again(monkeypatch, caplog):
    monkeypatch.setattr(listener, "_ACCEPT_PAUSE_SECONDS", 0.1)

    async def work(server):
        accept, tried = server.listening.accept, asyncio.Event()

        def fail_once():
            if not tried.is_set():
                tried.set()
                raise OSError(errno.EMFILE, "Too many open files")
            return accept()

        own = server.listening
        server.listener._listening = SimpleNamespace(accept=fail_once, fileno=own.fileno, close=own.close)
        reader, writer = await server.connect()
        await tried.wait()
        assert server.listener.connections == 0
        writer.write(GET % b"a")
        assert await answered(reader) == (OK, b"/a")

    serve(work)
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (logging.ERROR, "connections cannot be accepted: Too many open files; the next try is in 0.1 s")
    ]


def test_a_connection_that_cannot_be_served_is_closed_and_logged(caplog, monkeypatch):
    async def work(server):
        async def fail(*_):
            raise OSError("odd")

        with monkeypatch.context() as patch:
            patch.setattr(server.listener._loop, "connect_accepted_socket", fail)
            reader, _ = await server.connect()
            assert await reader.read() == b""
        await server.until()

    serve(work)
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [(logging.ERROR, "a connection cannot be served: odd")]
