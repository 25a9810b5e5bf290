"""`netinit apply`, also `netinit istio-iptables`, for click: help, completion, --format, and command lines with errors.

All others are run by `netinit.cli.start` without click.
"""

from __future__ import annotations

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.cli.flags import EVERY_FIELD, FlagCommand
from netinit.cli.init_container import choose_log, do
from netinit.cli.values import OneOf
from netinit.options import Options
from netinit.pods.planning import FAMILY_CHOICES, preview
from netinit.rules.render import FORMATS


@click.command("apply", cls=FlagCommand, shows=EVERY_FIELD, rules=True)
@click.option("--format", "form", type=OneOf(FORMATS), help="With --dry-run: the format (default: restore).")
@click.option("--family", type=OneOf(FAMILY_CHOICES), help="With --dry-run: the address family (default: both).")
def command(options: Options, form: str | None, family: str | None) -> int:
    """Program the rules into this network namespace, or into another one (--pid, --netns).

    Rules that are as planned are left alone. Other rules of Istio or netinit are an error, and are replaced with --reconcile.
    A run that fails is rolled back.

    Exit codes: 0 done, 1 failed, 2 wrong options (1 under the name istio-iptables), 126 the validation failed.
    """
    if (form or family) and not options.dry_run:
        raise OptionError(f"{'--format' if form else '--family'}: needs --dry-run")
    if not options.dry_run:
        return do(options)
    log = choose_log(options)
    show_artefact(preview(options, log, form or FORMATS[0], family or "both"))
    return 0
