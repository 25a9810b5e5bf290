"""`netinit.lint`."""

from __future__ import annotations

from collections.abc import Mapping

from netinit.base.errors import OptionError
from netinit.kernel.detect import read_name_servers
from netinit.library.parameters import Pods, choose_pods
from netinit.library.rule_reading import PodChoice
from netinit.options import Options
from netinit.questions.findings import read_accepted_codes
from netinit.questions.lint.report import LintReport, examine_options, examine_pods


def lint(
    options: Options | None = None, *, pod: Pods = (), select: str = "", accepted: Mapping[str, str] | None = None
) -> LintReport:
    """Find options that contradict each other, lose traffic or have no effect, and problems of pods in manifests.

    `accepted`: codes of findings with the reason why they are accepted. Raises OptionError, ParseError.
    """
    if options and (options.pid or options.netns):
        raise OptionError("pid, netns: lint reads no network namespace; leave it out of the options")
    return examine(options or Options(), choose_pods(pod, select, options), read_accepted_codes(accepted or {}, "accepted"))


def examine(options: Options, pods: PodChoice, accepted: Mapping[str, str]) -> LintReport:
    """Check the pods that are meant, or else the options with the name servers of this machine if they need any."""
    if pods.names_any:
        return examine_pods(pods.read(), options, accepted)
    return examine_options(options, accepted, read_name_servers)
