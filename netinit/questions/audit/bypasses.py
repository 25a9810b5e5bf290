"""Classifies all packets by treatment and cause, the most dangerous bypasses first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from netinit.base.net import Family
from netinit.base.sanitize import quote
from netinit.inject.deciding.podfile import BY_UNKNOWN_TEMPLATES, DOUBT, OF_ANOTHER_MESH
from netinit.options import DNS_LISTENER, DNS_PORT, NONE, OFF, Interception
from netinit.options.kinds import ALL
from netinit.questions.audit import kinds
from netinit.questions.audit.kinds import KINDS, TrafficKind
from netinit.questions.audit.words import (
    MAX_NAMED,
    describe,
    describe_values,
    mark_subset,
    merge_families,
    unite_by_space,
)
from netinit.questions.explain import CONVERT
from netinit.questions.option_names import NEEDS_OURS, translate
from netinit.questions.pod_rules import PodRules
from netinit.questions.unanswered import find_unanswered
from netinit.rules.foreign_targets import Untrack
from netinit.rules.layouts.builder import proxy_owners
from netinit.simulate.ruleset import RuleHit
from netinit.simulate.symbolic.match_sets import local, martians
from netinit.simulate.symbolic.partition import Part, Partition
from netinit.simulate.symbolic.regions import Region, in_states, marked, nothing, unite, valued, within
from netinit.simulate.symbolic.space import INBOUND, KNOWN, OUTBOUND, REUSES, CtState, Dim, Space
from netinit.simulate.trace import CAPTURED, DROPPED, UNKNOWN

OF_OPTION = {flag.field: kinds.BY_NAME[flag.bypass] for flag in Interception.flags if flag.bypass}  # whose rule lets packets pass
OF_THE_PROXY = {"proxy_uids": ("uid", "runAsUser"), "proxy_gids": ("gid", "runAsGroup")}  # display name, field of the manifest
MARTIAN = "the kernel takes packets from or to loopback addresses only from lo (unless route_localnet is set)"
INJECT = "take the pod into the mesh, or accept it (netinit.io/accepted-findings)"
ADD = "add them to {option}, or capture all with '*'"


@dataclass(frozen=True, slots=True)
class Piece:
    """Packets of one kind, with the option and rule (`cause`) responsible."""

    kind: TrafficKind
    region: Region
    part: Part
    cause: RuleHit | None = None
    option: str = ""
    label: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One line of the report: kind, directions, and the proxy's port if captured.

    `who` describes the packets, one text per distinct set; `because` gives the causes, `closes` the remedy, and
    `regions` are the packet sets, one per space. `option`: the field that causes it, empty if none does.
    """

    kind: TrafficKind
    directions: tuple[str, ...]
    port: int
    who: tuple[str, ...]
    because: tuple[str, ...]
    closes: str
    regions: tuple[Region, ...]
    option: str = ""


def audit(subject: PodRules) -> tuple[Traffic, ...]:
    """Classify all traffic in the order of KINDS, with bypasses that exist only if the pod's first address is IPv4.

    IPv6 that only such a pod leaves to the network is a kind of its own: most clusters have no IPv6. Raises TooManyPartsError.
    """
    found = [_describe(subject, pieces) for pieces in _sort_all(subject)]
    known = {(one.kind, one.directions) for one in found}
    other = subject.ipv4_first
    for pieces in _sort_all(other) if other else ():
        if pieces[0].kind in kinds.BYPASSES and (pieces[0].kind, _directions(pieces)) not in known:
            one = _describe(other or subject, pieces)
            because = tuple([f"{reason}, {kinds.WHERE_IPV4_IS_FIRST}" for reason in one.because])
            if one.kind is kinds.IPV6:
                one = replace(one, kind=kinds.PERHAPS_IPV6, closes=translate(kinds.PERHAPS_IPV6.closes(""), subject.names))
            found.append(replace(one, because=because))
    return tuple(sorted(found, key=lambda one: (KINDS.index(one.kind), one.directions)))


