"""Check, before `apply` reports success, that the rules are in force and capture what they should.

In most pods netinit.kernel.plain_namespace proves that in 1 ms; otherwise a snapshot is analysed as in `verify`. If the
check fails the rules stay: they capture what they can, and the error keeps the pod from starting.
"""

from __future__ import annotations

from netinit.backends import BACKENDS
from netinit.base.errors import ApplyError, TooManyPartsError
from netinit.options import LEGACY_TABLES
from netinit.rules.model import INACTIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends import Comparison
    from netinit.backends.machine import Machine
    from netinit.rules.model import Difference, Plan
    from netinit.simulate.in_force import Departures

MAX_NAMED = 10  # differences per message
STAY = "the rules are programmed and stay"
NOT_KNOWN = "whether foreign rules take captured traffic away is not known"


class NotInForceError(ApplyError):
    """The rules are in the kernel but not in force."""


def check(
    machine: Machine, plan: Plan, backend: str, comparison: Comparison, shadows: tuple[Difference, ...], *, required: bool
) -> tuple[str, ...]:
    """Return warnings about what diverts captured packets, or may.

    `comparison`: what the rules were computed from. `shadows`: foreign rules before ours in a chain. Raises
    NotInForceError; with `required`, ApplyError if captured packets may bypass the proxy.
    """
    try:
        found = None if _is_plain(machine, plan, backend, comparison, sure=required) else _judge(machine, plan, backend, shadows)
    except (OSError, TooManyPartsError) as error:
        why = f"{NOT_KNOWN}: {(isinstance(error, OSError) and error.strerror) or error}"
        if required:
            raise ApplyError(f"{STAY}, but --require-capture is set, and {why}") from None
        return (*[one.describe() for one in shadows], why)
    idle = [one for one in found.differences if one.kind == INACTIVE] if found else []
    if idle:
        from netinit.pods.refusals import list_differences

        raise NotInForceError(list_differences(f"{STAY}, but are not in force:", tuple(idle), MAX_NAMED))
    escaping = (*shadows, *[one for one in found.differences if one.kind != INACTIVE]) if found else shadows
    if escaping and required:
        from netinit.pods.refusals import list_differences

        what = f"{STAY}, but --require-capture is set, and packets that they should capture may escape:"
        raise ApplyError(list_differences(what, escaping, MAX_NAMED))
    return (*[one.describe() for one in escaping], *(found.warnings if found else ()))


def _is_plain(machine: Machine, plan: Plan, backend: str, comparison: Comparison, *, sure: bool) -> bool:
    known = comparison.known_chains()
    if known is None:
        return False
    tables = tuple([route.table for route in plan.routes])
    own_legacy = BACKENDS[backend].tables == LEGACY_TABLES and comparison.is_whole
    return machine.is_plain(known, tables=tables, excluded=plan.excluded_interfaces(), own_legacy=own_legacy, sure=sure)


def _judge(machine: Machine, plan: Plan, backend: str, shadows: tuple[Difference, ...]) -> Departures | None:
    snapshot = machine.read_snapshot()
    if snapshot is None:
        return None
    from netinit.simulate.in_force import find_departures  # imports the prover: 150 ms

    return find_departures(snapshot, plan, backend, shadows)
