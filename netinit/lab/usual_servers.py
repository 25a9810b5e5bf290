"""The usual servers: an application and a proxy in the pod, and servers outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from netinit.lab.pod import Pod
from netinit.lab.servers import Listener, Server

APP_ID = 1000
PROXY_ID = 1337


def start_servers(
    pod: Pod,
    *,
    app: Sequence[int] = (80, 8080),
    proxy: Sequence[int] = (15001, 15006),
    outside: Sequence[int] = (80, 443),
    transparent: Collection[int] = (),
    proxy_dns: int = 15053,
    outside_dns: int = 53,
) -> dict[str, Server]:
    """Start the servers `app` (uid and gid 1000), `proxy` (1337) and `outside` (root, in the client namespace).

    All listen on IPv4, and on IPv6 if the kernel has it; proxy and outside also answer DNS over UDP and TCP.
    `transparent`: the proxy's ports for TPROXY. In a pod with a user namespace the ids are the pod's.
    """
    app_id, proxy_id = pod.first_uid + APP_ID, pod.first_uid + PROXY_ID
    servers = {
        "app": pod.start("app", _listen(app), uid=app_id, gid=app_id),
        "proxy": pod.start("proxy", _listen(proxy, proxy_dns, transparent), uid=proxy_id, gid=proxy_id),
        "outside": pod.client.start("outside", _listen(outside, outside_dns)),
    }
    for server in servers.values():
        server.wait()
    return servers


def _listen(ports: Sequence[int], dns: int | None = None, transparent: Collection[int] = ()) -> list[Listener]:
    families = (4, 6) if Path("/proc/net/if_inet6").exists() else (4,)
    wanted = [(port, "tcp") for port in ports]
    if dns is not None:
        wanted += [(dns, "tcp"), (dns, "udp")]
    return [Listener(port, family, kind=kind, transparent=port in transparent) for port, kind in wanted for family in families]
