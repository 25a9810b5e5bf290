"""Renders what would be programmed, without privileges or side effects."""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.logs import Log
from netinit.options import NFTABLES, Options
from netinit.pods.planning import settle
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN
from netinit.rules.render import render

FAMILY_CHOICES = ("both", "ipv4", "ipv6")


def preview(options: Options, log: Log, form: str = "restore", family: str = "both") -> str:
    """Render the plan of the options in one of FORMATS; notices go to the log.

    IPv6 and name servers are found as in apply. The plan is empty with --cleanup-only and --skip-rule-apply. Without `family`
    the restore form has the first one alone, so that it can be loaded.
    """
    settled = settle(options)
    if form == "nft":
        settled = settled.on(NFTABLES)
    wanted = plan(settled)
    for warning in settled.warnings + wanted.warnings:
        log.warn(warning)
    if options.cleanup_only or options.skip_rule_apply:
        wanted = EMPTY_PLAN
        log.info(f"{'--cleanup-only' if options.cleanup_only else '--skip-rule-apply'}: no rules would be programmed")
    families = tuple(one for one in wanted.families if family in ("", "both", one.name.lower()))
    if not families and wanted.families:
        log.warn(f"--family: nothing is programmed for {family}, which is off; see --ipv6")
    if not family and form == "restore" and len(families) > 1:  # each family needs its own restore program
        families = families[:1]
        log.warn(f"{wanted.families[1].name} has rules too: --family {wanted.families[1].name.lower()} prints them")
    if form == "nft" and family not in ("", "both"):
        raise OptionError(f"--family: '{family}' does not go with --format nft, whose tables hold both; leave it out")
    return render(wanted, form, families, comments=options.rule_comments)
