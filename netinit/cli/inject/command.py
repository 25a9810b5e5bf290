"""`netinit inject`, also `netinit kube-inject`, for click; plain command lines bypass this module."""

from __future__ import annotations

import click

from netinit.cli.console import color_option
from netinit.cli.flags import FlagCommand
from netinit.cli.inject import injection
from netinit.cli.inject.flags import InjectFlags


@click.command("inject", cls=FlagCommand, settings=InjectFlags, hides=("labels",))
@color_option
def command(options: InjectFlags) -> int:
    """Add the init container and the proxy to the workloads of manifests.

    Everything else is copied unchanged, comments included. If one object fails, nothing is written. With --explain nothing is
    written: it shows what would be done, and why.

    Exit codes: 0 done, 1 an object is refused or cannot be read, 2 wrong options; with --explain also 3, one is left out.
    """
    return injection.run(options)
