"""The agent's end of the link to its privileged process: what it does about answers that are late, odd or missing."""

from __future__ import annotations

import asyncio
import os
import socket
from types import SimpleNamespace

import pytest

from netinit.kernel import answers
from netinit.node import programmer_client
from netinit.node.jobs import VERIFY, Job, JobResult
from netinit.node.programmer import PACKET, read_message, write_message
from netinit.node.programmer_client import ProgrammerClient

JOB = Job(kind=VERIFY, environ={}, seconds=60.0, path="/run/netns/cni-1")


@pytest.fixture
def link():
    """The client's socket, and the other process's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def take(theirs):
    """The number of the next job, the job, and how many descriptors came with it."""
    number, descriptors, *_ = socket.recv_fds(theirs, PACKET, 4)
    job = Job.decode(read_message(descriptors))
    for one in descriptors[1:]:
        os.close(one)
    return number, job, len(descriptors)


def answer(theirs, number, result):
    with write_message(answers.encode(result)) as file:
        socket.send_fds(theirs, [number], [file])


async def ask(ours, *, count=1, namespace=-1):
    """A client that has asked for the job so many times, and what it waits for."""
    client = ProgrammerClient(ours)
    client.start()
    asked = [asyncio.create_task(client.do(JOB, namespace)) for _ in range(count)]
    await asyncio.sleep(0)
    return client, asked


def test_each_job_has_a_number_of_its_own_and_gets_the_answer_under_it(link):
    ours, theirs = link

    async def run():
        client, asked = await ask(ours, count=3)
        sent = [take(theirs) for _ in asked]
        assert [(number, job, descriptors) for number, job, descriptors in sent] == [(number, JOB, 1) for number in (b"1", b"2", b"3")]
        for number, *_ in reversed(sent):
            answer(theirs, number, JobResult(backend=number.decode()))
        assert [(await one).backend for one in asked] == ["1", "2", "3"]
        assert client._pending == {}
        answer(theirs, b"2", JobResult(backend="again"))
        answer(theirs, b"9", JobResult(backend="unasked"))
        (last,) = (await ask(ours))[1]
        answer(theirs, take(theirs)[0], JobResult(backend="last"))
        assert (await last).backend == "last", "what nobody waits for is left"

    asyncio.run(run())


def test_the_namespace_s_descriptor_comes_after_the_job_also_where_it_is_the_first_of_all(link):
    ours, theirs = link

    async def run():
        _, asked = await ask(ours, namespace=0)
        number, _, descriptors = take(theirs)
        answer(theirs, number, JobResult())
        await asked[0]
        return descriptors

    assert asyncio.run(run()) == 2


def test_a_job_without_an_answer_is_late_some_seconds_after_its_own_time(link, monkeypatch):
    given, timeout = [], asyncio.timeout
    monkeypatch.setattr(programmer_client.asyncio, "timeout", lambda seconds: given.append(seconds) or timeout(0.01))

    async def run():
        client, asked = await ask(link[0])
        return client, await asked[0]

    client, result = asyncio.run(run())
    assert result == JobResult(error="the process that programs pods gave no answer", late=True)
    assert given == [JOB.seconds + programmer_client._SLACK]
    assert (client._pending, client.lost.is_set()) == ({}, False)


def test_an_answer_that_is_none_is_the_job_s_error(link):
    ours, theirs = link

    async def run():
        _, asked = await ask(ours, count=2)
        answer(theirs, b"1", "done")
        theirs.send(b"2")
        return [await one for one in asked]

    odd, empty = asyncio.run(run())
    assert odd == JobResult(error="this is not a result")
    assert empty == JobResult(error="list index out of range")


def test_a_job_waits_while_the_link_is_full(link, monkeypatch):
    """An answer meanwhile is none of the other process's end."""
    ours, theirs = link
    pauses, sleep, send = [], asyncio.sleep, socket.send_fds

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    def send_or_wait(*given):
        if len(pauses) < 2:
            raise BlockingIOError
        return send(*given)

    async def run():
        monkeypatch.setattr(programmer_client.asyncio, "sleep", pause)
        monkeypatch.setattr(programmer_client.socket, "send_fds", send_or_wait)
        client = ProgrammerClient(ours)
        client.start()
        asked = asyncio.create_task(client.do(JOB))
        client._receive()  # nothing is there to be read
        while not (len(pauses) == 2 and client._pending):
            await sleep(0)
        await sleep(0)
        monkeypatch.setattr(programmer_client.socket, "send_fds", send)
        answer(theirs, take(theirs)[0], JobResult(backend="x"))
        return client.lost.is_set(), (await asked).backend

    assert asyncio.run(run()) == (False, "x")
    assert pauses == [0.01] * 2


@pytest.mark.parametrize("error", [ConnectionResetError(), None], ids=["reset", "end"])
def test_the_other_process_s_end_is_noticed_once(link, monkeypatch, error):
    removed = []

    async def run():
        client = ProgrammerClient(link[0])
        monkeypatch.setattr(programmer_client, "receive_descriptors", receive)
        monkeypatch.setattr(programmer_client.asyncio, "get_running_loop", lambda: SimpleNamespace(remove_reader=removed.append))
        client._receive()
        return client.lost.is_set()

    def receive(*given):
        assert given == (link[0], PACKET, 1)
        if error:
            raise error
        return b"", []

    assert asyncio.run(run())
    assert removed == [link[0]]


def test_a_job_that_cannot_be_sent_says_that_the_other_process_is_gone(link, monkeypatch):
    ours, theirs = link
    theirs.close()
    timeout = asyncio.timeout
    monkeypatch.setattr(programmer_client.asyncio, "timeout", lambda _: timeout(0.01))

    async def run():
        client = ProgrammerClient(ours)
        return (await client.do(JOB)).late, client.lost.is_set()

    assert asyncio.run(run()) == (True, True)
