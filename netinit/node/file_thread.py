"""Read the node's files in a thread of their own: a file system that hangs holds up neither the agent nor its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from netinit.base.errors import NetinitError

Result = TypeVar("Result")


@dataclass(slots=True)
class FileThread:
    """Runs one function at a time; while an abandoned one has not returned, there is no second thread to hang beside it."""

    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: float = 0.0  # when the function that runs was started; 0 if none runs

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns, or raise its error. Raises NetinitError while an earlier one hangs."""
        async with self._turn:
            if self._begun:
                seconds = time.monotonic() - self._begun
                raise NetinitError(f"files of the node cannot be read: an attempt from {seconds:.0f} s ago has not ended")
            self._begun = time.monotonic()
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Result] = loop.create_future()

            def finish(result: Result | None, error: BaseException | None) -> None:
                self._begun = 0.0
                if answer.done():  # its caller has given up
                    return
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(result)  # type: ignore[arg-type] # None only with an error

            def act() -> None:
                result, error = None, None
                try:
                    result = work()
                except Exception as caught:  # noqa: BLE001 - raised in the event loop
                    error = caught
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(finish, result, error)

            threading.Thread(target=act, daemon=True, name="files").start()
            return await answer
