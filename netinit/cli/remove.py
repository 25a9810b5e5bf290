"""`netinit remove`: restores the namespace."""

from __future__ import annotations

import click

from netinit.base.sanitize import MAX_RULE_LENGTH, Lines, lines, shorten
from netinit.cli.console import TerminalLog, answer, color_option, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.init_container import do
from netinit.options import Options
from netinit.pods.planning import Removal, find_removal

SHOWN = (*ANY_NAMESPACE, "host_network", "dry_run", "lock_timeout", "retries", "retry_delay", "log_output_level", "log_as_json")


@click.command("remove", cls=FlagCommand, shows=SHOWN, rules=None)
@color_option
def command(options: Options) -> int:
    """Remove all rules, chains, routes and addresses that netinit or istio-iptables created.

    You need not know their options. Foreign rules stay. --dry-run only lists. Exit codes: 0 done, 1 failed, rolled back.
    """
    if not options.dry_run:
        log = None if options.log_as_json else TerminalLog(options.log_level)
        return do(options.replace(cleanup_only=True), log)
    found = find_removal(options)
    warn(found.warnings)
    answer(render_text(found))
    return 0


def render_text(found: Removal) -> Lines:
    """Format a line per place, one per rule in it, and a summary."""
    printed = []
    for place, rules in found.rules.items():
        printed += [place, *[f"  {shorten(rule, MAX_RULE_LENGTH)}" for rule in rules]]
    printed += list(found.routes)
    count = sum(len(rules) for rules in found.rules.values())
    if not printed:
        return lines(["there are no rules to remove"])
    besides = f" and {len(found.routes)} routes and addresses" if found.routes else ""
    return lines([*printed, f"would be removed: {count} rules in {len(found.rules)} chains or tables{besides}"])
