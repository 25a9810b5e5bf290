"""The agent's socket: who may ask, bounds, and 10,000 requests that are none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import stat
import time
from pathlib import Path

import pytest

from netinit.base.errors import ConfigError
from netinit.node import unix_server as door_module
from netinit.node.protocol import encode_answer
from netinit.node.unix_server import PluginServer, open_socket
from randomness import some

VARIABLES = b"CNI_COMMAND=ADD\0CNI_CONTAINERID=c\0CNI_IFNAME=eth0\0CNI_NETNS=/n\0"
CONFIGURATION = b'{"cniVersion":"1.0.0","name":"net"}'


def request(variables=VARIABLES, given=CONFIGURATION, milliseconds=5000):
    return b"netinit-cni 1 %d %d %d\n" % (len(variables), len(given), milliseconds) + variables + given


def count_files():
    return len(list(Path("/proc/self/fd").iterdir()))


async def answer(found, namespace, deadline):
    await asyncio.sleep(0)
    return encode_answer({"verb": found.verb, "namespace": namespace >= 0, "left": round(deadline - time.monotonic(), 1)})


@contextlib.asynccontextmanager
async def served(path, answering=answer, most=64):
    with open_socket(str(path)) as listening:
        unix_server = PluginServer(listening, answering, most=most)
        task = asyncio.create_task(unix_server.run())
        try:
            yield unix_server
        finally:
            task.cancel()
            await unix_server.close(5)


async def ask(path, data, *, end=True):
    reader, writer = await asyncio.open_unix_connection(str(path))
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        if end:
            writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def body(data):
    return json.loads(data.partition(b"\n")[2])


def test_closing_says_whether_all_requests_were_answered(tmp_path):
    async def close(*, asked, seconds):
        begun, may_answer = asyncio.Event(), asyncio.Event()

        async def late(found, namespace, deadline):
            begun.set()
            await may_answer.wait()
            return await answer(found, namespace, deadline)

        async with served(tmp_path / "s", late) as server:
            asking = asyncio.create_task(ask(tmp_path / "s", request())) if asked else None
            if asked:
                await begun.wait()
            if seconds > 1:
                may_answer.set()
            done = await server.close(seconds)
            if asking:
                await asking
            return done

    assert asyncio.run(close(asked=False, seconds=0)) is True
    assert asyncio.run(close(asked=True, seconds=30)) is True
    assert asyncio.run(close(asked=True, seconds=0.01)) is False


def test_a_request_is_answered_within_nine_tenths_of_its_time(tmp_path):
    async def story():
        async with served(tmp_path / "s"):
            return body(await ask(tmp_path / "s", request(milliseconds=10_000)))

    found = asyncio.run(story())
    assert (found["verb"], found["namespace"]) == ("ADD", False)
    assert 8 < found["left"] <= 9


def test_the_socket_is_for_this_user_alone_and_takes_the_place_of_an_old_one(tmp_path):
    path = tmp_path / "new" / "s"
    open_socket(str(path)).close()
    with open_socket(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [one.name for one in path.parent.iterdir()] == ["s"]


def test_a_place_where_no_socket_can_be_is_an_error_of_the_flag(tmp_path):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "s")
    with pytest.raises(ConfigError) as caught:
        open_socket(path)
    assert str(caught.value) in {f"--socket: {path} cannot be listened on: {reason}" for reason in ("File exists", "Not a directory")}


@pytest.mark.parametrize(("is_ours", "mode"), [(True, 0o700), (False, 0o755)])
def test_the_folder_that_a_kubelet_has_created_is_closed_to_others_and_no_other_folder_is_changed(tmp_path, monkeypatch, is_ours, mode):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    monkeypatch.setattr(door_module, "FOLDER", str(folder if is_ours else tmp_path))
    before = os.umask(0o022)
    try:
        with open_socket(str(folder / "s")) as listening:
            assert not listening.getblocking()
        assert os.umask(0o022) == 0o022, "what else this process creates is for whom it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    open_socket(str(tmp_path / "new" / "deeper" / "s")).close()


def test_a_socket_that_an_agent_of_the_same_number_has_left_half_made_is_replaced(tmp_path):
    (tmp_path / f"s.{os.getpid()}").touch()
    open_socket(str(tmp_path / "s")).close()
    assert [one.name for one in tmp_path.iterdir()] == ["s"]


def test_a_server_without_descriptors_accepts_again_when_there_may_be_some(tmp_path, monkeypatch):
    pauses = []

    async def story():
        loop, sleep = asyncio.get_running_loop(), asyncio.sleep
        accept, errors = loop.sock_accept, [OSError(24, "Too many open files")] * 2

        async def fail_at_first(listening):
            if errors:
                raise errors.pop()
            return await accept(listening)

        async def pause(seconds):
            pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(loop, "sock_accept", fail_at_first)
        monkeypatch.setattr(door_module.asyncio, "sleep", pause)
        async with served(tmp_path / "s") as server:
            found = body(await ask(tmp_path / "s", request()))
            while server.conversations:
                await sleep(0)
            return found

    assert asyncio.run(story())["verb"] == "ADD"
    assert [one for one in pauses if one] == [0.05] * 2


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_request_may_come_in_pieces(tmp_path, size):
    given = json.dumps({"cniVersion": "1.0.0", "name": "net", "long": "x" * (700_000 if size > 7 else 1)}).encode()
    data = request(given=given)

    async def story():
        async with served(tmp_path / "s"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            for at in range(0, len(data), size):
                writer.write(data[at : at + size])
                await writer.drain()
                await asyncio.sleep(0)
            found = await reader.read()
            writer.close()
            return found

    assert body(asyncio.run(story()))["verb"] == "ADD"


def test_a_first_line_of_the_longest_size_that_goes_on_is_refused_without_a_wait(tmp_path):
    async def story(length):
        async with served(tmp_path / "s"):
            return body(await asyncio.wait_for(ask(tmp_path / "s", b"netinit-cni 1 ".ljust(length, b"1"), end=length < 64), 4))["msg"]

    assert asyncio.run(story(64)) == "netinit: this is not a request of netinit's plugin"
    assert asyncio.run(story(63)) == "netinit: the request is cut off"


def test_the_namespace_is_the_first_descriptor_also_where_it_is_the_first_of_all():
    async def story():
        seen = []

        async def answering(found, namespace, deadline):
            seen.append((found.container, namespace, round(deadline - 100.0, 3)))
            return b"answer"

        server = PluginServer(None, answering, most=1)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)  # noqa: FBT003 - setblocking's signature
            for descriptors in ([], [0], [7]):
                theirs.send(request(milliseconds=2000))
                assert await server._answer_request(ours, descriptors, 100.0) == b"answer"
        return seen

    assert asyncio.run(story()) == [("c", -1, 1.8), ("c", 0, 1.8), ("c", 7, 1.8)]


@pytest.mark.parametrize(("sent", "read"), [(100, 100), ((4 << 20) + 1, 4 << 20)])
def test_what_a_peer_goes_on_to_send_is_read_up_to_a_bound_and_thrown_away(monkeypatch, sent, read):
    taken = []

    class Peer:
        def shutdown(self, how):
            assert how == socket.SHUT_WR
            taken.append("shut")

    async def receive(peer, most):
        assert most == 1 << 18
        part = min(most, sent - sum(taken[1:]))
        taken.append(part)
        return b"x" * part

    async def story():
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_recv", receive)
        await door_module._discard(Peer())

    asyncio.run(story())
    assert (taken[0], sum(taken[1:])) == ("shut", read)


def test_a_peer_of_another_user_is_refused(tmp_path, monkeypatch):
    async def story():
        async with served(tmp_path / "s") as unix_server:
            monkeypatch.setattr(unix_server, "_user", 4711)
            return body(await ask(tmp_path / "s", request()))

    found = asyncio.run(story())
    assert (found["code"], found["msg"]) == (4, "netinit: only requests from user 4711 are accepted")


def test_more_than_so_many_requests_are_told_to_come_again(tmp_path):
    async def story():
        go = asyncio.Event()

        async def wait(*_):
            await go.wait()
            return encode_answer(None)

        async with served(tmp_path / "s", wait, most=3) as unix_server:
            first = [asyncio.create_task(ask(tmp_path / "s", request())) for _ in range(3)]
            while len(unix_server.conversations) < 3:  # noqa: ASYNC110 - the door tells nobody
                await asyncio.sleep(0.01)
            refused = body(await ask(tmp_path / "s", request()))
            go.set()
            return refused, await asyncio.gather(*first)

    refused, answers = asyncio.run(story())
    assert (refused["code"], refused["msg"]) == (11, "netinit: 3 requests are being answered already; try again")
    assert answers == [b"netinit-cni 1 0 0\n"] * 3


def test_a_peer_that_says_nothing_more_is_told_after_a_while_and_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(door_module, "_SECONDS_TO_ASK", 0.3)

    async def story():
        async with served(tmp_path / "s"):
            slow = [asyncio.create_task(ask(tmp_path / "s", request()[:count], end=False)) for count in (5, 30, 60)]
            quick = body(await ask(tmp_path / "s", request()))
            return quick, [body(one) for one in await asyncio.gather(*slow)]

    quick, slow = asyncio.run(story())
    assert quick["verb"] == "ADD"
    assert [(one["code"], one["msg"]) for one in slow] == [(5, "netinit: the request did not arrive in time")] * 3


@pytest.mark.parametrize(("data", "problem"), [
    (b"GET / HTTP/1.1\r\n", "this is not a request of netinit's plugin"), (b"netinit-cni 1 " + b"1" * 90, "this is not a request of netinit's plugin"),
    (request()[:10], "the request is cut off"), (request()[:-1], "the request is cut off"), (b"netinit-cni 1 0 2 5\n{}x", "the request is longer than its first line says"),
])  # fmt: skip
def test_what_is_wrong_with_the_bytes_of_a_request_is_said(tmp_path, data, problem):
    async def story():
        async with served(tmp_path / "s"):
            return body(await ask(tmp_path / "s", data))

    assert asyncio.run(story()) == {"cniVersion": "1.1.0", "code": 6, "msg": f"netinit: {problem}"}


def test_the_namespaces_descriptor_is_closed_whatever_becomes_of_the_request(tmp_path):
    def send(data, count):
        with socket.socket(socket.AF_UNIX) as peer, Path("/dev/null").open() as file:
            peer.connect(str(tmp_path / "s"))
            socket.send_fds(peer, [data], [file.fileno()] * count)
            peer.shutdown(socket.SHUT_WR)
            return peer.recv(4096)

    async def story():
        async with served(tmp_path / "s"):
            await asyncio.to_thread(send, request(), 1)
            before = count_files()
            for data, count in ((request(), 1), (request(), 5), (b"x", 1), (request()[:60], 1), (request(given=b"{"), 1)):
                await asyncio.to_thread(send, data, count)
            answers = await asyncio.to_thread(send, request(), 1)
            await asyncio.sleep(0.05)
            return before, count_files(), answers

    before, after, answers = asyncio.run(story())
    assert body(answers)["namespace"] is True
    assert after <= before


def hostile(count):
    source = random.Random(3)
    for number in range(count):
        data = bytearray(request())
        kind = number % 6
        if kind == 0:
            data = bytearray(source.randbytes(source.randrange(200)))
        elif kind == 1:
            del data[source.randrange(len(data)) :]
        elif kind == 2:
            data[source.randrange(len(data))] = source.randrange(256)
        elif kind == 3:
            data += source.randbytes(source.randrange(1, 50))
        elif kind == 4:
            data = bytearray(b"netinit-cni 1 %d %d %d\n" % (source.randrange(10**9), source.randrange(10**9), source.randrange(10**9)))
        else:
            data = bytearray(request(variables=b"\0".join([b"CNI_COMMAND=" + source.choice([b"ADD", b"DEL", b"GC", b"\xff", b""])] * 3) + b"\0"))
        yield bytes(data)


HOSTILE = some(2000)


def test_thousands_of_hostile_requests_get_errors_of_cni_and_the_next_good_one_is_answered(tmp_path):
    async def story():
        async with served(tmp_path / "s", most=512):
            before = count_files()
            kinds = {"errors": 0, "good": 0, "nothing": 0}
            pending = list(hostile(HOSTILE))
            while pending:
                some, pending = pending[:100], pending[100:]
                for data in await asyncio.gather(*[ask(tmp_path / "s", one) for one in some]):
                    if not data:
                        kinds["nothing"] += 1
                        continue
                    head, _, rest = data.partition(b"\n")
                    code, size = map(int, head.removeprefix(b"netinit-cni 1 ").split())
                    assert len(rest) == size
                    kinds["errors" if code else "good"] += 1
                    assert not code or {"code", "msg", "cniVersion"} <= json.loads(rest).keys()
            return kinds, body(await ask(tmp_path / "s", request())), count_files() - before

    kinds, last, grown = asyncio.run(story())
    assert last["verb"] == "ADD"
    assert kinds["errors"] > 0.8 * HOSTILE, kinds
    assert grown < 20, f"{grown} descriptors more than before {HOSTILE} requests"
