"""Events about injected pods: each one once in a while, few of them, and never in the way of a review."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from netinit.base.errors import ClusterError
from netinit.inject.adding.settings import Settings
from netinit.webhook.cluster import WatchedCluster
from netinit.webhook.loaders import ConfigLoader
from netinit.webhook.pod_events import PodEvent, PodEvents
from netinit.webhook.serving_state import Metrics, ServingState
from netinit.webhook.settings import ServeSettings


class Clock:
    time = 1000.0

    def __call__(self):
        return self.time


def event(name="web", message="m"):
    return PodEvent((("namespace", "shop"), ("kind", "ReplicaSet"), ("name", name)), "SharedProxyUser", message)


def test_an_event_is_written_once_in_ten_minutes():
    clock = Clock()
    events = PodEvents(clock)
    assert [events.offer(event()), events.offer(event()), events.offer(event("other"))] == [True, False, True]
    clock.time += 599
    assert not events.offer(event())
    clock.time += 1
    assert events.offer(event())


def test_thirty_events_in_a_minute_are_the_most():
    clock = Clock()
    events = PodEvents(clock)
    assert [events.offer(event(f"web-{number}")) for number in range(40)] == [True] * 30 + [False] * 10
    clock.time += 60
    assert events.offer(event("later"))


def test_while_nobody_writes_them_further_events_are_dropped_and_nothing_waits():
    clock = Clock()
    events = PodEvents(clock)
    taken = 0
    for number in range(200):
        clock.time += 60
        taken += events.offer(event(f"web-{number}"))
    assert taken == 64


class Api:
    """An API server that takes events, or says no."""

    access = SimpleNamespace(namespace="mesh")

    def __init__(self, error=None):
        self.error, self.events = error, []

    async def create(self, resource, tree, namespace):
        if self.error:
            raise ClusterError(self.error)
        self.events.append((resource.plural, namespace, tree))


def written(api, *offered):
    state = ServingState()
    settings = ServeSettings(tls_cert_file="c", tls_key_file="k")

    async def run():
        cluster = WatchedCluster(api, settings, state, config=ConfigLoader(Settings(), state, lambda *_: None), certificates=None)
        (task,) = map(asyncio.create_task, cluster.tasks(asyncio.Queue()))
        for one in offered:
            state.pod_events.offer(one)
        async with asyncio.timeout(60):
            while not (state.notices or len(api.events) == len(offered)):  # noqa: ASYNC110 - the server sets no event for tests
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return state


def test_an_event_is_on_the_pods_controller_in_its_namespace():
    api = Api()
    assert written(api, event(message="why")).notices == {}
    ((resource, namespace, tree),) = api.events
    assert (resource, namespace) == ("events", "shop")
    assert (tree["involvedObject"]["name"], tree["reason"], tree["message"], tree["type"]) == ("web", "SharedProxyUser", "why", "Warning")


def told_unready(api, *reasons, pod_name="netinit-webhook-1"):
    """The notices once events about these reasons, the newest of which counts, were tried."""
    state = ServingState()
    settings = ServeSettings(tls_cert_file="c", tls_key_file="k", namespace="mesh", pod_name=pod_name, pod_uid="u")

    async def run():
        queue = asyncio.Queue(maxsize=1)
        cluster = WatchedCluster(api, settings, state, config=ConfigLoader(Settings(), state, lambda *_: None), certificates=None)
        tasks = [asyncio.create_task(one) for one in cluster.tasks(asyncio.Queue(), queue)]
        for reason in reasons:
            await queue.put(reason)
        async with asyncio.timeout(60):
            while not (state.notices or len(api.events) == len(reasons)):  # noqa: ASYNC110 - the server sets no event for tests
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    tasks = asyncio.run(run())
    assert state.cluster_problems == {}
    return tasks, state.notices


def test_why_a_replica_is_not_ready_is_an_event_on_its_pod():
    api = Api()
    assert told_unready(api, "configuration: none yet")[1] == {}
    ((_, namespace, tree),) = api.events
    assert (namespace, tree["reason"], tree["message"], tree["type"]) == ("mesh", "NotReady", "it answers no reviews: configuration: none yet", "Warning")
    assert tree["involvedObject"] == {"kind": "Pod", "apiVersion": "v1", "name": "netinit-webhook-1", "namespace": "mesh", "uid": "u"}
    assert told_unready(Api(error="403 Forbidden"), "x")[1] == {"event about readiness": "403 Forbidden"}
    assert told_unready(Api(), pod_name="")[0] == told_unready(Api(), pod_name="a")[0] - 1, "nobody knows the pod: no task"


def test_an_event_that_cannot_be_written_is_said_and_does_not_mean_that_the_cluster_cannot_be_used():
    state = written(Api(error="403 Forbidden"), event())
    assert (state.notices, state.cluster_problems) == ({"event about a pod": "403 Forbidden"}, {})
    assert "[!]event about a pod: 403 Forbidden" in state.report(verbose=True)[1].splitlines()
    assert "403" not in str(state.find_reason())
    assert "netinit_webhook_cluster_error 0.0" in Metrics(state, lambda: 0).text().decode()
