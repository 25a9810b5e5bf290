"""The agent's first process, which keeps the capabilities: start the unprivileged one, then program pods.

It has no threads and no event loop, so that a fork is always consistent, and it holds no secrets: data from the API
stays in the other process. If that process exits, this one exits too, and Kubernetes restarts both; meanwhile the
plugin asks runtimes to retry.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from pathlib import Path

from netinit.base.errors import BackendUnavailableError
from netinit.base.logs import level_of
from netinit.kernel import children, detect, preload
from netinit.kernel.children import Answer
from netinit.kernel.processes import count_cores
from netinit.node.installer import Installer
from netinit.node.programmer import ENDING, Programmer
from netinit.node.settings import AgentSettings
from netinit.node.unix_server import open_socket
from netinit.serving.event_log import EventLog
from netinit.serving.server_process import allow_descriptors, listen

_TICK = 0.5
_AT_ONCE_PER_CORE = 3
_DRAIN = 20.0  # seconds for the other process to exit
_FILES = 8192  # descriptors: several per request and per pod being programmed


def run(settings: AgentSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises ConfigError if a socket cannot be opened."""
    log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
    if not detect.has_capability(detect.CAP_SYS_ADMIN):
        raise BackendUnavailableError("SYS_ADMIN is missing: pods' namespaces cannot be entered")
    if settings.install:
        Installer(settings).claim()
    allow_descriptors(_FILES)
    plugin_socket, monitoring = open_socket(settings.socket), listen(settings.address, settings.monitoring_port, shared=True)
    preload.load_all(str(Path(__file__).parents[1]))
    most = settings.jobs or count_cores() * _AT_ONCE_PER_CORE
    own_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    signals: list[int] = []
    for number in ENDING:
        signal.signal(number, lambda number, _: signals.append(number))
    gc.collect()
    gc.freeze()

    def run_server(_: Answer) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the first one stops this one
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        own_end.close()
        from netinit.node import server

        server.serve(settings, plugin_socket, monitoring, server_end)

    log.event("info", f"answering at {settings.socket}, metrics on port {settings.monitoring_port}, {most} pods at a time")
    with children.start(run_server, seconds=1.0, what="the agent", kept=None) as agent:
        server_end.close()
        plugin_socket.close()
        monitoring.close()
        programmer = Programmer(own_end, most)
        while not signals and programmer.open:
            programmer.serve(_TICK)
        if agent.poll() is None:
            os.kill(agent.pid, signal.SIGTERM)
        end = time.monotonic() + _DRAIN
        while agent.poll() is None and time.monotonic() < end:
            programmer.serve(0.05)
        programmer.end()
    log.event("info", "ended" if signals else "the process that answers has exited; ending, to be restarted")
    return 0 if signals else 1
