"""A problem found by lint, and those that the options show without simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.finding_texts import format_finding
from netinit.base.net import FAMILIES, IPV6, Ports, lists_port, names_more
from netinit.options import AUTO, BACKENDS, DNS_LISTENER, INET, NONE, OFF, TPROXY, Options, RunOptions
from netinit.options.kinds import ALL, INTERFACES
from netinit.rules.model import Plan

ERROR, WARNING = "error", "warning"  # error: traffic is lost or loops; warning: no effect, or a surprising one
NO_EFFECT, SHADOWED, REDUNDANT, NOT_EXAMINED = "no-effect", "shadowed", "redundant", "effect-unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: severity, kind, the option concerned, and a message with the remedy."""

    severity: str
    kind: str
    option: str
    message: str

    def __str__(self) -> str:
        return ": ".join([part for part in (self.severity, self.option, self.message) if part])


def finding(key: str, **values: object) -> Finding:
    """Return this finding of option-findings.json; `values` fill its texts."""
    return Finding(*format_finding("option-findings.json", key, values))


HTTPS = 443


def inspect_options(options: RunOptions, plan: Plan, given: Options | None, *, has_tunnel: bool | None) -> Iterator[Finding]:
    """Find problems in a combination of options; `given` and `has_tunnel` as in `lint`."""
    yield from _without_its_switch(options)
    yield from _of_the_run(options)
    yield from _own_ports(options)
    yield from _names_with_a_link(options)
    if not options.traits.proxy_mark:
        yield from _captures_nothing(options)
        yield from _family_without_rules(options, plan)
        yield from _captured_health(options)
        yield from _of_virtual_machines(options)
        yield from _escaping_proxy(options)
        if given and given.dual_stack and given.ipv6 != AUTO:
            yield finding("dual-stack", decision=given.ipv6)
    if has_tunnel is False:
        yield from _open_tunnel(options)


def _without_its_switch(options: RunOptions) -> Iterator[Finding]:
    """Options that refine a feature that is off."""
    for flag in Options.flags:
        if flag.needs and not getattr(options, flag.needs) and getattr(options, flag.field) != flag.default:
            yield finding("without-switch", option=flag.label, switch=options.flag(flag.needs).label)


def _of_the_run(options: RunOptions) -> Iterator[Finding]:
    """Options the backend does not support, and retries without time for them."""
    backend = BACKENDS.get(options.wanted_backend)
    if backend and not backend.with_sets and options.ipset_threshold != options.flag("ipset_threshold").default:
        yield finding("no-sets", backend=backend.name)
    chosen = BACKENDS.get(options.backend)
    if options.log_rules and options.log_group and chosen and not chosen.logs_to_groups:
        yield finding("no-log-groups", backend=chosen.name)
    if options.retries and options.retry_delay >= options.lock_timeout:
        yield finding("no-time-for-retries")


def _captures_nothing(options: RunOptions) -> Iterator[Finding]:
    """Options under which the rules capture nothing."""
    inbound = options.inbound_ports and options.inbound_mode != NONE
    if not (inbound or options.outbound_cidrs or options.outbound_ports or options.redirect_dns or options.cleanup_only):
        yield finding("captures-nothing-in-mode-none") if options.inbound_ports else finding("captures-nothing")
    if options.inbound_mode == TPROXY and not options.inbound_ports:
        yield finding("tproxy-without-ports")


def _family_without_rules(options: RunOptions, plan: Plan) -> Iterator[Finding]:
    """An address family that is enabled but has no rules."""
    included = options.outbound_cidrs
    if IPV6 not in plan.families or options.ipv6 in (INET, OFF) or not isinstance(included, tuple) or not included:
        return
    for family in FAMILIES if not options.outbound_ports else ():
        if all(getattr(network, "family", None) is not family for network in included):
            yield finding("idle-family", family=family.name)


