"""A pod: the namespace of a pause process, wired to a client namespace."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from netinit.base.errors import LabError, NamespaceError
from netinit.kernel import links, run
from netinit.lab import wiring
from netinit.lab.namespace import NetworkNamespace
from netinit.lab.servers import Listener, Server

APP_ID = 1000
PROXY_ID = 1337
OUTSIDE_ADDRESSES = ("198.51.100.7", "203.0.113.7", "203.0.113.8", "2001:db8::7", "2001:db8::8")
USER_BASE = 200_000  # outside uid of uid 0 in a pod with its own user namespace
_MAX_INTERFACES = 20
# Report that they run and wait for the end of their stdin; the word in the command is visible in ps.
_PAUSE = ("sh", "-c", "echo netinit-pause; exec >/dev/null; read -r _")
# For images without a shell; it starts more slowly.
_PAUSE_WITHOUT_SHELL = (
    sys.executable, "-I", "-S", "-c",
    "import os; os.write(1, b'netinit-pause\\n'); os.dup2(os.open('/dev/null', os.O_WRONLY), 1); os.read(0, 1)",
)  # fmt: skip


class Pod(NetworkNamespace):
    """A network namespace like a pod's, as a context manager.

    `pid` is its pause process: `nsenter -t PID -n` works as on a node. `eth0` has 10.77.0.2/24, fd77::2/64 and the
    default routes through `client`, which has 10.77.0.1, fd77::1 and the `outside` addresses. Each of `interfaces`
    is a veth pair (10.78.0.2/24, fd78::2/64, ...) to `neighbours[name]`, like a virtual machine behind the pod,
    which then forwards.

    `ipv4`, `ipv6`: whether the family has addresses beyond loopback and link-local. `user_namespace`: the pod has
    its own, as with hostUsers: false, and `first_uid` is the outside id of its uid and gid 0; all ids given here
    are outside ids.

    With IPv6, a pod sends a few ICMPv6 packets in its first second, which rules without a protocol count. Raises
    LabError if it cannot be created (see `find_obstacle`).
    """

    def __init__(
        self,
        *,
        ipv4: bool = True,
        ipv6: bool = True,
        interfaces: Sequence[str] = (),
        outside: Sequence[str] = OUTSIDE_ADDRESSES,
        user_namespace: bool = False,
    ) -> None:
        super().__init__("pod")
        if len(interfaces) > _MAX_INTERFACES:
            raise LabError(f"a pod here has at most {_MAX_INTERFACES} extra interfaces, not {len(interfaces)}")
        self.pid = 0
        self.first_uid = USER_BASE if user_namespace else 0
        self.client = NetworkNamespace("client")
        self.neighbours = {name: NetworkNamespace(name) for name in interfaces}
        self.versions = tuple(version for version, wanted in ((4, ipv4), (6, ipv6)) if wanted)
        self._outside = tuple(outside)
        self._user_namespace = user_namespace

    @property
    def address(self) -> str:
        """The pod's IPv4 address on eth0, or the IPv6 address if it has none."""
        return "10.77.0.2" if 4 in self.versions else self.address6  # noqa: PLR2004 - the IP version

    @property
    def address6(self) -> str:
        """The pod's IPv6 address on eth0."""
        return "fd77::2"

    def _open(self) -> None:
        if self._user_namespace:
            self._start_pause("unshare", "--user", "--net")
            for kind in ("uid", "gid"):
                Path(f"/proc/{self.pid}/{kind}_map").write_text(f"0 {USER_BASE} 65536")
            self._hold(os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        else:
            super()._open()
            with self.entered():
                self._start_pause()
        for other in (self.client, *self.neighbours.values()):
            self._stack.enter_context(other)
        wiring.wire(self, self.client, self.neighbours, self.versions, self._outside)

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


def start_servers(
    pod: Pod,
    *,
    app: Sequence[int] = (80, 8080),
    proxy: Sequence[int] = (15001, 15006),
    outside: Sequence[int] = (80, 443),
    transparent: Collection[int] = (),
    proxy_dns: int = 15053,
    outside_dns: int = 53,
) -> dict[str, Server]:
    """Start the servers `app` (uid and gid 1000), `proxy` (1337) and `outside` (root, in the client namespace).

    All listen on IPv4, and on IPv6 if the kernel has it; proxy and outside also answer DNS over UDP and TCP.
    `transparent`: the proxy's ports for TPROXY. In a pod with a user namespace the ids are the pod's.
    """
    app_id, proxy_id = pod.first_uid + APP_ID, pod.first_uid + PROXY_ID
    servers = {
        "app": pod.start("app", _listen(app), uid=app_id, gid=app_id),
        "proxy": pod.start("proxy", _listen(proxy, proxy_dns, transparent), uid=proxy_id, gid=proxy_id),
        "outside": pod.client.start("outside", _listen(outside, outside_dns)),
    }
    for server in servers.values():
        server.wait()
    return servers


def _listen(ports: Sequence[int], dns: int | None = None, transparent: Collection[int] = ()) -> list[Listener]:
    families = (4, 6) if Path("/proc/net/if_inet6").exists() else (4,)
    wanted = [(port, "tcp") for port in ports]
    if dns is not None:
        wanted += [(dns, "tcp"), (dns, "udp")]
    return [Listener(port, family, kind=kind, transparent=port in transparent) for port, kind in wanted for family in families]


def find_obstacle() -> str | None:
    """Why no pod can be created here, with the remedy; None if it can."""
    if obstacle := links.find_obstacle():
        return obstacle
    if os.geteuid() != 0:
        return "making network namespaces needs root: run as root"
    try:
        with Pod(ipv6=Path("/proc/net/if_inet6").exists()):
            return None
    except (LabError, NamespaceError, OSError) as error:
        return str(error)
