"""Single requests to the API, for commands that make a few and exit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from netinit.base.tree import Tree
from netinit.kube.access import Access
from netinit.kube.client import Client
from netinit.kube.resources import Resource

Answer = TypeVar("Answer")


def ask_one(access: Access, resource: Resource, name: str, namespace: str = "") -> Tree:
    """Get one object. Raises ClusterError (status NOT_FOUND: there is none), ConfigError for bad certificates."""
    return asyncio.run(_ask(access, lambda client: client.get(resource, name, namespace)))


def ask_list(access: Access, resource: Resource) -> list[Tree]:
    """List the objects of all namespaces. Raises ClusterError."""
    return asyncio.run(_ask(access, lambda client: client.list(resource)))[0]


async def _ask(access: Access, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
    async with Client(access) as client:
        return await request(client)
