"""The bodies of requests, as they come and until they are answered: so many bytes together.

A body that does not come takes no place that others need. Where there is no room left, the largest of those that are not
complete is given up, so that whoever sends much and slowly makes room for the small ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from netinit.webhook.review import LARGEST, Fault

__all__ = ["Bodies"]

_SECONDS = 5.0  # for a body to come, if the request has so many


@dataclass(slots=True, eq=False)
class _Body:
    """One of them; `limit` is None once it is complete."""

    limit: asyncio.Timeout | None
    size: int = 0
    given_up: bool = False
    parts: list[bytes] = field(default_factory=list)


class Bodies:
    """All of one process; `most` bytes together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._there: list[_Body] = []

    @contextlib.asynccontextmanager
    async def hold(self, receive: Any, deadline: float) -> AsyncIterator[bytes]:
        """The body, which counts until the block ends. Raises Fault where it is too long, or does not come in time."""
        own = _Body(asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _SECONDS)))
        self._there.append(own)
        try:
            yield await self._read(own, receive)
        finally:
            self._there.remove(own)

    async def _read(self, own: _Body, receive: Any) -> bytes:
        assert own.limit is not None  # noqa: S101 - it has just begun
        try:
            async with own.limit:
                while await self._take(own, receive):
                    pass
        except TimeoutError:
            raise self._refusal() if own.given_up else Fault(408, "slow", "the body did not come in time") from None
        own.limit = None
        whole = b"".join(own.parts)
        own.parts.clear()
        return whole

    async def _take(self, own: _Body, receive: Any) -> bool:
        """Takes what comes next; whether there is more."""
        message = await receive()
        if own.given_up:  # meanwhile, and its parts with it
            raise self._refusal()
        if message["type"] != "http.request":
            raise Fault(400, "gone", "the client went away")
        part: bytes = message.get("body", b"")
        own.parts.append(part)
        own.size += len(part)
        if own.size > LARGEST:
            raise Fault(413, "too-large", f"the body is longer than {LARGEST >> 20} MiB")
        if sum(one.size for one in self._there if not one.given_up) > self._most:
            self._make_room(own)
        return bool(message.get("more_body"))

    def _make_room(self, own: _Body) -> None:
        largest = max((one for one in self._there if one.limit is not None and not one.given_up), key=lambda one: one.size)
        if largest is own:
            raise self._refusal()
        largest.given_up = True
        largest.parts.clear()
        assert largest.limit is not None  # noqa: S101 - it was chosen for that
        largest.limit.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> Fault:
        return Fault(503, "busy", f"bodies of {self._most >> 20} MiB are waiting already; try again")
