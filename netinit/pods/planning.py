"""Plan a run, or a removal, for commands that only show it."""

from __future__ import annotations

from netinit.backends.machine import HERE, Machine
from netinit.backends.named_pod import NamedPod
from netinit.base.errors import NamespaceError
from netinit.base.records import Record
from netinit.options import AUTO, NFTABLES, Options, Settled


def settle(options: Options) -> Settled:
    """Return the options as `apply` settles them in their namespace, which is entered if its addresses matter.

    Raises NamespaceError if it cannot be read.
    """
    if not (options.pid or options.netns):
        return HERE.settle(options)
    if options.ipv6 != AUTO:
        if not options.pid or not options.wants_servers:
            return HERE.settle(options)
        with NamedPod(options) as pod:
            return HERE.settle(pod.options)
    try:
        return HERE.inside(options, lambda meant, _: HERE.settle(meant))
    except NamespaceError as error:
        raise NamespaceError(f"{error}; with --ipv6 on, off or reject it need not be looked into") from None


def check_tables(options: Options) -> None:
    """Let the kernel validate the options' native tables without creating them. Raises the backend's errors."""
    from netinit.backends.nftables import NftablesBackend
    from netinit.rules.layouts import plan

    if not (options.cleanup_only or options.skip_rule_apply):
        NftablesBackend(comments=options.rule_comments).check(plan(settle(options).on(NFTABLES).options))


class Removal(Record):
    """What a removal deletes: rules by place, routes and addresses as arguments of ip(8)."""

    rules: dict[str, tuple[str, ...]]
    routes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_removal(options: Options, machine: Machine = HERE) -> Removal:
    """Return what `remove` would delete in the namespace that the options name. Raises its errors."""
    from netinit.pods.apply import find_ours  # not where rules are rendered

    def find(resolved: Options, warning: str) -> Removal:
        plan, holders, steps = find_ours(resolved, machine)
        rules = {
            f"{held.backend.name} {place}": texts
            for held in holders
            for place, texts in held.state.compare(plan).ours().items()
        }
        return Removal(rules=rules, routes=tuple([step.describe() for step in steps]), warnings=(warning,) if warning else ())

    return machine.inside(options, find)
