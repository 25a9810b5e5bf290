"""The exceptions that a run of `apply` may meet, with their exit codes; those of other commands are in `more_errors`.

A message names the option or object, the value as given, what is wrong with it and the remedy. Exit codes are
those of Istio's istio-iptables where it has one: 1 for a failure and 126 for a validation that failed.
"""

from __future__ import annotations

__all__ = [
    "ApplyError",
    "BackendUnavailableError",
    "BusyError",
    "LockedError",
    "NamespaceError",
    "NetinitError",
    "OptionError",
    "ParseError",
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
