"""Plan a run, or a removal, for commands that only show it."""

from __future__ import annotations

from netinit.backends.machine import HERE, Machine
from netinit.backends.named_pod import NamedPod
from netinit.base.errors import NamespaceError, OptionError
from netinit.base.logs import Log
from netinit.base.records import Record
from netinit.options import AUTO, NFTABLES, Options, SettledOptions
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN
from netinit.rules.render import render

FAMILY_CHOICES = ("both", "ipv4", "ipv6")


def settle(options: Options) -> SettledOptions:
    """Return the options as `apply` settles them in their namespace, which is entered if its addresses matter.

    Raises NamespaceError if it cannot be read.
    """
    if not (options.pid or options.netns):
        return HERE.settle(options)
    if options.ipv6 != AUTO:
        if not options.pid or not options.wants_servers:
            return HERE.settle(options)
        with NamedPod(options) as pod:
            return HERE.settle(options, pod.servers)
    try:
        return HERE.inside(options, lambda inner, _: HERE.settle(inner))
    except NamespaceError as error:
        raise NamespaceError(f"{error}; with --ipv6 on, off or reject it need not be read") from None


def preview(options: Options, log: Log, form: str = "restore", family: str = "both", *, check: bool = False) -> str:
    """Render the plan of the options in one of FORMATS; notices go to the log.

    IPv6 and name servers are found as in apply. The plan is empty with --cleanup-only and --skip-rule-apply. Without `family`
    the restore form has the first one alone, so that it can be loaded. `check`: the kernel validates nft's tables without
    creating them. Raises the backend's errors.
    """
    settled = settle(options)
    if form == "nft":
        settled = settled.for_backend(NFTABLES)
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
        raise OptionError(f"--family: '{family}' contradicts --format nft, whose tables hold both; remove it")
    if check and wanted is not EMPTY_PLAN:
        from netinit.backends.nftables import NftablesBackend

        NftablesBackend(comments=options.rule_comments).check(wanted)
    return render(wanted, form, families, comments=options.rule_comments)


class Removal(Record):
    """What a removal deletes: rules by place, routes and addresses as arguments of ip(8)."""

    rules: dict[str, tuple[str, ...]]
    routes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_removal(options: Options, machine: Machine = HERE) -> Removal:
    """Return what `remove` would delete in the namespace that the options name. Raises its errors."""
    from netinit.pods.apply import find_owned_state  # not where rules are rendered

    def find(resolved: Options, warning: str) -> Removal:
        planned, holders, steps = find_owned_state(resolved, machine)
        rules = {
            f"{one.backend.name} {place}": texts
            for one in holders
            for place, texts in one.state.removed(planned).items()
        }
        return Removal(rules=rules, routes=tuple([step.describe() for step in steps]), warnings=(warning,) if warning else ())

    return machine.inside(options, find)
