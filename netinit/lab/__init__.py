"""The laboratory: pods made of bare network namespaces, in which rules meet real connections.

A `Pod` is what a container runtime leaves for an init container: a network namespace that a pause process holds, an
`eth0` and a way out. Behind the veth pair stands a `client` namespace that plays everything outside: the caller of
the pod, the servers on the internet, the cluster's name server. Servers answer each connection with where it arrived
(`Arrival`), so that a test or a demonstration states facts instead of believing a rule listing.

Laws kept by every part:

- No name is left in /run/netns, no process and no interface outlives the `with` block, and when this process is
  killed with SIGKILL its children end by themselves, because the pipe that they hold on to closes.
- Only namespaces made here are ever entered, changed or connected to.
- Sockets belong to the kernel's idea of a user: a probe or a server with a uid and gid has them from the socket's
  creation on, since that is what the owner match looks at.
- Nothing waits by sleeping: readiness comes through a pipe.

Making a pod needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), and pyroute2; neither a shell nor iproute2 or iptables.
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
