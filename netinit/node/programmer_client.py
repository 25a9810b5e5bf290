"""Send jobs to the agent's privileged process, and receive their results."""

from __future__ import annotations

import asyncio
import itertools
import socket

from netinit.base.errors import NetinitError
from netinit.kernel import answers
from netinit.kernel.descriptors import receive_descriptors
from netinit.node.jobs import Job, JobResult
from netinit.node.programmer import PACKET, read_message, write_message

_SLACK = 6.0  # seconds beyond the job's timeout, for the other process to report it


class ProgrammerClient:
    """Runs jobs in the privileged process; `lost` is set when that process has exited. Used by one event loop."""

    def __init__(self, programmer: socket.socket) -> None:
        self._programmer = programmer
        self._programmer.setblocking(False)  # noqa: FBT003 - setblocking's signature
        self._numbers = itertools.count(1)
        self._pending: dict[bytes, asyncio.Future[JobResult]] = {}
        self.lost = asyncio.Event()

    def start(self) -> None:
        """Start to receive results."""
        asyncio.get_running_loop().add_reader(self._programmer, self._receive)

    async def do(self, job: Job, namespace: int = -1) -> JobResult:
        """Run the job in the namespace of this descriptor (-1: at its path). The result has failures, also a timeout."""
        number = str(next(self._numbers)).encode()
        answer: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            async with asyncio.timeout(job.seconds + _SLACK):
                await self._send(number, job, namespace)
                return await answer
        except TimeoutError:
            return JobResult(error="the process that programs pods gave no answer", late=True)
        finally:
            del self._pending[number]

    async def _send(self, number: bytes, job: Job, namespace: int) -> None:
        with write_message(job.encode()) as file:
            while True:
                try:
                    socket.send_fds(self._programmer, [number], [file, namespace] if namespace >= 0 else [file])
                except BlockingIOError:  # the socket's queue is full
                    await asyncio.sleep(0.01)
                    continue
                except OSError:
                    self.lost.set()
                return

    def _receive(self) -> None:
        try:
            number, descriptors = receive_descriptors(self._programmer, PACKET, 1)
        except BlockingIOError:
            return
        except OSError:
            number, descriptors = b"", []
        if not number:
            self.lost.set()
            asyncio.get_running_loop().remove_reader(self._programmer)
            return
        try:
            result = JobResult.check(answers.decode(read_message(descriptors)))
        except (NetinitError, OSError, IndexError) as error:
            result = JobResult(error=str(error))
        answer = self._pending.get(number)
        if answer is not None and not answer.done():
            answer.set_result(result)
