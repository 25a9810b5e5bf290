"""Answers to "what happens to this connection, and why": a sentence, the path, and what would change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from netinit.base.net import IPV6, Network, Ports, lists_port
from netinit.options import AMBIENT, CLASSIC, DNS_LISTENER, NONE, OFF, ON, REDIRECT, REJECT, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts import plan
from netinit.rules.model import ALWAYS, OWNED_CHAINS
from netinit.rules.packet import Packet, Surroundings
from netinit.simulate.cause import cause_of
from netinit.simulate.endpoints import spell_endpoint
from netinit.simulate.engine import simulate, simulate_on_old_entries
from netinit.simulate.ruleset import Ruleset, with_plan
from netinit.simulate.trace import (
    CAPTURED,
    DELIVERED,
    DIRECT,
    DROPPED,
    FORWARDED,
    REFUSED,
    UNKNOWN,
    Trace,
    TraceStep,
    list_unread,
)

# Options whose rules a connection may meet: what would come without them is simulated.
WITHOUT = ("exclude_outbound_for_uids", "exclude_outbound_for_gids", "exclude_inbound_cidrs", "exclude_cloud_metadata", "reject_quic")
REPAIR = "netinit apply --reconcile"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer. `sentence` begins with the verdict; `because` is the step that decided, where a rule did.

    `changes` are options that would change the verdict, each as it would be given, with the verdict it would bring.
    """

    trace: Trace
    sentence: str
    because: TraceStep | None
    changes: tuple[tuple[str, str], ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)  # option -> where it was given, for what is not a flag
    passes_on_old_entries: bool = False  # though it is captured otherwise

    def unknown_because(self, reason: str) -> Explanation:
        """The same path with the verdict unknown, for what the path alone does not show."""
        trace = replace(self.trace, fate=UNKNOWN, reason=reason, redirect_port=0)
        return Explanation(trace, f"unknown: {reason}", None, (), self.origins)

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        return self.trace.verdict

    @property
    def original_destination(self) -> str:
        """Where the packet was sent to, as `address:port`."""
        first = self.trace.first
        return spell_endpoint(first.family, first.destination, first.destination_port)

    def origin_of(self, step: TraceStep) -> str:
        """The option, variable or annotation that made a step's rule; empty for foreign rules."""
        made = step.rule.origin if step.rule else None
        return self.origins.get(made.option, made.label) if made else ""

    def option_of(self, step: TraceStep) -> str:
        """The same; empty as well for rules that every plan has."""
        return "" if step.rule is None or step.rule.origin == ALWAYS else self.origin_of(step)


def explain(
    packet: Packet,
    ruleset: Ruleset,
    surroundings: Surroundings,
    *,
    options: Interception | None = None,
    wanted: Interception | None = None,
    origins: Mapping[str, str] | None = None,
) -> Explanation:
    """The answer for the first packet of a connection.

    With `options`, which made the rules, those whose change would change the verdict are found by simulating it; foreign
    rules stay as they are. `wanted` are options that the rules should be made by, where they may be others.
    """
    trace = simulate(packet, ruleset, surroundings)
    because = find_cause(trace)
    made = Explanation(trace, "", because, origins=origins or {})
    if trace.unread and trace.verdict != UNKNOWN:
        return made.unknown_because(f"{list_unread(trace.unread)}; without that: {_tell(made)}")
    changes = find_changes(packet, ruleset, surroundings, trace.verdict, options=options, wanted=wanted)
    inside = not packet.in_interface and surroundings.is_local(packet.destination)
    passes = trace.verdict == CAPTURED and not inside and any(
        one.verdict == DIRECT for one in simulate_on_old_entries(packet, ruleset, surroundings)
    )
    return Explanation(trace, _tell(made), because, changes, origins or {}, passes)


