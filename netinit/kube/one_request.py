"""A request to the API by a command that makes a few and exits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from netinit.kube.access import Access
from netinit.kube.client import Client

Answer = TypeVar("Answer")


def ask_once(access: Access, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Make one request with a client of its own, for commands that make a few and exit. Raises ClusterError, ConfigError."""

    async def ask() -> Answer:
        async with Client(access) as client:
            return await request(client)

    return asyncio.run(ask())
