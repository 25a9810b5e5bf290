"""The only place that starts programs.

posix_spawn with memory files for input and output: nothing to poll, no pipe that fills up, no import beyond builtins.
Programs are started by path with a list of arguments, never through a shell.
"""

from __future__ import annotations

import posix

from netinit.base.errors import BackendUnavailableError
from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

USUAL_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")


class Running(Record):
    """A started program; `finish` waits for it."""

    program: str
    pid: int
    output: int  # file descriptors of memory files
    errors: int


class Finished(Record):
    """How a program ended: its exit status (negative: the signal that ended it) and what it printed.

    Bytes of the output that are no UTF-8 are kept as lone surrogates.
    """

    program: str
    status: int
    output: str
    errors: str


def find(program: str) -> str:
    """The path of an installed program, or an empty string. PATH is searched first, then the usual folders."""
    path = posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")
    for folder in (*path.split(":"), *USUAL_FOLDERS):
        candidate = f"{folder}/{program}"
        if folder and posix.access(candidate, posix.X_OK):
            return candidate
    return ""


def start(
    path: str, arguments: Sequence[str] = (), *, stdin: str = "", environment: Mapping[str, str] | None = None
) -> Running:
    """Starts the program at `path`; `stdin` is what it reads, `environment` is added to this process's."""
    environ = dict(posix.environ)
    environ[b"LC_ALL"] = b"C"  # messages are read by this project
    for name, value in (environment or {}).items():
        environ[name.encode()] = value.encode()
    files = [posix.memfd_create(name, posix.MFD_CLOEXEC) for name in ("stdin", "stdout", "stderr")]
    data = memoryview(stdin.encode())
    while data:
        data = data[posix.write(files[0], data) :]
    posix.lseek(files[0], 0, 0)
    program = path.rpartition("/")[2]
    try:
        pid = posix.posix_spawn(
            path,
            [program, *arguments],
            environ,
            file_actions=[(posix.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(files)],
        )
    except OSError as error:
        posix.close(files[1])
        posix.close(files[2])
        raise BackendUnavailableError(f"{path} cannot be started: {posix.strerror(error.errno or 0)}") from None
    finally:
        posix.close(files[0])
    return Running(program=program, pid=pid, output=files[1], errors=files[2])


def finish(running: Running) -> Finished:
    """Waits for the program to end."""
    _, status = posix.waitpid(running.pid, 0)
    return Finished(
        program=running.program,
        status=posix.waitstatus_to_exitcode(status),
        output=_read(running.output, "surrogateescape"),
        errors=_read(running.errors, "replace").strip(),
    )


def _read(descriptor: int, undecodable: str) -> str:
    size = posix.fstat(descriptor).st_size
    parts = []
    offset = 0
    while offset < size:
        part = posix.pread(descriptor, size - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    posix.close(descriptor)
    return b"".join(parts).decode("utf-8", undecodable)
