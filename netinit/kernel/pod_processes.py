"""Find the pods of a node by their processes."""

from __future__ import annotations

from netinit.base.sanitize import escape
from netinit.kernel import read_text
from netinit.kernel.processes import list_processes, namespace_of


def find_pods() -> tuple[tuple[int, str], ...]:
    """Return the oldest process (id, command) of each network namespace but this process's and process 1's.

    Namespaces that this process may not inspect are left out.
    """
    seen = {namespace_of("self"), namespace_of("1")}
    found = []
    for pid in sorted(list_processes()):
        namespace = namespace_of(pid)
        if namespace and namespace not in seen:
            seen.add(namespace)
            found.append((pid, escape(read_text(f"/proc/{pid}/comm").strip())))
    return tuple(found)
