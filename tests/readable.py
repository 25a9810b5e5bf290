"""Lets ordinary users read the checkout and this interpreter where both lie below a closed folder (/root, mode 0700).

A command of theirs gets a mount namespace of its own, in which the closed folder is replaced by an open one that holds
nothing but the checkout and the interpreter, at their usual paths. Nothing outside of that namespace changes.

    python tests/readable.py COMMAND...

runs a command so: `make test` runs all tests in one such namespace, since programs that join a pod's users read on there.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
FOR_OTHERS = 0o001  # the permission to walk through a folder
FIRST = 3  # file descriptor of the first folder


@functools.cache
def find_unshare_obstacle(kind: str) -> str | None:
    """Why no namespace of this kind (mount, user) can be made here, as in a chroot; None when nothing is in the way."""
    done = subprocess.run(["unshare", f"--{kind}", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no {kind} namespaces: {done.stderr.strip()}"


def find_closed(path: Path) -> Path | None:
    """The uppermost folder above that other users cannot walk through."""
    return next((one for one in reversed(path.parents) if not one.stat().st_mode & FOR_OTHERS), None)


def wanted() -> list[Path]:
    """What a test's program reads: the checkout, the virtual environment, and the interpreter behind it."""
    beside = [found for found in (ROOT.parent / "shared",) if found.is_dir()]  # where Istio's cases may lie
    folders = {ROOT, *beside, Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_path("purelib"))}
    resolved = {folder.resolve() for folder in folders}
    return sorted(one for one in resolved if not resolved & set(one.parents))


def make_prefix(folders: Iterable[Path]) -> tuple[str, ...]:
    """What stands before an ordinary user's command so that it reads the folders; nothing where it can already."""
    hidden = {folder: closed for folder in folders if (closed := find_closed(folder))}
    if not hidden:
        return ()
    numbered = list(enumerate(map(shlex.quote, map(str, hidden)), FIRST))
    script = [
        'umask 022; here="$PWD"',
        *(f"exec {number}<{folder}" for number, folder in numbered),
        *(f"mount -t tmpfs -o mode=755 none {shlex.quote(str(closed))}" for closed in sorted(set(hidden.values()))),
        *(f"mkdir -p {folder}; mount --no-canonicalize --bind /proc/self/fd/{number} {folder}" for number, folder in numbered),
        *(f"exec {number}<&-" for number, _ in numbered),
        'cd "$here" 2>/dev/null || cd /; exec "$@"',
    ]
    return ("unshare", "--mount", "sh", "-ec", "\n".join(script), "sh")


@functools.cache
def find_reading_obstacle() -> str | None:
    """Why an ordinary user's program cannot be run here, even with `make_prefix`; None when it can."""
    prefix = make_prefix(wanted())
    if prefix and (obstacle := find_unshare_obstacle("mount")):
        return f"{find_closed(ROOT) or find_closed(Path(sys.base_prefix))} is closed to other users, and {obstacle}"
    command = [*prefix, *NOBODY, sys.executable, "-I", "-S", str(ROOT / "netinit" / "__main__.py"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return None if done.returncode == 0 else f"other users cannot read the checkout: {(done.stderr.splitlines() or ['?'])[-1]}"


if __name__ == "__main__":
    may = os.geteuid() == 0 and not find_unshare_obstacle("mount")
    command = [*(make_prefix(wanted()) if may else ()), *sys.argv[1:]]
    os.execvp(command[0], command)
