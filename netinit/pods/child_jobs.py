"""Jobs in a pod whose process the node's agent starts for them: program, remove, verify, subscribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netinit.backends.machine import Machine
from netinit.backends.named_pod import NamedPod
from netinit.kernel import notifications
from netinit.kernel.run import Signals
from netinit.options import Options
from netinit.pods.apply import Outcome, apply, remove
from netinit.pods.verify import verify
from netinit.questions.plan_comparison import Judgement, Report
from netinit.rules.model import EMPTY_PLAN


def program(options: Options) -> Outcome:
    """Program the pod that the options name, or with `cleanup_only` remove our rules; never in the machine's own namespace.

    The outcome has no rules, plan or options. Raises the errors of `apply` and `remove`.
    """
    warnings: list[str] = []

    def work(own: Signals) -> Outcome:
        if options.cleanup_only:
            outcome = remove(pod.options, locked=True, signals=own)
        else:
            outcome = apply(pod.options, final=False, locked=True, signals=own, awaits_devices=True)
        return outcome.replace(rules={}, plan=EMPTY_PLAN, options=None)

    with NamedPod(options, refuses=True, stays=True) as pod, pod.lock(options.lock_timeout, warnings.append):
        done = pod.modify_inside(work, Signals(lasting=True))
    return done.replace(warnings=(*warnings, *done.warnings))


def verify_by_cgroup(options: Options, cgroup: tuple[str, str], known: Judgement | None) -> Report:
    """As `verify`; the pod's cgroup is given by its folder and path, since the agent sees none of the pod's processes."""
    machine = Machine()
    machine.stays, machine.cgroup = True, cgroup
    return verify(options, machine, known=known)


def subscribe(options: Options, groups: Mapping[int, Sequence[int]], channel: int) -> None:
    """Send sockets that hear of these changes in the pod through the descriptor `channel`. Raises NamespaceError."""
    with NamedPod(options, refuses=True, reads_servers=False, stays=True) as pod:
        pod.run_inside(lambda: notifications.send_sockets(channel, notifications.subscribe(groups)), holding=(channel,))
