"""A network namespace without a name; run programs, servers and probes inside it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from netinit.base.errors import LabError
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.lab.probes import Arrival, Probe, send_probes
from netinit.lab.servers import Listener, Server


class NetworkNamespace(IsolatedNamespace):
    """A new network namespace with `lo` down; runs programs, servers and probes inside, until its block ends."""

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside, wait for it, and capture its output as text. Raises LabError: killed after `timeout` seconds."""
        try:
            with self.entered():
                return subprocess.run(
                    argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=timeout, check=False
                )
        except subprocess.TimeoutExpired:
            raise LabError(f"{argv!r} in {self.name!r} did not end within {timeout} s and was killed") from None

    def probe(self, probes: Sequence[Probe]) -> list[Arrival]:
        """Send all probes at once and return where each arrived, in order. Raises LabError: a bad address."""
        with self.entered():
            try:
                return send_probes(probes)
            except Exception as error:  # noqa: BLE001 - an address that is none, say
                raise LabError(f"send_probes in {self.name!r} raised:\n{type(error).__name__}: {error}") from None

    def start(self, name: str, listeners: Sequence[Listener], *, uid: int | None = None, gid: int | None = None) -> Server:
        """Start a server process without waiting until it listens (`Server.wait`)."""
        return self._stack.enter_context(Server(name, self.descriptor, tuple(listeners), uid, gid))
