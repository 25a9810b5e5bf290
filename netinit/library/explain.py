"""`netinit.explain`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from netinit.base.errors import OptionError
from netinit.library.parameters import Files, Pods, choose_pods, list_files, name_place, write
from netinit.library.rule_reading import RuleChoice, find_rule_sources
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.questions.answers import ExplainReport, explain_connection
from netinit.questions.connections import DIRECTIONS, MAX_MARK, Question


def explain(
    options: Options | None = None, *, to: str = "", source: str = "", to_port: int | str | None = None,
    direction: str | None = None, udp: bool = False, uid: int | str | None = None, gid: int | str | None = None,
    interface: str = "", mark: int = 0, pod: Pods = (), select: str = "", pod_ip: Sequence[str] = (), pid: int | None = None,
    netns: str | None = None, live: bool = False, rules: Files = (), everything: bool = False,
    assume: str = "", settings: str | os.PathLike[str] = "",
) -> ExplainReport:  # fmt: skip
    """Say what happens to a connection, why, and which options would change it; nothing is sent.

    The rules are those of the options or of the pods of manifests; with `pid`, `netns` or (`live`) of this process's network
    namespace the live ones; with `rules` those of dumps in files. The connection goes `to` an
    address and port, from `source`; it comes in if only `source` says who
    connects, or `direction` is "inbound". `everything`: also show rules that do not match. `assume`: injected, cni
    or none, for pods of which it is not known; `settings`: a repository's file of settings. Raises OptionError, ParseError,
    NamespaceError, BackendUnavailableError.
    """
    if direction is not None and direction not in DIRECTIONS:
        raise OptionError(f"direction: {quote_value(str(direction))} is not one of {', '.join(DIRECTIONS)}")
    if not 0 <= mark <= MAX_MARK:
        raise OptionError(f"mark: {mark} is not a number from 0 to {MAX_MARK}")
    question = Question(
        direction, to, source, write(to_port), udp=udp, uid=write(uid), gid=write(gid), interface=interface, mark=mark
    )
    choice = RuleChoice(choose_pods(pod, select, options, assume, settings), tuple(pod_ip), live, list_files(rules))
    return explain_connection(find_rule_sources(name_place(options, pid, netns), choice), question, everything=everything)
