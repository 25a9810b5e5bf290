"""The bodies of requests, as they arrive and until they are answered: so many bytes together.

Where there is no room left, the largest of those that are not complete is given up, so that whoever sends much and slowly
makes room for small ones.
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

_SECONDS = 5.0  # for a body to come, if the request has so many


@dataclass(slots=True, eq=False)
class _Body:
    """One of them; `limit` is None once it is complete."""

    limit: asyncio.Timeout | None
    data: bytearray
    given_up: bool = False


class Bodies:
    """All of one process; `most` bytes together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._there: list[_Body] = []

    @contextlib.asynccontextmanager
    async def hold(self, receive: Any, deadline: float) -> AsyncIterator[bytearray]:
        """The body, which counts until the block ends. Raises Fault where it is too long, or does not come in time."""
        own = _Body(asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _SECONDS)), bytearray())
        self._there.append(own)
        try:
            yield await self._read(own, receive)
        finally:
            self._there.remove(own)

    async def _read(self, own: _Body, receive: Any) -> bytearray:
        assert own.limit is not None  # noqa: S101 - it has just begun
        try:
            async with own.limit:
                while await self._take(own, receive):
                    pass
        except TimeoutError:
            raise self._refusal() if own.given_up else Fault(408, "slow", "the body did not come in time") from None
        own.limit = None
        return own.data

    async def _take(self, own: _Body, receive: Any) -> bool:
        """Takes what comes next; whether there is more."""
        message = await receive()
        if own.given_up:  # meanwhile, and its parts with it
            raise self._refusal()
        if message["type"] != "http.request":
            raise Fault(400, "gone", "the client went away")
        own.data += message.get("body", b"")
        if len(own.data) > LARGEST:
            raise Fault(413, "too-large", f"the body is longer than {LARGEST >> 20} MiB")
        if sum(len(one.data) for one in self._there) > self._most:
            self._make_room(own)
        return bool(message.get("more_body"))

    def _make_room(self, own: _Body) -> None:
        largest = max((one for one in self._there if one.limit is not None and not one.given_up), key=lambda one: len(one.data))
        if largest is own:
            raise self._refusal()
        largest.given_up = True
        largest.data.clear()
        assert largest.limit is not None  # noqa: S101 - it was chosen for that
        largest.limit.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> Fault:
        return Fault(503, "busy", f"bodies of {self._most >> 20} MiB are waiting already; try again")
