"""Limit the number of waiting reviews and the memory of their bodies, and serve clients round-robin.

At the limit of memory the largest incomplete body is dropped, so a slow large upload makes room for small requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from netinit.webhook.review import MAX_REVIEW_BYTES, Fault

_ARRIVAL_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class QueuePlace:
    """A review's place; `turn` is set while it waits."""

    peer: str
    turn: asyncio.Future[None] | None = None


class ReviewPlaces:
    """Places for `max_reviews` reviews; when none is free, the client with the most places loses one."""

    def __init__(self, max_reviews: int) -> None:
        self._max_reviews = max_reviews
        self._taken: dict[str, list[QueuePlace]] = {}

    @contextlib.contextmanager
    def hold(self, peer: str) -> Iterator[QueuePlace]:
        """Hold a place until the block ends. Raises Fault if none is free."""
        if sum(map(len, self._taken.values())) >= self._max_reviews and not self._free_one_for(peer):
            raise self._refusal()
        place = QueuePlace(peer)
        self._taken.setdefault(peer, []).append(place)
        try:
            yield place
        finally:
            self._taken[peer].remove(place)
            if not self._taken[peer]:
                del self._taken[peer]

    def _free_one_for(self, peer: str) -> bool:
        """Refuse the newest waiting review of the client with the most places; False if there is none."""
        largest = max(self._taken.values(), key=len, default=[])
        if len(largest) <= len(self._taken.get(peer, ())) + 1:
            return False
        waiting = [place.turn for place in largest if place.turn is not None and not place.turn.done()]
        if not waiting:
            return False
        waiting[-1].set_exception(self._refusal())
        return True

    def _refusal(self) -> Fault:
        return Fault(503, "busy", f"{self._max_reviews} reviews are waiting already; try again")


class RoundRobin:
    """Runs one review at a time; the client that waited longest is next."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def take(self, place: QueuePlace, deadline: float) -> AsyncIterator[None]:
        """Hold the turn until the block ends. Raises TimeoutError, or Fault if the place is lost."""
        if self._is_taken:
            await self._wait(place, deadline)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, place: QueuePlace, deadline: float) -> None:
        turn = place.turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place.peer, deque()).append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # granted just as the wait ended
            raise
        finally:
            place.turn = None

    def _pass_on(self) -> None:
        while self._waiting:
            peer, turns = next(iter(self._waiting.items()))
            del self._waiting[peer]
            turn = turns.popleft()
            if turns:
                self._waiting[peer] = turns  # behind the other clients
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


@dataclass(slots=True, eq=False)
class _Body:
    """A body, and the limit of the time that it takes to arrive."""

    limit: asyncio.Timeout
    data: bytearray
    is_complete: bool = False
    is_dropped: bool = False


class Bodies:
    """The bodies in memory, `max_bytes` in total."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bodies: list[_Body] = []

    @contextlib.asynccontextmanager
    async def hold(self, receive: Any, deadline: float) -> AsyncIterator[bytearray]:
        """Read a body by `deadline` (loop time), within 5 s; count it in the block. Raises Fault: long, late, dropped."""
        current = _Body(asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _ARRIVAL_SECONDS)), bytearray())
        self._bodies.append(current)
        try:
            yield await self._read(current, receive)
        finally:
            self._bodies.remove(current)

    async def _read(self, current: _Body, receive: Any) -> bytearray:
        try:
            async with current.limit:
                while await self._take(current, receive):
                    pass
        except TimeoutError:
            raise self._refusal() if current.is_dropped else Fault(408, "slow", "the body did not arrive in time") from None
        current.is_complete = True
        return current.data

    async def _take(self, current: _Body, receive: Any) -> bool:
        """Read the next chunk; return whether more follows."""
        message = await receive()
        if current.is_dropped:
            raise self._refusal()
        if message["type"] != "http.request":
            raise Fault(400, "gone", "the client disconnected")
        current.data += message.get("body", b"")
        if len(current.data) > MAX_REVIEW_BYTES:
            raise Fault(413, "too-large", f"the body is longer than {MAX_REVIEW_BYTES >> 20} MiB")
        if sum(len(one.data) for one in self._bodies) > self._max_bytes:
            self._make_room(current)
        return bool(message.get("more_body"))

    def _make_room(self, current: _Body) -> None:
        incomplete = [one for one in self._bodies if not one.is_complete and not one.is_dropped]
        largest = max(incomplete, key=lambda one: len(one.data))
        if largest is current:
            raise self._refusal()
        largest.is_dropped = True
        largest.data.clear()
        largest.limit.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> Fault:
        return Fault(503, "busy", f"bodies of {self._max_bytes >> 20} MiB are waiting already; try again")
