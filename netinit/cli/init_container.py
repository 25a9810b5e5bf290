"""The init container's job, however its command line was read: program the rules, or show what would be programmed."""

from __future__ import annotations

import posix

from netinit.base.logs import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.options import Options

STDERR = 2


def do(options: Options, log: Log | None = None, notices: Sequence[str] = ()) -> int:
    """Does what the options say, after the notices, and returns the exit code; NetinitError where that failed."""
    log = log or choose_log(options)
    for notice in notices:
        log.warn(notice)
    if options.dry_run:
        from netinit.base.output import show_artefact
        from netinit.cli.preview import preview

        show_artefact(preview(options, log))
        return 0
    from netinit.pods.apply import main as apply_main

    return apply_main(options, log)


def choose_log(options: Options) -> Log:
    """Events for machines; on a terminal lines for the person there."""
    if not options.log_as_json and posix.isatty(STDERR):
        try:
            from netinit.cli.console import PersonLog
        except ImportError:  # without click, which people's commands are made of
            pass
        else:
            return PersonLog(options.log_level)
    return Log(options.log_level, as_json=options.log_as_json)