def _sort_all(subject: PodRules) -> list[tuple[Piece, ...]]:
    """The pieces of all packets, by the line of the report that they belong to."""
    rows: dict[tuple[object, ...], list[Piece]] = {}
    for partition in subject.partitions:
        captured = _captured_at_first(partition)
        found = find_unanswered(subject, partition)
        lost = [Piece(kinds.UNANSWERED_BY[part.verdict], region, part, hit, reason=effect) for hit, effect, region, part in found]
        unanswered = unite([nothing(partition.space), *[one.region for one in lost if one.kind is kinds.UNANSWERED]])
        for piece in lost:
            rows.setdefault(_row(piece), []).append(piece)
        for part in partition.parts:
            left = replace(part, region=part.region - unanswered) if lost and part.verdict == CAPTURED else part
            for piece in _sort(subject, left, captured) if left.region else ():
                rows.setdefault(_row(piece), []).append(piece)
    return [tuple(pieces) for pieces in rows.values()]


def _row(piece: Piece) -> tuple[object, ...]:
    """The key by which pieces are merged into one line."""
    condition, kind = piece.part.condition, piece.kind
    outside = kind is kinds.UNCAPTURED and piece.reason  # of a pod without rules
    if outside or kind in (kinds.FOLLOWS, kinds.LOST, kinds.MARK) or (kind is kinds.DROPPED and piece.option):
        return (kind,)
    if kind is kinds.UNTRANSLATED:
        return (kind, piece.region.space.direction)
    if kind is kinds.CAPTURED:
        return (kind, piece.region.space.direction, condition.redirect_port)
    if kind in (kinds.FOREIGN, kinds.UNKNOWN, kinds.SAFE, kinds.DROPPED, *kinds.UNANSWERED_BY.values()):
        return (kind, piece.region.space.direction, str(piece.cause), piece.part.reason if kind in (kinds.UNKNOWN, kinds.SAFE) else "")
    return (kind, piece.region.space.direction, piece.option if kind.intent == kinds.CONFIGURATION else "")


def _captured_at_first(partition: Partition) -> Region:
    """TCP packets, in any state, of connections that are captured if nat sees their first packet.

    Without packets to the proxy's own port on this host, which it receives anyway.
    """
    space = partition.space
    fresh = in_states(space, (CtState.NEW,))
    found = [part.region & fresh for part in partition.parts if part.verdict == CAPTURED]
    if space.direction == INBOUND:
        ports = {part.condition.redirect_port for part in partition.parts if part.verdict == CAPTURED}
        anyway = within(space, Dim.DESTINATION_PORT, [(port, port) for port in ports])
        found = [region - anyway for region in found]
    return unite([nothing(space), *found]).ignoring(Dim.STATE) & valued(space, Dim.PROTOCOL, "tcp")


def _sort(subject: PodRules, part: Part, captured: Region) -> Iterator[Piece]:
    """Split a part into pieces of one kind each; `captured` would be captured by nat."""
    space, region, cause = part.region.space, part.region, _cause(part)
    reused = region & in_states(space, REUSES)
    if part.verdict == UNKNOWN and not part.always_direct:
        yield Piece(kinds.SAFE if part.at_worst_dropped else kinds.UNKNOWN, region, part, cause)
    elif part.verdict == DROPPED:
        stopped = (reused | (region & in_states(space, (CtState.INVALID,)))) & captured
        if cause and (origin := cause.rules[0].origin) and origin.option == "istio_exact":
            stopped = region
        if stopped:
            yield Piece(kinds.DROPPED, stopped, part, cause, "istio_exact")
        if others := region - stopped:
            yield Piece(kinds.DROPPED, others, part, cause, label=cause.rules[0].label(subject.origins) if cause else "")
    elif part.verdict == CAPTURED:
        yield _captured(subject, part, cause)
    else:
        inside = local(space, Dim.DESTINATION) if space.direction == OUTBOUND else nothing(space)
        if part.condition.policy_routed:  # only the proxy, or a process that may set marks, can send this mark
            inside = region
        if past := (reused & captured) - inside:
            yield Piece(kinds.UNTRANSLATED, past, part)
        if known := (region & in_states(space, KNOWN)) | (reused - past):
            yield Piece(kinds.FOLLOWS, known, part)
        if lost := region & in_states(space, (CtState.INVALID, CtState.INVALID_CLOSING, CtState.UNTRACKED)):
            yield Piece(kinds.LOST, lost, part)
        if fresh := region & in_states(space, (CtState.NEW,)):
            yield from _passing(subject, part, fresh, cause)


