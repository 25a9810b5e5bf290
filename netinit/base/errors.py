"""The exceptions that netinit raises on purpose, with their exit codes.

A message names the option or object, the value as given, the problem and the remedy. Exit codes are those of
istio-iptables where it has one: 1 for a failure and 126 for a failed validation.
"""

from __future__ import annotations

__all__ = [
    "ApplyError",
    "BackendUnavailableError",
    "BusyError",
    "ChildLostError",
    "ClusterError",
    "CniError",
    "ConfigError",
    "DriftError",
    "InjectionError",
    "KernelFeatureError",
    "LabError",
    "LockedError",
    "NamespaceError",
    "NetinitError",
    "NoBackendError",
    "OptionError",
    "ParseError",
    "TemplateError",
    "TooManyPartsError",
    "ValidationFailedError",
    "ValidationImpossibleError",
]


class NetinitError(Exception):
    """Base of every error that netinit raises on purpose; `exit_code` is the exit status of the process."""

    exit_code = 1


class OptionError(NetinitError):
    """One or several options are invalid; `problems` has a message for each. Nothing was changed."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ParseError(NetinitError):
    """A text (a rule listing, a manifest) does not have its documented format."""


class NamespaceError(NetinitError):
    """A network namespace cannot be found or entered."""


class BackendUnavailableError(NetinitError):
    """The backend cannot work here: a program, kernel support or a privilege is missing. `auto` tries the next one."""


class LockedError(NetinitError):
    """Another process holds the lock of the rules; the message names it."""


class ApplyError(NetinitError):
    """The kernel could not be brought to the target state; changes were rolled back."""


class BusyError(ApplyError):
    """The kernel was temporarily busy (EAGAIN, EBUSY): a retry may succeed."""


SIGNALS = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}  # signals that ask a process to end, see signal(7)
AS_BEFORE = "everything is as it was before"


def ended_by(number: int, words: str) -> BaseException:
    """Return the exception for a run that a signal ended: KeyboardInterrupt for SIGINT, ApplyError for others."""
    text = f"ended by {SIGNALS[number]}; {words}"
    return KeyboardInterrupt(text) if SIGNALS[number] == "SIGINT" else ApplyError(text)


class DriftError(NetinitError):
    """The live rules differ from the plan."""

    exit_code = 3


class ValidationFailedError(NetinitError):
    """Test connections through the rules did not arrive where they must (Istio's exit code)."""

    exit_code = 126


class ValidationImpossibleError(NetinitError):
    """No test connection was possible: a privilege, an address or a free port is missing."""


class KernelFeatureError(BackendUnavailableError):
    """The kernel lacks support for the rules; loading the modules that the message names on the node would help."""


class NoBackendError(BackendUnavailableError):
    """No backend works here, each for its own reason; `of_kernel`: kernel modules on the node would help one of them."""

    def __init__(self, message: str, *, of_kernel: bool = False) -> None:
        super().__init__(message)
        self.of_kernel = of_kernel


class LabError(NetinitError):
    """A laboratory pod cannot be created or used: a privilege, kernel support or a program is missing, or a child failed."""


class ChildLostError(NetinitError):
    """A child process timed out (`late`), was killed, or exited without an answer: `how` it ended, and by which signal."""

    def __init__(self, message: str, *, late: bool = False, how: str = "", signal: int = 0) -> None:
        super().__init__(message)
        self.late = late
        self.how = how
        self.signal = signal


class ConfigError(NetinitError):
    """The injector's configuration (policy, templates, values, mesh) is invalid; the previous one stays active."""


class ClusterError(NetinitError):
    """The cluster's API cannot be reached or refuses; `status` is HTTP's (0: no answer), `reason` is Kubernetes'."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class CniError(NetinitError):
    """A container runtime's request failed; `code` is CNI's, or from 100 on our own (netinit.node.protocol)."""

    def __init__(self, message: str, code: int = 100) -> None:
        super().__init__(message)
        self.code = code


class InjectionError(NetinitError):
    """A pod cannot be injected because of its annotations, its names or the rendered template."""


class TooManyPartsError(NetinitError):
    """The rules divide the traffic into more parts than fit in memory."""


class TemplateError(NetinitError):
    """A template cannot be parsed or rendered; worded as in Go, with the template's name, line and column."""
