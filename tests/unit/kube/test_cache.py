"""When a cache lists, watches, waits and reports: against a client that follows a script, with the pauses written down."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from netinit.base.errors import ClusterError
from netinit.kube.client import Cache, follow
from netinit.kube.resources import CONFIG_MAPS

BROKEN, GONE, UNKNOWN = ClusterError("broken"), ClusterError("too old", status=410), ClusterError("no such thing", status=404)


def thing(name, version=""):
    return {"metadata": {"name": name, "namespace": "ns", **({"resourceVersion": version} if version else {})}, "name": name}


class Script:
    """A client that gives the next answer of a script: a list and its version, the events of a watch, or an error to raise."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def _next(self, *asked):
        self.asked.append(asked)
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def list(self, resource, namespace, *, fields, keep):
        found, version = self._next("list", resource, namespace, fields)
        return [kept for tree in found if (kept := keep(tree)) is not None], version

    async def watch(self, resource, namespace, *, version, seconds, fields, opened):
        assert 50 <= seconds <= 80
        events = self._next("watch", resource, namespace, fields, version)
        opened()
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, each the longest that may be drawn."""
    made, sleep = [], asyncio.sleep

    async def note(seconds):
        made.append(seconds)
        await sleep(0)

    def draw(low, high):
        assert (low, high) == (0.5, 1.0)
        return high

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(random, "uniform", draw)
    return made


def run(*answers, **more):
    """The cache after a script, and what it had at each change: names and error."""
    seen = []
    script = Script(*answers)

    def note():
        seen.append((sorted(name for _, name in cache.items), cache.error))

    cache = Cache(script, CONFIG_MAPS, "ns", changed=note, **more)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cache.run())
    return cache, seen, [(asked[0], *asked[4:]) for asked in script.asked]


def test_each_change_is_reported_once_and_bookmarks_only_move_the_version(pauses):
    events = [
        ("ADDED", thing("b", "6")), ("BOOKMARK", thing("", "7")), ("MODIFIED", thing("b")), ("DELETED", thing("a", "8")),
        ("DELETED", thing("z")),
    ]  # fmt: skip
    cache, seen, asked = run(([thing("a")], "5"), events, [], fields="f")
    assert seen == [(["a"], ""), (["a", "b"], ""), (["a", "b"], ""), (["b"], ""), (["b"], "")]
    assert asked == [("list",), ("watch", "5"), ("watch", "8"), ("watch", "8")]
    assert {entry[1:4] for entry in cache.client.asked} == {(CONFIG_MAPS, "ns", "f")}
    assert cache.get("b", "ns") == thing("b")
    assert (cache.get("b"), cache.get("a", "ns"), pauses) == (None, None, [])


def test_an_object_that_is_no_longer_kept_is_forgotten(pauses):
    events = [("ADDED", thing("c")), ("MODIFIED", {**thing("a"), "name": None})]
    cache, seen, _ = run(([thing("a"), {**thing("b"), "name": None}], "5"), events, keep=lambda tree: tree["name"])
    assert seen == [(["a"], ""), (["a", "c"], ""), (["c"], "")]
    assert cache.items == {("ns", "c"): "c"}


def test_pauses_double_up_to_half_a_minute_and_begin_anew_after_a_watch(pauses):
    _, seen, asked = run(*[BROKEN] * 8, ([], "5"), [], BROKEN)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5]
    assert seen == [([], "broken"), ([], ""), ([], "broken")], "an error is reported when it comes and when it goes"
    assert asked == [("list",)] * 9 + [("watch", "5")] * 3


def test_the_third_error_in_a_row_lists_again(pauses):
    _, seen, asked = run(([thing("a")], "5"), BROKEN, [BROKEN], BROKEN, ([], "9"))
    assert asked == [("list",), *[("watch", "5")] * 3, ("list",), ("watch", "9")]
    assert seen == [(["a"], ""), (["a"], "broken"), (["a"], ""), (["a"], "broken"), ([], "")]
    assert pauses == [0.5, 1.0, 2.0]


def test_a_version_that_is_too_old_lists_at_once_and_is_an_error_only_if_it_is_so_again(pauses):
    _, seen, asked = run(([], "5"), GONE, ([], "6"), GONE, ([], "7"))
    assert asked == [("list",), ("watch", "5"), ("list",), ("watch", "6"), ("list",), ("watch", "7")]
    assert seen == [([], ""), ([], ""), ([], "too old"), ([], "")]
    assert pauses == [1.0]


def test_an_optional_resource_that_is_unknown_has_no_objects_and_is_looked_for_each_minute(pauses):
    cache, seen, asked = run(([thing("a")], "5"), UNKNOWN, UNKNOWN, BROKEN, UNKNOWN, optional=True)
    assert asked == [("list",), ("watch", "5"), *[("list",)] * 4]
    assert seen == [(["a"], ""), ([], ""), ([], ""), ([], "broken"), ([], "")]
    assert (pauses, cache.synced) == ([60.0, 60.0, 0.5, 60.0], True)
    pauses.clear()
    cache, seen, _ = run(UNKNOWN)
    assert (seen, pauses, cache.synced) == ([([], "no such thing")], [0.5], False)


def test_another_error_of_an_optional_resource_is_one(pauses):
    cache, seen, _ = run(BROKEN, optional=True)
    assert (seen, pauses, cache.synced) == ([([], "broken")], [0.5], False)


def test_a_cache_can_be_waited_for():
    async def wait():
        cache = Cache(Script(([thing("a")], "5"), []), CONFIG_MAPS)
        assert not cache.synced
        running = asyncio.create_task(cache.run())
        await cache.wait()
        assert cache.get("a", "ns") == thing("a")
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(wait())


@pytest.mark.parametrize("own", [False, True])
def test_followers_react_to_each_cache_to_an_event_and_to_time(own):
    async def wait():
        reactions, enough = [], asyncio.Event()
        changed = asyncio.Event() if own else None
        caches = [Cache(Waiting(), CONFIG_MAPS) for _ in range(2)]

        async def react():
            reactions.append([cache.synced for cache in caches])
            enough.set()

        async def hear():
            await asyncio.wait_for(enough.wait(), 60)
            enough.clear()

        following = asyncio.create_task(follow(caches, react, changed=changed, seconds=0.1 if own else None))
        await hear()
        assert reactions.pop(0) == [True, True]
        if own:
            changed.set()
            await hear()
            await hear()
        caches[1].changed()
        await hear()
        count = len(reactions)
        if not own:
            await asyncio.sleep(0.02)
            assert len(reactions) == count == 1, "nothing changed, and no time was named"
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    asyncio.run(wait())


class Waiting(Script):
    """A client whose lists are empty and whose watches are silent."""

    async def list(self, *_, **__):
        return [], "1"

    async def watch(self, *_, **__):
        await asyncio.Event().wait()
        yield
