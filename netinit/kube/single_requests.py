"""Single requests to the API, for commands that make a few and exit."""

from __future__ import annotations

import asyncio

from netinit.base.tree import Tree
from netinit.kube.access import Access
from netinit.kube.client import Client
from netinit.kube.resources import Resource

__all__ = ["ask_list", "ask_one"]


def ask_one(access: Access, resource: Resource, name: str, namespace: str = "") -> Tree:
    """Get one object. Raises ClusterError."""

    async def ask() -> Tree:
        async with Client(access) as client:
            return await client.get(resource, name, namespace)

    return asyncio.run(ask())


def ask_list(access: Access, resource: Resource) -> list[Tree]:
    """List the objects of all namespaces. Raises ClusterError."""

    async def ask() -> list[Tree]:
        async with Client(access) as client:
            return (await client.list(resource))[0]

    return asyncio.run(ask())
