"""A problem found by lint, and those that the options show without simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.net import FAMILIES, IPV6, Ports, lists_port
from netinit.options import AUTO, BACKENDS, DNS_LISTENER, INET, NONE, OFF, TPROXY, Options
from netinit.options.kinds import ALL
from netinit.rules.model import Plan

ERROR, WARNING = "error", "warning"  # error: traffic is lost or loops; warning: no effect, or a surprising one
NO_EFFECT, SHADOWED, REDUNDANT, CONTRADICTION = "no-effect", "shadowed", "redundant", "contradiction"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: severity, kind, the option concerned, and a message with the remedy."""

    severity: str
    kind: str
    option: str
    message: str

    def __str__(self) -> str:
        return ": ".join([part for part in (self.severity, self.option, self.message) if part])


def without_effect(option: str, message: str) -> Finding:
    """The warning about an option without effect."""
    return Finding(WARNING, NO_EFFECT, option, message)


HTTPS = 443


def inspect_options(options: Options, plan: Plan, given: Options | None) -> Iterator[Finding]:
    """Find problems in a combination of options; `given` are those before they were settled for a pod."""
    yield from _without_its_switch(options)
    yield from _of_the_run(options)
    yield from _own_ports(options)
    if options.traits.proxy_mark:
        return
    yield from _captures_nothing(options)
    yield from _family_without_rules(options, plan)
    yield from _captured_health(options)
    yield from _of_virtual_machines(options)
    yield from _escaping_proxy(options)
    if given and given.dual_stack and given.ipv6 != AUTO:
        yield without_effect(
            "--dual-stack", f"counts only with --ipv6 auto, and --ipv6 {given.ipv6} decides already; leave one of them out"
        )


def _without_its_switch(options: Options) -> Iterator[Finding]:
    """Options that refine a feature that is off."""
    for flag in Options.flags:
        if flag.needs and not getattr(options, flag.needs) and getattr(options, flag.field) != flag.default:
            yield without_effect(flag.label, f"counts only with {options.flag(flag.needs).label}")


def _of_the_run(options: Options) -> Iterator[Finding]:
    """Options the backend does not support, and retries without time for them."""
    backend = BACKENDS.get(options.wanted_backend)
    if backend and not backend.with_sets and options.ipset_threshold != options.flag("ipset_threshold").default:
        yield without_effect("--ipset-threshold", f"{backend.name} makes no address sets; use an iptables backend, or leave it out")
    chosen = BACKENDS.get(options.backend)
    if options.log_rules and options.log_group and chosen and not chosen.logs_to_groups:
        message = f"{chosen.name} cannot make NFLOG rules; leave it out, or use another backend"
        yield Finding(ERROR, "backend", "--log-group", message)
    if options.retries and options.retry_delay >= options.lock_timeout:
        yield without_effect("--retries", "--retry-delay is not shorter than --lock-timeout, which ends all attempts; shorten it")


def _captures_nothing(options: Options) -> Iterator[Finding]:
    """Options under which the rules capture nothing."""
    inbound = options.inbound_ports and options.inbound_mode != NONE
    if not (inbound or options.outbound_cidrs or options.outbound_ports or options.redirect_dns or options.cleanup_only):
        why, remedy = "neither inbound ports nor outbound networks are given", "add -b '*' and -i '*'"
        if options.inbound_ports:
            why, remedy = "-m NONE captures nothing inbound, and no outbound networks are given", "leave out -m NONE, or add -i '*'"
        message = f"{why}, so no connection of an application is captured; {remedy}"
        yield without_effect("-b and -i", message)
    if options.inbound_mode == TPROXY and not options.inbound_ports:
        message = "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports"
        yield without_effect("--istio-inbound-interception-mode", message)


def _family_without_rules(options: Options, plan: Plan) -> Iterator[Finding]:
    """An address family that is enabled but has no rules."""
    included = options.outbound_cidrs
    if IPV6 not in plan.families or options.ipv6 in (INET, OFF) or not isinstance(included, tuple) or not included:
        return
    for family in FAMILIES if not options.outbound_ports else ():
        if all(getattr(network, "family", None) is not family for network in included):
            message = f"lists no {family.name} network, so no outbound {family.name} is captured; add one, or accept it"
            yield Finding(WARNING, "idle-family", "--istio-service-cidr", message)


