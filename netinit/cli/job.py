"""The init container's job, whoever read its command line: program the rules, or show what would be programmed."""

from __future__ import annotations

from netinit.base.logs import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.options import Options


def do(options: Options) -> int:
    """Does what the options say and returns the exit code; NetinitError where that failed."""
    log = Log(options.log_level, as_json=options.log_as_json)
    if options.dry_run:
        from netinit.base.output import show_artefact
        from netinit.cli.preview import preview

        show_artefact(preview(options, log))
        return 0
    from netinit.pods.apply import main

    return main(options, log)
