"""`netinit.audit`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from netinit.library.assertion_files import read_assertions
from netinit.library.parameters import Files, Pods, choose_pods, list_files, name_place
from netinit.library.rule_reading import RuleChoice, find_rule_sources
from netinit.options import Options
from netinit.questions.audit.report import AuditReport, examine_all


def audit(
    options: Options | None = None, *, pod: Pods = (), select: str = "", pod_ip: Sequence[str] = (), pid: int | None = None,
    netns: str | None = None, live: bool = False, rules: Files = (), assertions: Sequence[str] = (), full: bool = False,
    assume: str = "", settings: str | os.PathLike[str] = "",
) -> AuditReport:  # fmt: skip
    """Say which traffic bypasses the proxy, why, and how to close it; all packets are covered, not a sample.

    The rules are those of the options or of the pods of manifests; with `pid`, `netns` or (`live`) of this process's network
    namespace the live ones; with `rules` those of dumps in files, which options stand beside if no rule is of a mesh.
    `assertions`: sentences or files of them, which are proved or refuted. `full`: also show what goes
    through the proxy. `assume`: injected, cni or none, for pods of which it is not known; `settings`: a repository's file of
    settings. Raises OptionError, ParseError, NamespaceError, BackendUnavailableError, TooManyPartsError.
    """
    asked = read_assertions(assertions)
    choice = RuleChoice(choose_pods(pod, select, options, assume, settings), tuple(pod_ip), live, list_files(rules))
    return examine_all(find_rule_sources(name_place(options, pid, netns), choice), asked, full=full)
