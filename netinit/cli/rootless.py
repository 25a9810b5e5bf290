"""The demonstration as a plain user: in a user namespace of its own, with a range of user ids, made by util-linux's unshare."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from netinit.base.errors import BackendUnavailableError, LabError
from netinit.cli.reexec import find_itself
from netinit.kernel import run
from netinit.lab import APP_ID, PROXY_ID

ROOT = "run it as root, or "
PROC = Path("/proc/sys")
FORBIDS = {  # sysctl -> the value that forbids user namespaces to plain users, and where that is usual
    "user/max_user_namespaces": ("0", ""),
    "kernel/unprivileged_userns_clone": ("0", " (older Debian)"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", " (Ubuntu 23.10 and later)"),
}
ALLOWS = {"user/max_user_namespaces": "10000", "kernel/apparmor_restrict_unprivileged_userns": "0"}  # others: 1
NAMESPACES = ("--user", "--map-root-user", "--map-auto", "--net", "--mount")
HIGHEST_ID = max(APP_ID, PROXY_ID)
BECOME = "import os, sys; number = int(sys.argv[1]); os.setgroups([]); os.setgid(number); os.setuid(number)"
RANGES = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535"


def run_again(words: list[str]) -> None:
    """Run this netinit command again as root of new user, network and mount namespaces. Raises LabError that says what is missing."""
    if refusal := _try_namespaces():
        problems = list(find_missing()) or [f"{refusal}: {ROOT.removesuffix(', or ')}"]
        raise LabError(f"without root, the demonstration makes a user namespace, and cannot here: {'; '.join(problems)}")
    program, arguments = find_itself(words)
    run.become(str(shutil.which("unshare")), (*NAMESPACES, program, *arguments), {})


def _try_namespaces() -> str:
    """Why the namespaces cannot be made, or lack a user that the demonstration needs; empty if they can."""
    try:
        words = (*NAMESPACES, sys.executable, "-ISc", BECOME, str(HIGHEST_ID))
        done = run.finish(run.start(shutil.which("unshare") or "unshare", words))
    except BackendUnavailableError as error:
        return str(error)
    return (done.errors.splitlines() or ["unshare failed"])[-1] if done.status else ""


def find_missing(user: str = "", files: tuple[str, ...] = ("/etc/subuid", "/etc/subgid"), proc: Path = PROC) -> Iterator[str]:
    """Yield what keeps a plain user from a user namespace with several user ids, each with its remedy."""
    for name, package in (("unshare", "util-linux"), ("newuidmap", "uidmap"), ("newgidmap", "uidmap")):
        if shutil.which(name) is None:
            yield f"{name} is not installed: {ROOT}install the package {package}"
    for name, (value, where) in FORBIDS.items():
        if _read(proc / name).strip() == value:
            setting = name.replace("/", ".")
            yield f"the system forbids it{where}: {setting} is {value}: {ROOT}`sudo sysctl {setting}={ALLOWS.get(name, '1')}`"
    user = user or _own_name()
    for file in files:
        rows = [line.split(":") for line in _read(Path(file)).splitlines()]
        given = max((int(row[-1]) for row in rows if row[0] in {user, str(os.getuid())} and row[-1].isdecimal()), default=0)
        if given < HIGHEST_ID:
            what = f"{given or 'no'} further ids, and the demonstration needs {HIGHEST_ID}"
            yield f"{file} gives {user} {what}: {ROOT}`sudo {RANGES} {user}`"


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text("utf-8")
    return ""


def _own_name() -> str:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())
