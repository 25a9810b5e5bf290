"""Handle connections older than the rules, which NAT, deciding at the first packet, has not translated.

They exist if a container ran before the init container or a pod is repaired. Tracked ones bypass the proxy until they end;
others are redirected in mid-connection, which resets them. Without TCP sockets this reads two small files.
"""

from __future__ import annotations

from netinit.kernel import read_text
from netinit.options import DNS_LISTENER, TPROXY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.kernel.tcp_sockets import TcpSocket
    from netinit.options import RunOptions
    from netinit.pods.older_connections import Findings, OlderConnection
    from netinit.rules.model import Plan

MAX_JUDGED = 4096  # connections: simulating them takes two seconds if every destination differs
_LOOPBACK_OF_IPV6 = b"\0" * 15 + b"\1"


def look(options: RunOptions, plan: Plan) -> Findings | None:
    """Describe the older connections that the plan would capture, or end them with --reset-existing.

    For this process's namespace, after the plan was programmed. None if there is nothing to report; never raises.
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
    if not (suspects or resets_queries or options.cuts_redirected):
        return None
    from netinit.pods.older_connections import judge  # imports the simulator: 20 ms

    return judge(suspects, sockets, options, plan)


def find_bypassing(options: RunOptions, plan: Plan) -> tuple[tuple[OlderConnection, ...], int]:
    """Return the open TCP connections that bypass the proxy against the plan, and how many were not judged.

    At most MAX_JUDGED are simulated. Limit: where the proxy may be root with its group alone (TPROXY), root's sockets count
    only if their processes are visible. Raises OSError.
    """
    from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
    from netinit.kernel.processes import find_groups
    from netinit.kernel.tcp_sockets import list_tcp
    from netinit.pods.older_connections import find_older

    sockets = list_tcp()
    suspects = [one for one in sockets if may_bypass(one, options)]
    unjudged = max(len(suspects) - MAX_JUDGED, 0)
    suspects = suspects[:MAX_JUDGED]
    if options.inbound_mode == TPROXY:
        known = find_groups(frozenset(one.inode for one in suspects if one.uid == 0))
        suspects = [one for one in suspects if one.uid or one.inode in known]
    with Netlink(NETLINK_NETFILTER) as tracking:
        return tuple([one for one in find_older(suspects, sockets, options, plan, tracking) if one.passes]), unjudged


def has_sockets() -> bool:
    """Whether this network namespace may have TCP sockets (sockstat files of proc_net(5))."""
    for file in ("sockstat", "sockstat6"):
        text = read_text(f"/proc/thread-self/net/{file}")
        if "\nTCP: inuse 0 " not in text and "TCP6: inuse 0\n" not in text:
            return bool(text) or file == "sockstat"  # the second file is missing if the kernel has no IPv6
    return False


def may_bypass(one: TcpSocket, options: RunOptions) -> bool:
    """Whether to simulate a connection: it leaves the pod and is not visibly the proxy's."""
    host = one.remote[0]
    return (
        one.is_open
        and host[:1] != b"\x7f"
        and host != _LOOPBACK_OF_IPV6
        and not one.transparent
        and (one.uid not in options.proxy_uids or options.traits.proxy_mark != 0)
        and one.local[1] not in (options.outbound_port, options.inbound_port, DNS_LISTENER)  # captured connections arrive there
    )