def _cause(part: Part) -> RuleHit | None:
    """The deciding rule, or else the last rule that prevents connection tracking."""
    untracking = [hit for hit in part.path if isinstance(hit.matched.target, Untrack)]
    return part.cause or (untracking[-1] if untracking else None)


def _captured(subject: PodRules, part: Part, cause: RuleHit | None) -> Piece:
    port = part.condition.redirect_port
    options = subject.options_of(part)
    own = (options.outbound_port, options.inbound_port, DNS_LISTENER) if options else ()
    if cause and not cause.rules[0].origin and not subject.is_of_another_mesh and port not in own:
        return Piece(kinds.FOREIGN, part.region, part, cause)
    kind = kinds.RESOLVED if port == DNS_LISTENER else kinds.CAPTURED
    return Piece(kind, part.region, part, cause, label=cause.rules[0].label(subject.origins) if cause else "")


def _passing(subject: PodRules, part: Part, region: Region, cause: RuleHit | None) -> Iterator[Piece]:
    """Classify first packets that no rule captures."""
    space, origin = region.space, cause.rules[0].origin if cause else None
    if martian := region & martians(space):
        yield Piece(kinds.DROPPED, martian, part, reason=MARTIAN)
    region -= martian
    if region and origin and origin.option == "redirect_dns" and part.condition.translated:  # Istio 1.7 and 1.8 had DNAT
        yield Piece(kinds.RESOLVED, region, part, cause)
        return
    if region and not subject.is_of_another_mesh and cause and (not origin or part.condition.translated):
        changed = region if part.condition.translated or _may_act_on_udp(subject) else region & valued(space, Dim.PROTOCOL, "tcp")
        if changed:
            yield Piece(kinds.FOREIGN, changed, part, cause)
        region, cause, origin = region - changed, None, None  # the rest goes the same way without the foreign rule
    if region and not subject.is_of_another_mesh and part.condition.policy_routed:
        yield Piece(_kind_of_marks(subject), region, part, cause, "tproxy_mark")
        return
    outside = region - local(space, Dim.DESTINATION) if space.direction == OUTBOUND else region
    if inside := region - outside:
        yield Piece(kinds.LOCAL, inside, part, cause)
    handled = outside & valued(space, Dim.PROTOCOL, "tcp")  # what the proxy can handle: TCP, and DNS if it resolves names
    if handled and subject.is_of_another_mesh:
        yield Piece(kinds.UNCAPTURED if cause or subject.has_rules(space.family) else kinds.IPV6, handled, part, cause)
    elif handled and not cause:
        yield from _uncaptured(subject, part, handled)
    elif cause and origin and not subject.is_of_another_mesh:
        kind = _kind_of(subject, part, cause, origin.option)
        if kind in (kinds.PROXY, kinds.SHARED_OWNER):
            handled = outside
        elif any(options.redirect_dns for options in subject.options.values()):
            queries = valued(space, Dim.PROTOCOL, "udp") & within(space, Dim.DESTINATION_PORT, [(DNS_PORT, DNS_PORT)])
            handled |= outside & queries
        yield from _passing_rule(subject, Piece(kind, handled, part, cause, origin.option, cause.rules[0].label(subject.origins)))
    if others := outside - handled:
        yield Piece(kinds.NOT_TCP, others, part, cause if subject.is_of_another_mesh else None)


def _may_act_on_udp(subject: PodRules) -> bool:
    """Whether the pod's own rules do anything to datagrams, as far as it is known what made them."""
    found = subject.options.values()
    return not found or any(one.redirect_dns or one.reject_quic or one.redirect_outbound_udp for one in found)


