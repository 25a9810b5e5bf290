"""The privileged process: jobs come as packets with descriptors, a child does each, and the result goes back under its number."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from dataclasses import replace

import pytest

from netinit.base.errors import ParseError
from netinit.kernel import answers
from netinit.node import jobs, programmer
from netinit.node.jobs import APPLY, LOOK_AGAIN, VERIFY, Job, JobResult
from netinit.node.programmer import PACKET, Programmer, read_message, write_message
from netinit.node.programmer_client import ProgrammerClient
from netinit.options import Options
from netinit.questions.plan_comparison import Judgement, Report
from netinit.rules.model import EMPTY_PLAN

GONE = JobResult(error="the pod's network namespace is gone", gone=True)


@pytest.fixture
def link():
    """A programmer that runs one job at a time, and the agent's end of its socket."""
    agent, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.setblocking(False)  # noqa: FBT003 - setblocking's signature
    made = Programmer(own, 1)
    with agent, own:
        yield made, agent
        made.end()


def send(agent, number, data, *more):
    with write_message(data) as file:
        socket.send_fds(agent, [number], [file, *more])


def job(kind=VERIFY, seconds=60.0, **more):
    return Job(kind=kind, environ={}, seconds=seconds, **more).encode()


def receive(made, agent):
    """The number and the result of the next job that ends."""
    for _ in range(600):
        made.serve(0.1)
        try:
            number, descriptors, *_ = socket.recv_fds(agent, PACKET, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        return number, JobResult.check(answers.decode(read_message(descriptors)))
    raise AssertionError("no job has ended in a minute")


def test_a_job_without_a_descriptor_is_done_at_its_path(link):
    made, agent = link
    send(agent, b"7", job())
    assert receive(made, agent) == (b"7", GONE)


def test_what_is_no_job_is_answered_with_what_is_wrong_and_its_descriptor_is_closed(link):
    made, agent = link
    ours, theirs = os.pipe()
    send(agent, b"1", b"[]", theirs)
    os.close(theirs)
    number, result = receive(made, agent)
    assert (number, result.error.partition(":")[0]) == (b"1", "this is not a job")
    assert os.read(ours, 1) == b"", "nobody holds the other end"
    os.close(ours)
    socket.send_fds(agent, [b"2"], [])
    number, result = receive(made, agent)
    assert number == b"2"
    assert result.error
    assert made.open


def test_jobs_that_start_pods_come_before_those_that_maintain_them(link):
    made, agent = link
    for number, kind in ((b"1", VERIFY), (b"2", VERIFY), (b"3", APPLY)):
        send(agent, number, job(kind))
    made.most = 0
    for _ in range(3):
        made.serve(0)
    made.most = 1
    assert [receive(made, agent) for _ in range(3)] == [(number, GONE) for number in (b"3", b"1", b"2")]


def test_a_job_whose_time_is_over_before_its_turn_is_not_begun(link, monkeypatch):
    made, agent = link
    monkeypatch.setattr(Programmer, "_fork", None)
    send(agent, b"1", job(seconds=0.0))
    assert receive(made, agent) == (b"1", JobResult(error="there was no time left for it when its turn came", late=True))


@pytest.mark.parametrize(
    ("fail", "said"), [(RuntimeError("broken"), "broken"), (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error")], ids=repr
)  # fmt: skip
def test_what_goes_wrong_in_a_child_is_the_jobs_error(link, monkeypatch, fail, said):
    def perform(*_):
        raise fail

    made, agent = link
    monkeypatch.setattr(programmer, "perform", perform)
    send(agent, b"1", job())
    number, result = receive(made, agent)
    assert (number, result.late, result.gone) == (b"1", False, False)
    assert said in result.error
    assert not made.running


@pytest.mark.parametrize(("obeys", "said"), [(True, ""), (False, "it did not finish in time and was killed")])
def test_a_job_that_takes_too_long_is_asked_to_roll_back_and_then_killed(link, monkeypatch, tmp_path, obeys, said):
    def work(*_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL if obeys else signal.SIG_IGN)
        (tmp_path / "begun").touch()
        time.sleep(600)

    made, agent = link
    monkeypatch.setattr(programmer, "_GRACE", 60.0)
    monkeypatch.setattr(programmer, "perform", work)
    send(agent, b"1", job())
    while not (tmp_path / "begun").exists():
        made.serve(0.01)
    (accepted,) = made.running.values()
    for _ in range(1 if obeys else 2):
        accepted.due = 0.0  # its time is over
        made.serve(0)
    number, result = receive(made, agent)
    assert (number, result.late, made.running) == (b"1", True, {})
    assert result.error == said if said else result.error


def test_the_agent_gets_the_answer_to_its_job_and_notices_that_the_programmer_is_gone():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = Programmer(theirs, 1)

    async def run():
        client = ProgrammerClient(ours)
        client.start()
        with open(os.devnull) as file:  # noqa: ASYNC230, PTH123 - a descriptor in the place of a namespace's
            asked = [asyncio.create_task(client.do(Job.decode(job(path=path)), namespace)) for path, namespace in (("", -1), ("", file.fileno()))]
            while not all(one.done() for one in asked):
                await asyncio.sleep(0.01)
                made.serve(0)
        assert not client.lost.is_set()
        theirs.close()
        await asyncio.wait_for(client.lost.wait(), 60)
        return [await one for one in asked]

    with ours, theirs:
        alone, entered = asyncio.run(run())
    assert alone == GONE
    assert entered.error, "what is no namespace is entered by nobody"
    assert entered != GONE


def test_a_child_can_be_asked_to_roll_back_whatever_the_agent_does_with_signals(monkeypatch):
    handlers = Counter()
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.update([(number, handler)]))
    assert programmer._work(Job.decode(job()), -1, "") == GONE
    assert handlers == Counter([(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)])


def test_a_programmer_whose_agent_has_exited_takes_no_more_jobs(link):
    made, agent = link
    agent.close()
    made.serve(1)
    assert not made.open


def test_a_job_that_is_longer_than_a_message_may_be_is_refused_with_the_limit(link, monkeypatch):
    monkeypatch.setattr(programmer, "_MAX_BYTES", 1 << 20)
    made, agent = link
    for number, size in ((b"1", 1 << 20), (b"2", (1 << 20) + 1)):
        send(agent, number, b" " * size)
    assert receive(made, agent)[1].error.startswith("this is not a job")
    assert receive(made, agent) == (b"2", JobResult(error="the message is longer than 1 MiB"))


def test_a_job_is_left_in_the_socket_while_the_queue_is_full(link, monkeypatch):
    monkeypatch.setattr(programmer, "MAX_WAITING", 2)
    made, agent = link
    made.most = 0
    for number in (b"1", b"2", b"3"):
        send(agent, number, job(APPLY if number == b"1" else VERIFY))
    for _ in range(4):
        made.serve(0)
    assert [len(made.waiting), len(made.maintenance)] == [1, 1]
    made.most = 1
    assert [receive(made, agent)[0] for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_child_that_cannot_be_made_is_the_job_s_error(link, monkeypatch):
    def fail(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    made, agent = link
    monkeypatch.setattr(programmer.children, "start", fail)
    send(agent, b"1", job())
    assert receive(made, agent) == (b"1", JobResult(error="no child process can be made: Resource temporarily unavailable"))


@pytest.mark.parametrize(("kind", "what"), [("apply", "programming the pod"), ("remove", "programming the pod"), ("verify", "checking the pod"), ("subscribe", "checking the pod")])
def test_a_child_has_the_namespace_s_descriptor_and_what_is_left_of_the_job_s_time_and_some_to_roll_back(link, monkeypatch, kind, what):
    started = []
    monkeypatch.setattr(programmer.children, "start", lambda work, **more: started.append(more))
    made, _ = link
    for namespace, kept in ((-1, ()), (0, (0,)), (9, (9,))):
        made._fork(programmer._AcceptedJob(b"1", Job(kind=kind, environ={}, seconds=1.0), namespace, 0.0), 5.0)
        assert started.pop() == {"seconds": 5.0 + programmer._GRACE, "what": what, "kept": kept}


@pytest.mark.parametrize(("kind", "netns"), [("apply", "/proc/self/fd/9"), ("verify", "/proc/self/fd/9"), ("subscribe", "/at"), ("subscribe-connections", "/at")])
def test_a_job_is_done_in_the_namespace_of_its_descriptor_which_is_a_channel_for_a_subscription(monkeypatch, kind, netns):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(programmer, "perform", lambda job, netns, channel, known: (job.kind, netns, channel, known))
    asked = Job(kind=kind, environ={}, seconds=1.0, path="/at")
    assert programmer._work(asked, 9, "known") == (kind, netns, 9, "known")
    assert programmer._work(asked, 0, "known") == (kind, netns.replace("9", "0"), 0, "known")
    assert programmer._work(asked, -1, "") == (kind, "/at", -1, "")


def test_bad_options_are_the_child_s_to_report(link, tmp_path):
    made, agent = link
    send(agent, b"1", job(argv=("-b", "x"), path=str(tmp_path)))
    number, result = receive(made, agent)
    assert (number, "'x' is not a port" in result.error) == (b"1", True), result


CHECKS = tuple(Job.of(VERIFY, Options(), seconds=9.0, path=f"/netns/{name}", cgroup_folder="/cgroups", cgroup=f"/{name}") for name in "ab")
JUDGED = Judgement(digest="d", differences=(), warnings=("w",))


def test_one_child_looks_at_many_pods_with_the_judgement_of_each(link, monkeypatch):
    """What it finds of a pod is told as a check is; the judgements stay, and options that are alike are read once."""
    made, agent = link
    report = Report(backend="nftables", plan=EMPTY_PLAN, differences=(), warnings=("w",), generation=3)
    read, from_argv = [], Options.from_argv
    monkeypatch.setattr(jobs.Options, "from_argv", lambda argv, environ: read.append(argv) or from_argv(argv, environ))

    def look(pods):
        said = str([(options.netns, cgroup, known) for options, cgroup, known in pods])
        return [report.replace(warnings=(said, str(len(read)))), None]

    monkeypatch.setattr(programmer.child_jobs, "look_again", look)
    jobs._read_options.cache_clear()
    text = answers.encode(JUDGED).decode()
    made._remember(CHECKS[0], text)
    send(agent, b"1", Job(kind=LOOK_AGAIN, environ={}, seconds=9.0, pods=CHECKS).encode())
    number, result = receive(made, agent)
    asked = [("/netns/a", ("/cgroups", "/a"), JUDGED), ("/netns/b", ("/cgroups", "/b"), None)]
    assert (number, result.pods) == (b"1", (JobResult(backend="nftables", warnings=(str(asked), "1"), generation=3), None))
    assert [made._judgement_of(one) for one in CHECKS] == [text, ""]


@pytest.mark.parametrize("pods", [(replace(CHECKS[0], kind=APPLY),), (Job(kind=LOOK_AGAIN, environ={}, seconds=9.0, pods=CHECKS),), (replace(CHECKS[0], pods=CHECKS),)], ids=["apply", "look", "both"])
def test_a_job_about_pods_is_about_their_checks_alone(pods):
    with pytest.raises(ParseError, match="not checks of pods"):
        Job.decode(Job(kind=LOOK_AGAIN, environ={}, seconds=9.0, pods=pods).encode())
    deep = b"%s{}%s" % (b'{"kind": "look-again", "uids": {}, "pods": [' * 900, b"]}" * 900)
    with pytest.raises(ParseError, match="not a job"):
        Job.decode(deep)


@pytest.mark.parametrize("bad", ["x", (None, "x"), (JobResult(error=1),), (JobResult(warnings=(1,)),)], ids=repr)
def test_a_child_that_a_pod_took_over_answers_about_pods_with_results_or_with_nothing(bad):
    assert JobResult.check(JobResult(pods=(None, JobResult(error="x")))).pods[1].error == "x"
    with pytest.raises(ParseError, match="not a result"):
        JobResult.check(JobResult(pods=bad))
