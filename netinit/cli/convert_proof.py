"""`netinit convert --verify`: packets that a peer's own rules and the converted options treat differently."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from netinit.base.errors import NetinitError, OptionError, ParseError
from netinit.base.sanitize import MAX_LINE_LENGTH, shorten
from netinit.base.system import EMBEDDED
from netinit.library.manifest_files import is_file, read_file
from netinit.library.rule_reading import LIVE, find_rule_source, plan_here
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.options.peers.convert import PEERS
from netinit.questions.comparison import to_object
from netinit.questions.conversion import compare_conversion, take_rule_options
from netinit.questions.pasted_rules import read_rules
from netinit.questions.rule_sources import RuleSource

if TYPE_CHECKING:
    from netinit.options.peers.convert import CommandLine
    from netinit.options.peers.declare import Conversion

LABEL = "--verify"
MAX_SECONDS = 30  # for the peer's program, which may wait for locks or retry


def compare(found: Conversion, line: CommandLine, named: str, files: tuple[str, ...]) -> dict[str, Any]:
    """Compare the rules of `named` (a file, `-` for stdin, or the peer's program) with the converted options.

    Returns a pair of netinit/data/diff.schema.json. Raises OptionError, ParseError, LabError.
    """
    read = _read_rules(named)
    theirs, addresses = (read, ()) if read else _run_program(found.peer, line, named, files)
    ours = plan_here(take_rule_options(found.options), None, addresses)
    return to_object(compare_conversion(found, ours, theirs, is_live=read is None))


def _read_rules(named: str) -> RuleSource | None:
    """The rules in a file or on stdin; None for a program."""
    if named != "-" and not is_file(named):
        text = "is not a file: name one of rules as iptables-save prints them, or the peer's program"
        raise OptionError(f"{LABEL}: {quote_value(named)} {text}")
    if named != "-" and os.access(named, os.X_OK):
        return None
    try:
        return read_rules([(named, read_file(named, LABEL))])
    except ParseError as error:
        raise OptionError(f"{LABEL}: {error}; or name the peer's program, which is executable") from None


def _run_program(peer: str, line: CommandLine, named: str, files: tuple[str, ...]) -> tuple[RuleSource, tuple[str, ...]]:
    """Run the peer's program in a temporary pod; return the rules that it created, and the pod's addresses."""
    if EMBEDDED:  # without a shell, and pods' first process is one
        raise NetinitError(f"{LABEL}: this executable cannot create a pod to run the program in; give a file of its rules")
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
