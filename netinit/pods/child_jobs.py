"""Jobs of the node agent's children: program a pod from outside, remove its rules, verify them, or subscribe to changes.

The namespace is opened once, so the one that was checked is entered. The child enters it itself and forks again only for a
foreign user namespace, which halves the cost of a pod's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netinit.backends.machine import Machine
from netinit.backends.named_pod import NamedPod
from netinit.kernel import notifications
from netinit.kernel.run import Signals
from netinit.kernel.snapshot import cgroups
from netinit.options import Options
from netinit.pods.apply import Outcome, apply, remove
from netinit.pods.judgement import Judgement
from netinit.pods.verify import Report, verify
from netinit.rules.model import EMPTY_PLAN


def program_for_good(options: Options) -> Outcome:
    """Program the pod that the options name, or with `cleanup_only` remove our rules; this process stays inside it.

    The outcome has no rules and no plan. Raises the errors of `apply`; NamespaceError for the machine's own namespace and
    this process's, whatever the options say.
    """
    warnings: list[str] = []

    def work(own: Signals) -> Outcome:
        if options.cleanup_only:
            outcome = remove(pod.options, locked=True, signals=own)
        else:
            outcome = apply(pod.options, final=False, locked=True, signals=own)
        return outcome.replace(rules={}, plan=EMPTY_PLAN, options=None)

    with NamedPod(options, refuses=True, stays=True) as pod, pod.lock(options.lock_timeout, warnings.append):
        done = pod.modify_inside(work, Signals(lasting=True))
    return done.replace(warnings=(*warnings, *done.warnings))


def verify_for_good(options: Options, cgroup_folder: str, cgroup: str, known: Judgement | None) -> Report:
    """Verify the pod that the options name; this process stays inside afterwards. Raises the errors of `verify`.

    `cgroup`: the pod's cgroup below the folder where the node's cgroups are mounted, because its processes are not visible
    in the agent's container; empty if it is not known.
    """
    return verify(options, _EnteredMachine(cgroup_folder, cgroup), known=known)


class _EnteredMachine(Machine):
    """A machine whose process stays in the pod that it has entered."""

    stays = True

    def __init__(self, cgroup_folder: str, cgroup: str) -> None:
        self._cgroup = cgroup_folder, cgroup

    def find_cgroup_programs(self, namespace: tuple[int, int]) -> cgroups.CgroupPrograms:
        return cgroups.of_folder(*self._cgroup) if self._cgroup[1] else super().find_cgroup_programs(namespace)


def subscribe_for_good(options: Options, channel: int, groups: Mapping[int, Sequence[int]]) -> None:
    """Send sockets that report changes of the pod through the Unix socket `channel`; this process stays inside the pod.

    `groups`: see netinit.kernel.notifications. Raises NamespaceError, also for the machine's own namespace; OSError.
    """
    with NamedPod(options, refuses=True, reads_servers=False, stays=True) as pod:
        pod.run_inside(lambda: notifications.send_sockets(channel, notifications.subscribe(groups)), holding=(channel,))
