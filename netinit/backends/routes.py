"""Policy rules, routes and the loopback address that TPROXY and IPv6 need in addition to rules.

Ours have a protocol number of our own (as routing daemons have, /etc/iproute2/rt_protos). Istio's have protocol `boot` and
are recognised by their values.
"""

from __future__ import annotations

from netinit.base.errors import ApplyError, BackendUnavailableError, BusyError
from netinit.base.net import FULL_MASK, IPV4, IPV6, Family
from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel import netlink
from netinit.kernel.netlink import LocalRoute, PolicyRule
from netinit.options import LAYOUTS, Interception
from netinit.rules.model import IPV6_ADDRESS, IpRule, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    RouteObject = PolicyRule | LocalRoute | str  # a string is an address of the loopback device, with its prefix length

PROTOCOL = 137
BOOT = 3  # the protocol that ip(8) sets
# Marks of Istio's default policy rules.
ISTIO_RULES = ((Interception.tproxy_mark, FULL_MASK), *[(line.mark, line.mask) for line in LAYOUTS.values() if line.mark])
NOT_PERMITTED, TRY_AGAIN, NO_ACCESS, BUSY, EXISTS, NO_SUCH_ADDRESS = 1, 11, 13, 16, 17, 99


class RouteChange(Record):
    """One change: an object to add or delete."""

    target: RouteObject
    add: bool

    def describe(self) -> str:
        """Return the change as arguments of ip(8)."""
        return f"{'add' if self.add else 'delete'} {describe(self.target)}"


class RouteResult(Record):
    """A step's result: whether it changed anything, and a warning."""

    changed: bool
    warning: str = ""


def steps_towards(
    plan: Plan, families: tuple[Family, ...], hints: Plan | None = None, link: ModuleType = netlink
) -> tuple[RouteChange, ...]:
    """Return the steps that add what the plan needs and delete what is ours but not in the plan.

    Identical foreign objects are reused and stay. `hints`: another plan whose marks identify Istio's objects. The address
    comes last: attributes that another program gave it cannot be restored.
    """
    wanted: list[RouteObject] = [_rule(rule) for rule in plan.ip_rules]
    wanted += [LocalRoute(family=route.family.number, table=route.table, protocol=PROTOCOL) for route in plan.routes]
    wanted += [address.cidr for address in plan.addresses]
    marks = {*ISTIO_RULES, *[(rule.mark, rule.mask) for rule in (hints or plan).ip_rules]}
    live, others = _look(families, marks, link)
    present, planned = [{_effect(target) for target in objects} for objects in (live + others, wanted)]
    missing = [RouteChange(target=target, add=True) for target in wanted if _effect(target) not in present]
    extra = [RouteChange(target=target, add=False) for target in live if _effect(target) not in planned]
    return tuple(missing + extra)


def make_one(step: RouteChange, link: ModuleType = netlink) -> RouteResult:
    """Apply a change; return a warning if it failed but is not needed everywhere.

    Raises ApplyError with the refused object, BusyError, BackendUnavailableError if a privilege is missing.
    """
    try:
        _make(step, link)
    except OSError as error:
        if error.errno == EXISTS and step.add:
            target = step.target
            if isinstance(target, LocalRoute) and all(target.table != one.table for one in link.list_local_routes(target.family)):
                from netinit.backends.route_causes import explain_other_route  # rarely needed

                raise explain_other_route(step.describe(), target.family, target.table) from None
            return RouteResult(changed=False)
        if isinstance(step.target, str) and error.errno in (NO_ACCESS, NO_SUCH_ADDRESS):
            why = "where IPv6 is disabled: the proxy cannot pass on inbound IPv6 connections"
            return RouteResult(changed=False, warning=f"{step.target} cannot be added to lo, {why}")
        hint = "; NET_ADMIN is missing" if error.errno == NOT_PERMITTED else ""
        kind = {NOT_PERMITTED: BackendUnavailableError, TRY_AGAIN: BusyError, BUSY: BusyError}.get(error.errno or 0, ApplyError)
        raise kind(f"{step.describe()}: {posix.strerror(error.errno or 0)}{hint}") from None
    return RouteResult(changed=True)


def undo(step: RouteChange, made: RouteResult, link: ModuleType = netlink) -> None:
    """Undo a change, unless that is done already. Raises ApplyError."""
    if not made.changed:
        return
    try:
        _make(step.replace(add=not step.add), link)
    except OSError as error:
        if error.errno not in (EXISTS, 2, 3, NO_SUCH_ADDRESS):  # ENOENT, ESRCH
            raise ApplyError(posix.strerror(error.errno or 0)) from None


def _look(families: tuple[Family, ...], marks: set[tuple[int, int]], link: ModuleType) -> tuple[list[RouteObject], list[RouteObject]]:
    """Return our objects in the order of removal (rules, routes, address), and foreign objects that can be reused."""
    rules: list[RouteObject] = []
    routes: list[RouteObject] = []
    addresses: list[RouteObject] = []
    others: list[RouteObject] = []
    for family in families:
        tables = {Interception.tproxy_table}
        for rule in link.list_mark_rules(family.number):
            istio = rule.protocol in (0, BOOT) and (rule.mark, rule.mask) in marks and rule.plain
            if rule.protocol == PROTOCOL or istio:
                rules.append(rule)
                tables.add(rule.table)
        for route in link.list_local_routes(family.number):
            istio = route.protocol == BOOT and route.table in tables and route.plain
            (routes if route.protocol == PROTOCOL or istio else others).append(route)
    for found in link.list_addresses() if IPV6 in families else ():
        if found.index == netlink.LOOPBACK_INDEX and found.address == _address(IPV6_ADDRESS):
            whole = f"{found.address}/{found.length}" == IPV6_ADDRESS
            (addresses if whole else others).append(IPV6_ADDRESS)
    return rules + routes + addresses, others


def _rule(rule: IpRule) -> PolicyRule:
    return PolicyRule(
        family=rule.family.number, priority=rule.priority, mark=rule.mark, mask=rule.mask, table=rule.table, protocol=PROTOCOL,
        plain=True,
    )  # fmt: skip


def _effect(target: RouteObject) -> tuple[object, ...]:
    """Return what the object does, equal for two that differ in protocol number or priority only."""
    if isinstance(target, PolicyRule):
        return target.family, target.mark, target.mask, target.table, target.plain
    return (target.family, target.table) if isinstance(target, LocalRoute) else (target,)


def _make(step: RouteChange, link: ModuleType) -> None:
    if isinstance(step.target, PolicyRule):
        link.change_mark_rule(step.target, add=step.add)
    elif isinstance(step.target, LocalRoute):
        link.change_local_route(step.target, add=step.add)
    else:
        link.change_loopback_address(_address(step.target), add=step.add)


def _address(cidr: str) -> str:
    return cidr.partition("/")[0]


def describe(target: RouteObject) -> str:
    """Return a rule, route or address as arguments of ip(8)."""
    if isinstance(target, str):
        return f"address {target} dev lo"
    option = "-4" if target.family == IPV4.number else "-6"
    if isinstance(target, PolicyRule):
        mask = "" if target.mask == FULL_MASK else f"/{target.mask:#x}"
        return f"{option} rule fwmark {target.mark:#x}{mask} lookup {target.table}"
    return f"{option} route local default dev lo table {target.table}"
