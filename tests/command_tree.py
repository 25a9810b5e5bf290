"""Every command of netinit that does something, taken from click's tree, so that no test lists commands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from netinit.cli.group import root


def find_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands below a group, with the words that name each."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from find_commands(found, (*path, name))


COMMANDS = dict(find_commands(root))
