"""Wait until something that affects packets changes in a pod."""

from __future__ import annotations

import select
import socket
import time
from typing import Self

from netinit.backends.named_pod import NamedPod
from netinit.base.errors import NamespaceError, NetinitError
from netinit.base.system import LINUX, NEEDS_LINUX
from netinit.kernel import identify, notifications
from netinit.options import Options

_SETTLE = 0.05  # seconds from a notification to the end of `wait`: programs change several rules in a row
_MAX_PAUSE = 2.0  # seconds to wait at most, in a pod that changes constantly
_SLICE = 1.0  # seconds between checks that the pod still exists: the sockets keep its namespace alive


class Changes:
    """Watches the namespace that the options name (default: this process's), as a context manager.

    Call `begin_read` before each read and `wait` after it: any change after `begin_read` ends the wait. `connections`: so
    does a connection that opens or ends. Raises NamespaceError; NetinitError if the kernel refuses (NET_ADMIN is needed).
    """

    def __init__(self, options: Options, *, connections: bool = False) -> None:
        groups = notifications.BOTH if connections else notifications.CHANGES
        self._path = ""
        self._pause = _SETTLE
        try:
            if not (options.pid or options.netns):
                self._sockets = notifications.subscribe(groups)
                return
            ours, theirs = socket.socketpair()
            with ours, theirs, NamedPod(options, reads_servers=False) as pod:
                channel = theirs.fileno()
                pod.run_inside(lambda: notifications.send_sockets(channel, notifications.subscribe(groups)), holding=(channel,))
                self._sockets = notifications.receive_sockets(ours)
                self._path = pod.path
                self._identity = identify(pod.path)
        except OSError as error:
            raise NetinitError(f"changes cannot be watched: {error.strerror}; NET_ADMIN is needed for it") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        notifications.close(self._sockets)

    def begin_read(self) -> None:
        """Discard the changes so far, which the following read includes."""
        notifications.drain(self._sockets)

    def wait(self, *, briefly: bool = False) -> None:
        """Block until a change since `begin_read` and 0.05 to 2 s more; `briefly`: for a second at most if nothing changes.

        Raises NamespaceError: the named pod is gone.
        """
        if not LINUX:
            raise OSError(NEEDS_LINUX)
        poller = select.poll()
        for one in self._sockets:
            poller.register(one, select.POLLIN)
        at_once = bool(poller.poll(0))
        self._pause = min(_MAX_PAUSE, 2 * self._pause) if at_once else _SETTLE
        while not poller.poll(_SLICE * 1000):
            if self._path and identify(self._path) != self._identity:
                raise NamespaceError(f"{self._path}: the pod is gone")
            if briefly:
                return
        time.sleep(self._pause)
