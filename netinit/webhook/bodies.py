"""A memory limit for request bodies, from their arrival until the answer.

When the limit is reached, the largest incomplete body is dropped: a client that sends a lot slowly makes room for small
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from netinit.webhook.bounds import LARGEST
from netinit.webhook.review import Fault

__all__ = ["Bodies"]

_SECONDS = 5.0  # for a body to arrive, if the deadline is not earlier


@dataclass(slots=True, eq=False)
class _Body:
    """One body; `limit` is None once it is complete."""

    limit: asyncio.Timeout | None
    data: bytearray
    is_dropped: bool = False


class Bodies:
    """The bodies in memory, `most` bytes in total."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bodies: list[_Body] = []

    @contextlib.asynccontextmanager
    async def hold(self, receive: Any, deadline: float) -> AsyncIterator[bytearray]:
        """Read a body and count its bytes until the block ends. Raises Fault if it is too long, too slow or dropped."""
        current = _Body(asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _SECONDS)), bytearray())
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
        """Read the next part of the body; return whether more follows."""
        message = await receive()
        if current.is_dropped:  # dropped while it waited for this part
            raise self._refusal()
        if message["type"] != "http.request":
            raise Fault(400, "gone", "the client went away")
        current.data += message.get("body", b"")
        if len(current.data) > LARGEST:
            raise Fault(413, "too-large", f"the body is longer than {LARGEST >> 20} MiB")
        if sum(len(one.data) for one in self._bodies) > self._most:
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
        return Fault(503, "busy", f"bodies of {self._most >> 20} MiB are waiting already; try again")
