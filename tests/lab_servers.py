"""The laboratory's servers as tests start them: forked by a small process (tests/prefork.py), not by the worker itself.

tests/netns/test_lab.py alone has them as the laboratory starts them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from dataclasses import asdict

import prefork
from laboratory import Listener
from netinit.kernel import children


class Child(children.Child):
    """A server that is not this process's own child, but else is as one."""

    def __init__(
        self, name: str, namespace: int, listeners: tuple[Listener, ...], identity: tuple[int | None, int | None]
    ) -> None:
        answer, telling = os.pipe()
        leash, held = os.pipe()
        request = {"name": name, "listeners": [asdict(listener) for listener in listeners], "identity": identity}
        try:
            pid, self._told = prefork.fork(prefork.LABORATORY, request, [namespace, telling, leash, sys.__stderr__.fileno()])
        finally:
            os.close(telling)
            os.close(leash)
        super().__init__(pid, answer, held, prefork.SECONDS, f"server {name!r} did not start")

    def end(self) -> None:
        """It is gone; calling it twice does no harm."""
        if not self.pid:
            return
        self._close()  # the leash first: it also ends a child that has become another user
        with contextlib.suppress(ProcessLookupError):  # it ends at this moment
            if not select.select([self._told], [], [], 0)[0]:
                os.kill(self.pid, signal.SIGKILL)
        os.read(self._told, prefork.WORD)
        os.close(self._told)
        self.pid = 0
