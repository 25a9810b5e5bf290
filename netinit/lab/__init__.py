"""The laboratory: pods built from bare network namespaces, to try rules with real connections.

A `Pod` is what a container runtime prepares for an init container: a network namespace held by a pause process, with an
`eth0` and a default route. The other end of its veth pair is in a `client` namespace, which stands for everything
outside. Servers answer each connection with where it arrived (`Arrival`).

- Names in /run/netns are not used. Processes and interfaces end with the `with` block, even after SIGKILL.
- Only namespaces created here are entered, changed or connected to.
- A probe's or server's uid and gid are set before its socket is created, because the owner match checks the socket's.
- The pause process reports through a pipe that it is ready; nothing sleeps.

Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and pyroute2.
"""

from __future__ import annotations

from netinit.lab.pod import APP_ID, PROXY_ID, Pod, find_obstacle
from netinit.lab.probes import Arrival, Probe

__all__ = ["APP_ID", "PROXY_ID", "Arrival", "Pod", "Probe", "find_obstacle"]
