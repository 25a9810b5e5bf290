"""Bodies that are read side by side, with room for so many bytes."""

from __future__ import annotations

import asyncio

import pytest

from netinit.webhook.review import Fault
from netinit.webhook.review_queue import Bodies


def test_a_body_that_was_given_up_is_refused_even_where_its_end_has_come_already():
    async def read_both():
        bodies = Bodies(10)
        deadline = asyncio.get_running_loop().time() + 60.0
        of_large = asyncio.Queue()
        of_large.put_nowait({"type": "http.request", "body": b"12345678", "more_body": True})

        async def large():
            async with bodies.hold(of_large.get, deadline) as body:
                return body

        async def receive_small():
            of_large.put_nowait({"type": "http.request", "body": b"{}"})  # ready before the large one is given up
            return {"type": "http.request", "body": b"12345"}

        reading = asyncio.create_task(large())
        await asyncio.sleep(0)
        async with bodies.hold(receive_small, deadline) as small:
            assert small == b"12345"
        return await reading

    with pytest.raises(Fault, match="bodies of 0 MiB are waiting already; try again"):
        asyncio.run(read_both())
