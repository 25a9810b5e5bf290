"""Options that contradict each other, have no effect, or cost a pod its traffic: found by looking and by simulating."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, number_of
from netinit.options import CLASSIC, DNS_LISTENER, DNS_PORT, NONE, OFF, TPROXY, Options
from netinit.options.kinds import ALL
from netinit.rules.layouts import plan as plan_for
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol, Source, bounds_of
from netinit.rules.model import BUILTIN_CHAINS, Plan
from netinit.rules.more_targets import Reject, Tproxy
from netinit.rules.packet import Surroundings
from netinit.rules.targets import Accept, Drop, Jump, Redirect, Return
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import Host
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, load_plan

ERROR, WARNING = "error", "warning"  # traffic is lost or loops; something has no effect or another one than it seems
_FINAL = Accept | Drop | Reject | Return | Redirect | Tproxy
_POD = {IPV4: "192.0.2.10", IPV6: "2001:db8::10"}
_ELSEWHERE = {IPV4: "198.51.100.53", IPV6: "2001:db8:ffff::53"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its kind, the option that it is about, and what is wrong with it and the remedy."""

    severity: str
    kind: str
    option: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.option}: {self.message}"


def lint(options: Options, plan: Plan | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong with options and their plan (made of them where none is given), errors first."""
    made = plan or plan_for(options)
    rulesets = {family: load_plan(made, family) for family in made.families}
    found = [
        *_ignored_by_mode(options),
        *_ignored_lists(options),
        *_shadowed_includes(options),
        *_idle_family(options, made),
        *_own_ports(options),
        *_escaping_proxy(options),
        *_dns(options, rulesets),
        *_loops(options, rulesets),
        *_unreachable(rulesets),
        *[Finding(WARNING, "no-effect", *_split_warning(warning)) for warning in made.warnings],
    ]
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda finding: finding.severity != ERROR))


def _split_warning(warning: str) -> tuple[str, str]:
    option, colon, message = warning.partition(": ")
    return (option, message) if colon else ("", warning)


def _ignored_by_mode(options: Options) -> Iterator[Finding]:
    """Options that the interception mode leaves without meaning."""
    if options.inbound_mode == NONE:
        for option, value in (
            ("--istio-inbound-ports", options.inbound_ports),
            ("--istio-local-exclude-ports", options.exclude_inbound_ports),
        ):
            if value:
                yield _idle(
                    option,
                    "--istio-inbound-interception-mode NONE programs nothing inbound; leave it out, or use REDIRECT",
                )
    if options.inbound_mode != TPROXY:
        for option, number, default in (
            ("--istio-inbound-tproxy-mark", options.tproxy_mark, 1337),
            ("--istio-inbound-tproxy-route-table", options.tproxy_table, 133),
        ):
            if number != default:
                yield _idle(option, "only --istio-inbound-interception-mode TPROXY uses it")
    elif not options.inbound_ports:
        yield _idle(
            "--istio-inbound-interception-mode",
            "TPROXY without --istio-inbound-ports captures nothing inbound; add -b '*' or ports",
        )


def _ignored_lists(options: Options) -> Iterator[Finding]:
    """Lists of exceptions without a rule to be excepted from."""
    if options.exclude_inbound_ports and options.inbound_ports != ALL and options.inbound_mode != NONE:
        both = [port for port in options.exclude_inbound_ports if port in options.inbound_ports]
        listed = f" ({', '.join(map(str, both))} stay captured, since --istio-inbound-ports lists them)" if both else ""
        yield _idle("--istio-local-exclude-ports", f"counts only with --istio-inbound-ports '*'{listed}")
    captures = bool(options.outbound_cidrs or options.outbound_ports)
    for option, value in (
        ("--istio-service-exclude-cidr", options.exclude_outbound_cidrs),
        ("--istio-local-outbound-ports-exclude", options.exclude_outbound_ports),
        ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", options.exclude_owner_groups),
    ):
        if value and not captures and not options.redirect_dns:
            yield _idle(option, "nothing outbound is captured; add -i '*', networks, or --istio-outbound-ports")
    if options.exclude_owner_groups and options.owner_groups != ALL:
        yield _idle(
            "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
            "ISTIO_OUTBOUND_OWNER_GROUPS names the groups already, so exceptions do not count",
        )
    if options.outbound_ports and options.outbound_cidrs == ALL:
        yield _idle("--istio-outbound-ports", "--istio-service-cidr '*' captures every port already")
    if options.capture_all_dns and not options.redirect_dns:
        yield _idle("--capture-all-dns", "counts only with --redirect-dns")


def _shadowed_includes(options: Options) -> Iterator[Finding]:
    """What is included and excluded at once: the exclusion stands first."""
    included = options.outbound_cidrs if isinstance(options.outbound_cidrs, tuple) else ()
    for network in included:
        cover = next((other for other in options.exclude_outbound_cidrs if _covers(other, network)), None)
        if cover is not None:
            yield _shadowed(
                "--istio-service-cidr",
                f"{network} is never captured, since --istio-service-exclude-cidr {cover} stands before it",
            )
        wider = next((other for other in included if other != network and _covers(other, network)), None)
        if wider is not None and cover is None:
            yield Finding(
                WARNING,
                "redundant",
                "--istio-service-cidr",
                f"{network} lies in {wider}, which is listed too; one of them is enough",
            )
    for port in options.outbound_ports:
        if port in options.exclude_outbound_ports:
            yield _shadowed(
                "--istio-outbound-ports",
                f"{port} is never captured, since --istio-local-outbound-ports-exclude lists it too",
            )
    wide = [network for network in options.exclude_outbound_cidrs if network.length == 0]
    for network in wide:
        if options.outbound_cidrs == ALL:
            yield _shadowed(
                "--istio-service-cidr",
                f"'*' captures no {network.family.name}, since --istio-service-exclude-cidr {network} excludes all of it",
            )
    for name in options.virtual_interfaces:
        if name in options.exclude_interfaces:
            yield Finding(
                WARNING, "contradiction", "--istio-exclude-interfaces",
                f"{name} is among --kube-virt-interfaces too, whose rules stand first: it is captured; name it in one of them",
            )  # fmt: skip


def _covers(wide: Network, narrow: Network) -> bool:
    return wide.family is narrow.family and wide.first <= narrow.first and narrow.last <= wide.last


def _idle_family(options: Options, made: Plan) -> Iterator[Finding]:
    """Values of a family that is off, and a family that is on without anything to do."""
    lists = (
        ("--istio-service-cidr", options.outbound_cidrs),
        ("--istio-service-exclude-cidr", options.exclude_outbound_cidrs),
    )
    if IPV6 not in made.families or (options.layout == CLASSIC and options.ipv6 == OFF):
        for option, value in lists:
            sixes = [network for network in value if isinstance(network, Network) and network.family is IPV6]
            if sixes:
                yield _idle(
                    option,
                    f"{', '.join(map(str, sixes))} has no effect, since IPv6 is off; use --ipv6 on, or leave it out",
                )
        if any(":" in server for server in options.dns_servers):
            yield _idle("--dns-servers", "IPv6 servers have no effect, since IPv6 is off")
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
    captured = options.inbound_ports if isinstance(options.inbound_ports, tuple) else ()
    for port in captured:
        if port in own and options.inbound_mode != NONE:
            yield Finding(
                ERROR, "own-port", "--istio-inbound-ports",
                f"{port} is the proxy's own ({own[port]}): connections to it would be handed to the proxy a second time; leave it out",
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
        and options.inbound_ports
        and options.inbound_mode != NONE
    ):
        yield Finding(
            WARNING, "own-port", "--inbound-capture-port",
            f"{options.inbound_port} is --envoy-port too: the proxy cannot distinguish inbound from outbound connections",
        )  # fmt: skip
    for port in options.outbound_ports:
        if port in own:
            yield Finding(
                ERROR, "own-port", "--istio-outbound-ports", f"{port} is the proxy's own ({own[port]}); leave it out"
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


def _dns(options: Options, rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """Captured DNS that goes round in circles: the proxy's own queries must go out."""
    if not options.redirect_dns:
        return
    if DNS_PORT in options.exclude_outbound_ports:
        yield _shadowed(
            "--redirect-dns", "--istio-local-outbound-ports-exclude 53 stands before it, so no query is captured"
        )
    for server in options.dns_servers:
        if server.startswith("127.") or server == "::1":
            yield Finding(
                WARNING, "dns-loopback", "--dns-servers",
                f"{server} is a resolver in the pod: its own queries to servers outside are captured only with --capture-all-dns",
            )  # fmt: skip
    for family, ruleset in rulesets.items():
        servers = [server for server in options.dns_servers if (":" in server) == (family is IPV6)] or [
            _ELSEWHERE[family]
        ]
        for server in servers:
            for protocol in ("udp", "tcp"):
                for uid in options.proxy_uids:
                    port = _redirected(
                        ruleset, family, server, DNS_PORT, protocol=protocol, uid=uid, gid=options.proxy_gids[0]
                    )
                    if port == DNS_LISTENER:
                        yield Finding(
                            ERROR, "dns-loop", "--redirect-dns",
                            f"the proxy's own queries ({protocol} to {server}, uid {uid}) come back to it and go round for ever",
                        )  # fmt: skip


def _loops(options: Options, rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """Connections of the proxy that come back to its outbound port, found by simulating them."""
    for family, ruleset in rulesets.items():
        for uid in options.proxy_uids:
            for host in (_ELSEWHERE[family], _POD[family], family.loopback.partition("/")[0]):
                port = _redirected(ruleset, family, host, 80, protocol="tcp", uid=uid, gid=options.proxy_gids[0])
                if port == options.outbound_port and options.outbound_port != options.inbound_port:
                    yield Finding(
                        ERROR, "loop", "--proxy-uid",
                        f"what the proxy (uid {uid}) sends to {host} comes back to its own port {port} and goes round for ever",
                    )  # fmt: skip


def _redirected(ruleset: Ruleset, family: Family, host: str, port: int, *, protocol: str, uid: int, gid: int) -> int:
    around = Surroundings(family=family, addresses=(("eth0", number_of(_POD[family])),))
    packet = make_outbound(around, host, port, protocol=protocol, uid=uid, gid=gid)
    return Host(ruleset, around).process(packet).redirect_port


def _unreachable(rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """Rules that no packet can reach: one before them takes everything that they would match, or no jump leads there."""
    for family, ruleset in rulesets.items():
        for table, chains in ruleset.tables.items():
            reached = _reached(chains)
            for name, chain in chains.items():
                if name not in reached:
                    origin = chain.rules[0].origin if chain.rules else None
                    if name not in _CHAINS_WITHOUT_TRAFFIC:
                        yield Finding(
                            WARNING,
                            "unreachable",
                            origin.label if origin else table,
                            f"the chain {name} of {table} ({family.name}) has rules, but no rule leads there",
                        )
                    continue
                yield from _hidden_rules(chain, table, family)


_CHAINS_WITHOUT_TRAFFIC = frozenset(
    ("ISTIO_REDIRECT", "ISTIO_IN_REDIRECT", "ISTIO_INBOUND")
)  # Istio makes them whether they are used or not


def _reached(chains: dict[str, LoadedChain]) -> set[str]:
    reached: set[str] = set()
    waiting = [name for name in chains if name in BUILTIN_CHAINS]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in chains:
            continue
        reached.add(name)
        waiting += [loaded.rule.target.chain for loaded in chains[name].rules if isinstance(loaded.rule.target, Jump)]
    return reached


def _hidden_rules(chain: LoadedChain, table: str, family: Family) -> Iterator[Finding]:
    """Rules behind one that ends the path of every packet that they could match.

    Lists of networks may be long: those rules are looked up by their prefixes, all others are few.
    """
    ending: list[LoadedRule] = []
    by_network: dict[tuple[int, int], LoadedRule] = {}
    for loaded in chain.rules:
        network = _only_network(loaded)
        before = next((one for one in ending if _implies(loaded.rule.matches, one.rule.matches)), None)
        if network and not before:
            before = _wider(by_network, network)
        if before:
            yield Finding(
                WARNING, "unreachable", loaded.origin.label if loaded.origin else table,
                f"rule {loaded.number} of {table} {chain.name} ({family.name}), {loaded.quotation}, is never reached: "
                f"rule {before.number}, {before.quotation}, takes all that it would match",
            )  # fmt: skip
        elif isinstance(loaded.rule.target, _FINAL):
            if network:
                by_network[network.first, network.length] = loaded
            else:
                ending.append(loaded)


def _only_network(loaded: LoadedRule) -> Network | None:
    """The destination network of a rule that matches on nothing else."""
    matches = loaded.rule.matches
    if len(matches) == 1 and isinstance(matches[0], Destination) and not matches[0].negated:
        return matches[0].networks[0]
    return None


def _wider(known: dict[tuple[int, int], LoadedRule], network: Network) -> LoadedRule | None:
    bits = network.family.bits
    for length in range(network.length + 1):
        free = bits - length
        found = known.get((network.first >> free << free, length))
        if found:
            return found
    return None


def _implies(narrow: tuple[Match, ...], wide: tuple[Match, ...]) -> bool:
    """Whether every packet that meets all of `narrow` meets all of `wide`."""
    return all(any(_narrower(one, other) for one in narrow) for other in wide)


def _narrower(one: Match, other: Match) -> bool:
    if one == other:
        return True
    if isinstance(one, Port) and isinstance(other, Protocol):
        return one.protocol == other.name
    for kind in (Source, Destination):
        if isinstance(one, kind) and isinstance(other, kind) and not one.negated and not other.negated:
            return all(any(_covers(wide, network) for wide in other.networks) for network in one.networks)
    if isinstance(one, InInterface | OutInterface) and type(one) is type(other):
        return False
    if isinstance(one, Port) and isinstance(other, Port):
        same = (one.protocol, one.source, one.negated) == (other.protocol, other.source, other.negated)
        wide = [bounds_of(port) for port in other.ports]
        inside = all(any(low <= a and b <= high for low, high in wide) for a, b in map(bounds_of, one.ports))
        return same and not one.negated and inside
    return False


def _idle(option: str, message: str) -> Finding:
    return Finding(WARNING, "no-effect", option, message)


def _shadowed(option: str, message: str) -> Finding:
    return Finding(WARNING, "shadowed", option, message)
