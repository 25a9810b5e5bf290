"""How configurations come in, in one process."""

from __future__ import annotations

import asyncio
import gc

import pytest

from netinit.inject import Settings
from netinit.webhook.board import CONFIGURATION, Board
from netinit.webhook.configuration import Texts
from netinit.webhook.feed import Feed


def tracked():
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("bad", [False, True], ids=["good ones", "bad ones"])
def test_one_configuration_after_the_other_leaves_nothing_behind(tmp_path, bad):
    gc.collect()
    gc.freeze()  # what other tests have left is looked through once, not for each configuration
    feed = Feed(Board(tmp_path), Settings(), lambda *_: None)

    def offer(number):
        values = f"{{global: {{meshID: mesh-{number}, proxy: {{resources: {'[1]' if bad else '{}'}}}}}}}"
        texts = Texts(values=values, mesh=f"trustDomain: td{number}.example\n")
        assert asyncio.run(feed.offer(texts))
        assert bool(feed.problem) is bad, feed.problem

    for number in range(3):
        offer(number)
    before = tracked()
    for number in range(3, 13):
        offer(number)
    assert tracked() - before < 100


def test_a_configuration_that_finds_no_room_is_taken_when_there_is_some(tmp_path):
    told = []
    feed = Feed(Board(tmp_path / "board"), Settings(), lambda _, text: told.append(text))
    texts = Texts(values="{global: {meshID: one}}")
    assert asyncio.run(feed.offer(texts))
    assert feed.generation == 0
    assert "--stateFolder: it cannot be written" in feed.problem
    (tmp_path / "board").mkdir()
    assert not asyncio.run(feed.offer(texts)), "it is not tried again, as it is known to be good"
    assert (feed.generation, feed.problem) == (1, "")
    assert Board(tmp_path / "board").tree(CONFIGURATION)["values"] == texts.values
    assert not asyncio.run(feed.offer(texts))
    assert feed.generation == 1
