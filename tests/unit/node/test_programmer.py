"""What a job comes to, kind by kind, and how long what a check of a pod has decided counts for the next one."""

from __future__ import annotations

import socket
from dataclasses import replace

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
