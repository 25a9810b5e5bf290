"""The machine: programs, namespaces, netlink, what is installed and allowed. Impure, and knows nothing of options and rules."""

from __future__ import annotations

import posix


def read_text(path: str) -> str:
    """The text of a small file of /proc or /sys; empty when it cannot be read."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return ""
    parts = []
    try:
        while part := posix.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""
    finally:
        posix.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")
