"""The pod that options name with --pid or --netns. No other module opens one."""

from __future__ import annotations

from netinit.kernel.open_pod import OpenPod
from netinit.options import Options


class NamedPod(OpenPod):
    """The pod that the options name, opened once; `options` are the same with its name servers.

    `refuses`: raise NamespaceError if it is the machine's own namespace. `reads_servers`: False where name servers do not
    matter. `stays`: this process itself enters, for good, unless the pod is in another user namespace.
    """

    def __init__(self, options: Options, *, refuses: bool = False, reads_servers: bool = True, stays: bool = False) -> None:
        super().__init__(pid=options.pid, netns=options.netns, stays=stays)
        try:
            if refuses:
                self.refuse_host()
            self.options = options.with_servers(self.read_name_servers) if reads_servers else options
        except BaseException:
            self.close()
            raise
