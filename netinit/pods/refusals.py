"""Errors of `apply` and `remove` when nothing was programmed, with the remedy."""

from __future__ import annotations

from netinit.backends import BACKENDS
from netinit.backends.machine import Machine
from netinit.base.errors import ApplyError, BackendUnavailableError, KernelFeatureError, NoBackendError
from netinit.base.sanitize import quote
from netinit.base.system import posix
from netinit.kernel import detect
from netinit.kernel.capabilities import advise, may_gain
from netinit.rules.model import Difference

MAX_REPORTED = 20  # differences per message


def refuse_loopback(name: str) -> ApplyError:
    """Return the error that `lo` is another device, or missing."""
    return ApplyError(
        f"the loopback device is called {quote(name)} and not lo, so rules for traffic inside of the pod would not match:"
        " give it its name back (ip link set dev NAME name lo) and apply again"
    )


def refuse_to_replace(found: tuple[Difference, ...]) -> ApplyError:
    """Return the error that other rules of ours exist and may not be replaced."""
    what = "other rules of Istio or netinit are here; --reconcile replaces them, --cleanup-only removes them:"
    return ApplyError(list_differences(what, found, MAX_REPORTED))


def list_differences(what: str, found: tuple[Difference, ...], most: int) -> str:
    """Return a message with at most `most` differences, one a line."""
    more = [f"  and {len(found) - most} more"] if len(found) > most else []
    return "\n".join([what, *[f"  {one.describe()}" for one in found[:most]], *more])


def no_backend_works(failures: dict[str, BackendUnavailableError], machine: Machine) -> BackendUnavailableError:
    """Return the error that no backend works, with each one's reason."""
    uid = posix.geteuid()
    if not machine.has_capability(detect.CAP_NET_ADMIN):
        who = f"uid {uid}{', under allowPrivilegeEscalation: false' if uid and not may_gain() else ''}"
        return BackendUnavailableError(f"NET_ADMIN is missing ({who}): {advise('NET_ADMIN')}")
    if not machine.has_capability(detect.CAP_NET_RAW) and all(BACKENDS[name].wants_net_raw for name in failures):
        others = " and ".join([name for name, line in BACKENDS.items() if not line.wants_net_raw])
        return BackendUnavailableError(
            f"NET_RAW is missing (uid {uid}), which legacy iptables needs: {advise('NET_ADMIN', 'NET_RAW')};"
            f" --backend {others} do with NET_ADMIN"
        )
    of_kernel = any(isinstance(error, KernelFeatureError) for error in failures.values())
    lines = [f"  {name}: {reason}" for name, reason in failures.items()]
    return NoBackendError("\n".join(["no backend works here:", *lines]), of_kernel=of_kernel)
