"""What a job comes to, kind by kind, and how long what a check of a pod has decided counts for the next one."""

from __future__ import annotations

import select
import signal
import socket
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest

from netinit.base.errors import BackendUnavailableError, ChildLostError, NetinitError, NoNamespaceError
from netinit.kernel import answers, children, notifications
from netinit.live.host_probes import ProbeFinding
from netinit.node import jobs, programmer
from netinit.node.jobs import MAX_DIFFERENCES, VERIFY, Job, JobResult
from netinit.node.programmer import Programmer, _AcceptedJob, perform
from netinit.options import Options
from netinit.pods.apply import Outcome
from netinit.questions.plan_comparison import Judgement, Report
from netinit.rules.model import EMPTY_PLAN, Difference

JOB = Job(kind=VERIFY, environ={}, seconds=30.0, path="/run/netns/cni-1")
HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch):
    """The programmer's clock, as a list with the time."""
    now = [1000.0]
    monkeypatch.setattr(programmer.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def given(monkeypatch):
    """A programmer, and what a job's child gets of the last check."""
    got = []
    monkeypatch.setattr(children, "start", lambda action, **_: action(None))
    monkeypatch.setattr(programmer, "_work", lambda _job, _namespace, known: got.append(known))
    own, other = socket.socketpair()
    made = Programmer(own, 1)

    def look(judgement):
        made._fork(_AcceptedJob(b"1", JOB, -1, 0.0), 1.0)
        made._remember(JOB, judgement)
        return got[-1]

    yield look
    own.close()
    other.close()


def test_a_judgement_counts_for_less_than_an_hour_however_often_it_is_used(given, clock):
    """It names a generation of 32 bits, which may come again after 2^32 commits."""
    assert given("judged") == ""
    seen = []
    for _ in range(6):
        clock[0] += HOUR / 6 - 1
        seen.append(given("judged"))
    assert "" in seen
    assert seen.count("judged") > len(seen) / 2


@pytest.mark.parametrize(("age", "known", "next_known"), [(programmer._LONGEST - 1, "judged", ""), (programmer._LONGEST, "", "judged")])
def test_a_judgement_is_made_anew_when_its_time_is_over(given, clock, age, known, next_known):
    given("judged")
    clock[0] += age
    assert given("judged") == known
    clock[0] += 1
    assert given("judged") == next_known


@pytest.mark.parametrize(("kind", "namespace", "what", "kept"), [
    (VERIFY, -1, programmer._CHECKING, ()), (VERIFY, 0, programmer._CHECKING, (0,)), (jobs.APPLY, 7, programmer._PROGRAMMING, (7,)), (jobs.REMOVE, -1, programmer._PROGRAMMING, ()),
    (jobs.LOOK_AGAIN, -1, programmer._CHECKING, ()),
])  # fmt: skip
def test_a_child_gets_the_job_its_namespace_and_what_is_known_of_its_pods(monkeypatch, kind, namespace, what, kept):
    calls = []
    monkeypatch.setattr(children, "start", lambda action, **more: calls.append(more) or action(None))
    monkeypatch.setattr(programmer, "_work", lambda *given: ("work", *given))
    monkeypatch.setattr(programmer, "_look_again", lambda *given: ("look", *given))
    pods = (JOB, replace(JOB, path="/run/netns/cni-2"))
    job = replace(JOB, kind=kind, pods=pods if kind == jobs.LOOK_AGAIN else ())
    own, other = socket.socketpair()
    with own, other:
        made = Programmer(own, 1)
        made._remember(JOB, "judged")
        done = made._fork(_AcceptedJob(b"1", job, namespace, 0.0), 2.5)
    assert calls == [{"seconds": 2.5 + programmer._GRACE, "what": what, "kept": kept}]
    known = "judged" if programmer._subject(job) == programmer._subject(JOB) else ""
    assert done == (("look", job, ["judged", ""]) if kind == jobs.LOOK_AGAIN else ("work", job, namespace, known))


def test_another_judgement_is_new(given, clock):
    given("one")
    clock[0] += HOUR / 3
    given("other")
    clock[0] += HOUR / 3
    assert given("other") == "other"


@pytest.mark.parametrize(("length", "is_kept"), [(0, False), (1, True), (programmer._MAX_JUDGEMENT_LENGTH, True), (programmer._MAX_JUDGEMENT_LENGTH + 1, False)])
def test_a_judgement_that_is_empty_or_long_is_not_kept_and_replaces_the_one_before(given, clock, length, is_kept):
    given("before")
    given("x" * length)
    assert given("") == ("x" * length if is_kept else "")


def test_judgements_are_those_of_checks_and_the_one_that_was_not_used_longest_goes_first(given, monkeypatch):
    monkeypatch.setattr(programmer, "MAX_KNOWN", 2)
    own, other = socket.socketpair()
    with own, other:
        made = Programmer(own, 1)
        for path in ("a", "b", "a", "c"):
            made._remember(replace(JOB, path=path), f"judged {path}")
        assert [path for path, *_ in made.known] == ["a", "c"]
        made._remember(replace(JOB, path="d", kind=jobs.APPLY), "judged d")
        assert [path for path, *_ in made.known] == ["a", "c"]


def test_a_judgement_is_about_one_pod_and_its_options(given):
    variants = [JOB, replace(JOB, path="/run/netns/cni-2"), replace(JOB, argv=("-p", "1")), replace(JOB, environ={"A": "1"})]
    assert len({programmer._subject(one) for one in variants}) == len(variants)
    assert programmer._subject(replace(JOB, seconds=1.0)) == programmer._subject(JOB)


# --- the queue, with children that the test makes ---


class Made:
    """A child: what its pipe has, whether it has exited, and what was done to it."""

    def __init__(self, at, answer=None, *, has_exited=False):
        self.at, self.answer, self.has_exited, self.pid, self.is_ended = at, answer, has_exited, 1000 + at, False

    def fileno(self):
        return self.at

    def receive(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def poll(self):
        return 0 if self.has_exited else None

    def end(self):
        self.is_ended = True


@pytest.fixture
def queue(monkeypatch, clock):
    """A programmer whose agent's socket is 3; `ready` is what a poll finds, `polls` what it asked, `sent` the answers, `killed` the signals."""
    made = Programmer(SimpleNamespace(fileno=lambda: 3), 2)
    seen = SimpleNamespace(made=made, ready=[], polls=[], sent=[], killed=[], clock=clock)

    class Poll:
        def __init__(self):
            self.registered = []

        def register(self, one, events):
            self.registered.append((one if isinstance(one, int) else one.fileno(), events))

        def poll(self, milliseconds):
            seen.polls.append((self.registered, milliseconds))
            return [(one, select.POLLIN) for one in seen.ready]

    monkeypatch.setattr(programmer.select, "poll", Poll)
    monkeypatch.setattr(programmer.os, "kill", lambda *given: seen.killed.append(given))
    monkeypatch.setattr(Programmer, "_send", lambda _, number, result: seen.sent.append((number, result)))
    monkeypatch.setattr(Programmer, "_take", lambda _: seen.polls.append("taken"))
    return seen


def accept(due=9999.0, *, number=b"1", job=JOB):
    return _AcceptedJob(number, job, -1, due)


@pytest.mark.parametrize(("error", "is_open"), [(BlockingIOError(), True), (ConnectionResetError(), False), (None, False)], ids=repr)
def test_a_programmer_notices_that_its_agent_is_gone_whatever_its_socket_says(clock, monkeypatch, error, is_open):
    own = SimpleNamespace()

    def receive(*given):
        assert given == (own, programmer.PACKET, 2)
        if error:
            raise error
        return b"", []

    monkeypatch.setattr(programmer, "receive_descriptors", receive)
    made = Programmer(own, 1)
    made._take()
    assert (made.open, made.waiting, made.maintenance) == (is_open, deque(), deque())


@pytest.mark.parametrize(("dues", "seconds", "waits"), [
    ((), 0.5, 500.0), ((), 0.0, 0.0), ((1000.25,), 0.5, 250.0), ((1003.0, 1000.125), 0.5, 125.0), ((1003.0,), 0.5, 500.0), ((999.0,), 0.5, 0.0),
])  # fmt: skip
def test_a_programmer_waits_for_jobs_and_children_and_no_longer_than_the_next_deadline(queue, dues, seconds, waits):
    for at, due in enumerate(dues, 10):
        queue.made.running[Made(at)] = accept(due)
    queue.made.serve(seconds)
    descriptors = [3, *range(10, 10 + len(dues))]
    assert queue.polls == [([(one, select.POLLIN) for one in descriptors], waits)]


def test_a_programmer_whose_queue_is_full_or_whose_agent_is_gone_does_not_listen_for_jobs(queue, monkeypatch):
    monkeypatch.setattr(programmer, "MAX_WAITING", 2)
    made, made.most = queue.made, 0
    for waiting, maintenance, is_open, listens in ((1, 0, True, True), (1, 1, True, False), (0, 2, True, False), (0, 0, False, False)):
        made.waiting, made.maintenance, made.open = deque([accept()] * waiting), deque([accept()] * maintenance), is_open
        queue.polls.clear()
        made.serve(1.0)
        assert queue.polls == [([(3, select.POLLIN)] * listens, 1000.0)]
    queue.ready = [3]
    made.serve(1.0)
    assert queue.polls[-1] == "taken"


def test_a_child_that_answers_is_finished_and_one_whose_time_is_over_is_stopped(queue):
    done, late, slow = Made(10, JobResult(backend="b", judgement="judged")), Made(11), Made(12)
    queue.made.running = {done: accept(999.0, number=b"1"), late: accept(1000.0, number=b"2"), slow: accept(1000.5, number=b"3")}
    queue.ready = [10]
    queue.made.serve(1.0)
    assert queue.sent == [(b"1", JobResult(backend="b"))], "what it has decided stays here"
    assert [*queue.made.known.values()] == [("judged", 1000.0)]
    assert (done.is_ended, [*queue.made.running]) == (True, [late, slow])
    assert queue.killed == [(1011, signal.SIGTERM)]
    assert [(one.stopped, one.due) for one in queue.made.running.values()] == [(True, 1000.0 + programmer._GRACE), (False, 1000.5)]
    queue.ready, queue.clock[0] = [], 1000.0 + programmer._GRACE
    queue.made.serve(1.0)
    assert queue.sent[1:] == [(b"2", JobResult(error="it did not finish in time and was killed", late=True))]
    assert (late.is_ended, queue.killed[1:]) == (True, [(1012, signal.SIGTERM)])


def test_a_child_that_has_exited_without_an_answer_is_not_signalled(queue):
    queue.made.running = {Made(10, has_exited=True): accept(1000.0)}
    queue.made.serve(1.0)
    assert (queue.killed, queue.made.running) == ([], {})
    assert queue.sent == [(b"1", JobResult(error="the process that did it ended without an answer"))]


@pytest.mark.parametrize(("answer", "stopped", "result"), [
    (ChildLostError("lost"), False, JobResult(error="lost")), (ChildLostError("lost"), True, JobResult(error="lost", late=True)),
    (ChildLostError("slow", late=True), False, JobResult(error="slow", late=True)), (children.ChildError("KeyError: 1"), True, JobResult(error="ChildError: KeyError: 1")),
    (NetinitError("x"), False, JobResult(error="NetinitError: x")), (OSError(5, "y"), False, JobResult(error="OSError: [Errno 5] y")),
    ("no result", False, JobResult(error="ParseError: this is not a result")),
], ids=repr)  # fmt: skip
def test_what_became_of_a_child_is_its_job_s_result(queue, answer, stopped, result):
    child = Made(10, answer)
    queue.made.running, queue.ready = {child: accept()}, [10]
    queue.made.running[child].stopped = stopped
    queue.made.serve(1.0)
    assert (queue.sent, queue.made.running, child.is_ended) == ([(b"1", result)], {}, True)


def test_the_namespace_of_a_job_that_is_answered_is_closed(queue, monkeypatch):
    closed = []
    monkeypatch.setattr(programmer.os, "close", closed.append)
    for namespace in (-1, 0, 7):
        queue.made._answer(_AcceptedJob(b"1", JOB, namespace, 0.0), JobResult())
    assert (closed, queue.sent) == ([0, 7], [(b"1", JobResult())] * 3)


def test_jobs_begin_as_many_at_a_time_as_there_may_be_with_the_time_that_is_left(queue, monkeypatch):
    begun = []
    monkeypatch.setattr(Programmer, "_fork", lambda _, accepted, left: begun.append((accepted.number, left)) or Made(10 + len(begun)))
    queue.made.maintenance = deque([accept(1001.0, number=b"1"), accept(1000.0, number=b"2"), accept(1002.0, number=b"3"), accept(1003.0, number=b"4")])
    queue.made.waiting = deque([accept(1000.5, number=b"5")])
    queue.made.serve(0.0)
    assert begun == [(b"5", 0.5), (b"1", 1.0)]
    queue.made.most = 3
    queue.made.serve(0.0)
    assert begun[2:] == [(b"3", 2.0)]
    assert queue.sent == [(b"2", JobResult(error="there was no time left for it when its turn came", late=True))]
    assert [one.number for one in queue.made.maintenance] == [b"4"]


def test_the_end_asks_running_jobs_to_roll_back_and_leaves_no_process(queue, monkeypatch):
    obeys, stays, waited = Made(10, JobResult(backend="b")), Made(11), []
    queue.made.running = {obeys: accept(number=b"1"), stays: accept(number=b"2")}

    def serve(self, seconds):
        waited.append(seconds)
        queue.clock[0] += 0.5
        if obeys in self.running:
            self._finish(obeys, self.running[obeys])

    monkeypatch.setattr(Programmer, "serve", serve)
    queue.made.end()
    assert queue.killed == [(1010, signal.SIGTERM), (1011, signal.SIGTERM)]
    assert waited == [0.05] * int(programmer._GRACE / 0.5)
    assert (obeys.is_ended, stays.is_ended, queue.sent) == (True, True, [(b"1", JobResult(backend="b"))])
    queue.made.running.clear()
    queue.made.end()
    assert len(waited) == int(programmer._GRACE / 0.5), "where nothing runs, nothing is waited for"


# --- what each kind of job comes to ---

FOUND = Difference(kind="missing", where="IPv4", table="nat", chain="OUTPUT", rule="-j ISTIO_OUTPUT", number=1)
JUDGED = Judgement(digest="d", differences=(FOUND,), warnings=("w",))


def of(kind, **more):
    return Job.of(kind, Options(), seconds=9.0, **more)


@pytest.mark.parametrize("kind", [jobs.APPLY, jobs.REMOVE])
def test_programming_a_pod_tells_the_backend_whether_it_changed_something_and_all_that_was_said(monkeypatch, kind):
    done = Outcome(backend="nftables", changed=True, rules={}, warnings=("a warning",), notes=("a note",))
    seen = []
    monkeypatch.setattr(programmer.child_jobs, "program", lambda options: seen.append(options) or done)
    assert perform(of(kind), "/proc/self/fd/7") == JobResult(backend="nftables", changed=True, warnings=("a warning", "a note"))
    assert (seen[0].netns, seen[0].cleanup_only, seen[0].cni_mode, seen[0].lock_timeout) == ("/proc/self/fd/7", kind == jobs.REMOVE, True, 9 * 10**9)
    done = done.replace(changed=False, unended="two connections go on")
    assert perform(of(kind), "/x") == JobResult(backend="nftables", warnings=("a warning", "a note", "two connections go on"))


def test_a_check_tells_what_differs_and_its_judgement_is_passed_to_the_next_one(monkeypatch):
    report = Report(backend="iptables-nft", plan=EMPTY_PLAN, differences=(FOUND,) * (MAX_DIFFERENCES + 1), warnings=("w",), ours=False, judgement=JUDGED, generation=7)
    seen = []
    monkeypatch.setattr(programmer.child_jobs, "verify_by_cgroup", lambda *given: seen.append(given) or report)
    job = of(jobs.VERIFY, cgroup_folder="/sys/fs/cgroup", cgroup="/pod1")
    result = perform(job, "/x")
    judgement = answers.encode(JUDGED).decode()
    assert result == JobResult(
        backend="iptables-nft", differences=(FOUND.describe(),) * MAX_DIFFERENCES, warnings=("w",), ours=False, judgement=judgement, generation=7)  # fmt: skip
    perform(job, "/x", known=judgement)
    perform(job, "/x", known=answers.encode("no judgement").decode())
    assert [(options.netns, cgroup, known) for options, cgroup, known in seen] == [("/x", ("/sys/fs/cgroup", "/pod1"), known) for known in (None, JUDGED, None)]
    report = report.replace(judgement=None)
    assert perform(job, "/x").judgement == ""


def test_open_connections_that_bypass_the_proxy_are_differences_as_many_as_are_told(monkeypatch):
    monkeypatch.setattr(programmer, "find_bypassing", lambda options: tuple(f"{options.netns} {at}" for at in range(MAX_DIFFERENCES + 1)))
    assert perform(of(jobs.JUDGE_CONNECTIONS), "/x") == JobResult(differences=tuple(f"/x {at}" for at in range(MAX_DIFFERENCES)))


@pytest.mark.parametrize(("kind", "groups"), [(jobs.SUBSCRIBE, notifications.CHANGES), (jobs.SUBSCRIBE_CONNECTIONS, notifications.CONNECTIONS)])
def test_a_subscription_asks_for_its_groups_and_sends_its_sockets_through_the_descriptor(monkeypatch, kind, groups):
    seen = []
    monkeypatch.setattr(programmer.child_jobs, "subscribe", lambda *given: seen.append(given))
    assert perform(of(kind), "/x", 7) == JobResult()
    assert [(options.netns, wanted, channel) for options, wanted, channel in seen] == [("/x", groups, 7)]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (NetinitError("refused"), JobResult(error="refused")),
        (NoNamespaceError("it is gone"), JobResult(error="it is gone", gone=True)),
        (ChildLostError("too late", late=True), JobResult(error="too late", late=True)),
        (ChildLostError("killed"), JobResult(error="killed")),
        (KeyboardInterrupt("ended by a signal"), JobResult(error="ended by a signal")),
    ],
    ids=repr,
)
def test_an_error_says_whether_the_pod_is_gone_and_whether_there_was_no_time(monkeypatch, error, result):
    def fail(_):
        raise error

    monkeypatch.setattr(programmer.child_jobs, "program", fail)
    assert perform(of(jobs.APPLY), "/x") == result