def _of_virtual_machines(options: Options) -> Iterator[Finding]:
    """Problems with a virtual machine behind the pod.

    REDIRECT rewrites its connections' destination; TPROXY that relies on `-m socket` finds no socket for later packets and
    treats them as new.
    """
    for name in options.virtual_interfaces:
        if name in options.exclude_interfaces:
            message = f"{name} is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them"
            yield Finding(WARNING, CONTRADICTION, "--istio-exclude-interfaces", message)
    captured = options.inbound_mode == TPROXY and options.inbound_ports and options.virtual_interfaces
    if captured and options.traits.tproxy_by_socket:
        yield Finding(
            WARNING, CONTRADICTION, "--kube-virt-interfaces",
            f"with TPROXY in the {options.layout} layout, a VM's connections to captured inbound ports are taken twice and never"
            " answered; use --layout current, or -m REDIRECT",
        )  # fmt: skip
    captures = lists_port(options.outbound_ports, HTTPS) or options.outbound_cidrs
    if options.reject_quic and options.virtual_interfaces and captures and not lists_port(options.exclude_outbound_ports, HTTPS):
        yield Finding(
            WARNING, "quic-passes", "--reject-quic",
            f"what a VM behind {', '.join(options.virtual_interfaces)} sends is forwarded, and no rule refuses QUIC there; "
            "refuse it in the VM",
        )  # fmt: skip


def inspect_tunnel(options: Options) -> Iterator[Finding]:
    """The HBONE port, if the pod's proxy does not serve it: connections reach it uncaptured."""
    port = options.sidecar_tunnel
    if not port or lists_port(options.exclude_inbound_ports, port):
        return
    if options.inbound_ports == ALL or lists_port(_listed(options.inbound_ports), port):
        yield Finding(
            WARNING, "open-tunnel", "--inbound-tunnel-port",
            f"{port} is left to the proxy's tunnel (HBONE), which nothing in the pod's environment enables: an application that"
            " listens there is reached directly; use --inbound-tunnel-port 0, or ISTIO_META_ENABLE_HBONE=true",
        )  # fmt: skip


def _captured_health(options: Options) -> Iterator[Finding]:
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
        verb = "is" if len(captured) == 1 else "are"
        yield Finding(
            WARNING, "health-ports", "--istio-inbound-ports",
            f"{', '.join(map(str, captured))} {verb} captured, where Istio's proxy answers probes and metrics itself; exclude"
            f" {'it' if len(captured) == 1 else 'them'} with -d {','.join(map(str, captured))}",
        )  # fmt: skip


def _own_ports(options: Options) -> Iterator[Finding]:
    """The proxy's own ports that are captured or conflict with one another."""
    own = {options.outbound_port: "--envoy-port", options.inbound_port: "--inbound-capture-port"}
    captured = _listed(options.inbound_ports)
    for port, label in own.items():
        if lists_port(captured, port) and options.inbound_mode != NONE:
            yield Finding(
                ERROR, "own-port", "--istio-inbound-ports",
                f"{port} is the proxy's own ({label}): connections to it would be handed to the proxy a second time; leave it out",
            )  # fmt: skip
    if options.has("tunnel_port") and options.tunnel_port in own:
        message = f"{options.tunnel_port} is also {own[options.tunnel_port]}; each needs a port of its own"
        yield Finding(ERROR, "own-port", "--inbound-tunnel-port", message)
    if options.redirect_dns and DNS_LISTENER in own:
        yield Finding(ERROR, "own-port", own[DNS_LISTENER], f"{DNS_LISTENER} is where captured DNS queries go; use another port")
    if (
        not options.traits.has_one_port
        and options.outbound_port == options.inbound_port
        and (options.inbound_ports or not (options.has("inbound_ports") or options.ingress))
        and options.inbound_mode != NONE
    ):
        message = f"{options.inbound_port} is --envoy-port too: the proxy cannot distinguish inbound from outbound connections"
        yield Finding(WARNING, "own-port", "--inbound-capture-port", message)
    for port, label in own.items():
        if lists_port(options.outbound_ports, port):
            yield Finding(ERROR, "own-port", "--istio-outbound-ports", f"{port} is the proxy's own ({label}); leave it out")


def _escaping_proxy(options: Options) -> Iterator[Finding]:
    """Applications that the rules mistake for the proxy."""
    if 0 in options.traits.excluded_uids:
        return
    if 0 in options.proxy_uids:
        yield Finding(WARNING, "proxy-owner", "--proxy-uid", "0 is root: what applications that run as root send is not captured")
    if 0 in options.proxy_gids:
        message = "0 is root's group, the usual one of containers: what they send is not captured"
        yield Finding(WARNING, "proxy-owner", "--proxy-gid", message)


def _listed(ports: Ports | str) -> Ports:
    return () if isinstance(ports, str) else ports
