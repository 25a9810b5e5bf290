"""Pods of strangers for the tests: processes that stand where a pod's would, and do what an attacker would."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import prefork
from programming import FOLDERS, TOOL

# Unshares, does `code`, says so, waits for its stdin to end. Everything that it wants is imported before.
_STRANGER = """
import ctypes, os, signal, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def unshare(flags):
    if libc.unshare(flags): raise OSError(ctypes.get_errno(), "unshare")
NEWNET, NEWNS, NEWUSER, NEWPID = 0x40000000, 0x20000, 0x10000000, 0x20000000
{code}
print("ready", flush=True)
{then}
sys.stdin.read()
"""


@contextlib.contextmanager
def stranger(code: str, then: str = "", prefix: Sequence[str] = (), arguments: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process that has done `code` and does `then`; it is gone after the block."""
    script = _STRANGER.format(code=code, then=then)
    process = subprocess.Popen(
        [*prefix, "/usr/bin/python3", "-I", "-S", "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", f"the stranger did not come up: {line!r}"
            yield process
        finally:
            process.kill()


def chrooted(root: Path, then: str = "") -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A pod whose process has this folder for its root."""
    code = "unshare(NEWNET | NEWNS); os.chroot(sys.argv[1]); os.chdir('/')"
    return stranger(code, then, arguments=[str(root)])


def tool(*arguments: str, env: dict[str, str] | None = None, timeout: float = 240, **more: object) -> subprocess.CompletedProcess[str]:
    """netinit as an operator runs it, in the machine's own namespace; TimeoutExpired where it hangs."""
    if not more and prefork.can_run(arguments, env):
        return prefork.run(arguments, env, timeout=timeout)
    return subprocess.run(
        [*TOOL, *arguments], env={"PATH": FOLDERS, **(env or {})},
        capture_output=True, text=True, timeout=timeout, check=False, **more,
    )  # type: ignore[call-overload] # fmt: skip
