"""Jobs of the node agent's children: program a pod from outside, remove its rules, or subscribe to its changes.

The namespace is opened once, so the one that was checked is entered. The child enters it itself and forks again only for a
foreign user namespace, which halves the cost of a pod's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netinit import backends
from netinit.base.net import FAMILIES
from netinit.kernel import notifications
from netinit.kernel.pods import OpenPod
from netinit.kernel.run import Signals
from netinit.options import IPTABLES_NFT, ON, Options
from netinit.pods.apply import Outcome, apply, remove
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN


def program_for_good(options: Options) -> Outcome:
    """Program the pod that the options name, or with `cleanup_only` remove our rules; this process stays inside it.

    The outcome has no rules and no plan. Raises the errors of `apply`; NamespaceError for the machine's own namespace and
    this process's, whatever the options say.
    """
    warnings: list[str] = []

    def work(own: Signals) -> Outcome:
        if options.cleanup_only:
            outcome = remove(resolved, locked=True, signals=own)
        else:
            outcome = apply(resolved, final=False, locked=True, signals=own)
        return outcome.replace(rules={}, plan=EMPTY_PLAN, options=None)

    with OpenPod(pid=options.pid, netns=options.netns) as pod:
        pod.refuse_host()
        resolved = options.with_servers(pod.read_name_servers)
        with pod.lock(options.lock_timeout, warnings.append) as held:
            signals = Signals(lasting=True)
            if pod.is_foreign:
                done = pod.modify_inside(work, signals, holding=held.descriptors)
            else:
                done = pod.enter(lambda: work(signals))
    return done.replace(warnings=(*warnings, *done.warnings))


def rehearse() -> None:
    """Plan and write the rules of a usual sidecar, so that a waiting child has loaded what its job needs."""
    options = Options(inbound_ports="*", outbound_cidrs="*", ipv6=ON, backend=IPTABLES_NFT)
    backends.load(IPTABLES_NFT, options, FAMILIES)
    for family in FAMILIES:
        render_restore(write_plan(plan(options), family))


def subscribe_for_good(options: Options, channel: int, groups: Mapping[int, Sequence[int]]) -> None:
    """Send sockets that report changes of the pod through the Unix socket `channel`; this process stays inside the pod.

    `groups`: see netinit.kernel.notifications. Raises NamespaceError, also for the machine's own namespace; OSError.
    """
    with OpenPod(pid=options.pid, netns=options.netns) as pod:
        pod.refuse_host()
        pod.enter(lambda: notifications.send_sockets(channel, notifications.subscribe(groups)))