def find_cause(trace: Trace) -> TraceStep | None:
    """The rule that decided: the one that led to the redirection, excluded the packet, or ended its path."""
    if trace.fate in (DROPPED, REFUSED, UNKNOWN):
        return trace.decider
    captured = trace.verdict == CAPTURED
    return cause_of(trace.hits, captured=captured, transparent=trace.transparent, translated=trace.translated)


def _tell(made: Explanation) -> str:
    trace = made.trace
    if trace.verdict == UNKNOWN:
        return f"unknown: {trace.reason}"
    if trace.verdict == DROPPED:
        how = "refused, and its sender is told" if trace.fate == REFUSED else "dropped"
        return f"dropped: it is {how}, because {trace.reason}" + _told_purpose(made)
    if trace.verdict == CAPTURED:
        who = "the proxy's resolver" if trace.redirect_port == DNS_LISTENER else "the proxy"
        how = "both addresses kept, " if trace.transparent else ""
        return (
            f"captured: goes to {who} on {trace.redirect_port}, {how}original destination {made.original_destination}"
            + _told_cause(made)
        )
    return _tell_direct(made)


def _tell_direct(made: Explanation) -> str:
    trace, last = made.trace, made.trace.last
    target = spell_endpoint(last.family, last.destination, last.destination_port)
    if trace.translated:
        where = f"a rule that is not netinit's sends it to {target} instead"
    elif trace.fate == DELIVERED:
        port = f"port {last.destination_port}" if last.destination_port else "this pod"
        where = (
            f"arrives at {port} as it is" if trace.first.in_interface else f"stays in the pod and arrives at {target}"
        )
    elif trace.fate == FORWARDED:
        where = f"is forwarded to {target} through {last.out_interface}"
    else:
        where = f"goes out to {target} through {last.out_interface}"
    return f"direct: {where}" + _told_cause(made)


def _told_cause(made: Explanation) -> str:
    step = made.because
    if step is None or step.rule is None:
        if not any(one.rule for one in made.trace.steps):
            return f", because there is no {made.trace.first.family.name} rule that looks at it"
        return f", because no rule captures {'this datagram' if made.trace.first.protocol == 'udp' else 'it'}"
    if step.rule.purpose:
        origin = made.option_of(step)
        return f", because {step.rule.purpose}" + (f" ({origin})" if origin else "")
    if step.chain in OWNED_CHAINS:
        return (
            f", because of a rule in netinit's chain that no option makes: {step.rule.quotation}"
            f" ({step.table} {step.chain}, rule {step.rule.number})"
        )
    return f", because of a rule that is not netinit's: {step.rule.quotation} ({step.table} {step.chain}, rule {step.rule.number})"


def _told_purpose(made: Explanation) -> str:
    step = made.because
    return f" ({step.rule.purpose}; {made.origin_of(step)})" if step and step.rule and step.rule.origin else ""


def find_changes(
    packet: Packet,
    ruleset: Ruleset,
    surroundings: Surroundings,
    verdict: str,
    *,
    options: Interception | None,
    wanted: Interception | None = None,
) -> tuple[tuple[str, str], ...]:
    """What would change the verdict, each proven by simulating it: (an option as it would be given, the new verdict).

    The first is the same options programmed anew, where the live rules are not as they plan.
    """
    meant = wanted or options
    candidates = [(REPAIR, meant)] if meant else []
    candidates += (
        [(label, changed) for label, changed in _candidates(options, packet) if changed != options] if options else []
    )
    found: dict[str, str] = {}
    for label, changed in candidates:
        after = simulate(packet, with_plan(ruleset, plan(changed)), surroundings).verdict
        if after not in (verdict, UNKNOWN):
            found.setdefault(label, after)
    return tuple(found.items())


