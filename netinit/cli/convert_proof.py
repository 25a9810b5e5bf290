"""`netinit convert --verify`: packets that a peer's own rules and the converted options treat differently."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netinit.base.errors import NetinitError, OptionError
from netinit.base.sanitize import MAX_LINE_LENGTH, shorten
from netinit.cli.diff import is_listing, on_common_host, read_listings, to_object
from netinit.cli.rule_sources import LIVE, RuleSource, find_planned, find_rule_source, is_file, read_file
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.options.peers.convert import PEERS

if TYPE_CHECKING:
    from netinit.options.peers.convert import CommandLine
    from netinit.options.peers.declare import Conversion

STRICTER = (
    "left out of the comparison is what netinit stops beyond other meshes: TCP on a conntrack entry that another connection left, and"
    " over lo from foreign addresses (--istio-exact leaves it out of the rules, see docs/differences.md)"
)
LABEL = "--verify"
OF_THE_RUN = ("netns", "pid", "dry_run", "cni_mode", "run_validation")  # where and how to run, not what is captured
MAX_SECONDS = 30  # for the peer's program, which may wait for locks or retry


def compare(found: Conversion, line: CommandLine, named: str, files: tuple[str, ...]) -> dict[str, Any]:
    """Compare the rules of `named` (a file, `-` for stdin, or the peer's program) with the converted options.

    Returns a pair of netinit/data/diff.schema.json. Raises OptionError, ParseError, LabError.
    """
    peer = PEERS[found.peer].peer
    fields = [flag.field for flag in Options.flags if flag.field not in OF_THE_RUN]
    of_rules = {field: getattr(found.options, field) for field in fields}
    read = _read_rules(named)
    theirs, addresses = (read, ()) if read else _run_program(found.peer, line, named, files)
    ours = find_planned(Options(**of_rules | {"istio_exact": True}), None, addresses)
    name = f"the rules of {peer} and the converted options"
    return to_object(on_common_host(name, replace(theirs, notes=(STRICTER,)), ours, None if read else theirs))


def _read_rules(named: str) -> RuleSource | None:
    """The rules in a file or on stdin; None for a program."""
    if named != "-" and not is_file(named):
        text = "is not a file: name one of rules as iptables-save prints them, or the peer's program"
        raise OptionError(f"{LABEL}: {quote_value(named)} {text}")
    if named != "-" and os.access(named, os.X_OK):
        return None
    text = read_file(named, LABEL)
    if not is_listing(text):
        raise OptionError(
            f"{LABEL}: {quote_value(named)} holds no rules as iptables-save prints them, and is not an executable program"
        )
    return read_listings(text, named)


def _run_program(peer: str, line: CommandLine, named: str, files: tuple[str, ...]) -> tuple[RuleSource, tuple[str, ...]]:
    """Run the peer's program in a temporary pod; return the rules that it created, and the pod's addresses."""
    from netinit.lab.pod import Pod, find_obstacle

    obstacle = find_obstacle()
    if obstacle:
        raise NetinitError(f"{LABEL}: cannot create a pod to run the program in: {obstacle}; or give a file of its rules")
    path = os.path.abspath(named)  # noqa: PTH100 - a link's name is the program's
    known = {first: rest for first, *rest in (program.split() for program in PEERS[peer].programs)}  # the words before the flags
    words = [path, *known.get(os.path.basename(path), line.program[1:]), *line.words, *files]  # noqa: PTH119
    with Pod() as pod:
        done = pod.run(words, env={"PATH": os.environ.get("PATH", ""), **line.variables}, timeout=MAX_SECONDS)
        if done.returncode:
            output = shorten(done.stderr.strip() or done.stdout.strip() or "no output", MAX_LINE_LENGTH)
            raise NetinitError(f"{LABEL}: {quote_value(named)} ended with {done.returncode}: {output}")
        made = find_rule_source(Options(pid=pod.pid), LIVE)
    if not made.rules.has_rules():
        raise NetinitError(f"{LABEL}: {quote_value(named)} created no rules, with {' '.join(words[1:])}; name the program that does")
    return made, pod.addresses
