"""What would be programmed, as text: nothing is touched and no privilege is needed."""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.logs import Log
from netinit.options import NFTABLES, Options
from netinit.pods.planning import settle
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN, Plan
from netinit.rules.render import render

FAMILY_CHOICES = ("both", "ipv4", "ipv6")


def preview(options: Options, log: Log, form: str = "restore", family: str = "both") -> str:
    """The plan of the options in one of FORMATS; what the user should know goes to the log.

    IPv6 and the name servers are decided as apply decides them, by the addresses and /etc/resolv.conf found here. With
    --cleanup-only or --skip-rule-apply nothing would be programmed: the plan is empty. Without a family the restore form
    holds the first one alone, so that it can be loaded as it is.
    """
    wanted = decide(options, log, backend=NFTABLES if form == "nft" else "")
    if options.cleanup_only or options.skip_rule_apply:
        wanted = EMPTY_PLAN
        log.info(f"{'--cleanup-only' if options.cleanup_only else '--skip-rule-apply'}: no rules would be programmed")
    families = tuple(one for one in wanted.families if family in ("", "both", one.name.lower()))
    if not families and wanted.families:
        log.warn(f"--family: nothing is programmed for {family}, which is off; see --ipv6")
    if not family and form == "restore" and len(families) > 1:  # one program cannot load the other's part
        families = families[:1]
        log.warn(f"{wanted.families[1].name} has rules too: --family {wanted.families[1].name.lower()} prints them")
    if form == "nft" and family not in ("", "both"):
        raise OptionError(f"--family: '{family}' does not go with --format nft, whose tables hold both; leave it out")
    return render(wanted, form, families, comments=options.rule_comments)


def decide(options: Options, log: Log, backend: str = "") -> Plan:
    """The plan of the options in the namespace that they name, by a backend; NamespaceError when that cannot be looked into."""
    settled = settle(options)
    if backend:
        settled = settled.on(backend)
    made = plan(settled.options)
    for warning in settled.warnings + made.warnings:
        log.warn(warning)
    return made
