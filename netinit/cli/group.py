"""The command `netinit` as click sees it: commands are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.base.version import __version__
from netinit.cli.flags import HELP_NAMES, describe_error
from netinit.options import Options
from netinit.options.argv import take_flags
from netinit.options.kinds import quote_value

COMMANDS = {  # name -> module under netinit.cli (whose `command` is the command), what it does
    "apply": ("apply", "Program the rules into this network namespace, or into another (--pid, --netns)."),
    "remove": ("remove", "Remove all rules; the same as apply --cleanup-only."),
    "verify": ("verify", "Compare a pod's live rules with those that the options ask for."),
    "render": ("render", "Print what apply would program; changes nothing, needs no privilege."),
    "explain": ("explain", "Show what happens to a connection, and which option causes it."),
    "audit": ("audit.command", "Show what of all traffic does not go through the proxy, and what closes it."),
    "diff": ("diff.command", "Show which packets two sets of rules treat differently."),
    "convert": ("convert", "Print our options for another mesh's command line or file."),
    "watch": ("watch", "Show how much traffic is captured, passes by or is dropped, as it happens."),
    "trace": ("trace", "Follow real packets through the rules, and compare with what explain predicts."),
    "lint": ("lint", "Find options that contradict each other or have no effect."),
    "draw": ("draw", "Draw the path of packets through the chains."),
    "doctor": ("doctor", "Find out whether pods will work on this node, and what is missing."),
    "inject": ("inject.command", "Add the init container and the proxy to the pods of manifests."),
    "check-inject": ("inject.check", "Show for each object whether it will be injected, and why."),
    "webhook": ("webhook.command", "Inject pods automatically, as an admission webhook of the cluster."),
    "node": ("node.command", "Program pods from the node, by a CNI plugin."),
    "kubectl": ("kubectl.command", "Ask about pods of a cluster, as `kubectl netinit` does."),
    "demo": ("demo.command", "Make a pod of network namespaces and watch interception work."),
    "completion": ("completion", "Print the script that completes commands and options in a shell."),
    "version": ("version", "Print the version."),
}
APPLIES = ("apply", "istio-iptables")  # the init container's job
ALIASES = {"istio-iptables": "apply", "kube-inject": "inject"}


class LazyGroup(click.Group):
    """Lists the commands that this installation has; imports the one that runs.

    `commands_there`: name -> module under netinit.cli (whose `command` is the command), what it does.
    """

    def __init__(self, *args: Any, commands_there: Mapping[str, tuple[str, str]] = COMMANDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_there = commands_there

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands whose module is there."""
        return [name for name, (module, _) in self.commands_there.items() if _is_there(f"netinit.cli.{module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command by its name or alias, imported now."""
        module, _ = self.commands_there.get(ALIASES.get(cmd_name, cmd_name), ("", ""))
        if not module or not _is_there(f"netinit.cli.{module}"):
            return None
        command: click.Command = import_module(f"netinit.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; OptionError with what may be meant where there is none."""
        if not args[0].startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            known = self.list_commands(ctx)
            close = get_close_matches(args[0], known)
            hint = f"did you mean {' or '.join(close)}?" if close else f"commands: {', '.join(known)}"
            raise OptionError(f"{quote_value(args[0])} is not a command; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands_there[name][1]) for name in self.list_commands(ctx)])


def _is_there(module: str) -> bool:
    """Whether the module can be imported; the packages around it may be missing, too."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@click.group(cls=LazyGroup, context_settings=HELP_NAMES)
@click.version_option(__version__, prog_name="netinit", message="%(prog)s %(version)s")
def root() -> None:
    """The interception layer of a service mesh pod.

    Flags without a command program the rules, as istio-iptables does: `netinit -p 15001 -u 1337 -b '*'` is `netinit
    apply` with these flags. `netinit COMMAND --help` lists a command's options.
    """


NAME = "netinit"


def put_command_first(words: tuple[str, ...]) -> tuple[str, ...]:
    """`--netns NAME verify` as `verify --netns NAME`: options of a command may stand before it."""
    rest = take_flags(words, Options.flags).rest
    named = next((word for word in rest if word in COMMANDS or word in ALIASES), None)
    if named is None:
        return words
    place = len(words) - 1 - words[::-1].index(named)  # the last: before it may stand a value of the same text
    return (named, *words[:place], *words[place + 1 :])


def run(program: str, words: tuple[str, ...], environ: Any, *, alone: bool) -> int:
    """The exit code of a command line; NetinitError for what went wrong.

    `alone`: the words are apply's, which the program's name or the lack of a command implies.
    """
    command: click.Command = root
    if alone and program == NAME:
        words = put_command_first(words)
        alone = not words or words[0] not in (*COMMANDS, *ALIASES, "help")
    if alone:
        from netinit.cli import apply

        command = apply.command
    if words[:1] == ("help",) and not alone:
        words = (*words[1:], "--help")
    try:
        result = command.main(list(words), prog_name=program, standalone_mode=False, obj=environ)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a command
        show_artefact(f"{error.format_message()}\n")
        return 0
    except click.ClickException as error:
        raise OptionError(*describe_error(error, words)) from None
    return result if isinstance(result, int) else 0