def _candidates(options: Interception, packet: Packet) -> list[tuple[str, Interception]]:
    """One change an option, most specific first; those that make no valid options are left out."""
    port, address = packet.destination_port, packet.destination
    made: list[tuple[str, Callable[[], Interception]]] = []

    def offer(label: str, **changes: object) -> None:
        made.append((label, lambda: options.replace(**changes)))

    if options.layout == AMBIENT:
        offer(f"--ingress{'=false' if options.ingress else ''}", ingress=not options.ingress)
        offer(f"--redirect-dns{'=false' if options.redirect_dns else ''}", redirect_dns=not options.redirect_dns)
        _offer_ipv6(offer, packet)
        return [(label, change()) for label, change in made]

    if not packet.in_interface:
        host = Network((packet.family.version, address or 0, packet.family.bits))
        _offer_networks(offer, options, host)
        if options.layout != CLASSIC and port:
            _offer_port(
                offer,
                "--istio-local-outbound-ports-exclude",
                "exclude_outbound_ports",
                options.exclude_outbound_ports,
                port,
            )
            _offer_port(offer, "--istio-outbound-ports", "outbound_ports", options.outbound_ports, port)
            offer("without ISTIO_OUTBOUND_OWNER_GROUPS", owner_groups=ALL)
            offer("without ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", exclude_owner_groups=())
            offer("--redirect-dns --capture-all-dns", redirect_dns=True, capture_all_dns=True)
            offer("--redirect-dns=false", redirect_dns=False)
    elif port:
        _offer_port(offer, "--istio-local-exclude-ports", "exclude_inbound_ports", options.exclude_inbound_ports, port)
        if isinstance(options.inbound_ports, tuple):
            _offer_port(offer, "--istio-inbound-ports", "inbound_ports", options.inbound_ports, port)
        offer("--istio-inbound-ports '*'", inbound_ports=ALL)
        if port == options.tunnel_port and options.layout != CLASSIC:
            offer("--inbound-tunnel-port 0", tunnel_port=0)
    if options.inbound_mode == NONE:
        offer(f"--istio-inbound-interception-mode {REDIRECT}", inbound_mode=REDIRECT)
    if options.layout != CLASSIC:
        for field in WITHOUT:
            if getattr(options, field):
                offer(f"without {options.flag(field).label}", **{field: options.flag(field).default})
        offer("without --istio-exclude-interfaces", exclude_interfaces=())
        offer("--drop-invalid=false", drop_invalid=False)
    _offer_ipv6(offer, packet)
    return [(label, change()) for label, change in made]


def _offer_ipv6(offer: Callable[..., None], packet: Packet) -> None:
    for value in (ON, REJECT, OFF) if packet.family is IPV6 else ():
        offer(f"--ipv6 {value}", ipv6=value)


def _offer_networks(offer: Callable[..., None], options: Interception, host: Network) -> None:
    """Taking out the excluded networks that the host is in, including or excluding the host."""
    inside = [
        network
        for network in options.exclude_outbound_cidrs
        if network.family is host.family and network.first <= host.first <= network.last
    ]
    if inside:
        kept = tuple(network for network in options.exclude_outbound_cidrs if network not in inside)
        offer(f"remove {', '.join(map(str, inside))} from --istio-service-exclude-cidr", exclude_outbound_cidrs=kept)
    offer(f"add {host} to --istio-service-exclude-cidr", exclude_outbound_cidrs=(*options.exclude_outbound_cidrs, host))
    if isinstance(options.outbound_cidrs, tuple):
        offer(f"add {host} to --istio-service-cidr", outbound_cidrs=(*options.outbound_cidrs, host))
        offer("--istio-service-cidr '*'", outbound_cidrs=ALL)


def _offer_port(offer: Callable[..., None], flag: str, name: str, ports: Ports, port: int) -> None:
    """Taking the port, or the range that it is in, out of a list, or putting it in."""
    listed = [one for one in ports if lists_port((one,), port)]
    if listed:
        offer(f"remove {', '.join(map(str, listed))} from {flag}", **{name: tuple(one for one in ports if one not in listed)})
    else:
        offer(f"add {port} to {flag}", **{name: (*ports, port)})
