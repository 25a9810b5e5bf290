"""Init containers that crash: killed as soon as they have changed anything."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from netinit.host.lab import Pod, list_rules

__all__ = ["run_and_kill"]

_SECONDS = 60.0
_ATTEMPTS = 5
_KILLED = 128 + signal.SIGKILL
Run = Callable[[], subprocess.CompletedProcess[str]]


def run_and_kill(pod: Pod, backend: str, run: Run, undo: Run) -> None:
    """Runs a container in the pod and kills all its processes at the first change of the pod's rules that shows.

    One that ends before it can be killed, on a busy machine, is undone, and another is tried. AssertionError when that
    happens again and again.
    """
    for _ in range(_ATTEMPTS):
        done = _try_to_kill(pod, backend, run)
        if done.returncode == _KILLED:
            return
        assert done.returncode == 0, done.stderr
        undone = undo()
        assert undone.returncode == 0, undone.stderr
    raise AssertionError(f"{_ATTEMPTS} containers ended before they could be killed")


def _try_to_kill(pod: Pod, backend: str, run: Run) -> subprocess.CompletedProcess[str]:
    watch = _legacy_changes if backend in ("iptables-legacy", "libiptc") else _nft_changes
    with watch(pod) as changed, ThreadPoolExecutor(1) as pool:
        others = _inhabitants(pod)
        running = pool.submit(run)
        deadline = time.monotonic() + _SECONDS
        while not changed() and not running.done():
            assert time.monotonic() < deadline, "the container changes nothing"
        for pid in _inhabitants(pod) - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return running.result()


@contextlib.contextmanager
def _legacy_changes(pod: Pod) -> Iterator[Callable[[], bool]]:
    """Whether the IPv4 rules of the older kernel interface are not what they were: it announces nothing."""
    tables = Path(f"/proc/{pod.pid}/net/ip_tables_names")
    registered, before = tables.read_text(), list_rules(pod, "iptables-legacy-save")

    def changed() -> bool:
        time.sleep(0.001)
        return tables.read_text() != registered or list_rules(pod, "iptables-legacy-save") != before

    yield changed


@contextlib.contextmanager
def _nft_changes(pod: Pod) -> Iterator[Callable[[], bool]]:
    """Whether a transaction has changed the nft tables, which the kernel announces at once."""
    with pod.popen(["nft", "monitor"]) as monitor:
        try:
            assert monitor.stdout is not None
            descriptor = monitor.stdout.fileno()
            heard = b""
            for number in range(1000):  # until it is heard, the monitor may not listen yet
                pod.run(["nft", f"add table ip overture{number}; delete table ip overture{number}"], check=True)
                while not _is_end_of(heard, number) and select.select([descriptor], [], [], 0.1)[0]:
                    heard += os.read(descriptor, 1 << 16)
                if _is_end_of(heard, number):
                    break
            yield lambda: bool(select.select([descriptor], [], [], 0.01)[0])
        finally:
            monitor.kill()


def _is_end_of(heard: bytes, number: int) -> bool:
    """Whether all that is told of this transaction was heard."""
    return b"# new generation" in heard.partition(b"delete table ip overture%d\n" % number)[2]


def _inhabitants(pod: Pod) -> set[int]:
    """The processes whose network is the pod's."""
    wanted = Path(f"/proc/{pod.pid}/ns/net").stat().st_ino
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "ns/net").stat().st_ino == wanted:
                found.add(int(entry.name))
    return found