def _passing_rule(subject: PodRules, piece: Piece) -> Iterator[Piece]:
    """Split what an option's rule lets pass: of excluded inbound ports, some are where the proxy itself serves health and metrics."""
    region = piece.region
    ports = subject.proxy_ports if piece.kind is kinds.INBOUND_PORT else ()
    served = region & within(region.space, Dim.DESTINATION_PORT, [(port, port) for port in ports]) if ports else nothing(region.space)
    for kind, those in ((kinds.PROXY_PORT, served), (piece.kind, region - served)):
        if those:
            yield replace(piece, kind=kind, region=those)


def _kind_of(subject: PodRules, part: Part, cause: RuleHit, option: str) -> TrafficKind:
    """The kind of traffic that a rule of an option lets pass."""
    if option == "tunnel_port" and subject.has_tunnel:
        return kinds.TUNNEL
    options = subject.options_of(part)
    if options and any(owner in cause.matched.matches for owner, origin in proxy_owners(options) if origin == option):
        return kinds.SHARED_OWNER if _sharing(subject, option) else kinds.PROXY
    return OF_OPTION.get(option, _kind_of_marks(subject) if option == "inbound_mode" else kinds.INBOUND_PORT)


def _kind_of_marks(subject: PodRules) -> TrafficKind:
    """The kind of packets with a mark that the plan sets: if no other container may set marks, they are the proxy's own."""
    return kinds.MARK if subject.may_mark else kinds.PROXY


def _sharing(subject: PodRules, option: str) -> list[str]:
    """Containers that run as the proxy's user or group."""
    return [name for name, owner in subject.shared_owners if owner.startswith(OF_THE_PROXY[option][0])]


def _uncaptured(subject: PodRules, part: Part, streams: Region) -> Iterator[Piece]:
    """Classify the first TCP packets of connections that no rule decides."""
    space = streams.space
    has_other_family = any(subject.has_rules(family) for family in subject.hosts if family is not space.family)
    if has_other_family and not subject.has_rules(space.family):
        yield Piece(kinds.IPV6, streams, part, option="ipv6")
        return
    options = subject.options_of(part)
    if options and options.traits.proxy_mark:
        by_mark = marked(space, Dim.MARK, options.traits.proxy_mark, options.traits.mask)
        to_tunnel = within(space, Dim.DESTINATION_PORT, [(options.tunnel_port, options.tunnel_port)])  # HBONE
        tunnelled = to_tunnel if space.direction == INBOUND else nothing(space)
        for kind, known in ((kinds.PROXY, by_mark), (kinds.TUNNEL, tunnelled)):
            if found := streams & known:
                yield Piece(kind, found, part, reason="the node's proxy is known by its mark, and tunnelled connections are its own")
                streams -= found
        if not streams:
            return
    if subject.is_gateway:
        yield Piece(kinds.PROXY, streams, part, reason=subject.outside)
        return
    option = _option_of(options, space)
    label = subject.origins.get(option, Interception.flag(option).label) if option else ""
    yield Piece(kinds.UNCAPTURED, streams, part, option=option, label=label, reason=subject.outside)


def _option_of(options: Interception | None, space: Space) -> str:
    """The option that excludes packets by making no rule for them."""
    if options is None:
        return ""
    if options.traits.proxy_mark:
        return "ingress" if space.direction == INBOUND and options.ingress else ""
    if space.direction == INBOUND:
        return "inbound_mode" if options.inbound_mode == NONE else "inbound_ports" if options.inbound_ports != ALL else ""
    if options.ipv6 == OFF and space.family.version == 6:  # noqa: PLR2004 - the version's number is its name
        return "ipv6"
    return "outbound_cidrs" if options.outbound_cidrs != ALL else ""


