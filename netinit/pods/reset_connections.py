"""Connections that are older than the rules: NAT decides with the first packet of a connection, and theirs is long gone.

A container that ran before the init container has them, a native sidecar's neighbour, or a pod that is repaired. Those that
connection tracking knows go past the proxy until they end; those that it learns of now are sent to the proxy in the middle,
which knows nothing of them, and are cut off.

A start in a pod without any TCP socket pays for two small files of /proc, and for nothing else.
"""

from __future__ import annotations

from netinit.kernel import read_text
from netinit.options import AMBIENT, DNS_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.kernel.tcp_sockets import TcpSocket
    from netinit.options import Options
    from netinit.pods.older_connections import Findings
    from netinit.rules.model import Plan

_LOOPBACK_OF_IPV6 = b"\0" * 15 + b"\1"


def look(options: Options, plan: Plan) -> Findings | None:
    """Counts the older connections that the plan would capture, or ends them where --reset-existing asks for that.

    The namespace is this process's, and has the rules of the plan. None where there is nothing to say; what cannot be known
    is said, and no error.
    """
    resets_queries = options.reset_existing and options.redirect_dns
    if not (resets_queries or has_sockets()):
        return None
    from netinit.kernel.tcp_sockets import list_tcp

    try:
        sockets = list_tcp()
    except OSError as error:
        from netinit.pods.older_connections import not_known

        return not_known(f"sock_diag: {error.strerror}", options)
    suspects = [one for one in sockets if may_bypass(one, options)]
    if not (suspects or resets_queries):
        return None
    from netinit.pods.older_connections import judge  # the simulator: 20 ms

    return judge(suspects, sockets, options, plan)


def has_sockets() -> bool:
    """Whether this network namespace has any TCP socket, or does not say: TCP and TCP6 of proc_net(5)'s sockstat files."""
    for file in ("sockstat", "sockstat6"):
        text = read_text(f"/proc/thread-self/net/{file}")
        if "\nTCP: inuse 0 " not in text and "TCP6: inuse 0\n" not in text:
            return bool(text) or file == "sockstat"  # the second is missing where the kernel has no IPv6
    return False


def may_bypass(one: TcpSocket, options: Options) -> bool:
    """Whether it is worth asking the simulator: it leads out of the pod, and is not the proxy's by what the kernel shows."""
    host = one.remote[0]
    return (
        one.is_open
        and host[:1] != b"\x7f"
        and host != _LOOPBACK_OF_IPV6
        and not one.transparent
        and (one.uid not in options.proxy_uids or options.layout == AMBIENT)
        and one.local[1] not in (options.outbound_port, options.inbound_port, DNS_LISTENER)  # captured ones arrive there
    )
