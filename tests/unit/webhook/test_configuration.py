"""How configurations come in, in one process."""

from __future__ import annotations

import asyncio
import gc

import pytest

from netinit.inject import Settings
from netinit.webhook.configuration import Texts
from netinit.webhook.loaders import ConfigLoader
from netinit.webhook.serving_state import ServingState


def tracked():
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("bad", [False, True], ids=["good ones", "bad ones"])
def test_one_configuration_after_the_other_leaves_nothing_behind(bad):
    gc.collect()
    gc.freeze()  # what other tests have left is looked through once, not for each configuration
    status = ServingState()
    loader = ConfigLoader(Settings(), status, lambda *_: None)

    def offer(number):
        values = f"{{global: {{meshID: mesh-{number}, proxy: {{resources: {'[1]' if bad else '{}'}}}}}}}"
        texts = Texts(values=values, mesh=f"trustDomain: td{number}.example\n")
        assert asyncio.run(loader.offer(texts)) == status.configuration_problem
        assert bool(status.configuration_problem) is bad, status.configuration_problem
        assert asyncio.run(loader.offer(texts)) == "", "the same texts are looked at once"

    for number in range(3):
        offer(number)
    before = tracked()
    for number in range(3, 13):
        offer(number)
    assert tracked() - before < 100
