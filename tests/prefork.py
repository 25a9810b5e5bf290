"""The program without its start: a process that has read the modules forks itself for each command line.

A command for people takes an eighth of a second, nearly all of which is Python that reads modules. Here the command runs as
`python3 -I -S netinit/__main__.py WORDS` would, in a process of its own, with arguments, working folder,
environment and network namespace of its own, from main() to the end of the interpreter; only the modules are in memory already.
What apply reads before it has done its work is a promise: tests of that start it in full, as `start_tool` of programming does.
The node's agent and the webhook's server are started so, too, half of whose processor time is Python that reads modules.

The laboratory's servers are forked by such a process, too: a fork copies the tables of all memory, and a worker that has collected
thousands of tests takes ten times as long for it as a process that has read what servers need.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

MAIN = Path(__file__).parent.parent / "netinit" / "__main__.py"
COMMANDS = ("apply", "audit", "check", "convert", "diff", "doctor", "draw", "explain", "lint", "remove", "render", "trace", "verify", "watch", "why")
PEOPLE, AGENT, WEBHOOK, LABORATORY = "people", "agent", "webhook", "laboratory"
MODULES = {  # what each kind of process has read, beside what a plain start reads
    PEOPLE: (
        "backends.encoded_rules", "backends.ipset", "backends.iptables", "backends.legacy", "backends.libiptc", "backends.lock", "backends.nft_tables", "backends.nftables",
        "cli.init_container", "backends.nft_removal", "kernel.open_pod", "rules.layouts.classic", "rules.layouts.current",
        "rules.layouts.dns", "rules.layouts.inbound", "rules.layouts.log_rules", "rules.layouts.outbound", "rules.layouts.tproxy",
        "questions.lint.effect_proof", "rules.expressions.compat",
    ),
    AGENT: ("cli.node.agent", "node.supervisor", "node.server", "node.agent"),
    WEBHOOK: ("cli.webhook.serve", "webhook.server"),
}  # fmt: skip
FOREIGN = {  # what they import of others as they work
    PEOPLE: ("ctypes.util", "pickle", "pwd", "shutil", "signal", "subprocess", "sysconfig", "tempfile"),  # what python-iptables imports
    AGENT: ("httpcore2",),
    WEBHOOK: ("concurrent.futures.thread", "cryptography.x509", "cryptography.hazmat.primitives.serialization"),
}
AT_THE_START = ("LD_", "PYTHON", "LC_", "LANG")  # beginnings of variables that mean something before main()
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}  # some modules read it as they are imported
MOST = 1 << 17  # bytes of a request
WORD = 4  # bytes of an answer
SECONDS = 240.0  # that a command may take on a busy machine: it is hanging ones that this ends
CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_admin": 21}  # linux/capability.h
OURS = "/proc/thread-self/ns/net"


def can_run(words: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    """Whether this is a command line for `run`."""
    named = bool(words) and (words[0] in COMMANDS or words[0].startswith("-"))
    return named and not any(name.startswith(AT_THE_START) for name in env or {})


def run(
    words: Sequence[str], env: Mapping[str, str] | None = None, *, timeout: float = SECONDS, without: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """The program, run to its end in this thread's network namespace with `ENVIRONMENT` and `env`, and nothing on stdin.

    Neither it nor what it starts has or gets the capabilities in `without`, as after `setpriv --bounding-set`.

    Raises subprocess.TimeoutExpired after so many seconds; the program is killed then.
    """
    files = [os.memfd_create("stdout"), os.memfd_create("stderr")]
    try:
        pid, told = _start(words, files, environ={**ENVIRONMENT, **(env or {})}, without=without)
        files.append(told)
        if not select.select([told], [], [], timeout)[0]:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(words), timeout)
        code = _read_code(told)
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[:2])
        return subprocess.CompletedProcess([*words], code, out, err)
    finally:
        for file in files:
            os.close(file)


@functools.cache
def door() -> Path:
    """A socket where `forked_netinit.py`, the program as scripts find it, asks for a fork of this process's nursery."""
    folder = Path(tempfile.mkdtemp(prefix="netinit-"))
    atexit.register(shutil.rmtree, folder)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(folder / "door"))
    listening.listen()

    def pass_on() -> None:
        while True:
            with listening.accept()[0] as asking:
                request, files, *_ = socket.recv_fds(asking, MOST, 5, socket.MSG_CMSG_CLOEXEC)
                socket.send_fds(nursery, [request], files)
                _close(*files)

    nursery = _nursery(PEOPLE)  # before there are files of others that it would keep
    threading.Thread(target=pass_on, daemon=True).start()
    return folder / "door"


