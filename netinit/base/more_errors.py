"""The exceptions of everything but `apply`, whose start does not pay for them, with their exit codes."""

from __future__ import annotations

from netinit.base.errors import BackendUnavailableError, NetinitError

__all__ = [
    "ChildLostError",
    "ClusterError",
    "CniError",
    "ConfigError",
    "DriftError",
    "InjectionError",
    "KernelFeatureError",
    "LabError",
    "NoBackendError",
    "TemplateError",
    "TooManyPartsError",
    "ValidationFailedError",
    "ValidationImpossibleError",
]


class DriftError(NetinitError):
    """The live rules differ from the plan."""

    exit_code = 3


class ValidationFailedError(NetinitError):
    """Real connections through the rules did not end where they must (Istio's exit code)."""

    exit_code = 126


class ValidationImpossibleError(NetinitError):
    """No connection could be tried that would prove anything: a privilege, an address or a free port is missing."""


class KernelFeatureError(BackendUnavailableError):
    """The kernel lacks what rules need: modules of the node would help, which the message names."""


class NoBackendError(BackendUnavailableError):
    """No backend works here, each for a reason of its own."""


class LabError(NetinitError):
    """A laboratory pod cannot be made or used: a privilege, kernel support or a program is missing, or a child failed."""


class ChildLostError(NetinitError):
    """A child process was late, was killed, or ended without an answer: `late`, or `how` it ended, and by which signal."""

    def __init__(self, message: str, *, late: bool = False, how: str = "", signal: int = 0) -> None:
        super().__init__(message)
        self.late = late
        self.how = how
        self.signal = signal


class ConfigError(NetinitError):
    """The injector's configuration (policy, templates, values, mesh) cannot be used; the one before stays in force."""


class ClusterError(NetinitError):
    """The cluster's API cannot be reached or refuses; `status` is HTTP's (0: no answer), `reason` Kubernetes' own word."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class CniError(NetinitError):
    """A request of a container runtime cannot be done; `code` is CNI's, or from 100 on one of ours (netinit.node.protocol)."""

    def __init__(self, message: str, code: int = 100) -> None:
        super().__init__(message)
        self.code = code


class InjectionError(NetinitError):
    """A pod cannot be injected: its annotations, its names or the rendered template are at fault."""


class TooManyPartsError(NetinitError):
    """Rules cut the traffic into more parts than can be kept in memory."""


class TemplateError(NetinitError):
    """A template cannot be parsed or rendered; worded as Go words it, with the template's name, line and column."""
