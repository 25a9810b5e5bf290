"""The agent's first process, which keeps the capabilities: start the unprivileged one, then program pods.

It has no threads and no event loop, so that a fork is always consistent, and it holds no secrets: data from the API
stays in the other process. If that process exits, this one starts another; meanwhile requests of the plugin wait in the
socket, which this process keeps open. If the container exits, the kubelet starts the next one only after a pause that grows.

Its children are bounded below the container's memory limit, so that one which leaks ends alone: with memory.oom.group,
which kubelets set, the kernel would kill the whole container.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import time
from pathlib import Path

from netinit.base.errors import BackendUnavailableError, ChildLostError
from netinit.base.logs import level_of
from netinit.kernel import children, detect, identify, preload
from netinit.kernel.children import Answer, Child, ChildError
from netinit.kernel.processes import count_cores
from netinit.node.installer import Installer
from netinit.node.programmer import ENDING, Programmer
from netinit.node.settings import AgentSettings
from netinit.node.unix_server import open_socket
from netinit.serving.event_log import EventLog
from netinit.serving.server_process import allow_descriptors, listen, memory_limit

_TICK = 0.5
_AT_ONCE_PER_CORE = 3
_DRAIN = 20.0  # seconds for the other process to exit
_FILES = 8192  # descriptors: several per request and per pod being programmed
_LASTING = 60.0  # seconds of life after which the next process starts at once
_MAX_PAUSE = 10.0  # seconds between two starts, less than a liveness probe allows
_ROOM = 64 << 20  # bytes beside those of this process that each may have at least: a node with 20,000 namespaces takes 45 MiB


def run(settings: AgentSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises ConfigError if a socket cannot be opened, and the error that ended the other process if it names one.
    """
    log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
    if not detect.has_capability(detect.CAP_SYS_ADMIN):
        raise BackendUnavailableError("SYS_ADMIN is missing: pods' namespaces cannot be entered")
    signals: list[int] = []
    for number in ENDING:  # before what may take time: a signal that process 1 does not handle is lost
        signal.signal(number, lambda number, _: signals.append(number))
    if settings.install:
        Installer(settings).claim(is_stopped=lambda: bool(signals))
    if signals:
        log.event("info", "ended")
        return 0
    allow_descriptors(_FILES)
    plugin_socket = open_socket(settings.socket)
    own = identify(settings.socket)
    preload.load_all(str(Path(__file__).parents[1]))
    _limit_data(memory_limit())
    gc.collect()
    gc.freeze()
    pause = 0.0
    while not signals:
        started = time.monotonic()
        how = _work(settings, log, signals, plugin_socket, own)
        if signals:
            break
        if not how or identify(settings.socket) != own:
            log.event("info", "the process that answers has exited; ending, to be restarted")
            return 1
        pause = 0.0 if time.monotonic() - started > _LASTING else min(2 * pause + 1.0, _MAX_PAUSE)
        log.event("error", f"the process that answers {how}; starting another{f' in {pause:.0f} s' if pause else ''}")
        end = time.monotonic() + pause
        while not signals and time.monotonic() < end:
            time.sleep(_TICK)
    log.event("info", "ended")
    return 0


def _work(
    settings: AgentSettings, log: EventLog, signals: list[int], plugin_socket: socket.socket, own_socket: tuple[int, int] | None
) -> str:
    """Start the other process, and program pods until it exits or a signal arrives; return how it was lost, empty if it was not.

    Raises ConfigError if the port cannot be opened, and the error that ended it if it names one.
    """
    # Opened for each: one that was left to a newer agent must not be kept open here, where nothing accepts.
    monitoring = listen(settings.address, settings.monitoring_port, shared=True)
    own_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    most = settings.jobs or count_cores() * _AT_ONCE_PER_CORE

    def run_server(_: Answer) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the first one stops this one
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signals:  # before this process had its own handler
            return
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        own_end.close()
        from netinit.node import server

        server.serve(settings, plugin_socket, own_socket, monitoring, server_end)

    log.event("info", f"answering at {settings.socket}, metrics on port {settings.monitoring_port}, {most} pods at a time")
    with own_end, children.start(run_server, seconds=1.0, what="the agent", kept=None) as agent:
        server_end.close()
        monitoring.close()
        programmer = Programmer(own_end, most)
        while not signals and programmer.open:
            programmer.serve(_TICK)
        if signals:
            plugin_socket.close()
            os.kill(agent.pid, signal.SIGTERM)
            end = time.monotonic() + _DRAIN
            while agent.poll() is None and time.monotonic() < end:
                programmer.serve(0.05)
        programmer.end()
        return "" if signals else _explain_end(agent, log)


def _explain_end(agent: Child, log: EventLog) -> str:
    """Return how the other process was lost; empty if it ended by itself. Raises the error that it names."""
    select.select([agent.fileno()], [], [], _DRAIN)
    try:
        agent.receive()
    except ChildLostError as error:
        return error.how or "gives no answer"
    except (ChildError, OSError) as error:
        log.event("error", f"internal error: {getattr(error, 'trace', '') or error}")
        return f"ended by an internal error ({error})"
    return ""


def _limit_data(limit: int | None) -> None:
    """Bound the data of each child, by a quarter of the container's limit, and of the process that answers (hard), by half of it."""
    if limit is None:
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    least = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_DATA, (max(limit // 4, least), max(limit // 2, least)))
