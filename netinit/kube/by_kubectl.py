"""Reads the API with the user's kubectl, where netinit holds no TLS: in the executable.

It finds clusters and credentials as kubectl does. What kubectl prints is untrusted, and a ClusterError is what it does not give.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from netinit.base.errors import BackendUnavailableError, ClusterError, ConfigError, NetinitError
from netinit.base.sanitize import escape, shorten
from netinit.base.tree import Tree, explain_json_error
from netinit.kernel import run
from netinit.kube.kubectl_program import find_error, find_kubectl_program
from netinit.kube.resources import NOT_FOUND, PAGE, Resource, take_page

_MAX_BYTES = 64 << 20  # of an answer, as in netinit.kube.client
_FORBIDDEN = 403
_STATUSES = {"NotFound": NOT_FOUND, "Forbidden": _FORBIDDEN}
_REFUSAL = re.compile(r"Error from server \((\w{1,64})\): ")  # how kubectl begins what the API refuses

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class KubectlReader:
    """The API's objects, as netinit.kube.client.Client reads them."""

    program: str
    flags: tuple[str, ...]
    environ: Mapping[str, str]

    def ask(self, request: Callable[[KubectlReader], Awaitable[Answer]]) -> Answer:
        """What a request returns, which waits for nothing but `get` and `list`. Raises ClusterError."""
        steps = request(self).__await__()
        try:
            next(steps)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        raise RuntimeError("the request waits for something else")

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Tree:
        """Get one object. Raises ClusterError, with status NOT_FOUND if there is none."""
        return self._read(resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str = "", *, fields: str = "", keep: Callable[[Tree], Any] = lambda tree: tree
    ) -> tuple[list[Any], str]:
        """List objects, page by page, as what `keep` returns of each but None; also returns their resourceVersion."""
        found: list[Any] = []
        query = {"limit": str(PAGE), **({"fieldSelector": fields} if fields else {})}
        while True:
            items, version = take_page(self._read(f"{resource.path(namespace)}?{urlencode(query)}"), query)
            found += [kept for item in items if (kept := keep(item)) is not None]
            if not query["continue"]:
                return found, version

    def _read(self, path: str) -> Tree:
        try:
            done = run.finish(run.start(self.program, ("get", "--raw", path, *self.flags), environment=self.environ))
        except BackendUnavailableError as error:
            raise ClusterError(str(error)) from None
        what = f"kubectl get --raw {path}"
        if done.status:
            errors = find_error(done.errors)
            refused = _REFUSAL.match(errors)
            reason = refused[1] if refused else ""
            text = f"{what}: {escape(shorten(errors or f'ended with {done.status}', 400))}"
            raise ClusterError(text, status=_STATUSES.get(reason, 0), reason=reason)
        if len(done.output) > _MAX_BYTES:
            raise ClusterError(f"{what}: the answer is longer than {_MAX_BYTES >> 20} MiB")
        try:
            tree = json.loads(done.output)
        except (ValueError, RecursionError) as error:
            raise ClusterError(f"{what}: the answer is not JSON: {explain_json_error(error)}") from error
        if not isinstance(tree, dict):
            raise ClusterError(f"{what}: the answer is not an object")
        return tree


def find_reader(*, kubeconfig: str = "", context: str = "") -> KubectlReader:
    """The reader of a kubeconfig's context, by default the current one. Raises ConfigError if there is no kubectl."""
    try:
        return KubectlReader(*find_kubectl_program(os.environ, context=context, kubeconfig=kubeconfig))
    except NetinitError as error:
        raise ConfigError(str(error)) from None
