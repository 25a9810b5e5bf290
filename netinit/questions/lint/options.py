"""A problem found by lint, and those that the options show without simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.findings import FindingKind
from netinit.base.net import FAMILIES, IPV6, Ports, lists_port, names_more
from netinit.inject.deciding.option_findings import NO_EFFECT, PROXY_OWNER
from netinit.options import AUTO, BACKENDS, DNS_LISTENER, INET, NONE, OFF, TPROXY, Options, RunOptions
from netinit.options.kinds import ALL, INTERFACES
from netinit.rules.model import Plan

ERROR, WARNING = "error", "warning"  # error: traffic is lost or loops; warning: no effect, or a surprising one

CONTRADICTION = FindingKind("NI001", "contradiction", "Two options exclude each other. Keep one of them.")
SHADOWED = FindingKind("NI003", "shadowed", "Another option decides before this one does. Remove one of the two.")
OWN_PORT = FindingKind("NI006", "own-port", "A port of the proxy itself is named among those of the application.")
HEALTH_PORTS = FindingKind(
    "NI007", "health-ports",
    "The proxy's own ports for health and metrics are captured, so that probes of it fail.",
)
QUIC_PASSES = FindingKind(
    "NI012", "quic-passes",
    "HTTP/3 bypasses the proxy, over UDP. --reject-quic makes clients fall back to TCP.",
)
IDLE_FAMILY = FindingKind("NI013", "idle-family", "Rules of an address family that this pod does not use.")
OPEN_TUNNEL = FindingKind(
    "NI014", "open-tunnel",
    "Port 15008 is left to the proxy's tunnel, and nothing in the pod enables the tunnel.",
)
BACKEND = FindingKind("NI016", "backend", "The chosen backend cannot do what the options need.")
# codes that are never given out again:
UNREACHABLE = FindingKind(
    "NI005", "unreachable",
    "No longer reported: NI002, NI003 and NI004 name the option or the value whose rule no packet reaches.",
)
DOCKER = FindingKind("NI015", "docker", "No longer reported: tables of nft answer queries to Docker's resolver too.")


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: severity, kind, the option concerned, and a message with the remedy."""

    severity: str
    kind: FindingKind
    option: str
    message: str

    def __str__(self) -> str:
        return ": ".join([part for part in (self.severity, self.option, self.message) if part])


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
            yield Finding(
                WARNING, NO_EFFECT, "--dual-stack",
                f"counts only with --ipv6 auto, and --ipv6 {given.ipv6} decides already; leave one of them out",
            )  # fmt: skip
    if has_tunnel is False:
        yield from _open_tunnel(options)


def _without_its_switch(options: RunOptions) -> Iterator[Finding]:
    """Options that refine a feature that is off."""
    for flag in Options.flags:
        if flag.needs and not getattr(options, flag.needs) and getattr(options, flag.field) != flag.default:
            yield Finding(WARNING, NO_EFFECT, flag.label, f"counts only with {options.flag(flag.needs).label}")


def _of_the_run(options: RunOptions) -> Iterator[Finding]:
    """Options the backend does not support, and retries without time for them."""
    backend = BACKENDS.get(options.wanted_backend)
    if backend and not backend.with_sets and options.ipset_threshold != options.flag("ipset_threshold").default:
        yield Finding(
            WARNING, NO_EFFECT, "--ipset-threshold",
            f"{backend.name} makes no address sets; use an iptables backend, or remove it",
        )  # fmt: skip
    chosen = BACKENDS.get(options.backend)
    if options.log_rules and options.log_group and chosen and not chosen.logs_to_groups:
        yield Finding(ERROR, BACKEND, "--log-group", f"{chosen.name} cannot make NFLOG rules; remove it, or use another backend")
    if options.retries and options.retry_delay >= options.lock_timeout:
        yield Finding(
            WARNING, NO_EFFECT, "--retries",
            "--retry-delay is not shorter than --lock-timeout, which ends all attempts; shorten it",
        )  # fmt: skip


def _captures_nothing(options: RunOptions) -> Iterator[Finding]:
    """Options under which the rules capture nothing."""
    inbound = options.inbound_ports and options.inbound_mode != NONE
    if not (inbound or options.outbound_cidrs or options.outbound_ports or options.redirect_dns or options.cleanup_only):
        why, remedy = "neither inbound ports nor outbound networks are given", "add -b '*' and -i '*'"
        if options.inbound_ports:
            why, remedy = "-m NONE captures nothing inbound, and no outbound networks are given", "leave out -m NONE, or add -i '*'"
        yield Finding(WARNING, NO_EFFECT, "-b and -i", f"{why}, so no connection of an application is captured; {remedy}")
    if options.inbound_mode == TPROXY and not options.inbound_ports:
        yield Finding(
            WARNING, NO_EFFECT, "--istio-inbound-interception-mode",
            "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports",
        )  # fmt: skip


def _family_without_rules(options: RunOptions, plan: Plan) -> Iterator[Finding]:
    """An address family that is enabled but has no rules."""
    included = options.outbound_cidrs
    if IPV6 not in plan.families or options.ipv6 in (INET, OFF) or not isinstance(included, tuple) or not included:
        return
    for family in FAMILIES if not options.outbound_ports else ():
        if all(getattr(network, "family", None) is not family for network in included):
            yield Finding(
                WARNING, IDLE_FAMILY, "--istio-service-cidr",
                f"lists no {family.name} network, so no outbound {family.name} is captured; add one, or accept it",
            )  # fmt: skip


