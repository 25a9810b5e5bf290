"""What runs of the image's tests leave when they are killed: processes, cgroups, mounts and folders, known by their names.

A temporary folder is called netinit-image-PID-xxxx and the cgroups of an engine netinit-PID-N-*, by the process that
made them. What belongs to no living process is removed at the start of the next run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

__all__ = ["FOLDER", "end_cgroups", "find_cgroups", "find_mounts", "heed_signals", "remove_folder", "sweep", "unmount"]

FOLDER = "netinit-image-"
CGROUPS = Path("/sys/fs/cgroup")
PROCESSES = ("cgroup.procs", "tasks")  # the second in version 1, where a thread may live apart
PATIENCE = 5.0  # seconds that killed processes may take to go


def heed_signals() -> None:
    """A run that is told to end, or whose terminal closes, tears its fixtures down as after Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def sweep() -> None:
    """Removes what belongs to processes that are gone."""
    for prefix in {"-".join(path.name.split("-")[:2]) for path in find_cgroups("netinit-")}:
        if _is_orphan(prefix, "netinit-"):
            end_cgroups(f"{prefix}-")
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        if _is_orphan(folder.name, FOLDER) and not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
            remove_folder(folder)


def find_cgroups(prefix: str) -> list[Path]:
    """The folders of cgroups, of either version, whose names begin so, with those below them first."""
    found = [
        Path(folder)
        for folder, _, _ in os.walk(CGROUPS)
        if any(part.startswith(prefix) for part in Path(folder).relative_to(CGROUPS).parts)
    ]
    return sorted(found, key=lambda path: -len(path.parts))


def end_cgroups(prefix: str) -> None:
    """Kills the processes in these cgroups and removes them. OSError when one does not go."""
    deadline = time.monotonic() + PATIENCE
    while left := find_cgroups(prefix):
        for folder in left:
            for pid in _processes_of(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass  # runc was quicker
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)  # the killed are still leaving


def find_mounts(folder: Path) -> list[Path]:
    """Where something is mounted below the folder, the deepest first."""
    places = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    paths = [Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)) for place in places]
    return sorted((path for path in paths if path.is_relative_to(folder)), key=lambda path: -len(path.parts))


def unmount(folder: Path) -> None:
    """Nothing is mounted below the folder any more; CalledProcessError where that cannot be."""
    for path in find_mounts(folder.resolve()):
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remove_folder(folder: Path) -> None:
    """The folder is gone, and what was mounted below it is not touched."""
    unmount(folder)
    shutil.rmtree(folder)


def _is_orphan(name: str, prefix: str) -> bool:
    """Whether the process in the name is gone; names without one are somebody else's."""
    found = re.match(r"\d+", name.removeprefix(prefix))
    return found is not None and not Path("/proc", found[0]).exists()


def _processes_of(cgroup: Path) -> set[int]:
    for name in PROCESSES:
        with contextlib.suppress(OSError):
            return {int(word) for word in (cgroup / name).read_text().split()}
    return set()
