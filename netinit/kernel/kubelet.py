"""Find the user as which the node's kubelet runs: by its process, or by the port on which it listens.

Istio's agent for ambient pods searches /proc for the same processes (cni/pkg/nftables/kubeletuid_linux.go). A process
chooses its own name, so what runs in a container or in another network namespace is never taken for the kubelet.
"""

from __future__ import annotations

from netinit.kernel import read_text
from netinit.kernel.processes import list_processes, namespace_of
from netinit.kernel.tcp_sockets import LISTEN, list_tcp

PORT = 10250  # by default, in every distribution: the API server connects to it
# Programs that run the kubelet, by their /proc/PID/comm (MicroK8s: kubelite; before Kubernetes 1.19 hyperkube), and a word of
# their command line, because other programs of k3s have that name too.
_PROGRAMS = {
    "kubelet": ("kubelet",), "kubelite": ("kubelet", "kubelite"), "hyperkube": ("kubelet",),
    **dict.fromkeys(("k3s", "k3s-server", "k3s-agent"), ("server", "agent")),
}  # fmt: skip
_COLUMNS = 5  # of a line of /proc/PID/status: name, real, effective, saved and file system's id


def list_process_users() -> frozenset[int]:
    """Return the users of the kubelets that /proc shows in this process's network namespace; a node has one.

    Their sockets belong to the user for files (fsuid, proc_pid_status(5)).
    """
    own = namespace_of("self")
    found = [_user_of(pid) for pid in list_processes() if _is_kubelet(pid) and namespace_of(pid) in (None, own)]
    return frozenset([uid for uid in found if uid is not None])


def list_listening_users() -> frozenset[int]:
    """Return the users of the sockets that listen on the kubelet's port in this network namespace. Raises OSError."""
    return frozenset([one.uid for one in list_tcp() if one.state == LISTEN and one.local[1] == PORT])


def _is_kubelet(pid: int) -> bool:
    words = _PROGRAMS.get(read_text(f"/proc/{pid}/comm").strip())
    if words is None:
        return False
    command = read_text(f"/proc/{pid}/cmdline").lower().replace("\0", " ")
    return any(word in command for word in words)


def _user_of(pid: int) -> int | None:
    """Return the user of a process of this PID namespace; None if it has ended, or is in a namespace below (NSpid names several)."""
    lines = [line.split() for line in read_text(f"/proc/{pid}/status").splitlines()]
    is_inside = any(line[:1] == ["NSpid:"] and len(line) > 2 for line in lines)  # noqa: PLR2004 - the name and one id
    users = [int(line[4]) for line in lines if line[:1] == ["Uid:"] and len(line) == _COLUMNS]
    return users[0] if users and not is_inside else None
