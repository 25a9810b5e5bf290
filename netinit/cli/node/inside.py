"""`netinit node run`: a command about one pod of this node, which `kubectl netinit` runs in the agent's container."""

from __future__ import annotations

import json
from pathlib import Path

import click

from netinit.base.errors import NamespaceError, OptionError
from netinit.base.net import parse_address
from netinit.base.output import show_artefact, to_json
from netinit.base.shown import shorten
from netinit.cli.flags import HELP_NAMES, read_value
from netinit.cli.itself import become_netinit, run_netinit
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.pods.outside import list_addresses

READING = ("explain", "audit", "verify", "draw", "doctor")
FOLLOWING = ("watch", "trace")  # these go on until somebody ends them
CHANGING = "apply"  # of kubectl netinit fix; with --reconcile alone
ENDLESS = "--watch"  # of a reading command: its answer would never come
MOST = 1 << 20


@click.command("run", context_settings=HELP_NAMES)
@click.option("--address", "addresses", multiple=True, required=True, metavar="ADDRESS", help="An address of the pod; repeatable.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the command; repeatable.")
@click.option("--netnsFolder", "folder", default="/run/netns", show_default=True, help="Where the runtime has its namespaces.")
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...")
def command(addresses: tuple[str, ...], variables: tuple[str, ...], folder: str, words: tuple[str, ...]) -> int:
    """Run explain, audit, verify, draw, doctor, watch or trace for the pod of this node with these addresses; or repair it.

    Prints an object with the exit code of the command, its answer and its notes; ends with 0 where there is one. watch and
    trace print their own lines as they come, until the standard input ends. The one command that changes rules is apply
    --reconcile, for `kubectl netinit fix`. `kubectl netinit` runs it in the agent's container.
    """
    known = (*READING, *FOLLOWING, CHANGING)
    if words[0] not in known:
        raise OptionError(f"{quote_value(words[0])} is not run for a pod; commands: {', '.join(known)}")
    if ENDLESS in words:
        raise OptionError(f"{ENDLESS}: goes on until Ctrl-C; run netinit {words[0]} {ENDLESS} on the node itself")
    wanted = {read_value(address, parse_address, "--address") for address in addresses}
    environ = dict(one.split("=", 1) for one in _check(variables))
    if words[0] == CHANGING:
        _check_repair(Options.from_argv(words[1:], environ))
    asked = (*words, "--netns", find_namespace(folder, wanted))
    if words[0] in FOLLOWING:
        show_artefact(json.dumps({"following": words[0]}) + "\n", now=True)
        become_netinit((*asked, "--until-input"), environ=environ)
    done = run_netinit(asked, environ=environ)
    show_artefact(to_json({"code": done.status, "answer": shorten(done.output, MOST), "notes": shorten(done.errors, MOST)}))
    return 0


def _check(variables: tuple[str, ...]) -> tuple[str, ...]:
    known = {name for flag in Options.flags for name in flag.variables}
    for one in variables:
        name, equals, _ = one.partition("=")
        if not equals or name not in known:
            raise OptionError(f"--env: {quote_value(one)} does not set a variable of an option")
    return variables


def _check_repair(options: Options) -> None:
    """OptionError for options that do more than to bring the rules of the pod back."""
    if not options.reconcile:
        raise OptionError("apply: is run for a pod with --reconcile alone")
    for field in ("cleanup_only", "netns", "pid", "host_network", "skip_rule_apply", "run_validation", "config"):
        if getattr(options, field) != Options.flag(field).default:
            raise OptionError(f"{Options.flag(field).label}: is not taken for a pod of the node; leave it out")


def find_namespace(folder: str, wanted: set[str]) -> str:
    """The path of the one namespace that has all of these addresses. NamespaceError."""
    found = []
    for path in sorted(Path(folder).glob("*")):
        try:
            if wanted <= set(list_addresses(Options(netns=str(path)))):
                found.append(str(path))
        except NamespaceError:  # it went meanwhile, or is no namespace
            continue
    if len(found) != 1:
        raise NamespaceError(f"{len(found)} network namespaces in {folder} have the address {' and '.join(sorted(wanted))}")
    return found[0]
