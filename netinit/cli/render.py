"""`netinit render`: what apply would program, as text."""

from __future__ import annotations

import sys

import click

from netinit.cli.flags import FlagCommand
from netinit.cli.preview import FAMILY_CHOICES, FORMATS, preview
from netinit.logs import Log
from netinit.options import Options


@click.command("render", cls=FlagCommand)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="restore", show_default=True, help="In which form."
)
@click.option("--family", type=click.Choice(FAMILY_CHOICES), default="both", show_default=True, help="Of which family.")
def command(options: Options, form: str, family: str) -> int:
    """Print what apply would program; touches nothing and needs no privilege.

    restore is input for iptables-restore --noflush (ip6tables-restore), one family at a time; commands are shell lines;
    json has the purpose and the origin of each rule and a hash that is equal for plans that program the same; nft is
    input for nft -f.
    """
    sys.stdout.write(preview(options, Log(options.log_level, as_json=options.log_as_json), form, family))
    return 0
