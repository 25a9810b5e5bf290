"""Jobs in a pod whose process the node's agent starts for them: program, remove, verify, subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from netinit.backends.machine import Machine
from netinit.backends.named_pod import NamedPod
from netinit.base.errors import NetinitError
from netinit.kernel import capabilities, children, detect, notifications, open_pod, preload
from netinit.kernel.run import Signals
from netinit.kernel.snapshot import bpf
from netinit.options import Options
from netinit.pods import verify as verification
from netinit.pods.apply import Outcome, apply, remove
from netinit.questions.plan_comparison import Judgement, Report
from netinit.rules.model import EMPTY_PLAN

Look = Callable[[int], Report | None]  # of the capabilities that this process may use, as bits


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
    return verification.verify(options, machine, known=known)


def look_again(pods: Iterable[tuple[Options, tuple[str, str], Judgement | None]]) -> list[Report | None]:
    """Return of each pod, given as for `verify_by_cgroup`, the report that it had, or None where this takes a process of its own.

    One process goes from pod to pod: it keeps SYS_ADMIN permitted, but not effective where it reads a pod, and only finds out
    whether anything has changed since the judgement.
    """
    with ExitStack() as opened:
        looks = [_prepare(opened, *pod) for pod in pods]
        preload.load()
        children.limit(open_pod.MEMORY, open_pod.MAX_OUTPUT)
        permitted = capabilities.confine((detect.CAP_SYS_ADMIN,))
        return [look(permitted) if look else None for look in looks]


def _prepare(opened: ExitStack, options: Options, cgroup: tuple[str, str], known: Judgement | None) -> Look | None:
    """Open a pod, and read of it what is read from outside; None if it is in another user namespace, or cannot be opened."""
    try:
        pod = opened.enter_context(NamedPod(options, stays=True))
        if pod.is_foreign or not cgroup[1] or known is None:
            return None
        programs, warning = bpf.of_folder(*cgroup), pod.warn_if_host()
    except (NetinitError, OSError):  # told by the process of its own
        return None

    def look(permitted: int) -> Report | None:
        bpf.remember(programs, afresh=True)
        detect.remember_name_servers(pod.servers)
        try:
            return pod.pass_through(lambda: verification.look_again(pod.options, warning, Machine(), known), permitted)
        except (NetinitError, OSError):
            return None

    return look


def subscribe(options: Options, groups: Mapping[int, Sequence[int]], channel: int) -> None:
    """Send sockets that hear of these changes in the pod through the descriptor `channel`. Raises NamespaceError."""
    with NamedPod(options, refuses=True, reads_servers=False, stays=True) as pod:
        pod.run_inside(lambda: notifications.send_sockets(channel, notifications.subscribe(groups)), holding=(channel,))
