"""`netinit convert`: translates another mesh's command line or file into netinit's options."""

from __future__ import annotations

import click

from netinit.base.errors import DriftError
from netinit.base.output import show_artefact, show_lines, show_object
from netinit.cli.config import load_file
from netinit.cli.console import color_option, note, warn
from netinit.cli.values import OneOf, takes
from netinit.options import Options
from netinit.options.command_line import write_command
from netinit.options.file import WITHOUT, make_tree, render_file
from netinit.options.peers.convert import PEERS, convert, part
from netinit.options.peers.declare import Conversion

EQUAL = "equal"  # result of a comparison
COMMAND, CONFIG, JSON = "command", "config", "json"
SPELLED_OUT = ("outbound_port", "inbound_port", "proxy_uids")  # printed in every command, even at their defaults


@click.command("convert", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--from", "peer", type=OneOf(tuple(PEERS)), required=True, help="Whose command line or file it is.")
@click.option(
    "--file", "files", multiple=True, **takes("FILE|-"),
    help="Its file: Kuma's configuration, Linkerd's CNI configuration, Consul's JSON.",
)  # fmt: skip
@click.option(
    "--format", "form", type=OneOf((COMMAND, CONFIG, JSON)), default=COMMAND, show_default=True,
    help="A command line, a file for --config, or an object; netinit/data/convert.schema.json describes it.",
)  # fmt: skip
@click.option(
    "--verify", "rules", default="", **takes("RULES|PROGRAM|-", is_file=True),
    help="Also prove which packets the peer's own rules treat differently: a file of them, or its program, which is run (as root) in a"
    " network namespace of its own.",
)  # fmt: skip
@color_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
def command(peer: str, files: tuple[str, ...], form: str, rules: str, words: tuple[str, ...]) -> int:
    """Print netinit's options for another mesh's command line or file; changes nothing.

    ARGS, after --, are the flags of proxy-init (Linkerd), kumactl install transparent-proxy, consul connect redirect-traffic or
    istio-iptables. The program's name may precede them, and variables before that (NAME=value). Flags without a full
    equivalent, and differences in behaviour, are listed.

    Exit codes: 0 every flag has an equivalent; 2 some flags are wrong; 3 some have no full equivalent, or packets are treated
    differently.
    """
    line = part(peer, words)
    trees = [(path, load_file(path, "--file")) for path in files] + [(path, load_file(path, "--config")) for path in line.files]
    found = convert(peer, line, trees)
    proof = None
    if rules:
        from netinit.cli.convert_proof import compare

        proof = compare(found, line, rules, tuple([word for file in files for word in ("--config", file)]))
    if form == JSON:
        show_object(_to_object(found) | ({"proof": proof} if proof else {}))
    else:
        note([*map(str, found.needless), *found.differing])
        warn([f"no equivalent: {remark}" for remark in found.lacking] + (_left_out(found.options) if form == CONFIG else []))
        show_artefact(render_file(found.options) if form == CONFIG else f"{write_command(found.options, SPELLED_OUT)}\n")
        if proof:  # on stderr: the options may be redirected into a file
            from netinit.questions.comparison import render_text

            note(proof["notes"])
            warn(proof["warnings"])
            show_lines(render_text([proof], full=True).splitlines())
    return DriftError.exit_code if found.lacking or (proof and proof["result"] != EQUAL) else 0


def _left_out(options: Options) -> list[str]:
    """A warning for each option that a file cannot hold."""
    given = [flag for flag in Options.flags if flag.field in WITHOUT and getattr(options, flag.field) != flag.default]
    formatted = [f"{flag.label} {flag.kind.write(getattr(options, flag.field))}" for flag in given]
    return [f"{one} belongs to the command line, and not to the file" for one in formatted]


def _to_object(found: Conversion) -> dict[str, object]:
    return {
        "from": found.peer,
        "command": ["netinit", "apply", *found.options.to_argv(SPELLED_OUT)],
        "variables": found.options.to_environ(),
        "options": make_tree(found.options),
        **{
            name: [{"flag": one.flag, "value": one.value, "because": one.text} for one in remarks]
            for name, remarks in (("lacking", found.lacking), ("needless", found.needless))
        },
        "differing": list(found.differing),
    }
