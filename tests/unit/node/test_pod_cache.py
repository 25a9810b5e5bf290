"""What the agent asks the API about one pod, and what it knows of the API from the answers."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from netinit.base.errors import ClusterError, CniError
from netinit.kube.resources import PODS
from netinit.node import node_pods
from netinit.node.decision import read_pod
from netinit.node.node_pods import PodCache
from netinit.node.protocol import CniCode
from node_agent import make_pod


class FixedApi:
    """Answers requests for the pod in this order; a number is a pause."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def get(self, *asked):
        assert asked == (PODS, "web", "shop")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return answer


def find(cache, *, uid="", seconds=30.0, insists=True):
    return asyncio.run(cache.find("shop", "web", uid, time.monotonic() + seconds, insists=insists))


AWAY = ClusterError("connection refused")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(node_pods, "_RETRY", 0.0)


def test_the_pods_of_the_node_alone_are_watched_and_what_is_decided_by_is_kept():
    cache = PodCache(FixedApi(), "node-1")
    assert (cache.resource, cache.namespace, cache.fields, cache.optional) == (PODS, "", "spec.nodeName=node-1", False)
    cache._take([cache._keep(tree) for tree in (make_pod("web", uid="a"), make_pod("api", uid="b"))], "7")
    assert [(one.label, one.uid) for one in cache] == [("shop/web", "a"), ("shop/api", "b")]
    assert cache._turn._value == 16, "requests at a time"


@pytest.mark.parametrize(("seconds", "pauses"), [(30.0, [0.25]), (0.1, [0.1])])
def test_between_two_requests_there_is_a_pause_that_the_time_which_is_left_bounds(monkeypatch, seconds, pauses):
    monkeypatch.setattr(node_pods, "_RETRY", 0.25)
    monkeypatch.setattr(node_pods, "time", SimpleNamespace(monotonic=lambda: 100.0))
    found, sleep = [], asyncio.sleep

    async def pause(length):
        found.append(length)
        await sleep(0)

    monkeypatch.setattr(node_pods.asyncio, "sleep", pause)
    cache = PodCache(FixedApi(AWAY, make_pod("web", uid="a")), "n")
    asyncio.run(cache.find("shop", "web", "", 100.0 + seconds))
    assert found == [pytest.approx(one) for one in pauses]


def test_a_pod_of_another_uid_is_told_as_another_pod():
    cache = PodCache(FixedApi(make_pod("web", uid="other")), "n")
    with pytest.raises(CniError) as raised:
        find(cache, uid="a")
    assert (str(raised.value), raised.value.code) == ("pod shop/web is not known: another pod has that name now", CniCode.LATER)


def test_a_pod_that_the_watch_has_told_of_is_not_asked_for():
    cache = PodCache(FixedApi(), "n")
    pod = cache.items["shop", "web"] = read_pod(make_pod("web", uid="a"))
    assert (find(cache, uid="a"), cache.known("shop", "web", ""), cache.known("shop", "web", "b")) == (pod, pod, None)


def test_the_api_is_asked_again_until_it_answers_or_once():
    cache = PodCache(FixedApi(AWAY, AWAY, make_pod("web", uid="a")), "n")
    assert find(cache).uid == "a"
    assert cache.api_error == ""
    cache = PodCache(FixedApi(AWAY), "n")
    with pytest.raises(ClusterError, match="connection refused"):
        find(cache, insists=False)
    assert cache.api_error == "connection refused"


def test_an_api_that_hangs_is_one_that_cannot_be_asked():
    cache = PodCache(FixedApi(3600.0), "n")
    with pytest.raises(ClusterError, match="did not answer in time"):
        find(cache, seconds=0.05)
    assert cache.api_error == "it did not answer in time"


@pytest.mark.parametrize("answer", [ClusterError("not found", status=404), make_pod("web", uid="other")])
def test_an_answer_that_there_is_no_such_pod_says_that_the_api_is_there(answer):
    cache = PodCache(FixedApi(AWAY, answer), "n")
    with pytest.raises(CniError, match="pod shop/web is not known: "):
        find(cache, uid="a")
    assert cache.api_error == ""


def test_a_failed_request_counts_for_a_few_seconds_and_the_error_of_the_watch_as_long_as_it_lasts(monkeypatch):
    cache, now = PodCache(FixedApi(AWAY), "n"), [100.0]
    monkeypatch.setattr(node_pods.time, "monotonic", lambda: now[0])
    with pytest.raises(ClusterError):
        find(cache, insists=False)
    now[0] += 4.9
    assert cache.api_error
    cache._note("")
    assert cache.api_error == "", "the watch goes on"
    cache.client.answers.append(AWAY)
    with pytest.raises(ClusterError):
        find(cache, insists=False)
    now[0] += 4.9
    now[0] += 0.2
    assert cache.api_error == ""
    cache._note("the watch ended")
    assert cache.api_error == "the watch ended"
