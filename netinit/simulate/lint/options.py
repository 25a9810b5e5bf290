"""Options that contradict each other or have no effect, found by looking at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netinit.base.net import FAMILIES, IPV6, Network, Ports, bounds_of, covers, find_common_ports, lists_port
from netinit.options import AMBIENT, AUTO, CLASSIC, CURRENT, DNS_LISTENER, INET, NONE, OFF, REDIRECT, TPROXY, Options
from netinit.options.kinds import ALL
from netinit.rules.model import Plan
from netinit.simulate.lint.finding import CONTRADICTION, ERROR, REDUNDANT, WARNING, Finding, idle, shadowed
from netinit.simulate.lint.peers import look_at_peers

PROXY_PORTS = (15090, 15021, 15020)  # metrics and health of the proxy and its agent
MOST_NAMED = 5
_DEFAULTS = {flag.field: flag.default for flag in Options.flags}
_WITHOUT_SETS = ("nftables", "libiptc")


def look_at(options: Options, made: Plan, given: Options | None) -> Iterator[Finding]:
    """Everything that is wrong with options beside each other; `given` are those before a pod settled them."""
    if options.layout == AMBIENT:
        yield from _of_another_backend(options)
        yield from _own_ports(options)
        yield from _idle_probes(options)
        return
    yield from _captures_nothing(options)
    yield from _ignored_by_mode(options)
    yield from _ignored_lists(options)
    yield from look_at_peers(options)
    yield from _ignored_exceptions(options)
    yield from _of_another_backend(options)
    yield from _without_its_switch(options)
    yield from _shadowed_includes(options)
    yield from _idle_family(options, made)
    yield from _own_ports(options)
    yield from _captured_health(options)
    yield from _taken_twice(options)
    yield from _escaping_proxy(options)
    if given and given.dual_stack and given.ipv6 != AUTO:
        yield idle(
            "--dual-stack",
            f"counts only with --ipv6 auto, and --ipv6 {given.ipv6} decides already; leave one of them out",
        )


def _idle_probes(options: Options) -> Iterator[Finding]:
    """Probes' addresses that have no rule."""
    addresses = options.host_probe_addresses
    if options.ipv6 in (INET, OFF) and addresses and all(":" in address for address in addresses):
        yield idle("--host-probe-address", "names no IPv4 address, and IPv6 is off: the kubelet's probes are captured; add one")


def _captures_nothing(options: Options) -> Iterator[Finding]:
    """Options under which the rules let everything pass."""
    inbound = options.inbound_ports and options.inbound_mode != NONE
    if not (
        inbound or options.outbound_cidrs or options.outbound_ports or options.redirect_dns or options.cleanup_only
    ):
        yield idle(
            "-b and -i",
            "neither inbound ports nor outbound networks are given, so no connection is captured; add -b '*' and -i '*'",
        )


def _ignored_exceptions(options: Options) -> Iterator[Finding]:
    """Networks that are excepted from what is not captured anyway."""
    included = options.outbound_cidrs
    if not isinstance(included, tuple) or not included or options.outbound_ports or options.redirect_dns:
        return
    outside = [
        network
        for network in options.exclude_outbound_cidrs
        if not any(covers(one, network) or covers(network, one) for one in included if isinstance(one, Network))
    ]
    if outside:
        listed = ", ".join(map(str, outside[:MOST_NAMED])) + (" and more" if len(outside) > MOST_NAMED else "")
        yield idle(
            "--istio-service-exclude-cidr",
            f"{listed}: outside of --istio-service-cidr, which captures nothing there; leave it out",
        )


def _of_another_backend(options: Options) -> Iterator[Finding]:
    """Options that the chosen backend does not look at."""
    chosen = "nftables" if options.native_nftables else options.backend
    if chosen in _WITHOUT_SETS and options.ipset_threshold != _DEFAULTS["ipset_threshold"]:
        yield idle("--ipset-threshold", f"{chosen} makes no address sets; use an iptables backend, or leave it out")


def _without_its_switch(options: Options) -> Iterator[Finding]:
    """Options that refine what was not asked for."""
    if options.dns_servers and not options.redirect_dns:
        yield idle("--dns-servers", "counts only with --redirect-dns")
    elif options.dns_servers and options.capture_all_dns:
        yield idle("--dns-servers", "--capture-all-dns captures queries to every server already")
    for field, label in (("probe_port", "--iptables-probe-port"), ("probe_timeout", "--probe-timeout")):
        if getattr(options, field) != _DEFAULTS[field] and not options.run_validation:
            yield idle(label, "counts only with --run-validation")


def look_at_tunnel(options: Options) -> Iterator[Finding]:
    """The port of a tunnel that the pod's proxy does not serve: what listens there is reached as it is.

    TPROXY takes it in `mangle`, before the tunnel's rule in `nat` is met.
    """
    port = options.tunnel_port
    captures = options.layout == CURRENT and options.inbound_mode == REDIRECT and port
    if captures and lists_port(options.exclude_inbound_ports, port):
        return
    if captures and (options.inbound_ports == ALL or lists_port(_listed(options.inbound_ports), port)):
        yield Finding(
            WARNING, "open-tunnel", "--inbound-tunnel-port",
            f"{port} is left to the proxy's tunnel (HBONE), which nothing in the pod's environment enables: an application that"
            " listens there is reached past the proxy; use --inbound-tunnel-port 0, or ISTIO_META_ENABLE_HBONE=true",
        )  # fmt: skip


