"""A pod: the namespace of a pause process, wired to a client namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from netinit.base.errors import LabError, NamespaceError
from netinit.base.net import FAMILIES
from netinit.kernel import run
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.kernel.links import Links
from netinit.kernel.sockets import creating_as, listen
from netinit.lab import wiring
from netinit.lab.probes import Arrival, Probe, Server, send_probes

APP_ID = 1000
PROXY_ID = 1337
# Report that they run and wait for the end of their stdin; the word in the command is visible in ps.
_PAUSE = ("sh", "-c", "echo netinit-pause; exec >/dev/null; read -r _")
# For images without a shell; it starts more slowly.
_PAUSE_WITHOUT_SHELL = (
    sys.executable, "-I", "-S", "-c",
    "import os; os.write(1, b'netinit-pause\\n'); os.dup2(os.open('/dev/null', os.O_WRONLY), 1); os.read(0, 1)",
)  # fmt: skip


class NetworkNamespace(IsolatedNamespace):
    """A new network namespace with `lo` down; runs programs inside, until its block ends."""

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

    def await_addresses(self) -> None:
        """Wait until the kernel has made an address usable that was added a moment ago, such as `::6` by programming."""
        with self.entered(), Links() as links:
            wiring.await_addresses(links)


class Pod(NetworkNamespace):
    """A network namespace like a pod's, as a context manager.

    `pid` is its pause process: `nsenter -t PID -n` works as on a node. `eth0` has 10.77.0.2/24, fd77::2/64 and the
    default routes through `client`, which has 10.77.0.1, fd77::1 and the `outside` addresses; those of IPv6 only if the
    kernel has it.

    With IPv6, a pod sends a few ICMPv6 packets in its first second, which rules without a protocol count. Raises
    LabError if it cannot be created (see `find_obstacle`).
    """

    address, address6 = "10.77.0.2", "fd77::2"  # on eth0
    outside: Sequence[str] = ("198.51.100.7", "203.0.113.7", "203.0.113.8", "2001:db8::7", "2001:db8::8")
    settings: Mapping[str, int] = {}  # of the kernel, beside those of every pod here

    def __init__(self) -> None:
        super().__init__("pod")
        self.pid = 0
        self.client = NetworkNamespace("client")
        self.servers: list[Server] = []
        self.versions: tuple[int, ...] = (4, 6) if has_ipv6() else (4,)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The pod's addresses on eth0, one of each IP version that it has."""
        return tuple({4: self.address, 6: self.address6}[version] for version in self.versions)

    def _open(self) -> None:
        super()._open()
        with self.entered():
            self._start_pause()
        self._wire()

    def open_servers(self, *, app: Sequence[int], proxy: Sequence[int], outside: Sequence[int]) -> None:
        """Listen on these ports, as `app` (uid and gid 1000), `proxy` (1337) and `outside` (root, in the client namespace).

        All listen on IPv4, and on IPv6 if the kernel has it. They answer while `probe` runs. Raises LabError.
        """
        for where, name, ports, user in (
            (self, "app", app, APP_ID), (self, "proxy", proxy, PROXY_ID), (self.client, "outside", outside, None),
        ):  # fmt: skip
            with where.entered(), creating_as(user, user):
                for family, port in product(FAMILIES if has_ipv6() else FAMILIES[:1], ports):
                    try:
                        listening = self._stack.enter_context(listen(family, port))
                    except OSError as error:
                        raise LabError(f"server {name!r} cannot listen on port {port}: {error.strerror}") from error
                    self.servers.append(Server(name, port, listening))

    def probe(self, probes: Sequence[Probe], *, outside: bool) -> list[Arrival]:
        """Send all probes at once, from the client if `outside`, while the servers answer; return where each arrived, in order."""
        self.await_addresses()  # of rules that were programmed a moment ago, too
        with (self.client if outside else self).entered():
            return send_probes(probes, self.servers)

    def _wire(self) -> None:
        """Connect the pod to its surroundings."""
        self._stack.enter_context(self.client)
        wiring.wire(self, self.client, self.versions, self.outside, self.settings)

    def _start_pause(self, *before: str) -> None:
        """Start the pause process by this program, wait until it reports, and hold its leash."""
        argv = [*before, *(_PAUSE if shutil.which("sh") else _PAUSE_WITHOUT_SHELL)]
        leash, held = os.pipe()
        self._stack.callback(os.close, held)
        reading, writing = os.pipe()
        with open(reading, encoding="ascii") as answer:  # noqa: PTH123 - a descriptor
            actions = [(os.POSIX_SPAWN_DUP2, leash, 0), (os.POSIX_SPAWN_DUP2, writing, 1)]
            try:
                self.pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setpgroup=0)
                self._stack.callback(run.end, self.pid)
            finally:
                os.close(leash)
                os.close(writing)
            if not answer.readline():
                raise LabError(f"the pause process {argv} did not start; its stderr says why")


def has_ipv6() -> bool:
    """Whether the kernel has IPv6."""
    return Path("/proc/net/if_inet6").exists()


def find_obstacle() -> str | None:
    """Why no pod can be created here, with the remedy; None if it can."""
    if obstacle := wiring.find_obstacle():
        return obstacle
    if os.geteuid() != 0:
        return "making network namespaces needs root: run as root"
    try:
        with Pod():
            return None
    except (LabError, NamespaceError, OSError) as error:
        return str(error)
