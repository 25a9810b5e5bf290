"""The program without its start: a process that has read the modules forks itself for each command line.

A command for people takes an eighth of a second, nearly all of which is Python that reads modules. Here the command runs as
`python3 -I -S netinit/__main__.py WORDS` would, in a process of its own, with arguments, working folder and
environment and network namespace of its own, from main() to the end of the interpreter; only the modules are in memory already.
What apply reads before it has done its work is a promise: tests of that start it in full, as `start_tool` of programming does.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

MAIN = Path(__file__).parent.parent / "netinit" / "__main__.py"
COMMANDS = ("apply", "audit", "convert", "diff", "doctor", "draw", "explain", "lint", "remove", "render", "trace", "verify")
MORE = (  # that commands import when they get there
    "netinit.backends.ipset", "netinit.backends.iptables", "netinit.backends.libiptc", "netinit.backends.lock", "netinit.backends.nft_tables",
    "netinit.backends.nftables", "netinit.backends.tally", "netinit.cli.job", "netinit.kernel.emptied", "netinit.kernel.pods", "netinit.rules.census",
    "netinit.rules.layouts.classic", "netinit.rules.layouts.current", "netinit.rules.layouts.dns", "netinit.rules.layouts.inbound",
    "netinit.rules.layouts.outbound", "netinit.rules.layouts.tproxy",
    "ctypes.util", "pickle", "pwd", "shutil", "signal", "subprocess", "sysconfig", "tempfile",  # what python-iptables imports
)  # fmt: skip
AT_THE_START = ("LD_", "PYTHON", "LC_", "LANG")  # beginnings of variables that mean something before main()
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}  # some modules read it as they are imported
MOST = 1 << 17  # bytes of a request
WORD = 4  # bytes of an answer


def can_run(words: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    """Whether this is a command line for `run`."""
    named = bool(words) and (words[0] in COMMANDS or words[0].startswith("-"))
    return named and not any(name.startswith(AT_THE_START) for name in env or {})


def run(words: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """The program, run to its end in this thread's network namespace with `ENVIRONMENT` and `env`, and nothing on stdin.

    Raises subprocess.TimeoutExpired after so many seconds; the program is killed then.
    """
    environment = {**ENVIRONMENT, **(env or {})}
    request = json.dumps({"words": [str(MAIN), *words], "folder": str(Path.cwd()), "environment": environment}).encode()
    told, telling = os.pipe()
    files = [os.open(os.devnull, os.O_RDONLY), os.memfd_create("stdout"), os.memfd_create("stderr")]
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        rights = array.array("i", [namespace, telling, *files])
        _nursery().sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(telling)
        telling = -1
        pid = int.from_bytes(os.read(told, WORD), sys.byteorder)
        if not select.select([told], [], [], timeout)[0]:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(words), timeout)
        code = os.waitstatus_to_exitcode(int.from_bytes(os.read(told, WORD), sys.byteorder))
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:])
        return subprocess.CompletedProcess([*words], code, out, err)
    finally:
        for descriptor in (told, telling, namespace, *files):
            if descriptor >= 0:
                os.close(descriptor)


@functools.cache
def _nursery() -> socket.socket:
    """The socket to the process that forks, one for all of this process; it ends with this process, as the socket closes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.set_inheritable(True)
        start = [sys.executable, "-I", "-S", __file__, str(theirs.fileno())]
        pid = os.posix_spawn(start[0], start, ENVIRONMENT, setpgroup=0)

    def end() -> None:
        ours.close()
        os.waitpid(pid, 0)

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    """Returns in a child that is to be the program. A keeper between tells its process id and, later, its status."""
    while True:
        text, descriptors, *_ = socket.recv_fds(requests, MOST, 5)
        _reap(0 if not text else os.WNOHANG)
        if not text:
            os._exit(0)
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        requests.close()
        if pid := os.fork():
            os.write(descriptors[1], pid.to_bytes(WORD, sys.byteorder))
            os.write(descriptors[1], os.waitpid(pid, 0)[1].to_bytes(WORD, sys.byteorder))
            os._exit(0)
        return _become(json.loads(text), *descriptors)


def _reap(flags: int) -> None:
    """Keepers that have ended are gone; without a flag, all of them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, flags)[0]:
            pass


def _become(request: dict[str, Any], namespace: int, telling: int, *files: int) -> None:
    """This process is as if it had just been started so."""
    namespaces.enter(namespace)
    for number, file in enumerate(files):
        os.dup2(file, number)
    for descriptor in (namespace, telling, *files):
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()  # the same bytes as those of `posix`, where the lean modules look
    os.environ.update(request["environment"])
    sys.argv = request["words"]


def _end(code: int) -> NoReturn:
    """What sys.exit does, but for taking all modules to pieces, which takes longer than most commands."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - shown, and told by the exit code
        traceback.print_exc()
        code = code or 120  # as Python has it where stdout cannot be flushed
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(MAIN.parent.parent)
    from netinit.cli import start
    from netinit.kernel import namespaces

    start._find_packages()
    group = import_module("netinit.cli.group")
    for module in (*(f"netinit.cli.{group.COMMANDS[name][0]}" for name in COMMANDS), *MORE):
        import_module(module)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit = _end
    start.main()
