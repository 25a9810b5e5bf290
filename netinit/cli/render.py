"""`netinit render`: prints what apply would program."""

from __future__ import annotations

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.cli.console import TerminalLog
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.values import OneOf
from netinit.options import Options
from netinit.pods.planning import FAMILY_CHOICES, preview
from netinit.rules.render import FORMATS

CONFIG = "config"


@click.command("render", cls=FlagCommand, shows=(*ANY_NAMESPACE, "config", "rule_comments", "log_output_level"))
@click.option(
    "--format", "form", type=OneOf((*FORMATS, CONFIG)), default="restore", show_default=True, help="The format."
)
@click.option(
    "--family", type=OneOf(FAMILY_CHOICES), help="The address family (default: both; for restore only IPv4, to be loaded)."
)
@click.option("--check", is_flag=True, help="With --format nft: the kernel checks the rules first (NET_ADMIN).")
def command(options: Options, form: str, family: str | None, check: bool) -> int:
    """Print what apply would program; changes nothing and, without --check, needs no privilege.

    The formats: restore is input for iptables-restore --noflush or ip6tables-restore, one family at a time; commands are
    shell lines; json has each rule's purpose and option, and a hash that is equal for equal rules; nft is input for nft -f;
    config is a file for --config. Exit codes: 0 printed, 1 the kernel refuses the rules (--check), 2 wrong options.
    """
    if check and form != "nft":
        raise OptionError(f"--check: needs --format nft, not {form}, whose check would leave tables behind")
    if form == CONFIG:
        from netinit.options.file import render_file

        show_artefact(render_file(options))
        return 0
    show_artefact(preview(options, TerminalLog(options.log_level), form, family or "", check=check))
    return 0