def test_options_that_cannot_be_read_are_the_job_s_error():
    assert "nope" in perform(Job(kind=jobs.APPLY, argv=("--nope",), environ={}, seconds=1.0), "/x").error


def test_the_node_s_rules_for_probes_are_checked_or_repaired_without_a_namespace(monkeypatch):
    found = (ProbeFinding(address="10.1.1.1", state="missing", detail="no rule exempts it"), ProbeFinding(address="fd00::1", state="exempt"))
    told = ("missing 10.1.1.1 no rule exempts it", "exempt fd00::1 ")
    uids = {"10.1.1.1": "u1", "fd00::1": "u2"}
    monkeypatch.setattr(programmer.host_probe_rules, "check_host_probes", lambda addresses: found if addresses == (*uids,) else ())
    monkeypatch.setattr(programmer.host_probe_rules, "repair_host_probes", lambda given: ("nftables", found if given == uids else ()))
    assert perform(of(jobs.CHECK_PROBES, uids=uids), "") == JobResult(differences=told)
    assert perform(of(jobs.REPAIR_PROBES, uids=uids), "") == JobResult(backend="nftables", differences=told)


@pytest.mark.parametrize("error", [BackendUnavailableError("nft is missing"), OSError("no /proc")], ids=repr)
def test_what_keeps_the_node_s_rules_from_being_read_is_the_job_s_error(monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(programmer.host_probe_rules, "check_host_probes", fail)
    assert perform(of(jobs.CHECK_PROBES), "") == JobResult(error=str(error))