class Running:
    """The program, just started in this thread's network namespace; what is used of subprocess.Popen is here as there."""

    def __init__(self, words: Sequence[str], kind: str = PEOPLE, *, log: int | None = None, **more: Any) -> None:
        """`log` gets both outputs; without it they are read here. `more`: the environment, the working folder."""
        self.words = list(words)
        self.returncode: int | None = None
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        if log is not None:
            self.pid, self._told = _start(words, [log, log], kind, **more)
            return
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        try:
            self.pid, self._told = _start(words, [out_end, err_end], kind, **more)
        finally:
            os.close(out_end)
            os.close(err_end)

    def poll(self) -> int | None:
        """The exit code where it has ended."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; raises subprocess.TimeoutExpired after so many seconds."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.words, timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = _read_code(self._told)
            os.close(self._told)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left of both outputs, and its end; raises subprocess.TimeoutExpired after so many seconds."""
        told: dict[object, str] = {}
        outputs = [one for one in (self.stdout, self.stderr) if not one.closed]
        readers = [threading.Thread(target=lambda one=one: told.update({one: one.read()}), daemon=True) for one in outputs]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        self.stdout.close()
        self.stderr.close()
        return told.get(self.stdout, ""), told.get(self.stderr, "")

    def send_signal(self, number: int) -> None:
        """Sent where it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _start(
    words: Sequence[str], outputs: Sequence[int], kind: str = PEOPLE, *, environ: Mapping[str, str] = ENVIRONMENT, folder: Path | None = None,
    without: Sequence[str] = (),
) -> tuple[int, int]:  # fmt: skip
    """A process of the program, and the pipe that tells its status when it has ended."""
    request = {"words": [str(MAIN), *words], "folder": str(folder or Path.cwd()), "environ": dict(environ), "without": [CAPABILITIES[name] for name in without]}
    files = [os.open(OURS, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)]
    try:
        return fork(kind, request, [*files, *outputs])
    finally:
        _close(*files)


def fork(kind: str, request: dict[str, Any], files: Sequence[int]) -> tuple[int, int]:
    """A process that does what is asked, with these files, and the pipe that tells its status when it has ended."""
    told, telling = os.pipe()
    try:
        rights = array.array("i", [telling, *files])
        _nursery(kind).sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        os.close(telling)
    return int.from_bytes(os.read(told, WORD), sys.byteorder), told


def _read_code(told: int) -> int:
    return os.waitstatus_to_exitcode(int.from_bytes(os.read(told, WORD), sys.byteorder))


@functools.cache
def _nursery(kind: str) -> socket.socket:
    """The socket to the process that forks, one of each kind for all of this process; it ends with this process, as the socket closes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.set_inheritable(True)
        start = [sys.executable, "-I", "-S", __file__, str(theirs.fileno()), kind]
        pid = os.posix_spawn(start[0], start, ENVIRONMENT, setpgroup=0)

    def end() -> None:
        ours.close()
        os.waitpid(pid, 0)

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns in a child, with what it is asked and its files. Its process id is told at once, and its status when it has ended."""
    gc.collect()
    gc.freeze()
    sources: dict[int, tuple[int, ...]] = {requests.fileno(): ()}  # a program's is readable once it has ended: its id, whom to tell
    while sources:
        source = select.select(sources, [], [])[0][0]
        if sources[source]:
            pid, telling = sources.pop(source)
            _tell(telling, os.waitpid(pid, 0)[1])
            _close(source, telling)
            continue
        text, descriptors, *_ = socket.recv_fds(requests, MOST, 5)
        if not text:  # nobody asks any more; what runs is awaited
            del sources[source]
            continue
        telling, *files = descriptors
        pid = os.fork()
        if not pid:
            requests.detach()
            _close(*sources, *(telling for _, telling in filter(None, sources.values())), telling)
            return json.loads(text), files
        sources[os.pidfd_open(pid)] = pid, telling
        _tell(telling, pid)
        _close(*files)
    os._exit(0)


def _tell(telling: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # who waited in vain does not listen
        os.write(telling, number.to_bytes(WORD, sys.byteorder))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _become(request: dict[str, Any], namespace: int, *files: int) -> None:
    """This process is as if it had just been started so."""
    if not os.path.samestat(os.fstat(namespace), Path(OURS).stat()):  # to enter wants root, even where one is already
        namespaces.enter(namespace)
    if dropped := request.get("without"):
        _drop(dropped)
    for number, file in enumerate(files):
        os.dup2(file, number)
    _close(namespace, *files)
    os.chdir(request["folder"])
    os.environ.clear()  # the same bytes as those of `posix`, where the lean modules look
    os.environ.update(request["environ"])
    sys.argv = request["words"]


def _drop(numbers: Sequence[int]) -> None:
    """This process and what it starts have no longer these capabilities (capabilities(7))."""
    kept = detect.read_capabilities("CapPrm") & ~sum(1 << number for number in numbers)
    held = detect.read_capabilities("CapBnd")
    capabilities.confine(tuple(number for number in range(held.bit_length()) if held >> number & 1 and number not in numbers), wanted=())
    assert detect.read_capabilities("CapEff") == kept, "they are still there"


def _serve_in_a_pod(asked: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """This process is a server of the laboratory."""
    namespace, telling, leash, stderr = files
    listeners = tuple(servers.Listener(**listener) for listener in asked["listeners"])

    def act(answer: children.Answer) -> None:
        servers._serve_forever(answer, asked["name"], namespace, listeners, asked["identity"])

    os.dup2(stderr, 2)
    children._serve(act, children.Answer(telling), leash, (namespace,))


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
    requests, kind = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    if kind == LABORATORY:
        sys.path.append(str(Path(__file__).parent))
        import server_processes as servers
        from netinit.kernel import children

        _serve_in_a_pod(*_serve(requests))
    from netinit.cli import start
    from netinit.kernel import capabilities, detect, namespaces, preload

    start._find_packages()
    start._find_packages = lambda: None  # it would ask all modules again where they are
    group = import_module("netinit.cli.group")
    commands = [group.COMMANDS[name][0] for name in COMMANDS] if kind == PEOPLE else []
    for module in (*commands, *MODULES[kind]):
        import_module(f"netinit.{module}")
    for module in FOREIGN[kind]:
        import_module(module)
    if kind == PEOPLE:  # what each command that reads live rules works out first from the layouts, which are always the same
        places = import_module("netinit.rules.infer_options.places")
        for layout in ("classic", "current"):
            places.find_places(layout, None)  # as layout_readers.py asks: a cache takes the default for another question
    if kind == AGENT:  # which begins with this
        preload.load_all(str(MAIN.parent))
    asked, files = _serve(requests)
    _become(asked, *files)
    sys.exit = _end
    start.main()