def _of_virtual_machines(options: RunOptions) -> Iterator[Finding]:
    """Problems with a virtual machine behind the pod.

    REDIRECT rewrites its connections' destination; TPROXY that relies on `-m socket` finds no socket for later packets and
    treats them as new.
    """
    for excluded in options.exclude_interfaces:
        if any(names_more(one, excluded) or names_more(excluded, one) for one in options.virtual_interfaces):
            yield Finding(
                WARNING, CONTRADICTION, "--istio-exclude-interfaces",
                f"{excluded} is among --kube-virt-interfaces too, whose rules come first: it is captured; name it in one of them",
            )  # fmt: skip
    captured = options.inbound_mode == TPROXY and options.inbound_ports and options.virtual_interfaces
    if captured and options.traits.tproxy_by_socket:
        yield Finding(
            WARNING, CONTRADICTION, "--kube-virt-interfaces",
            f"with TPROXY in the {options.layout} layout, a VM's connections to captured inbound ports are taken "
            "twice and never answered; use --layout current, or -m REDIRECT",
        )  # fmt: skip
    captures = lists_port(options.outbound_ports, HTTPS) or options.outbound_cidrs
    if options.reject_quic and options.virtual_interfaces and captures and not lists_port(options.exclude_outbound_ports, HTTPS):
        yield Finding(
            WARNING, QUIC_PASSES, "--reject-quic",
            f"what a VM behind {', '.join(options.virtual_interfaces)} sends is forwarded, and no rule refuses QUIC "
            "there; refuse it in the VM",
        )  # fmt: skip


def _names_with_a_link(options: RunOptions) -> Iterator[Finding]:
    """Names as iproute2 prints a device with a peer or a lower device, `net1@eth0`: the device is called net1."""
    for flag in Options.flags:
        for name in getattr(options, flag.field) if flag.kind is INTERFACES else ():
            device, at, _ = name.partition("@")
            if at and device:
                yield Finding(
                    WARNING, NO_EFFECT, flag.label,
                    f"no device is called {name}: `ip addr` shows the device {device} so, with the one that it is "
                    f"linked to behind @; write {device}",
                )  # fmt: skip


def _open_tunnel(options: RunOptions) -> Iterator[Finding]:
    """The HBONE port, if the pod's proxy does not serve it: connections reach it uncaptured."""
    port = options.sidecar_tunnel
    if not port or lists_port(options.exclude_inbound_ports, port):
        return
    if options.inbound_ports == ALL or lists_port(_listed(options.inbound_ports), port):
        yield Finding(
            WARNING, OPEN_TUNNEL, "--inbound-tunnel-port",
            f"{port} is left to the proxy's tunnel (HBONE), which nothing in the pod's environment enables: an "
            "application that listens there is reached directly; use --inbound-tunnel-port 0, or "
            "ISTIO_META_ENABLE_HBONE=true",
        )  # fmt: skip


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
        yield Finding(
            WARNING, HEALTH_PORTS, "--istio-inbound-ports",
            f"{named} captured, where Istio's proxy answers probes and metrics itself; exclude {pronoun} with -d {ports}",
        )  # fmt: skip


def _own_ports(options: RunOptions) -> Iterator[Finding]:
    """The proxy's own ports that are captured or conflict with one another."""
    own = {options.outbound_port: "--envoy-port", options.inbound_port: "--inbound-capture-port"}
    captured = _listed(options.inbound_ports)
    for port, label in own.items():
        if lists_port(captured, port) and options.inbound_mode != NONE:
            yield Finding(
                ERROR, OWN_PORT, "--istio-inbound-ports",
                f"{port} is the proxy's own ({label}): connections to it would be handed to the proxy a second time; remove it",
            )  # fmt: skip
    if options.has("tunnel_port") and options.tunnel_port in own:
        yield Finding(
            ERROR, OWN_PORT, "--inbound-tunnel-port",
            f"{options.tunnel_port} is also {own[options.tunnel_port]}; each needs a port of its own",
        )  # fmt: skip
    if options.redirect_dns and DNS_LISTENER in own:
        yield Finding(ERROR, OWN_PORT, own[DNS_LISTENER], f"{DNS_LISTENER} is where captured DNS queries go; use another port")
    if (
        not options.traits.has_one_port
        and options.outbound_port == options.inbound_port
        and (options.inbound_ports or not (options.has("inbound_ports") or options.ingress))
        and options.inbound_mode != NONE
    ):
        yield Finding(
            WARNING, OWN_PORT, "--inbound-capture-port",
            f"{options.inbound_port} is --envoy-port too: the proxy cannot distinguish inbound from outbound connections",
        )  # fmt: skip
    for port, label in own.items():
        if lists_port(options.outbound_ports, port):
            yield Finding(ERROR, OWN_PORT, "--istio-outbound-ports", f"{port} is the proxy's own ({label}); remove it")


def _escaping_proxy(options: RunOptions) -> Iterator[Finding]:
    """Applications that the rules mistake for the proxy."""
    if 0 in options.traits.excluded_uids:
        return
    if 0 in options.proxy_uids:
        yield Finding(WARNING, PROXY_OWNER, "--proxy-uid", "0 is root: what applications that run as root send is not captured")
    if 0 in options.proxy_gids:
        yield Finding(
            WARNING, PROXY_OWNER, "--proxy-gid",
            "0 is root's group, the usual one of containers: what they send is not captured",
        )  # fmt: skip


def _listed(ports: Ports | str) -> Ports:
    return () if isinstance(ports, str) else ports
