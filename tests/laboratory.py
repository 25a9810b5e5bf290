"""The laboratory with what tests alone want of it: neighbours, users of their own, datagrams, TPROXY, programs as other users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from lab_probes import Arrival, Probe, send_probes
from netinit import lab
from netinit.base.errors import ChildLostError, LabError
from netinit.kernel import children, namespaces
from netinit.kernel.links import Links
from netinit.kernel.netlink import LOOPBACK_INDEX
from netinit.lab import APP_ID, PROXY_ID, wiring
from netinit.lab import pod as lab_pod
from prefork import SECONDS
from server_processes import Listener, Server, become

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
USER_BASE = 200_000  # outside uid of uid 0 in a pod with its own user namespace
_MAX_INTERFACES = 20
_FORWARDING = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}


class NetworkNamespace(lab_pod.NetworkNamespace):
    """A namespace in which programs run as any user, and functions too; with servers of one listener. `lo` is up, as runtimes do."""

    def _open(self) -> None:
        super()._open()
        with self.entered(), Links() as links:
            links.set_up(LOOPBACK_INDEX)

    @property
    def path(self) -> str:
        """A path by which other processes can enter it, as `nsenter --net=PATH` does."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def set_sysctl(self, name: str, value: str | int) -> None:
        """Set a kernel setting in this namespace: see `write_sysctl`."""
        with self.entered():
            write_sysctl(name, value)

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        uid: int | None = None,
        gid: int | None = None,
        groups: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program inside, with text pipes; the caller must wait for it.

        Without any id it keeps root's; with one, its supplementary groups are exactly `groups`.
        """
        alone = uid is None and gid is None and not groups
        with self.entered():
            return subprocess.Popen(
                argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                user=uid, group=gid, extra_groups=None if alone else list(groups),
            )  # fmt: skip

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        stdin: str | None = None,
        check: bool = False,
        timeout: float = SECONDS,
        **identity: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside, wait for it, and capture its output as text; `identity`: ids and environment as for `popen`.

        Raises LabError after `timeout` seconds, when it is killed, and with `check` if it fails.
        """
        source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        with self.popen(argv, stdin=source, **identity) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise LabError(f"{argv!r} in {self.name!r} did not end within {timeout} s and was killed") from None
            except BaseException:
                process.kill()
                raise
        if check and process.returncode != 0:
            raise LabError(f"{argv!r} in {self.name!r} ended with {process.returncode}: {err.strip() or out.strip()}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def call(
        self,
        function: Callable[[*Arguments], Result],
        *args: *Arguments,
        uid: int | None = None,
        gid: int | None = None,
        groups: Sequence[int] = (),
        timeout: float = SECONDS,
    ) -> Result:
        """Run a function inside, in a forked child with these ids, and return its result: plain values and netinit's records.

        Raises LabError with the child's traceback if it raises, if it dies, and after `timeout` seconds.
        """
        namespace = self.descriptor
        what = f"{getattr(function, '__qualname__', function)!s} in {self.name!r}"

        def act() -> Result:
            namespaces.enter(namespace)
            become(uid, gid, groups)
            return function(*args)

        try:
            return children.ask(act, seconds=timeout, what=what, kept=None)
        except ChildLostError as error:
            end = f"did not end within {timeout} s and was killed" if error.late else "ended without a result; its stderr says why"
            raise LabError(f"{what} {end}") from None
        except children.ChildError as error:
            raise LabError(f"{what} raised:\n{error.trace}") from None
        except Exception as error:  # noqa: BLE001 - whatever the function raised
            raise LabError(f"{what} raised:\n{type(error).__name__}: {error}") from None

    def probe(self, probes: Sequence[Probe]) -> list[Arrival]:
        """Send all probes at once and return where each arrived, in order. Raises LabError: a bad address.

        A forked child sends them if one needs other supplementary groups, which a thread cannot have.
        """
        if any(":" in (probe.source or "") for probe in probes):
            self.await_addresses()
        if any(set(probe.groups) != set(os.getgroups()) for probe in probes):
            return [Arrival(**found) for found in self.call(lambda: list(map(asdict, send_probes(probes))))]
        with self.entered():
            try:
                return send_probes(probes)
            except Exception as error:  # noqa: BLE001 - an address that is none, say
                raise LabError(f"send_probes in {self.name!r} raised:\n{type(error).__name__}: {error}") from None

    def connect(self, host: str, port: int, **options: Any) -> Arrival:
        """Make one connection from here and return where it arrived; `options` are fields of `Probe`."""
        return self.probe([Probe(host, port, **options)])[0]

    def serve(self, name: str, listeners: Sequence[Listener], *, uid: int | None = None, gid: int | None = None) -> Server:
        """Start a server process with these listeners and wait until it listens."""
        server = self.start(name, listeners, uid=uid, gid=gid)
        server.wait()
        return server

    def start(self, name: str, listeners: Sequence[Listener], *, uid: int | None = None, gid: int | None = None) -> Server:
        """Start a server process without waiting until it listens (`Server.wait`)."""
        return self._stack.enter_context(Server(name, self.descriptor, tuple(listeners), uid, gid))

    def listen(
        self, port: int, family: int = 4, *, name: str | None = None, uid: int | None = None, gid: int | None = None, **more: Any
    ) -> Server:
        """Start a server with one listener, called `name` (by default its port); `more` are fields of `Listener`."""
        return self.serve(name or str(port), [Listener(port, family, **more)], uid=uid, gid=gid)