def _captured_health(options: Options) -> Iterator[Finding]:
    """The proxy's own ports for probes and metrics among those that are captured."""
    if options.layout == CLASSIC or options.inbound_mode == NONE:
        return
    if options.inbound_ports == ALL:  # a proxy need not have all of them: who excludes one has thought of them
        thought_of = any(lists_port(options.exclude_inbound_ports, port) for port in PROXY_PORTS)
        captured = [] if thought_of else list(PROXY_PORTS)
    else:
        captured = [port for port in PROXY_PORTS if lists_port(_listed(options.inbound_ports), port)]
    if captured:
        verb = "is" if len(captured) == 1 else "are"
        yield Finding(
            WARNING, "health-ports", "--istio-inbound-ports",
            f"{_ports(captured)} {verb} captured, where Istio's proxy answers probes and metrics itself; exclude"
            f" {'it' if len(captured) == 1 else 'them'} with -d {','.join(map(str, captured))}",
        )  # fmt: skip


def _taken_twice(options: Options) -> Iterator[Finding]:
    """A VM's connections to captured inbound ports, which no other layout loses.

    REDIRECT gives the connection another address; the classic layout's `-m socket` then finds no socket for the packets behind
    the first, which TPROXY takes for new ones.
    """
    if options.layout == CLASSIC and options.inbound_mode == TPROXY and options.inbound_ports and options.virtual_interfaces:
        yield Finding(
            WARNING, "contradiction", "--kube-virt-interfaces",
            "with TPROXY in the classic layout, a VM's connections to captured inbound ports are taken twice and never answered;"
            " use --layout current, or -m REDIRECT",
        )  # fmt: skip


def _ignored_by_mode(options: Options) -> Iterator[Finding]:
    """Options that the interception mode leaves without meaning."""
    if options.inbound_mode == NONE:
        for option, value in (
            ("--istio-inbound-ports", options.inbound_ports),
            ("--istio-local-exclude-ports", options.exclude_inbound_ports),
        ):
            if value:
                yield idle(
                    option,
                    "--istio-inbound-interception-mode NONE programs nothing inbound; leave it out, or use REDIRECT",
                )
    if options.inbound_mode != TPROXY:
        for option, number, default in (
            ("--istio-inbound-tproxy-mark", options.tproxy_mark, 1337),
            ("--istio-inbound-tproxy-route-table", options.tproxy_table, 133),
        ):
            if number != default:
                yield idle(option, "only --istio-inbound-interception-mode TPROXY uses it")
    elif not options.inbound_ports:
        yield idle(
            "--istio-inbound-interception-mode",
            "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports",
        )


def _ignored_lists(options: Options) -> Iterator[Finding]:
    """Lists of exceptions without a rule to be excepted from."""
    if options.exclude_inbound_ports and options.inbound_ports != ALL and options.inbound_mode != NONE:
        both = find_common_ports(options.exclude_inbound_ports, _listed(options.inbound_ports))
        listed = f" ({_ports(both)} stay captured, since --istio-inbound-ports lists them)" if both else ""
        yield idle("--istio-local-exclude-ports", f"counts only with --istio-inbound-ports '*'{listed}")
    captures = bool(options.outbound_cidrs or options.outbound_ports)
    for option, value in (
        ("--istio-service-exclude-cidr", options.exclude_outbound_cidrs),
        ("--istio-local-outbound-ports-exclude", options.exclude_outbound_ports),
        ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", options.exclude_owner_groups),
    ):
        if value and not captures and not options.redirect_dns:
            yield idle(option, "nothing outbound is captured; add -i '*', networks, or --istio-outbound-ports")
    if options.exclude_owner_groups and options.owner_groups != ALL:
        yield idle(
            "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
            "ISTIO_OUTBOUND_OWNER_GROUPS names the groups already, so exceptions do not count",
        )
    if options.outbound_ports and options.outbound_cidrs == ALL:
        yield idle("--istio-outbound-ports", "--istio-service-cidr '*' captures every port already")
    if options.capture_all_dns and not options.redirect_dns:
        yield idle("--capture-all-dns", "counts only with --redirect-dns")


