"""`netinit.lint`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from netinit.base.errors import OptionError
from netinit.kernel.detect import read_name_servers
from netinit.library.parameters import Files, Pods, choose_pods, list_files
from netinit.library.rule_reading import PodChoice, read_dumps
from netinit.options import Options
from netinit.options.command_line import names_rules
from netinit.questions.finding_codes import read_accepted_codes
from netinit.questions.lint.report import LintReport, examine_files, examine_options, examine_pods, examine_rules
from netinit.questions.rule_sources import RULES


def lint(
    options: Options | None = None, *, pod: Pods = (), select: str = "", assume: str = "", settings: str | os.PathLike[str] = "",
    rules: Files = (), accepted: Mapping[str, str] | None = None,
) -> LintReport:  # fmt: skip
    """Find options that contradict each other, lose traffic or have no effect, and problems of pods in manifests.

    `assume`: injected, cni or none, for pods of which it is not known; `settings`: a repository's file of settings.
    `rules`: files of dumps, of which the options that they show are checked. `accepted`: codes of findings with the reason why
    they are accepted. Raises OptionError, ParseError.
    """
    if options and (options.pid or options.netns):
        raise OptionError("pid, netns: lint ignores them; remove them from the options")
    codes = read_accepted_codes(accepted or {}, "accepted")
    return examine(options or Options(), choose_pods(pod, select, options, assume, settings), codes, list_files(rules))


def examine(options: Options, pods: PodChoice, accepted: Mapping[str, str], rules: Sequence[str] = ()) -> LintReport:
    """Check the options that dumps of rules show, the pods that are meant, or else the options, with this machine's name servers."""
    if rules:
        if pods.names_any or names_rules(options):
            raise OptionError(f"{RULES}: lint checks the options that the rules show; leave out pods and options")
        return examine_rules(read_dumps(rules, options, pods), accepted)
    if pods.names_any:
        return examine_files(pods.survey(), options, accepted) if pods.gate else examine_pods(pods.read(), options, accepted)
    return examine_options(options, accepted, read_name_servers)
