"""The `netinit` command group, which imports commands on demand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.base.system import EMBEDDED
from netinit.base.version import __version__
from netinit.cli.commands import ALIASES, COMMANDS, SUBCOMMANDS, is_there, render_help
from netinit.cli.examples import format_epilog
from netinit.cli.flags import HELP_NAMES, describe_error
from netinit.options import Options
from netinit.options.declare import extract_flags
from netinit.options.kinds import quote_value, suggest

SERVERS = ("node", "webhook")  # commands with images of their own
APPLIES = ("apply", "istio-iptables")  # the init container's commands


class LazyGroup(click.Group):
    """A group that imports only the command that runs; `commands_there` as in netinit.cli.commands."""

    def __init__(self, *args: Any, commands_there: Mapping[str, tuple[str, str]] = COMMANDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_there = commands_there

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands whose module is installed."""
        return [name for name, (module, _) in self.commands_there.items() if is_there(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command by its name or alias."""
        module, _ = self.commands_there.get(ALIASES.get(cmd_name, cmd_name), ("", ""))
        if not module or not is_there(module):
            return None
        if self.commands_there is COMMANDS and cmd_name in SUBCOMMANDS:
            return make_group(cmd_name)
        found = import_module(f"netinit.{module}")
        command: click.Command = found.make_command(cmd_name) if hasattr(found, "make_command") else found.command
        command.epilog = format_epilog(cmd_name if self.commands_there is COMMANDS else f"{self.name} {cmd_name}")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The named command. Raises OptionError with suggestions if there is none."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            if EMBEDDED and args[0] in self.commands_there:
                name = args[0] if self.commands_there is COMMANDS else f"{self.name} {args[0]}"
                image = name.partition(" ")[0] if name.partition(" ")[0] in SERVERS else ""
                remedy = f"install the package{f', or use the image netinit-{image}' if image else ''}"
                raise OptionError(f"{name} is not in this executable: {remedy}")
            hint = suggest(args[0], known) or f"commands: {', '.join(known)}"
            raise OptionError(f"{quote_value(args[0])} is not a command; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands_there[name][1]) for name in self.list_commands(ctx)])


def make_group(name: str) -> LazyGroup:
    """The group of a command with subcommands."""
    text = import_module(f"netinit.{COMMANDS[name][0].removesuffix('.__init__')}").__doc__
    return LazyGroup(name=name, commands_there=SUBCOMMANDS[name], help=text, epilog=format_epilog(name))


class _Root(LazyGroup):
    """The program itself; its help is the one that start prints without click."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by purpose."""
        formatter.write(render_help(ctx.command_path, formatter.width))


@click.group(cls=_Root, context_settings=HELP_NAMES)
@click.version_option(__version__, prog_name="netinit", message="%(prog)s %(version)s")
def root() -> None:
    """The interception layer of a service mesh pod."""


NAME = "netinit"


def put_command_first(words: tuple[str, ...]) -> tuple[str, ...]:
    """Turn `--netns NAME verify` into `verify --netns NAME`: options may precede the command."""
    rest = extract_flags(words, Options.flags).rest
    named = next((word for word in rest if word in COMMANDS or word in ALIASES), None)
    if named is None:
        return words
    place = len(words) - 1 - words[::-1].index(named)  # the last occurrence: earlier ones may be values
    return (named, *words[:place], *words[place + 1 :])


def run(program: str, words: tuple[str, ...], environ: Any, *, alone: bool) -> int:
    """Run a command line and return its exit code; `alone`: the words are apply's. Raises NetinitError."""
    command: click.Command = root
    if alone and program == NAME:
        words = put_command_first(words)
        alone = not words or words[0] not in (*COMMANDS, *ALIASES, "help")
    if alone:
        from netinit.cli import apply

        command = apply.command
        command.epilog = format_epilog("apply")
    if words[:1] == ("help",) and not alone and words[1:2] and words[1] in (*COMMANDS, *ALIASES):
        words = (*words[1:], "--help")
    try:
        result = command.main(list(words), prog_name=program, standalone_mode=False, obj=environ)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.NoArgsIsHelpError as error:  # group without a command
        show_artefact(f"{error.format_message()}\n")
        return 0
    except click.ClickException as error:
        raise OptionError(*describe_error(error, words)) from None
    return result if isinstance(result, int) else 0