def _shadowed_includes(options: Options) -> Iterator[Finding]:
    """What is included and excluded at once: the exclusion stands first."""
    included = options.outbound_cidrs if isinstance(options.outbound_cidrs, tuple) else ()
    for network in included:
        cover = next((other for other in options.exclude_outbound_cidrs if covers(other, network)), None)
        if cover is not None:
            yield shadowed(
                "--istio-service-cidr",
                f"{network} is never captured, since --istio-service-exclude-cidr {cover} stands before it",
            )
        wider = next((other for other in included if other != network and covers(other, network)), None)
        if wider is not None and cover is None:
            yield Finding(
                WARNING,
                REDUNDANT,
                "--istio-service-cidr",
                f"{network} lies in {wider}, which is listed too; one of them is enough",
            )
    for port in options.outbound_ports:
        low, high = bounds_of(port)
        if any(first <= low and high <= last for first, last in map(bounds_of, options.exclude_outbound_ports)):
            yield shadowed(
                "--istio-outbound-ports",
                f"{port} is never captured, since --istio-local-outbound-ports-exclude lists it too",
            )
    wide = [network for network in options.exclude_outbound_cidrs if network.length == 0]
    for network in wide:
        if options.outbound_cidrs == ALL:
            yield shadowed(
                "--istio-service-cidr",
                f"'*' captures no {network.family.name}, since --istio-service-exclude-cidr {network} excludes all of it",
            )
    for name in options.virtual_interfaces:
        if name in options.exclude_interfaces:
            yield Finding(
                WARNING, CONTRADICTION, "--istio-exclude-interfaces",
                f"{name} is among --kube-virt-interfaces too, whose rules stand first: it is captured; name it in one of them",
            )  # fmt: skip


def _idle_family(options: Options, made: Plan) -> Iterator[Finding]:
    """Values of a family that is off, and a family that is on without anything to do."""
    lists = (
        ("--istio-service-cidr", options.outbound_cidrs),
        ("--istio-service-exclude-cidr", options.exclude_outbound_cidrs),
        ("--exclude-inbound-cidrs", options.exclude_inbound_cidrs),
    )
    if IPV6 not in made.families or options.ipv6 in (INET, OFF):
        why = "since IPv6 is off" if options.ipv6 == OFF else "since --ipv6 inet has no rule that names an IPv6 address"
        for option, value in lists:
            sixes = [network for network in value if isinstance(network, Network) and network.family is IPV6]
            if sixes:
                yield idle(
                    option,
                    f"{', '.join(map(str, sixes))} has no effect, {why}; use --ipv6 on, or leave it out",
                )
        if any(":" in server for server in options.dns_servers):
            yield idle("--dns-servers", f"IPv6 servers have no effect, {why}")
        return
    included = options.outbound_cidrs if isinstance(options.outbound_cidrs, tuple) else ()
    for family in FAMILIES:
        other = [network for network in included if network.family is not family]
        if included and len(other) == len(included) and not options.outbound_ports:
            yield Finding(
                WARNING, "idle-family", "--istio-service-cidr",
                f"lists no {family.name} network, so no outbound {family.name} is captured; add one, or accept it",
            )  # fmt: skip


def _own_ports(options: Options) -> Iterator[Finding]:
    """The proxy's own ports among those that are captured or shared."""
    own = {options.outbound_port: "--envoy-port", options.inbound_port: "--inbound-capture-port"}
    captured = _listed(options.inbound_ports)
    for port, label in own.items():
        if lists_port(captured, port) and options.inbound_mode != NONE:
            yield Finding(
                ERROR, "own-port", "--istio-inbound-ports",
                f"{port} is the proxy's own ({label}): connections to it would be handed to the proxy a second time; leave it out",
            )  # fmt: skip
    if options.layout != CLASSIC and options.tunnel_port in own:
        yield Finding(
            ERROR,
            "own-port",
            "--inbound-tunnel-port",
            f"{options.tunnel_port} is also {own[options.tunnel_port]}; each needs a port of its own",
        )
    if options.redirect_dns and DNS_LISTENER in own:
        yield Finding(
            ERROR, "own-port", own[DNS_LISTENER], f"{DNS_LISTENER} is where captured DNS queries go; use another port"
        )
    if (
        options.layout != CLASSIC
        and options.outbound_port == options.inbound_port
        and (options.inbound_ports or (options.layout == AMBIENT and not options.ingress))
        and options.inbound_mode != NONE
    ):
        yield Finding(
            WARNING, "own-port", "--inbound-capture-port",
            f"{options.inbound_port} is --envoy-port too: the proxy cannot distinguish inbound from outbound connections",
        )  # fmt: skip
    for port, label in own.items():
        if lists_port(options.outbound_ports, port):
            yield Finding(
                ERROR, "own-port", "--istio-outbound-ports", f"{port} is the proxy's own ({label}); leave it out"
            )


def _escaping_proxy(options: Options) -> Iterator[Finding]:
    """Applications that the rules take for the proxy."""
    if 0 in options.proxy_uids and options.layout != CLASSIC:
        yield Finding(
            WARNING, "proxy-owner", "--proxy-uid", "0 is root: what applications that run as root send is not captured"
        )
    if 0 in options.proxy_gids and options.layout != CLASSIC:
        yield Finding(
            WARNING,
            "proxy-owner",
            "--proxy-gid",
            "0 is root's group, the usual one of containers: what they send is not captured",
        )


def _listed(ports: Ports | str) -> Ports:
    return () if isinstance(ports, str) else ports


def _ports(ports: Sequence[object]) -> str:
    return ", ".join(str(port) for port in ports)