def _of_virtual_machines(options: RunOptions) -> Iterator[Finding]:
    """Problems with a virtual machine behind the pod.

    REDIRECT rewrites its connections' destination; TPROXY that relies on `-m socket` finds no socket for later packets and
    treats them as new.
    """
    for excluded in options.exclude_interfaces:
        if any(names_more(one, excluded) or names_more(excluded, one) for one in options.virtual_interfaces):
            yield finding("excluded-and-virtual", name=excluded)
    captured = options.inbound_mode == TPROXY and options.inbound_ports and options.virtual_interfaces
    if captured and options.traits.tproxy_by_socket:
        yield finding("tproxy-of-a-machine", layout=options.layout)
    captures = lists_port(options.outbound_ports, HTTPS) or options.outbound_cidrs
    if options.reject_quic and options.virtual_interfaces and captures and not lists_port(options.exclude_outbound_ports, HTTPS):
        yield finding("quic-of-a-machine", names=", ".join(options.virtual_interfaces))


def _names_with_a_link(options: RunOptions) -> Iterator[Finding]:
    """Names as iproute2 prints a device with a peer or a lower device, `net1@eth0`: the device is called net1."""
    for flag in Options.flags:
        for name in getattr(options, flag.field) if flag.kind is INTERFACES else ():
            device, at, _ = name.partition("@")
            if at and device:
                yield finding("name-with-link", option=flag.label, name=name, device=device)


def _open_tunnel(options: RunOptions) -> Iterator[Finding]:
    """The HBONE port, if the pod's proxy does not serve it: connections reach it uncaptured."""
    port = options.sidecar_tunnel
    if not port or lists_port(options.exclude_inbound_ports, port):
        return
    if options.inbound_ports == ALL or lists_port(_listed(options.inbound_ports), port):
        yield finding("open-tunnel", port=port)


def _captured_health(options: RunOptions) -> Iterator[Finding]:
    """Captured ports include the proxy's own for probes and metrics."""
    served = tuple(reversed(options.traits.proxy_ports))
    if options.inbound_mode == NONE:
        return
    if options.inbound_ports == ALL:  # a proxy need not open all of them: excluding one shows that the user considered them
        is_considered = any(lists_port(options.exclude_inbound_ports, port) for port in served)
        captured = [] if is_considered else list(served)
    else:
        captured = [port for port in served if lists_port(_listed(options.inbound_ports), port)]
    if captured:
        verb, pronoun = ("is", "it") if len(captured) == 1 else ("are", "them")
        named, ports = f"{', '.join(map(str, captured))} {verb}", ",".join(map(str, captured))
        yield finding("captured-health", named=named, pronoun=pronoun, ports=ports)


def _own_ports(options: RunOptions) -> Iterator[Finding]:
    """The proxy's own ports that are captured or conflict with one another."""
    own = {options.outbound_port: "--envoy-port", options.inbound_port: "--inbound-capture-port"}
    captured = _listed(options.inbound_ports)
    for port, label in own.items():
        if lists_port(captured, port) and options.inbound_mode != NONE:
            yield finding("own-port-inbound", port=port, label=label)
    if options.has("tunnel_port") and options.tunnel_port in own:
        yield finding("own-port-of-tunnel", port=options.tunnel_port, label=own[options.tunnel_port])
    if options.redirect_dns and DNS_LISTENER in own:
        yield finding("own-port-of-resolver", port=DNS_LISTENER, label=own[DNS_LISTENER])
    if (
        not options.traits.has_one_port
        and options.outbound_port == options.inbound_port
        and (options.inbound_ports or not (options.has("inbound_ports") or options.ingress))
        and options.inbound_mode != NONE
    ):
        yield finding("one-port", port=options.inbound_port)
    for port, label in own.items():
        if lists_port(options.outbound_ports, port):
            yield finding("own-port-outbound", port=port, label=label)


def _escaping_proxy(options: RunOptions) -> Iterator[Finding]:
    """Applications that the rules mistake for the proxy."""
    if 0 in options.traits.excluded_uids:
        return
    if 0 in options.proxy_uids:
        yield finding("root-user")
    if 0 in options.proxy_gids:
        yield finding("root-group")


def _listed(ports: Ports | str) -> Ports:
    return () if isinstance(ports, str) else ports
