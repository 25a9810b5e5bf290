"""Why no backend works here, in one error for whoever started the program."""

from __future__ import annotations

import posix

from netinit.backends import BACKENDS
from netinit.base.errors import BackendUnavailableError
from netinit.kernel import detect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.machine import Machine


def nothing_works(failures: dict[str, BackendUnavailableError], machine: Machine) -> BackendUnavailableError:
    """The error for backends of which each has failed for its own reason."""
    uid = posix.geteuid()
    if not machine.has_capability(detect.CAP_NET_ADMIN):
        from netinit.kernel.capabilities import may_gain
        from netinit.kernel.situation import advise

        who = f"uid {uid}{', under allowPrivilegeEscalation: false' if uid and not may_gain() else ''}"
        return BackendUnavailableError(
            f"NET_ADMIN is missing ({who}): {advise('NET_ADMIN')}"
        )
    if not machine.has_capability(detect.CAP_NET_RAW) and all(BACKENDS[name].wants_net_raw for name in failures):
        from netinit.kernel.situation import advise

        return BackendUnavailableError(
            f"NET_RAW is missing (uid {uid}), which legacy iptables needs: {advise('NET_ADMIN', 'NET_RAW')};"
            " --backend iptables-nft and nftables do with NET_ADMIN"
        )
    from netinit.base.errors import KernelFeatureError, NoBackendError

    of_kernel = any(isinstance(error, KernelFeatureError) for error in failures.values())
    lines = [f"  {name}: {reason}" for name, reason in failures.items()]
    return NoBackendError("\n".join(["no backend works here:", *lines]), of_kernel=of_kernel)
