"""A network namespace without a name; run programs, servers and probes inside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, TypeVarTuple

from netinit.base.errors import ChildLostError, LabError
from netinit.kernel import children, namespaces
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.kernel.sockets import become
from netinit.lab.probes import Arrival, Probe, send_probes
from netinit.lab.servers import Listener, Server

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class NetworkNamespace(IsolatedNamespace):
    """A new network namespace with `lo` down; runs programs, servers and probes inside, until its block ends."""

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
        timeout: float = 30.0,
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
        timeout: float = 10.0,
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
        if any(set(probe.groups) != set(os.getgroups()) for probe in probes):
            patience = 5.0 + max(probe.timeout for probe in probes)
            return self.call(send_probes, tuple(probes), timeout=patience)
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
