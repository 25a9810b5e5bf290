"""Program what the kernel can keep, where it lacks only what rules beyond Istio's need. Loaded only then.

Every backend is tried with the whole plan first: another one may keep all promises. Only if none works, each that failed for
a feature of the kernel is asked what it lacks, and tried without the promises that need it.
"""

from __future__ import annotations

from netinit.base.errors import ApplyError, BackendUnavailableError, KernelFeatureError, NetinitError
from netinit.options import Options, kinds
from netinit.pods.backend_choice import Observed, Survey
from netinit.pods.transaction import Task
from netinit.rules.promises import NeededError, describe_open, find_broken, leave_out, name_missing, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from netinit.backends import Backend
    from netinit.rules.model import Plan
    from netinit.rules.promises import Left

    Result = TypeVar("Result")

HOW = "apply programs the rest without --require-capture"


def expect_recorded(task: Task, chosen: Observed) -> Task:
    """Return the task with the plan that an earlier run programmed without some promises.

    With --reconcile the kernel is asked again, for it may have got what it lacked. With --require-capture the plan is whole,
    and other rules are an ApplyError.
    """
    left, missing = read_record(chosen.state.list_chains()), ""
    if task.options.require_capture and not task.options.reconcile:
        raise ApplyError(f"--require-capture is set, and the rules here are not whole: {describe_open(left)}")
    if task.options.require_capture:
        return task
    if task.options.reconcile or task.options.force_apply:
        left, missing = find_left(chosen.backend, task.plan)
    return task.replace(plan=leave_out(task.plan, left, missing))


def find_left(backend: Backend, plan: Plan) -> tuple[Left, str]:
    """Return the promises that this kernel cannot keep with a backend, and what it lacks, asked of the kernel.

    Empty if it lacks nothing, does not say, or lacks what Istio's rules need too.
    """
    try:
        unsupported = backend.find_unsupported(plan)
        return find_broken(plan, unsupported), name_missing(unsupported)
    except (OSError, ValueError, NetinitError, NeededError):
        return {}, ""


def _name_switches(backend: Backend, plan: Plan) -> str:
    """Return the end of an error that names the switches whose rules alone need what the kernel lacks; empty if others do, too."""
    try:
        found = {rule.origin for rules in backend.find_unsupported(plan).values() for rule in rules if not rule.promise}
    except (OSError, ValueError, NetinitError):
        return ""
    names = sorted([one.label for one in found if one and one.option and Options.flag(one.option).kind is kinds.SWITCH])
    return f"; only {', '.join(names)} needs it: leave that out to do without" if names and len(names) == len(found) else ""


def apply_without(
    task: Task, survey: Survey, failures: dict[str, BackendUnavailableError],
    act: Callable[[Observed, tuple[Observed, ...], Task], Result],
) -> tuple[Task, Result] | None:
    """Program the first backend's plan that the kernel takes without some promises.

    Return the task and what `act` returns; None if there is none. `failures`: why each backend failed with the whole plan; they
    get the new reasons. With --require-capture nothing is tried, and the reasons say what would be open.
    """
    for chosen in survey.candidates():
        name = chosen.backend.name
        if not isinstance(failures.get(name), KernelFeatureError):
            continue
        own = task.for_backend(name)
        left, missing = find_left(chosen.backend, own.plan)
        if not left or own.options.require_capture:
            more = f"; {HOW}: {describe_open(left, missing)}" if left else _name_switches(chosen.backend, own.plan)
            failures[name] = KernelFeatureError(f"{failures[name]}{more}")
            continue
        own = own.replace(plan=leave_out(own.plan, left, missing))
        try:
            return own, act(chosen.replace(state=chosen.backend.observe()), survey.others(chosen.backend), own)
        except BackendUnavailableError as error:
            failures[name] = error
    return None
