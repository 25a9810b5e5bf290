"""Who is at the keyboard: a pod's container, a container of somebody, or a person on a machine; and what helps each of them.

Asked only when something is to be advised.
"""

from __future__ import annotations

import posix

from netinit.base.logs import TERMINATION_LOG
from netinit.kernel import read_text

KUBERNETES, CONTAINER, PERSON = "a container of a pod", "a container", "a person"
OF_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # which the kubelet gives to every container
OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_NUMBERS = {"NET_ADMIN": 12, "NET_RAW": 13}


def find_situation() -> str:
    """KUBERNETES, CONTAINER or PERSON."""
    if posix.environ.get(OF_KUBERNETES.encode()) or posix.access(TERMINATION_LOG, posix.F_OK):
        return KUBERNETES
    return CONTAINER if any(posix.access(path, posix.F_OK) for path in OF_CONTAINERS) else PERSON


def advise(*capabilities: str, reading: bool = False) -> str:
    """What gives this process these capabilities, to stand behind a semicolon or a colon.

    `reading`: it looks at a pod, which in a cluster a debug container does more often than an init container.
    """
    status = read_text("/proc/self/status")
    root = posix.geteuid() == 0
    names = ", ".join(capabilities)
    situation = find_situation()
    if situation == PERSON:
        return f"this root lacks {names}: run it where root has all rights" if root else "run it as root (sudo)"
    # A capability that may be had and is not is one that this program, or this user, does not get.
    withheld = not root and all(_may_have(status, name) for name in capabilities)
    user = " as user 0" if withheld or (not root and "NoNewPrivs:\t1" in status) else ""
    if situation == KUBERNETES and reading:
        return f"give the container securityContext.capabilities.add: [{names}]{user}, as kubectl debug --profile=netadmin does"
    if situation == KUBERNETES:
        return f"run the init container with securityContext.capabilities.add: [{names}]{user}"
    options = " ".join([f"--cap-add {name}" for name in capabilities])
    return f"start the container with {options}{user}"


def _may_have(status: str, name: str) -> bool:
    """Whether a capability is in the bounding set."""
    for line in status.splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> _NUMBERS[name] & 1)
    return False
