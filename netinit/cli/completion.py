"""`netinit completion`: prints the script that enables completion in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from netinit.base.output import show_artefact
from netinit.cli import group
from netinit.cli.start import COMPLETION_VARIABLES, NAME
from netinit.cli.values import OneOf

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=OneOf(list(SHELLS)))
def command(shell: str) -> None:
    """Print the script that completes netinit's commands and options in a shell.

    Put the first example into ~/.bashrc, or into ~/.zshrc after compinit, with zsh instead of bash. Run the second one once. The
    script runs netinit for each completion.
    """
    show_artefact(SHELLS[shell](group.root, {}, NAME, COMPLETION_VARIABLES[0]).source())
