"""The pods of a node, by their processes."""

from __future__ import annotations

import posix

from netinit.base.shown import escape
from netinit.kernel import read_text

_LEAST = 2  # process 1 has the machine's own network namespace, or the container's


def find_pods() -> tuple[tuple[int, str], ...]:
    """A process of each network namespace that is neither this one's nor process 1's: (process id, its command's name).

    A namespace is named by its oldest process. Those that this process may not look into are left out.
    """
    seen = {_namespace_of("self"), _namespace_of("1")}
    found = []
    for pid in sorted(int(entry) for entry in posix.listdir("/proc") if entry.isdigit() and int(entry) >= _LEAST):
        namespace = _namespace_of(str(pid))
        if namespace and namespace not in seen:
            seen.add(namespace)
            found.append((pid, escape(read_text(f"/proc/{pid}/comm").strip())))
    return tuple(found)


def _namespace_of(process: str) -> int:
    """The number of a process's network namespace; 0 where it is gone, or not ours to look into."""
    try:
        return posix.stat(f"/proc/{process}/ns/net").st_ino
    except OSError:
        return 0
