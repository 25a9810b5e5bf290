"""The backend that runs iptables-legacy-restore."""

from __future__ import annotations

import posix

from netinit.backends.restore import RestoreBackend
from netinit.base.errors import BackendUnavailableError
from netinit.kernel import detect, run
from netinit.kernel.run import Finished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.backends import Lock


class LegacyVariant(RestoreBackend):
    """iptables on the older kernel interface, which has one lock for the whole file system."""

    name = "iptables-legacy"
    variant = detect.LEGACY

    def lock(self) -> Lock:
        return self._legacy_lock()

    def _lock_arguments(self) -> list[str]:
        return ["-w", str(max(1, -(-self._lock_timeout // 10**9)))]  # whole seconds, rounded up

    def _run(self, jobs: Sequence[tuple[str, Sequence[str], str]]) -> list[Finished | BackendUnavailableError]:
        """Run them with a private lock file, since this process holds the real lock.

        Any process may hold a file with a name, even /dev/null, locked for ever.
        """
        nothing = posix.memfd_create("lock", 0)  # programs inherit it
        try:
            environment = {"XTABLES_LOCKFILE": f"/proc/self/fd/{nothing}"}
            return run.finish_all(run.start_all(jobs, environment=environment, waits=self._lock_timeout))
        finally:
            posix.close(nothing)