class Pod(NetworkNamespace, lab.Pod):
    """The laboratory's pod, with what only tests ask for.

    Each of `interfaces` is a veth pair (10.78.0.2/24, fd78::2/64, ...) to `neighbours[name]`, like a virtual machine behind
    the pod, which then forwards. `outside`: the addresses of the client. `user_namespace`: the pod has its own, as with
    hostUsers: false, and `first_uid` is the outside id of its uid and gid 0; all ids given here are outside ids.
    """

    def __init__(
        self,
        *,
        ipv4: bool = True,
        ipv6: bool = True,
        interfaces: Sequence[str] = (),
        outside: Sequence[str] = lab.Pod.outside,
        user_namespace: bool = False,
    ) -> None:
        super().__init__()
        if len(interfaces) > _MAX_INTERFACES:
            raise LabError(f"a pod here has at most {_MAX_INTERFACES} extra interfaces, not {len(interfaces)}")
        self.first_uid = USER_BASE if user_namespace else 0
        self.client = NetworkNamespace("client")
        self.neighbours = {name: NetworkNamespace(name) for name in interfaces}
        self.versions = tuple(version for version, wanted in ((4, ipv4), (6, ipv6)) if wanted)
        self.outside = tuple(outside)
        self.settings = {_FORWARDING[version]: 1 for version in self.versions} if interfaces else {}

    @property
    def address(self) -> str:
        """The pod's IPv4 address on eth0, or the IPv6 address if it has none."""
        return lab.Pod.address if 4 in self.versions else self.address6

    def _open(self) -> None:
        if not self.first_uid:
            super()._open()
            return
        self._start_pause("unshare", "--user", "--net")
        for kind in ("uid", "gid"):
            Path(f"/proc/{self.pid}/{kind}_map").write_text(f"0 {USER_BASE} 65536")
        self._hold(os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        self._wire()

    def _wire(self) -> None:
        for setting, value in self.settings.items():
            self.set_sysctl(setting, value)
        super()._wire()
        for number, (name, neighbour) in enumerate(self.neighbours.items(), 1):
            self._stack.enter_context(neighbour)
            try:
                self._join(number, name, neighbour)
            except OSError as error:
                raise LabError(f"the kernel refuses a link, an address or a route of a neighbour: {error}") from error

    def _join(self, number: int, name: str, neighbour: NetworkNamespace) -> None:
        with (
            wiring.Side(self, {}) as inside,
            wiring.Side(self.client, {}) as client,
            wiring.Side(neighbour, wiring.SETTINGS) as beyond,
        ):
            wiring.add_routes(client, 0, 2, self.versions, number)
            wiring.join(inside, name, beyond, number, self.versions)
            wiring.add_routes(beyond, number, 2, self.versions)


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
    wanted = [(port, "tcp") for port in ports]
    if dns is not None:
        wanted += [(dns, "tcp"), (dns, "udp")]
    return [Listener(port, family, kind=kind, transparent=port in transparent) for port, kind in wanted for family in ((4, 6) if lab_pod.has_ipv6() else (4,))]


def write_sysctl(name: str, value: str | int) -> None:
    """Set a kernel setting in this thread's network namespace: `net.ipv4.ip_forward`, or a path with slashes.

    Raises LabError if the kernel lacks the setting or /proc/sys is read-only.
    """
    path = Path("/proc/sys") / (name if "/" in name else name.replace(".", "/"))
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise LabError(f"cannot set {name}={value}: {error.strerror}") from error
