"""Proves inside an injected pod that its outbound connections are captured; `helm test` runs it there. Needs only Python.

192.0.2.1 is an address for documentation (RFC 5737), which no host has: a connection to it is accepted by the pod's own proxy, where
rules lead it there, and by no other process. The pod's annotations exclude EXCLUDED from capture. Where a connection to that port is
accepted too, something outside accepts every connection, and the first one proves nothing.
"""

from __future__ import annotations

import socket
import sys

ADDRESS, CAPTURED, EXCLUDED, SECONDS = "192.0.2.1", 80, 9, 5


def is_accepted(port: int) -> bool:
    """Whether a process accepts connections to this port."""
    try:
        socket.create_connection((ADDRESS, port), timeout=SECONDS).close()
    except OSError:
        return False
    return True


def main() -> str | None:
    """What is wrong; None where capture is proved."""
    if not is_accepted(CAPTURED):
        return (
            f"not captured: no process accepted a connection to {ADDRESS}:{CAPTURED}: the pod is not injected, has no rules, or"
            " its proxy does not listen; kubectl netinit explain and verify have details"
        )
    if is_accepted(EXCLUDED):
        return f"not proved: a connection to {ADDRESS}:{EXCLUDED}, which is excluded from capture, was accepted too"
    print(f"captured: the proxy accepted a connection to {ADDRESS}:{CAPTURED}, and none to {EXCLUDED}, which is excluded")
    return None


if __name__ == "__main__":
    sys.exit(main())
