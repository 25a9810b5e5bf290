"""The pod that options name with --pid or --netns. No other module opens one."""

from __future__ import annotations

from netinit.kernel import detect
from netinit.kernel.open_pod import OpenPod
from netinit.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Result = TypeVar("Result")


class NamedPod(OpenPod):
    """The pod that the options name, opened once; inside, `detect.read_name_servers` returns the pod's, where they matter.

    `refuses`: raise NamespaceError if it is the machine's own namespace. `reads_servers`: False where name servers do not
    matter. `stays`: this process itself enters, for good, unless the pod is in another user namespace.
    """

    def __init__(self, options: Options, *, refuses: bool = False, reads_servers: bool = True, stays: bool = False) -> None:
        super().__init__(pid=options.pid, netns=options.netns, stays=stays)
        try:
            if refuses:
                self.refuse_host()
            self.options = options
            self.servers = tuple(self.read_name_servers()) if reads_servers and options.wants_servers else None
        except BaseException:
            self.close()
            raise

    def _enter_and(self, action: Callable[[], Result], *, joins: bool, keep: tuple[int, ...]) -> Result:
        detect.remember_name_servers(self.servers)
        return super()._enter_and(action, joins=joins, keep=keep)
