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
from netinit.simulate.condition import Condition
from netinit.simulate.explain import Explanation
from netinit.simulate.symbolic.hook_walk import split_by_route
from netinit.simulate.symbolic.match_sets import SymbolicPackets, local
from netinit.simulate.symbolic.parts import Part, Partition
from netinit.simulate.symbolic.regions import Region, everything, in_states, nothing, unite, valued, within
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, CtState, Dim, Names, Space
from netinit.simulate.trace import UNKNOWN


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
    packets = SymbolicPackets(space, Condition(sender=space.direction == OUTBOUND, tracked=True))
    if clause.what in (grammar.TO, grammar.FROM):
        source = clause.what == grammar.FROM
        networks = tuple(one for one in clause.values if one != grammar.POD and one.family is space.family)
        own = local(space, Dim.SOURCE if source else Dim.DESTINATION) if grammar.POD in clause.values else nothing(space)
        return packets.in_networks(networks, source=source).certain | own
    if clause.what in (grammar.PORT, grammar.SOURCE_PORT):
        return packets.with_port(clause.values, source=clause.what == grammar.SOURCE_PORT).certain
    if clause.what == grammar.MARK:
        return packets.with_mark(*clause.values[0], connection=False).certain
    if clause.what == grammar.STATE:
        return packets.in_state(clause.values).certain
    if clause.what == grammar.THROUGH:
        return _through(space, clause.values)
    owners = [(clause.what, *interval) for interval in clause.values]
    if clause.what == grammar.PROXY and options:
        owners = [(grammar.UID, one, one) for one in options.proxy_uids] + [(grammar.GID, one, one) for one in options.proxy_gids]
    return unite([nothing(space), *[packets.owned_by(*owner).certain for owner in owners]])


def _through(space: Space, names: tuple[str, ...]) -> Region:
    """Packets that enter or leave through one of the interfaces; traffic within the pod uses lo."""
    values = space.dimension(Dim.INTERFACE).values
    inside = local(space, Dim.DESTINATION) if space.direction != INBOUND else nothing(space)
    if space.direction != INBOUND and not space.free:
        found = unite([nothing(space), *[region for region, interface in split_by_route(space) if is_named(interface, names)]])
    else:
        found = within(space, Dim.INTERFACE, ((at, at) for at, value in enumerate(values) if is_named(value, names)))
    return (found - inside) | (inside if is_named(LOOPBACK_DEVICE, names) else nothing(space))
