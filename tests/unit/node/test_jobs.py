"""Jobs and results as messages: what comes back is what was sent, and what is none is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from netinit.base.errors import ParseError
from netinit.node.jobs import APPLY, CHECK_PROBES, KINDS, LOOK_AGAIN, REMOVE, VERIFY, Job, JobResult
from netinit.options import Options

CHECK = Job(kind=VERIFY, argv=("-p", "15001"), environ={"A": "1"}, seconds=9.0, path="/run/netns/a", cgroup_folder="/cgroups", cgroup="/pod-a")
FULL = replace(CHECK, kind=LOOK_AGAIN, uids={"10.0.0.1": "u1", "fd00::1": "u2"}, pods=(CHECK, replace(CHECK, argv=(), environ={})))
RESULT = JobResult(
    error="e", late=True, gone=True, backend="b", changed=True, ours=False, differences=("d",), warnings=("w",), judgement="j", generation=7, pods=(None, JobResult())
)  # fmt: skip


def test_a_job_is_read_as_it_was_written():
    assert all(getattr(FULL, one.name) for one in fields(Job)), "each field has a value of its own"
    assert Job.decode(FULL.encode()) == FULL
    for kind in KINDS:
        assert Job.decode(replace(CHECK, kind=kind).encode()).kind == kind


@pytest.mark.parametrize(("field", "value"), [
    ("kind", "other"), ("kind", None), ("seconds", 9), ("seconds", "9"), ("path", 1), ("cgroup_folder", None), ("cgroup", []), ("argv", [1]), ("environ", {"A": 1}),
    ("uids", {"10.0.0.1": 1}),
])  # fmt: skip
def test_a_field_of_another_type_makes_it_no_job(field, value):
    tree = {**json.loads(CHECK.encode()), field: value}
    with pytest.raises(ParseError, match=r"^this is not a job: a field has the wrong type$"):
        Job.decode(json.dumps(tree).encode())


@pytest.mark.parametrize("change", [{"more": 1}, {"uids": {"nowhere": "u"}}, {"uids": None}, {"argv": None}, {"pods": [1]}])
def test_what_has_not_the_fields_of_a_job_is_none(change):
    with pytest.raises(ParseError, match=r"^this is not a job: "):
        Job.decode(json.dumps({**json.loads(CHECK.encode()), **change}).encode())
    for data in (b"", b"[]", b"{}", b"1", b"\xff"):
        with pytest.raises(ParseError, match=r"^this is not a job: "):
            Job.decode(data)


def test_a_job_about_pods_has_their_checks_alone():
    for one in (replace(CHECK, kind=APPLY), replace(CHECK, pods=(CHECK,))):
        with pytest.raises(ParseError, match=r"^this is not a job: it is about jobs that are not checks of pods$"):
            Job.decode(replace(FULL, pods=(CHECK, one)).encode())


@pytest.mark.parametrize(("seconds", "timeout"), [(9.0, 9 * 10**9), (0.5, 500_000_000), (0.0, 1), (1e6, 60 * 10**9)])
@pytest.mark.parametrize(("kind", "cleans"), [(APPLY, False), (VERIFY, False), (REMOVE, True)])
@pytest.mark.parametrize("place", [{"pid": 7}, {"netns": "/elsewhere"}, {"host_network": True}])
def test_its_options_are_those_of_the_pod_in_the_namespace_that_is_given(place, kind, cleans, seconds, timeout):
    made = Job.of(kind, Options(**place, proxy_uids=("9",), cleanup_only=not cleans, lock_timeout=60 * 10**9), seconds=seconds, path="/p")
    assert (made.kind, made.seconds, made.path) == (kind, seconds, "/p")
    found = made.options("/proc/self/fd/7")
    assert (found.netns, found.pid, found.cni_mode, found.host_network, found.cleanup_only, found.lock_timeout) == ("/proc/self/fd/7", 0, True, False, cleans, timeout)
    assert found.proxy_uids == (9,)


def test_a_result_of_a_child_is_what_it_is():
    assert JobResult.check(RESULT) is RESULT
    assert JobResult.check(JobResult()) == JobResult()


@pytest.mark.parametrize("field", [one.name for one in fields(JobResult)])
def test_a_result_with_a_field_of_another_type_is_none(field):
    for odd in (None, 1.5, [*"ab"]):
        with pytest.raises(ParseError, match=r"^this is not a result$"):
            JobResult.check(replace(RESULT, **{field: odd}))


@pytest.mark.parametrize("field", ["differences", "warnings"])
def test_a_result_tells_in_texts(field):
    with pytest.raises(ParseError, match=r"^this is not a result: a difference or warning is not a text$"):
        JobResult.check(replace(RESULT, **{field: ("d", 1)}))


def test_what_is_no_result_is_refused():
    for odd in (None, "done", CHECK, {"error": ""}):
        with pytest.raises(ParseError, match=r"^this is not a result$"):
            JobResult.check(odd)
    assert JobResult.check(JobResult(generation=1)).generation == 1
    assert CHECK_PROBES in KINDS
