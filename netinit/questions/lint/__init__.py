"""Finds options that contradict each other, have no effect, or break a pod's traffic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from netinit.base.findings import FindingKind
from netinit.base.net import IPV4, IPV6, Family, lists_port
from netinit.inject.deciding.option_findings import NO_EFFECT
from netinit.options import DNS_LISTENER, DNS_PORT, INET, OFF, Options, RunOptions, SettledOptions
from netinit.questions.lint.options import ERROR, SHADOWED, WARNING, Finding, inspect_options
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import Plan
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import Ruleset, load_plan
from netinit.simulate.stand_ins import EXAMPLE_POD, stand_in

__all__ = ["ERROR", "NO_EFFECT", "WARNING", "Finding", "lint"]

HTTP_PORT = 80
OF_EFFECT = (NO_EFFECT, SHADOWED)
_ELSEWHERE = {IPV4: "198.51.100.53", IPV6: "2001:db8:ffff::53"}

LOOP = FindingKind("NI008", "loop", "The proxy's own traffic is captured again, in a loop.")
DNS_LOOP = FindingKind("NI009", "dns-loop", "The proxy's own DNS queries are captured again: no name is ever resolved.")
DNS_LOOPBACK = FindingKind(
    "NI010", "dns-loopback",
    "A resolver in the pod itself asks servers outside, which this option does not capture.",
)


def lint(
    options: SettledOptions, plan: Plan | None = None, *, given: Options | None = None, has_tunnel: bool | None = None,
    proved: bool = True,
) -> tuple[Finding, ...]:
    """Find all problems of options and their plan (made from them by default), errors first.

    `given`: the options before they were settled for a pod. `has_tunnel`: whether the pod's proxy listens on the
    HBONE port, None if unknown. `proved`: also find options without effect by comparing all packets, in about 0.1
    s.
    """
    plan = plan or plan_for(options)
    rulesets = {family: load_plan(plan, family) for family in plan.families}
    found = [
        *inspect_options(options, plan, given, has_tunnel=has_tunnel),
        *_dns(options, rulesets),
        *_loops(options, rulesets),
        *[Finding(WARNING, NO_EFFECT, *warning.partition(": ")[::2]) for warning in plan.warnings],
    ]
    if proved:
        from netinit.questions.lint.effect_proof import find_without_effect  # imports the symbolic engine

        found += find_without_effect(options, frozenset([finding.option for finding in found if finding.kind in OF_EFFECT]))
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda finding: finding.severity != ERROR))


def _dns(options: RunOptions, rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """DNS capture without effect, or that captures the proxy's own queries, which then loop."""
    if not options.redirect_dns:
        return
    if lists_port(options.exclude_outbound_ports, DNS_PORT):
        yield Finding(
            WARNING, SHADOWED, "--redirect-dns",
            "--istio-local-outbound-ports-exclude 53 comes before it, so no query is captured",
        )  # fmt: skip
    for server in options.dns_servers if not options.capture_all_dns else ():
        if server.startswith("127.") or server == "::1":
            yield Finding(
                WARNING, DNS_LOOPBACK, "--dns-servers",
                f"{server} is a resolver in the pod: its own queries to servers outside are captured only with --capture-all-dns",
            )  # fmt: skip
    if options.ipv6 in (INET, OFF) and any(":" in server for server in options.dns_servers):
        reason = "IPv6 is off" if options.ipv6 == OFF else "--ipv6 inet has no rule that names an IPv6 address"
        yield Finding(
            WARNING, NO_EFFECT, "--dns-servers",
            f"IPv6 servers have no effect, since {reason}: queries to them are not captured",
        )  # fmt: skip
    for family, ruleset in rulesets.items():
        servers = [server for server in options.dns_servers if (":" in server) == (family is IPV6)] or [_ELSEWHERE[family]]
        for server, protocol in product(servers, ("udp", "tcp")):
            for who, _, port in _redirect(options, ruleset, (server,), DNS_PORT, protocol):
                if port == DNS_LISTENER:
                    yield Finding(
                        ERROR, DNS_LOOP, "--redirect-dns",
                        f"the proxy's own queries ({protocol} to {server}, {who}) come back to it and loop forever",
                    )  # fmt: skip


def _loops(options: RunOptions, rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """Connections of the proxy that are redirected to its own outbound port."""
    for family, ruleset in rulesets.items():
        hosts = (_ELSEWHERE[family], EXAMPLE_POD[family.version], family.loopback.partition("/")[0])
        for who, host, port in _redirect(options, ruleset, hosts, HTTP_PORT, "tcp"):
            if port == options.outbound_port and options.outbound_port != options.inbound_port:
                yield Finding(
                    ERROR, LOOP, "--proxy-uid",
                    f"what the proxy ({who}) sends to {host} comes back to its own port {port} and loops forever",
                )  # fmt: skip


def _redirect(
    options: RunOptions, ruleset: Ruleset, hosts: tuple[str, ...], port: int, protocol: str
) -> Iterator[tuple[str, str, int]]:
    """Where the proxy's connections to hosts end: how the rules identify the proxy, host, and redirected port (0: none)."""
    around = stand_in(ruleset.family)
    proxies = [(f"uid {uid}", uid, 0) for uid in options.proxy_uids]
    if known := options.traits.proxy_mark:
        proxies = [(f"mark {known:#x}", 0, known)]
    for who, uid, mark in proxies:
        for host in hosts:
            packet = make_outbound(around, host, port, protocol=protocol, uid=uid, gid=options.proxy_gids[0], mark=mark)
            yield who, host, simulate(packet, ruleset, around).redirect_port