def _describe(subject: PodRules, pieces: tuple[Piece, ...]) -> Traffic:
    first = pieces[0]
    who = merge_families(_name_all(pieces), len(subject.hosts))
    port = first.part.condition.redirect_port if first.kind in (kinds.CAPTURED, kinds.RESOLVED) else 0
    regions = unite_by_space(piece.region for piece in pieces)
    because = tuple(dict.fromkeys(filter(None, map(_because, pieces))))
    closes = translate(_closes(subject, first), subject.names)
    return Traffic(first.kind, _directions(pieces), port, who, because, closes, regions, first.option)


def _directions(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([piece.region.space.direction for piece in pieces]))


def _name_all(pieces: tuple[Piece, ...]) -> Iterator[tuple[str, Family]]:
    """Describe the packets per space as a whole, or per rule if that is more precise; with the family."""
    by_space: dict[int, dict[str, list[Region]]] = {}
    for piece in pieces:
        causes = by_space.setdefault(id(piece.region.space), {})
        causes.setdefault(piece.option or str(piece.cause), []).append(piece.region)
    for causes in by_space.values():
        whole = unite([region for regions in causes.values() for region in regions])
        family = whole.space.family
        text, is_exact = describe_values(whole)
        if pieces[0].kind is kinds.LOCAL or is_exact or len(causes) > MAX_NAMED:
            yield mark_subset(text, is_exact=is_exact), family
        else:
            yield from [(describe(unite(regions)), family) for regions in causes.values()]


def _because(piece: Piece) -> str:
    """The cause of one piece; empty if there is none."""
    rule = piece.cause.rules[0] if piece.cause else None
    if rule and rule.purpose:
        return rule.purpose + (f" ({piece.label})" if piece.label else "")
    if rule and piece.kind in kinds.UNANSWERED_BY.values():
        return f"a rule that is not netinit's {piece.reason}: {piece.cause}"
    if rule and piece.kind not in (kinds.UNKNOWN, kinds.SAFE):
        return f"a rule that is not netinit's: {piece.cause}"
    omission = f"{piece.label} leaves it out" if piece.label else ""
    return piece.reason or piece.part.reason or omission or piece.kind.reason


def _closes(subject: PodRules, piece: Piece) -> str:
    if piece.part.reason == DOUBT:
        return "give the pod's Namespace too, or --assume injected, cni or none"
    if piece.part.reason.startswith(BY_UNKNOWN_TEMPLATES):
        return "give the injector's configuration: --injectConfigFile"
    if piece.part.reason.startswith(OF_ANOTHER_MESH):
        return CONVERT
    if subject.is_of_another_mesh:
        return CONVERT if piece.kind is kinds.UNCAPTURED else piece.kind.closes(piece.label or "the options") or CONVERT
    if piece.kind is kinds.UNCAPTURED:
        if not piece.label:
            return INJECT if subject.outside else "add the init container: netinit inject, or netinit apply in the pod"
        value = {"inbound_mode": "REDIRECT", "ipv6": "on"}.get(piece.option)
        is_flag = piece.label.startswith("-")
        return (f"{piece.label} {value}" if is_flag else f'{piece.label}: "{value}"') if value else ADD.format(option=piece.label)
    if piece.kind is kinds.SHARED_OWNER:
        names = ", ".join(map(quote, _sharing(subject, piece.option)))
        return f"choose another {OF_THE_PROXY[piece.option][1]} for {names}"
    own = piece.kind.closes(piece.label or "the options")
    return "; ".join(filter(None, (own, *_closed_by(subject, piece)))) or "not possible here: the layout has no option for it"


def _closed_by(subject: PodRules, piece: Piece) -> Iterator[str]:
    """How options of the layout can end this kind of traffic."""
    given = subject.options_of(piece.part) or Interception()
    for flag in Interception.flags:
        kind, how = flag.closes
        if kind != piece.kind.name or not flag.applies_to(given.layout):
            continue
        if flag.field == "istio_exact" and subject.names.get(flag.field, "").endswith(NEEDS_OURS):
            yield "use netinit's image, whose rules refuse them"
        elif piece.kind is not kinds.NOT_TCP or (piece.region.space.direction == OUTBOUND and not getattr(given, flag.field)):
            yield how.format(option=flag.label)
