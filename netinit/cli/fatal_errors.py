"""Reports a fatal error: as an event or as text, with the doctor's diagnosis if it helps."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping, Sequence

from netinit.base.errors import BackendUnavailableError, NetinitError
from netinit.base.logs import TERMINATION_LOG, Log
from netinit.base.output import show_lines, shows_on_a_terminal
from netinit.base.sanitize import escape, split_message
from netinit.base.system import posix
from netinit.options import FLAGS
from netinit.options.declare import extract_flags
from netinit.options.kinds import TRUE_WORDS

NAME = "netinit"  # prefix of errors, whatever the program's name
TERMINATION_BYTES = 4096  # the kubelet keeps the last 4096 bytes of the file: a longer message would lose its beginning


def report(words: Sequence[str], environ: Mapping[str, str], message: str, *, as_event: bool) -> None:
    """Print the current error as text, or as an event, also for the termination log."""
    texts = extract_flags(words, FLAGS).texts
    as_json = (texts["log_as_json"][0] if "log_as_json" in texts else environ.get("LOG_AS_JSON", "")) in TRUE_WORDS
    if as_event:
        write_termination_log(message)
    if as_event and (as_json or not shows_on_a_terminal()):
        Log(as_json=as_json).error(message)
    else:
        _show(split_message(message))
    if (texts["debug"][0] if "debug" in texts else environ.get("NETINIT_DEBUG", "")) in TRUE_WORDS:
        show_lines([f"    {line}" for line in split_message(traceback.format_exc())])


def _show(texts: Sequence[str]) -> None:
    if shows_on_a_terminal():
        with contextlib.suppress(ImportError):  # click is not installed, which commands for people require
            from netinit.cli.console import note

            note(texts, NAME)
            return
    show_lines([f"{NAME}: {text}" for text in texts])


def names_a_command(words: Sequence[str]) -> bool:
    """Whether options precede a command, as in `--netns NAME verify`."""
    try:
        from netinit.cli.group import APPLIES, put_command_first
    except ImportError:  # without click these commands do not exist
        return False
    first = put_command_first(tuple(words))[:1]
    return first != tuple(words[:1]) and first[0] not in APPLIES


def diagnose(error: NetinitError) -> str:
    """The doctor's explanation to append to the error; empty if it has none."""
    if not isinstance(error, BackendUnavailableError):
        return ""
    try:
        from netinit.pods.doctor import summarise

        message = summarise(error)
    except Exception:  # noqa: BLE001 - a failing doctor must not hide the error itself
        return ""
    return f"\n{message}" if message else ""


def write_termination_log(message: str, path: str = TERMINATION_LOG) -> bool:
    """Write the message that `kubectl describe pod` shows; False if the file is missing, a symbolic link or not writable.

    Never raises, because the process is about to end with another error.
    """
    lines = "\n".join([escape(line) for line in split_message(message)])
    data = lines.encode()[:TERMINATION_BYTES].decode("utf-8", "ignore").encode()
    try:
        descriptor = posix.open(path, posix.O_WRONLY | posix.O_TRUNC | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOFOLLOW)
    except OSError:
        return False
    try:
        posix.write(descriptor, data)
    except OSError:
        return False
    finally:
        posix.close(descriptor)
    return True
