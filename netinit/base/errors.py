"""The exceptions that netinit raises on purpose, with their exit codes.

A message names the option or object, the value as given, what is wrong with it and the remedy. Exit codes are
those of Istio's istio-iptables where it has one: 1 for a failure and 126 for a validation that failed.
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
    """Base of every error that netinit raises on purpose; `exit_code` is what the process ends with."""

    exit_code = 1


class OptionError(NetinitError):
    """One or several options are wrong; `problems` holds a message for each, nothing was touched."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ParseError(NetinitError):
    """A text (a rule listing, a manifest) is not what its producer documents."""


class NamespaceError(NetinitError):
    """A network namespace cannot be found or entered."""


class BackendUnavailableError(NetinitError):
    """The backend cannot work here: a program, kernel support or a privilege is missing. `auto` tries the next."""


class LockedError(NetinitError):
    """Another process holds the lock of the rules; the message names it."""


class ApplyError(NetinitError):
    """The kernel could not be brought to the wanted state; what was changed was put back."""


class BusyError(ApplyError):
    """The kernel had no time for it (EAGAIN, EBUSY): the same may succeed a moment later."""


SIGNALS = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}  # signal(7): those that ask to end
AS_BEFORE = "everything is as it was before"


def ended_by(number: int, words: str) -> BaseException:
    """What is raised where a signal has ended a run: KeyboardInterrupt for SIGINT, ApplyError for the others."""
    text = f"ended by {SIGNALS[number]}; {words}"
    return KeyboardInterrupt(text) if SIGNALS[number] == "SIGINT" else ApplyError(text)


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
    """No backend works here, each for a reason of its own; `of_kernel`: modules of the node would help one of them."""

    def __init__(self, message: str, *, of_kernel: bool = False) -> None:
        super().__init__(message)
        self.of_kernel = of_kernel


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
