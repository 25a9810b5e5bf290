"""What a server may use of the machine: processors and memory, as cgroups say."""

from __future__ import annotations

import asyncio
import io
import os
import resource
import socket
import struct
from pathlib import Path

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.kernel.processes import count_cores
from netinit.serving import server_process
from netinit.serving.event_log import EventLog
from netinit.serving.server_process import allow_descriptors, listen, memory_limit, run_forever, wait_readable


@pytest.mark.parametrize(
    ("text", "most"),
    [("50000 100000", 1), ("100000 100000", 1), ("150000 100000", 2), ("max 100000", 10**6), ("broken", 10**6)],
)
def test_cores_are_as_many_as_the_limit_pays_for(tmp_path, text, most):
    (tmp_path / "cpu.max").write_text(text)
    assert count_cores(str(tmp_path / "cpu.max")) == min(most, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "268435456\n", 256 << 20),
        ("memory.max", "max\n", None),
        ("memory.max", "0\n", None),
        ("memory.max", "1\n", 1),
        ("memory.max", f"{(1 << 50) - 1}\n", (1 << 50) - 1),
        ("memory.max", f"{1 << 50}\n", None),
        ("memory/memory.limit_in_bytes", "536870912\n", 512 << 20),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("other", "", None),
    ],
)
def test_the_memory_limit_is_that_of_the_container(tmp_path, name, text, limit):
    (tmp_path / "memory").mkdir()
    (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_where_cgroup_v2_has_no_limit_that_of_v1_holds(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("7\n")
    assert memory_limit(tmp_path) == 7


@pytest.mark.parametrize(("hard", "soft"), [(1000, 1000), (5000, 2000), (resource.RLIM_INFINITY, 2000)])
def test_the_soft_limit_of_open_files_is_set_within_the_hard_one(monkeypatch, hard, soft):
    found = []
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_NOFILE: (64, hard)}.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", lambda *given: found.append(given))
    allow_descriptors(2000)
    assert found == [(resource.RLIMIT_NOFILE, (soft, hard))]


def test_no_more_descriptors_are_asked_for_than_may_be_had():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_descriptors(before[1] + 1 if before[1] != resource.RLIM_INFINITY else 1 << 16)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("address", "reached"), [("", {"127.0.0.1", "::1"}), ("127.0.0.1", {"127.0.0.1"}), ("::1", {"::1"})])
def test_without_an_address_both_families_are_listened_on(address, reached):
    def answers(target):
        try:
            socket.create_connection((target, port), timeout=60).close()
        except OSError:
            return False
        return True

    with listen(address, 0) as server:
        port = server.getsockname()[1]
        assert {target for target in ("127.0.0.1", "::1") if answers(target)} == reached
        assert server.gettimeout() == 0
        assert not server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)


def test_a_port_is_taken_over_by_those_alone_that_share_it():
    with listen("127.0.0.1", 0, shared=True) as first:
        port = first.getsockname()[1]
        listen("127.0.0.1", port, shared=True).close()
        with pytest.raises(ConfigError, match=f"^port {port} of 127.0.0.1 cannot be listened on: Address already in use$"):
            listen("127.0.0.1", port)


def test_a_port_of_every_address_is_named_alone():
    with listen("", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^port {port} cannot be listened on: Address already in use$"):
            listen("", port)


def test_an_error_without_a_reason_of_the_system_is_named_as_it_is(monkeypatch):
    def refuse(*_, **__):
        raise OSError("odd")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(ConfigError, match=r"^port 7 of ::1 cannot be listened on: odd$"):
        listen("::1", 7)


def test_a_host_without_ipv6_listens_on_ipv4(monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0) as server:
        assert server.family == socket.AF_INET


def test_a_socket_is_waited_for_and_not_watched_any_longer():
    async def wait():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            waiting = asyncio.create_task(wait_readable(ours))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            theirs.send(b"x")
            await asyncio.wait_for(waiting, 60)
            assert not asyncio.get_running_loop().remove_reader(ours)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait_readable(theirs), 0.01)
            assert not asyncio.get_running_loop().remove_reader(theirs)

    asyncio.run(wait())


def test_a_burst_of_connections_waits_to_be_accepted():
    allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with listen("127.0.0.1", 0) as server:
        (queue,) = struct.unpack_from("=28xI", server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32))  # tcpi_sacked of a listening socket
    assert queue == min(2048, allowed)


@pytest.mark.parametrize(
    ("error", "problem"),
    [(ClusterError("the API is away"), "the API is away"), (ExceptionGroup("two", [ValueError("wrong"), KeyError("late")]), "ValueError: wrong")],
)
def test_a_task_that_fails_is_started_again_and_its_problem_stands_until_then(monkeypatch, error, problem):
    stream, known, starts = io.StringIO(), [], []

    class Problems(dict):
        def __setitem__(self, name, text):
            known.append((name, text))
            super().__setitem__(name, text)

    problems = Problems()

    async def fail_twice():
        starts.append(dict(problems))
        raise error if len(starts) < 3 else asyncio.CancelledError

    monkeypatch.setattr(server_process, "_RETRY_SECONDS", 0.0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_forever("pods", fail_twice, problems, EventLog("error", stream=stream)))
    assert (known, problems) == ([("pods", problem)] * 2, {})
    assert starts == [{}] * 3
    assert [line.split("\t")[1:] for line in stream.getvalue().splitlines()] == [["error", f"pods: {problem}"]], "logged once"


@pytest.mark.parametrize("error", [MemoryError(), ExceptionGroup("two", [ClusterError("away"), ExceptionGroup("one", [MemoryError()])])], ids=repr)
def test_a_task_out_of_memory_ends_a_process_that_is_replaced_and_is_tried_again_in_one_that_is_not(monkeypatch, error):
    def end(name):
        raise SystemExit(name)

    async def fail_twice():
        starts.append(1)
        raise error if len(starts) < 3 else asyncio.CancelledError

    monkeypatch.setattr(server_process, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", end)
    for exhausted, raised, number in ((end, SystemExit, 1), (None, asyncio.CancelledError, 3)):
        stream, problems, starts = io.StringIO(), {}, []
        with pytest.raises(raised):
            asyncio.run(run_forever("pods", fail_twice, problems, EventLog(stream=stream), exhausted=exhausted))
        assert len(starts) == number
        assert "restarted" not in stream.getvalue(), "only who ends the process knows whether another is started"


def test_each_other_problem_of_a_task_is_logged_and_a_task_that_ends_is_restarted_after_a_second(monkeypatch):
    stream, pauses, problems = io.StringIO(), [], {"other": "stays"}
    ends = [ClusterError("a"), None, ClusterError("a"), ClusterError("b"), asyncio.CancelledError()]

    async def sleep(seconds):
        pauses.append((seconds, problems.get("pods")))

    async def task():
        end = ends.pop(0)
        if end:
            raise end

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_forever("pods", task, problems, EventLog(stream=stream)))
    assert pauses == [(1.0, "a"), (1.0, None), (1.0, "a"), (1.0, "b")]
    assert [line.split("\t")[-1] for line in stream.getvalue().splitlines()] == ["pods: a", "pods: b"]
    assert problems == {"other": "stays"}
