"""The exceptions that netinit raises on purpose, with their exit codes.

A message names the option or object, its value, the problem and the remedy. Exit codes follow istio-iptables where it
has one: 1 for a failure, 126 for a failed validation.
"""

from __future__ import annotations


class NetinitError(Exception):
    """Base of all errors that netinit raises on purpose; `exit_code` is the process's exit status."""

    exit_code = 1


class OptionError(NetinitError):
    """One or more options are invalid, one message each in `problems`; nothing was changed."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ParseError(NetinitError):
    """A text (a rule listing, a manifest) does not have its documented format. `line`, `column`: where, from 1; 0 if not known."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem, self.line, self.column = problem, line, column

    def in_file(self, name: str) -> str:
        """The message with a file's name, and the place behind that: `pod.yaml:3:1: …`."""
        return f"{name}:{self.line}:{self.column}: {self.problem}" if self.line else f"{name}: {self.problem}"


class NamespaceError(NetinitError):
    """A network namespace cannot be found or entered."""


class NoNamespaceError(NamespaceError):
    """What the path leads to is no network namespace; after a pod's end, its file under /run/netns may stay."""


class BackendUnavailableError(NetinitError):
    """The backend lacks a program, kernel support or a privilege; `auto` tries the next one."""


class LockedError(NetinitError):
    """Another process holds the lock of the rules; the message names it."""


class ApplyError(NetinitError):
    """A change failed and was rolled back; otherwise the message says which rules stay in the kernel, or what is lost."""


class BusyError(ApplyError):
    """The kernel was temporarily busy (EAGAIN, EBUSY): a retry may succeed."""


class LateError(ApplyError):
    """A program or process did not end in time and was killed: whether it works is not known."""


SIGNALS = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}  # signals that ask a process to end, see signal(7)
AS_BEFORE = "everything is as it was before"
NOT_PROVED = "whether foreign rules divert captured traffic is not known"
DORMANT_BYPASS = "a dormant table would divert captured traffic as soon as its flag is cleared"


def ended_by(number: int, words: str) -> BaseException:
    """The exception for a run that a signal ended: KeyboardInterrupt for SIGINT, otherwise ApplyError."""
    text = f"ended by {SIGNALS[number]}; {words}"
    return KeyboardInterrupt(text) if SIGNALS[number] == "SIGINT" else ApplyError(text)


class DriftError(NetinitError):
    """The live rules differ from the plan."""

    exit_code = 3


class ValidationFailedError(NetinitError):
    """Test connections through the rules did not arrive where they must (Istio's exit code)."""

    exit_code = 126


class ValidationLateError(ValidationFailedError):
    """No test connection failed, but some did not arrive in time: they may be lost, or the machine is busy."""


class ValidationImpossibleError(NetinitError):
    """No test connection is possible: a privilege, an address or a free port is missing."""


class KernelFeatureError(BackendUnavailableError):
    """The kernel does not support the rules; the message names the remedy, `missing` what was refused, if one thing is known."""

    def __init__(self, message: str, *, missing: str = "") -> None:
        super().__init__(message)
        self.missing = missing


class NoBackendError(BackendUnavailableError):
    """No backend works here; `of_kernel`: kernel modules on the node would help one of them."""

    def __init__(self, message: str, *, of_kernel: bool = False) -> None:
        super().__init__(message)
        self.of_kernel = of_kernel


class LabError(NetinitError):
    """A laboratory pod cannot be created or used."""


class ChildLostError(NetinitError):
    """A child process timed out (`late`), was killed by `signal`, or exited without an answer (`how`)."""

    def __init__(self, message: str, *, late: bool = False, how: str = "", signal: int = 0) -> None:
        super().__init__(message)
        self.late = late
        self.how = how
        self.signal = signal


class ConfigError(NetinitError):
    """The injector's configuration is invalid; the previous one stays active."""


class ClusterError(NetinitError):
    """The cluster's API is unreachable or refuses; `status` is HTTP's (0: no answer), `reason` Kubernetes'."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class CniError(NetinitError):
    """A container runtime's request failed; `code` is CNI's, or netinit's own from 100 (netinit.node.protocol)."""

    def __init__(self, message: str, code: int = 100) -> None:
        super().__init__(message)
        self.code = code


class InjectionError(NetinitError):
    """A pod cannot be injected: its annotations, its names or the rendered template are invalid.

    `failures`: where templates fail or print no value, if known of all: the template, the position in its text, and whether
    the data's type alone rules it out.
    """

    def __init__(self, message: str, *, failures: tuple[tuple[str, int, bool], ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class TooManyPartsError(NetinitError):
    """The rules divide the traffic into more parts than fit in memory."""
