"""Runs the init container's job: program the rules, or show what would be programmed."""

from __future__ import annotations

from netinit.base.logs import Log
from netinit.base.system import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.options import Options

STDERR = 2


def do(options: Options, log: Log | None = None, notices: Sequence[str] = ()) -> int:
    """Carry out the options after logging the notices; return the exit code. Raises NetinitError on failure."""
    log = log or choose_log(options)
    for notice in notices:
        log.warn(notice)
    if options.dry_run:
        from netinit.base.output import show_artefact
        from netinit.pods.planning import preview

        show_artefact(preview(options, log))
        return 0
    from netinit.pods.init_run import main as apply_main

    return apply_main(options, log)


def choose_log(options: Options) -> Log:
    """JSON events, or plain lines on a terminal."""
    if not options.log_as_json and posix.isatty(STDERR):
        try:
            from netinit.cli.console import TerminalLog
        except ImportError:  # click is not installed, which commands for people require
            pass
        else:
            return TerminalLog(options.log_level)
    return Log(options.log_level, as_json=options.log_as_json)
