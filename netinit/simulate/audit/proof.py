"""Proves assertions for all packets, or refutes them with a counterexample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from netinit.base.net import IPV4
from netinit.options import Interception
from netinit.rules.matches.packet import is_named
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.simulate.audit import grammar
from netinit.simulate.audit.grammar import Assertion, Clause
from netinit.simulate.audit.subject import AuditSubject
from netinit.simulate.explain import Explanation
from netinit.simulate.symbolic.hook_walk import split_by_route
from netinit.simulate.symbolic.match_sets import local
from netinit.simulate.symbolic.partition import Part, Partition
from netinit.simulate.symbolic.regions import Region, everything, in_states, marked, nothing, valued, within
from netinit.simulate.symbolic.space import (
    ALL_STATES,
    INBOUND,
    CtState,
    Dim,
    Names,
    Space,
    conntrack_state,
    intervals_of,
)
from netinit.simulate.trace import UNKNOWN

_PORTS = {grammar.PORT: Dim.DESTINATION_PORT, grammar.SOURCE_PORT: Dim.SOURCE_PORT}
_OWNERS = {grammar.UID: Dim.UID, grammar.GID: Dim.GID}


@dataclass(frozen=True, slots=True)
class Ruling:
    """The result for an assertion: `holds` is True if proved, False if refuted, None if undecidable.

    `counterexample` is the path of a refuting packet, `cures` the option changes under which it ends as asserted;
    `packets`: how many packets the assertion is about; if refuted, only those looked at until then.
    """

    assertion: Assertion
    holds: bool | None
    packets: int
    counterexample: Explanation | None = None
    cures: tuple[tuple[str, str], ...] = ()


def rule_on(subject: AuditSubject, assertions: Sequence[Assertion]) -> tuple[Ruling, ...]:
    """Prove or refute each assertion for all packets. Raises TooManyPartsError."""
    names = Names()
    for assertion in assertions:
        names |= assertion.names
    other = replace(subject.ipv4_first, names=names) if subject.ipv4_first else None
    asked = replace(subject, names=names, ipv4_first=other)
    return tuple(_rule(asked, assertion) for assertion in assertions)


def _rule(subject: AuditSubject, assertion: Assertion) -> Ruling:
    """Decide one assertion; None if it depends on whether the pod's first address is IPv4."""
    found = _rule_on_all(subject, subject, assertion)
    if subject.ipv4_first is None or assertion.version == IPV4.version:
        return found
    other = _rule_on_all(subject.ipv4_first, subject, assertion)
    if found.holds is other.holds or (found.counterexample and found.counterexample.trace.first.family is IPV4):
        return found
    return replace(found if found.counterexample else other, holds=None, packets=found.packets)


def _rule_on_all(subject: AuditSubject, explaining: AuditSubject, assertion: Assertion) -> Ruling:
    """Decide an assertion under the rules of `subject`; `explaining` explains the counterexample."""
    packets = 0
    doubt: tuple[Region, Part] | None = None
    for partition in subject.partitions:
        selected = _select_packets(assertion, partition, subject)
        packets += selected.size
        for part in partition.parts if selected else ():
            region = part.region & selected
            if not region or assertion.allows(part.verdict):
                continue
            if part.verdict != UNKNOWN:
                return _refuted(explaining, assertion, packets, (region, part), holds=False)
            doubt = doubt or (region, part)
    if doubt:
        return _refuted(explaining, assertion, packets, doubt, holds=None)
    return Ruling(assertion, holds=True, packets=packets)


def _refuted(subject: AuditSubject, assertion: Assertion, packets: int, by: tuple[Region, Part], *, holds: bool | None) -> Ruling:
    shown = subject.explain(by[0])
    cures = tuple(change for change in shown.changes if assertion.allows(change[1]))
    return Ruling(assertion, holds, packets, shown, cures)


def _select_packets(assertion: Assertion, partition: Partition, subject: AuditSubject) -> Region:
    """The packets of a space that an assertion is about."""
    space = partition.space
    if assertion.direction not in ("", space.direction) or assertion.version not in (0, space.family.version):
        return nothing(space)
    found = everything(space)
    if assertion.protocol:
        found &= valued(space, Dim.PROTOCOL, assertion.protocol)
    if all(clause.what != grammar.STATE for clause in assertion.clauses):
        found &= in_states(space, (CtState.NEW,))
    options = next(iter(subject.options.values()), None)
    for clause in assertion.clauses:
        chosen = _select(clause, space, options)
        found = found - chosen if clause.negated else found & chosen
    return found


def _select(clause: Clause, space: Space, options: Interception | None) -> Region:
    """The packets a condition matches, ignoring its negation."""
    if clause.what in (grammar.TO, grammar.FROM):
        name = Dim.DESTINATION if clause.what == grammar.TO else Dim.SOURCE
        found = within(space, name, intervals_of(one for one in clause.networks if one.family is space.family))
        return found | local(space, name) if clause.pod else found
    if clause.what in _PORTS:
        return within(space, _PORTS[clause.what], clause.intervals)
    if clause.what in _OWNERS:
        return _owned(space, _OWNERS[clause.what], clause)
    if clause.what == grammar.PROXY:
        users = [(grammar.UID, one) for one in options.proxy_uids] if options else []
        users += [(grammar.GID, one) for one in options.proxy_gids] if options else []
        found = nothing(space)
        for kind, number in users:
            found |= _owned(space, _OWNERS[kind], Clause(kind, intervals=((number, number),)))
        return found
    if clause.what == grammar.MARK:
        return marked(space, Dim.MARK, *clause.intervals[0])
    if clause.what == grammar.STATE:
        return in_states(space, tuple(one for one in ALL_STATES if conntrack_state(one) in clause.names))
    return _through(space, clause.names)


def _through(space: Space, names: tuple[str, ...]) -> Region:
    """Packets that enter or leave through one of the interfaces; traffic within the pod uses lo."""
    values = space.dimension(Dim.INTERFACE).values
    inside = local(space, Dim.DESTINATION) if space.direction != INBOUND else nothing(space)
    if space.direction != INBOUND and not space.free:
        found = nothing(space)
        for region, interface in split_by_route(space):
            found |= region if is_named(interface, names) else nothing(space)
    else:
        found = within(space, Dim.INTERFACE, ((at, at) for at, value in enumerate(values) if is_named(value, names)))
    return (found - inside) | (inside if is_named(LOOPBACK_DEVICE, names) else nothing(space))


def _owned(space: Space, name: str, clause: Clause) -> Region:
    if space.direction == INBOUND:
        return nothing(space)
    return within(space, Dim.SENDER, [(1, 1)]) & within(space, name, clause.intervals)

