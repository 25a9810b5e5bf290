"""The last valid configuration, stored in a ConfigMap for use after a restart."""

from __future__ import annotations

from netinit.base.errors import ClusterError
from netinit.base.tree import mapping, strings
from netinit.kube.client import Client
from netinit.kube.resources import CONFIG_MAPS
from netinit.webhook.configuration import Texts
from netinit.webhook.serving_state import Problems

_KEYS = ("config", "values", "mesh")


class LastGoodConfig:
    """The ConfigMap, which must exist. Errors are noted in `problems`."""

    def __init__(self, client: Client, namespace: str, name: str, problems: Problems) -> None:
        self._client = client
        self._namespace, self._name = namespace, name
        self._label = f"ConfigMap {namespace}/{name}"
        self._problems = problems
        self._written: Texts | None = None

    async def read(self) -> Texts | None:
        """Return the stored configuration, or None."""
        data: dict[str, str] = {}
        try:
            data = strings((await self._client.get(CONFIG_MAPS, self._name, self._namespace)).get("data"))
        except ClusterError as error:
            self._note(error)
        if not data:
            return None
        return Texts(**{key: data.get(key) for key in _KEYS}, origin=f"{self._label}, the last good one of {data.get('origin')}")

    async def write(self, texts: Texts) -> None:
        """Store the configuration in use, if it changed."""
        if texts == self._written:
            return
        target = {**{key: getattr(texts, key) for key in _KEYS}, "origin": texts.origin}
        try:
            found = mapping((await self._client.get(CONFIG_MAPS, self._name, self._namespace)).get("data"))
            if any(found.get(key) != value for key, value in target.items()):
                await self._client.patch(CONFIG_MAPS, self._name, {"data": target}, self._namespace)
        except ClusterError as error:
            self._note(error)
            return
        self._problems.note(self._label, "")
        self._written = texts

    def _note(self, error: ClusterError) -> None:
        self._problems.note(self._label, f"the last good configuration is not kept: {error}")
