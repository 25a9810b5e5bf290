"""The laboratory: pods built from bare network namespaces, to test rules with real connections.

A `Pod` is what a container runtime prepares for an init container: a network namespace held by a pause process, an `eth0`
and a route out. The veth pair's other end is in a `client` namespace that stands for everything outside: callers of the
pod, servers on the internet, the cluster's name server. Servers answer each connection with where it arrived (`Arrival`),
so that a test or demonstration reports facts instead of trusting a rule listing.

Every part guarantees:

- No name is left in /run/netns, and no process or interface outlives the `with` block; if this process is killed with SIGKILL,
  its children exit too, because their pipe closes.
- Only namespaces created here are entered, changed or connected to.
- A probe or server with a uid and gid has them before its socket is created, because the owner match checks the socket's.
- Nothing sleeps to wait: readiness is reported through a pipe.

Creating a pod needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and pyroute2, but no shell, iproute2 or iptables.
"""

from __future__ import annotations

from netinit.lab.namespace import NetworkNamespace
from netinit.lab.pod import Pod, find_obstacle
from netinit.lab.probes import Arrival, Probe
from netinit.lab.servers import Listener, Server
from netinit.lab.snapshot import drop_empty_tables, list_rules, take_snapshot
from netinit.lab.usual_servers import APP_ID, PROXY_ID, start_servers

__all__ = [
    "APP_ID",
    "PROXY_ID",
    "Arrival",
    "Listener",
    "NetworkNamespace",
    "Pod",
    "Probe",
    "Server",
    "drop_empty_tables",
    "find_obstacle",
    "list_rules",
    "start_servers",
    "take_snapshot",
]
