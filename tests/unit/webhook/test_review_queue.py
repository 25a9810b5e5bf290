"""Who waits for the processor, and who is next, without a server."""

from __future__ import annotations

import asyncio

import pytest

from netinit.webhook.review import Fault
from netinit.webhook.review_queue import ReviewPlaces, RoundRobin


async def queue(*peers, most=100):
    """The order in which reviews of these peers have their turn while a first one has it, and those that were refused."""
    places, turns = ReviewPlaces(most), RoundRobin()
    order, refused, first_may_end = [], [], asyncio.Event()
    forever = asyncio.get_running_loop().time() + 3600

    async def first():
        with places.hold("first") as place:
            async with turns.take(place, forever):
                await first_may_end.wait()

    async def review(peer):
        try:
            with places.hold(peer) as place:
                async with turns.take(place, forever):
                    order.append(peer)
                    await asyncio.sleep(0)
        except Fault as fault:
            refused.append((peer, fault.status))

    running = [asyncio.create_task(first())]
    await asyncio.sleep(0)
    for peer in peers:
        running.append(asyncio.create_task(review(peer)))
        await asyncio.sleep(0)
    first_may_end.set()
    await asyncio.gather(*running)
    return "".join(order), refused


def test_peers_take_turns_and_reviews_of_one_peer_keep_their_order():
    assert asyncio.run(queue(*"aaaabbc")) == ("abcabaa", [])


def test_one_peer_may_have_all_places_while_nobody_else_wants_one():
    order, refused = asyncio.run(queue(*"aaaa", most=4))
    assert (order, refused) == ("aaa", [("a", 503)])


def test_without_a_place_left_the_largest_peer_gives_one_up():
    order, refused = asyncio.run(queue(*"aaab", most=4))
    assert (sorted(order), refused) == (["a", "a", "b"], [("a", 503)])


def test_reviews_that_do_not_wait_for_their_turn_give_no_place_up():
    places = ReviewPlaces(2)
    with places.hold("a"), places.hold("a"), pytest.raises(Fault, match="2 reviews are waiting already"), places.hold("b"):
        pass


def test_a_turn_that_comes_too_late_is_passed_on():
    async def run():
        places, turns, loop = ReviewPlaces(10), RoundRobin(), asyncio.get_running_loop()
        with places.hold("a") as one, places.hold("b") as two, places.hold("c") as three:
            async with turns.take(one, loop.time() + 60):
                with pytest.raises(TimeoutError):
                    async with turns.take(two, loop.time() - 1):
                        pytest.fail("its deadline is over")
                waiting = asyncio.create_task(enter(turns, three, loop.time() + 60))
                await asyncio.sleep(0)
            assert await waiting == "its turn"

    asyncio.run(run())


async def enter(turns, place, deadline):
    async with turns.take(place, deadline):
        return "its turn"


def test_a_turn_that_comes_at_the_moment_of_giving_up_is_not_lost():
    async def run():
        places, turns, loop = ReviewPlaces(10), RoundRobin(), asyncio.get_running_loop()
        with places.hold("a") as one, places.hold("b") as two, places.hold("c") as three:
            async with turns.take(one, loop.time() + 60):
                waiting = asyncio.create_task(enter(turns, two, loop.time() + 60))
                await asyncio.sleep(0)
            waiting.cancel()  # it was given the turn, and has not noticed yet
            with pytest.raises(asyncio.CancelledError):
                await waiting
            async with asyncio.timeout(60):
                assert await enter(turns, three, loop.time() + 5) == "its turn"

    asyncio.run(run())
