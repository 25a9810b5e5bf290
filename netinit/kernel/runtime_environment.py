"""Where the process runs (a pod's container, another container, a host), for the remedy in error messages."""

from __future__ import annotations

import posix

from netinit.base.logs import TERMINATION_LOG
from netinit.kernel import detect
from netinit.kernel.capabilities import may_gain

KUBERNETES, CONTAINER, PERSON = "a container of a pod", "a container", "a person"
OF_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set by the kubelet in every container
OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_NUMBERS = {"NET_ADMIN": detect.CAP_NET_ADMIN, "NET_RAW": detect.CAP_NET_RAW}


def find_situation() -> str:
    """Return KUBERNETES, CONTAINER or PERSON."""
    if posix.environ.get(OF_KUBERNETES.encode()) or posix.access(TERMINATION_LOG, posix.F_OK):
        return KUBERNETES
    return CONTAINER if any(posix.access(path, posix.F_OK) for path in OF_CONTAINERS) else PERSON


def advise(*capabilities: str, reading: bool = False) -> str:
    """Return how to give this process these capabilities, as the end of a message.

    `reading`: the command only reads a pod, so a debug container is likelier than an init container.
    """
    root = posix.geteuid() == 0
    names = ", ".join(capabilities)
    situation = find_situation()
    if situation == PERSON:
        return f"this root lacks {names}: run it where root has all rights" if root else "run it as root (sudo)"
    # The capability is in the bounding set but not effective: the program, or its user, does not get it.
    withheld = not root and all(detect.read_capabilities("CapBnd") >> _NUMBERS[name] & 1 for name in capabilities)
    user = " as user 0" if withheld or (not root and not may_gain()) else ""
    if situation == KUBERNETES and reading:
        return f"give the container securityContext.capabilities.add: [{names}]{user}, as kubectl debug --profile=netadmin does"
    if situation == KUBERNETES:
        return f"run the init container with securityContext.capabilities.add: [{names}]{user}"
    options = " ".join([f"--cap-add {name}" for name in capabilities])
    return f"start the container with {options}{user}"
