"""A memory limit for request bodies, held until the answer.

At the limit the largest incomplete body is dropped, so a slow large upload makes room for small requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from netinit.webhook.review import MAX_REVIEW_BYTES, Fault

_ARRIVAL_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _Body:
    """A body; `limit` is None once it is complete."""

    limit: asyncio.Timeout | None
    data: bytearray
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
        assert current.limit is not None  # noqa: S101 - it is incomplete
        try:
            async with current.limit:
                while await self._take(current, receive):
                    pass
        except TimeoutError:
            raise self._refusal() if current.is_dropped else Fault(408, "slow", "the body did not come in time") from None
        current.limit = None
        return current.data

    async def _take(self, current: _Body, receive: Any) -> bool:
        """Read the next chunk; return whether more follows."""
        message = await receive()
        if current.is_dropped:
            raise self._refusal()
        if message["type"] != "http.request":
            raise Fault(400, "gone", "the client went away")
        current.data += message.get("body", b"")
        if len(current.data) > MAX_REVIEW_BYTES:
            raise Fault(413, "too-large", f"the body is longer than {MAX_REVIEW_BYTES >> 20} MiB")
        if sum(len(one.data) for one in self._bodies) > self._max_bytes:
            self._make_room(current)
        return bool(message.get("more_body"))

    def _make_room(self, current: _Body) -> None:
        largest = max((one for one in self._bodies if one.limit is not None and not one.is_dropped), key=lambda one: len(one.data))
        if largest is current:
            raise self._refusal()
        largest.is_dropped = True
        largest.data.clear()
        assert largest.limit is not None  # noqa: S101 - only incomplete bodies are candidates
        largest.limit.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> Fault:
        return Fault(503, "busy", f"bodies of {self._max_bytes >> 20} MiB are waiting already; try again")
