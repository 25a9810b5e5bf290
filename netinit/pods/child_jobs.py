"""A pod programmed, or its rules removed, from outside by a child that a server has made for that: what came of it, and no log.

`apply.main` does the same for a command line. The namespace is opened once; the very one that was looked at, and is not
this process's or the machine's, is the one that is entered. That the child enters itself, and makes none of its own for it
but for another user namespace, is half of what a pod's start costs.
"""

from __future__ import annotations

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
    """The pod that the options name has their rules, or with `cleanup_only` none of ours. Errors as of `apply`.

    This process is inside of the pod afterwards. NamespaceError for the machine's own namespace and for that of this
    process, whatever the options say. The outcome is without rules and plan.
    """
    warnings: list[str] = []

    def work(own: Signals) -> Outcome:
        if options.cleanup_only:
            outcome = remove(meant, locked=True, signals=own)
        else:
            outcome = apply(meant, final=False, locked=True, signals=own)
        return outcome.replace(rules={}, plan=EMPTY_PLAN, options=None)

    with OpenPod(pid=options.pid, netns=options.netns) as pod:
        pod.refuse_host()
        meant = options.with_servers(pod.read_name_servers)
        with pod.lock(options.lock_timeout, warnings.append) as held:
            signals = Signals(lasting=True)
            if pod.is_foreign:
                done = pod.modify_inside(work, signals, holding=held.descriptors)
            else:
                done = pod.enter(lambda: work(signals))
    return done.replace(warnings=(*warnings, *done.warnings))


def rehearse() -> None:
    """Plan and write the rules of a usual sidecar: a child that waits then has in its own memory what its job needs."""
    options = Options(inbound_ports="*", outbound_cidrs="*", ipv6=ON, backend=IPTABLES_NFT)
    backends.load(IPTABLES_NFT, options, FAMILIES)
    for family in FAMILIES:
        render_restore(write_plan(plan(options), family))


def subscribe_for_good(options: Options, channel: int) -> None:
    """Opens sockets that become readable when something changes in the pod, and sends them through this Unix socket.

    This process is inside of the pod afterwards. NamespaceError, also for the machine's own namespace; OSError.
    """
    with OpenPod(pid=options.pid, netns=options.netns) as pod:
        pod.refuse_host()
        pod.enter(lambda: notifications.send_sockets(channel, notifications.subscribe()))
