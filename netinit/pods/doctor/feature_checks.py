"""Test every feature that rules need in an isolated namespace, with the code that programs pods."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial

from netinit import backends
from netinit.backends import routes
from netinit.base.errors import (
    BackendUnavailableError,
    BusyError,
    ChildLostError,
    KernelFeatureError,
    LateError,
    LockedError,
    NamespaceError,
    NetinitError,
    ValidationLateError,
)
from netinit.base.logs import Log
from netinit.base.net import IPV4, Family, Network
from netinit.kernel import children, detect, namespaces, run
from netinit.kernel.links import Links
from netinit.kernel.netlink import LOOPBACK_INDEX
from netinit.kernel.several_children import ask_all
from netinit.options import FLAGS, NONE, OFF, Options, RunOptions, SettledOptions
from netinit.pods import apply as applying
from netinit.pods.giving_way import find_left
from netinit.pods.probe.validate import validate
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.layouts import plan as plan_for
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Port, Protocol
from netinit.rules.model import FILTER, MANGLE, NAT, OUTPUT, PREROUTING, RAW, Chain, IpRule, Plan, Route, Rule, Table
from netinit.rules.promises import judge_promises, leave_out
from netinit.rules.targets import Drop, Return, Target

SECONDS = 2 * run.SECONDS  # the first program that hangs is named before this ends
PROBE_SECONDS = 10  # a connection takes milliseconds, on a busy machine some tenths
NOT_KNOWN = (BusyError, LateError, LockedError, ValidationLateError)  # these say nothing about program and kernel
ROUTING = "policy routing"
CAPTURE = "a connection captured"


_PLAIN: tuple[type, ...] = (Protocol, Return, Drop)  # available on every kernel with tables


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that rules need from program and kernel."""

    name: str
    table: str
    chain: str
    text: str  # a rule that needs it, in iptables syntax
    modules: str  # kernel modules: for iptables; for native nft

    def rule(self, family: Family) -> Rule:
        """Return a rule that needs it."""
        return parse_rule(self.text, family).replace(comment=self.name)

    @property
    def kinds(self) -> frozenset[object]:
        """The matches and targets that need it."""
        return kinds_of(self.rule(IPV4))


def kinds_of(rule: Rule) -> frozenset[object]:
    """Return the classes that kernels may lack, each with whether it needs connection tracking, another module."""
    parts: tuple[Match | Target, ...] = (rule.target, *rule.matches)
    return frozenset((type(part), part.tracks) for part in parts if type(part) not in _PLAIN)


FEATURES = (
    Feature("nat", NAT, OUTPUT, "-p tcp -j RETURN", "iptable_nat ip6table_nat; nft_chain_nat"),
    Feature("REDIRECT", NAT, OUTPUT, "-p tcp -j REDIRECT --to-ports 15001", "xt_REDIRECT; nft_redir"),
    Feature("owner", NAT, OUTPUT, "-m owner --uid-owner 1337 -j RETURN", "xt_owner; nft_meta"),
    Feature("ports", NAT, OUTPUT, "-p tcp -m multiport --dports 80,443 -j RETURN", "xt_tcpudp; nf_tables"),  # a rule for each
    Feature("multiport", NAT, OUTPUT, "-p tcp -m multiport ! --dports 80,443 -j RETURN", "xt_multiport"),
    Feature("conntrack", MANGLE, PREROUTING, "-p tcp -m conntrack --ctstate INVALID -j DROP", "xt_conntrack; nft_ct"),
    Feature("mark", MANGLE, PREROUTING, "-p tcp -m mark --mark 1337 -j MARK --set-mark 1338", "xt_mark; nft_meta"),
    Feature("connmark", MANGLE, OUTPUT, "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark", "xt_connmark; nft_ct"),
    Feature("connmark saved", MANGLE, PREROUTING, "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark", "xt_connmark; nft_ct"),
    Feature("TPROXY", MANGLE, PREROUTING, "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 1337", "xt_TPROXY; nft_tproxy"),
    Feature("socket", MANGLE, PREROUTING, "-p tcp -m socket -j RETURN", "xt_socket; nft_socket"),
    Feature(
        "REJECT", FILTER, OUTPUT, "-p tcp -j REJECT --reject-with tcp-reset",
        "iptable_filter ip6table_filter ipt_REJECT ip6t_REJECT; nft_reject_inet",
    ),
    Feature("addrtype", FILTER, OUTPUT, "-p tcp -m addrtype --dst-type LOCAL -j DROP", "xt_addrtype; nft_fib"),
    Feature("CT zone", RAW, OUTPUT, "-p udp --dport 53 -j CT --zone-orig 1", "xt_CT iptable_raw ip6table_raw; nft_ct"),
)  # fmt: skip
SETS_FEATURE = "sets"
_NETWORKS = {4: ("192.0.2.0/25", "198.51.100.0/24"), 6: ("2001:db8::/48", "2001:db8:2::/48")}


@dataclass(frozen=True, slots=True)
class FeatureChecks:
    """One backend's results by family and feature name: why it does not work, empty if it works.

    `of_kernel`: causes that loading kernel modules would fix. `failure`: why nothing could be checked. `unknown`: causes after which
    it is not known what works, such as a timeout. `promises`: what the kernel lacks for each promise of the rules beyond Istio's, by
    family; empty: it is kept. `excused`: features that only promises need which apply leaves out here.
    """

    backend: str
    outcomes: dict[str, dict[str, str]]
    failure: str = ""
    of_kernel: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    promises: dict[str, dict[str, str]] = field(default_factory=dict)
    excused: dict[str, frozenset[str]] = field(default_factory=dict)

    def works(self, needed: dict[str, frozenset[str]]) -> bool | None:
        """Whether every needed feature, by family name, works; None: not known."""
        causes = self.problems(needed).keys()
        return None if causes and causes <= self.unknown else not causes

    def judge(self, cause: str | None) -> bool | None:
        """Whether a feature with this outcome, or the backend with this failure, works; None: not known."""
        return None if cause in self.unknown else not cause

    def problems(self, needed: dict[str, frozenset[str]]) -> dict[str, list[str]]:
        """Return why needed features do not work: cause -> affected features."""
        if self.failure:
            return {self.failure: []}
        found: dict[str, list[str]] = {}
        for family, names in needed.items():
            outcomes = dict.fromkeys(names, "was not tried") | self.outcomes.get(family, {})
            for name, cause in outcomes.items():
                if cause and name in names and name not in self.excused.get(family, ()):
                    found.setdefault(cause, []).append(f"{family} {name}")
        return found


def needed_features(options: SettledOptions) -> dict[str, frozenset[str]]:
    """Return the features that the options' plan needs, by family name."""
    return features_of(plan_for(options), options)


def features_of(plan: Plan, options: SettledOptions) -> dict[str, frozenset[str]]:
    """Return the features that a plan of the options needs, by family name."""
    capture = {CAPTURE} if can_prove(options) else set()
    found = {}
    for family in [one for one in options.kernel_families if one in plan.families]:
        rules = [rule for *_, rule in plan.walk() if family in rule.families]
        used = {kind for rule in rules for kind in kinds_of(rule)}
        names = {feature.name for feature in FEATURES if feature.kinds and feature.kinds <= used}
        lists = [match for rule in rules for match in rule.matches if isinstance(match, Port) and len(match.ports) > 1]
        if not any(match.negated or match.has_ranges for match in lists):
            names.discard("multiport")
        routing = {ROUTING} if any(rule.family is family for rule in plan.ip_rules) else set()
        found[family.name] = frozenset({"nat"} | names | routing | capture)
    return found


def can_prove(options: RunOptions) -> bool:
    """Whether these options capture a connection that a loopback device alone can make."""
    return options.traits.has_passthrough and options.inbound_mode != NONE and detect.has_capability(detect.CAP_SETUID)


def check_backends(options: SettledOptions, names: tuple[str, ...] = backends.AUTO_ORDER) -> tuple[FeatureChecks, ...]:
    """Run each backend's checks, all at once, in network namespaces of their own. Raises NamespaceError if none can be created."""
    found = []
    jobs = {name: partial(_check_backend, name, options) for name in names}
    for name, outcome in ask_all(jobs, seconds=SECONDS, what=f"a feature check of {SECONDS:.0f} s").items():
        if isinstance(outcome, NamespaceError):
            raise outcome
        failure = str(outcome)
        lost = isinstance(outcome, ChildLostError)
        if isinstance(outcome, ChildLostError):
            late = f"the checks did not end within {SECONDS:.0f} s and were stopped"
            failure = late if outcome.late else "it ended without a result; stderr says why"
        unknown = frozenset({failure} if lost else ())
        found.append(outcome if isinstance(outcome, FeatureChecks) else FeatureChecks(name, {}, failure, unknown=unknown))
    return tuple(found)


def _check_backend(name: str, options: SettledOptions, _: children.Answer) -> FeatureChecks:
    renew()
    os.environ["XTABLES_LOCKFILE"] = os.devnull  # this namespace has no other users, and the real lock may be held
    found: dict[str, dict[str, Exception | None]] = {}
    families = options.kernel_families
    for family in families:
        found[family.name] = _check_features(name, options, family) | {ROUTING: _check_routing(family)}
    if can_prove(options):
        renew()
        cause = _check_capture(name, options)
        for family in families if options.ipv6 != OFF else families[:1]:
            found[family.name][CAPTURE] = cause
    causes = [cause for outcomes in found.values() for cause in outcomes.values()]
    promises, excused = _check_promises(name, options)
    return FeatureChecks(
        name, promises=promises, excused=excused, outcomes=
{family: {feature: str(cause or "") for feature, cause in outcomes.items()} for family, outcomes in found.items()},
        of_kernel=frozenset(str(cause) for cause in causes if isinstance(cause, KernelFeatureError)),
        unknown=frozenset(str(cause) for cause in causes if isinstance(cause, NOT_KNOWN)),
    )


def _check_promises(name: str, options: SettledOptions) -> tuple[dict[str, dict[str, str]], dict[str, frozenset[str]]]:
    """Return what the kernel lacks for each promise, and the features that rules without those that give way do not need."""
    renew()
    options = options.for_backend(name)
    plan = plan_for(options)
    backend = backends.load(name, options, options.kernel_families)
    try:
        judged = judge_promises(plan, backend.find_unsupported(plan))
    except (NetinitError, OSError, ValueError):  # of the backend: see the features
        return {}, {}
    promises = {family.name: {one: lacking for one, lacking in found.items() if one} for family, found in judged.items()}
    left, _ = find_left(backend, plan)
    if options.require_capture or not left:
        return promises, {}
    needed, less = features_of(plan, options), features_of(leave_out(plan, left), options)
    return promises, {family: names - less[family] for family, names in needed.items()}


def _check_features(name: str, options: RunOptions, family: Family) -> dict[str, Exception | None]:
    networks = tuple([Network.parse(text) for text in _NETWORKS[family.version]])
    to_networks = Rule(matches=(Destination(networks=networks),), target=Return(), comment=SETS_FEATURE, families=(family,))
    rules = [(one.table, one.chain, one.rule(family)) for one in FEATURES] + [(NAT, OUTPUT, to_networks)]
    together = _program(name, options, family, rules)
    if not together or type(together) in (BackendUnavailableError, LateError):  # the backend's, not a feature's: the same for all
        return dict.fromkeys([rule.comment for *_, rule in rules], together)
    return {one[-1].comment: _program(name, options, family, [one]) for one in rules}


def _program(name: str, options: RunOptions, family: Family, rules: list[tuple[str, str, Rule]]) -> NetinitError | None:
    tables: dict[str, dict[str, list[Rule]]] = {}
    for table, chain, rule in rules:
        tables.setdefault(table, {}).setdefault(chain, []).append(rule)
    plan = Plan(
        layout=options.layout,
        families=(family,),
        tables=tuple(
            Table(name=table, chains=tuple(Chain(name=chain, rules=tuple(made)) for chain, made in chains.items()))
            for table, chains in tables.items()
        ),
    )
    try:
        backend = backends.load(name, options, (family,))
        backend.commit(backend.observe().compare(plan).change(force=True))
    except NetinitError as error:
        return error
    return None


def _check_routing(family: Family) -> Exception | None:
    wanted = Plan(
        layout="none", families=(family,), tables=(), ip_rules=(IpRule(family=family, mark=1337, table=133),),
        routes=(Route(family=family, table=133),),
    )  # fmt: skip
    try:
        for step in routes.steps_towards(wanted, (family,)):
            routes.make_one(step)
    except (NetinitError, OSError) as error:
        return error
    return None


def _check_capture(name: str, options: SettledOptions) -> NetinitError | None:
    settled = {flag.field: getattr(options, flag.field) for flag in FLAGS}  # the pod's, not the laboratory's
    plain = Options(**settled).replace(
        backend=name, netns="", pid=0, cni_mode=False, native_nftables=False, force_iptables_binary="",
        probe_timeout=PROBE_SECONDS * 10**9, lock_timeout=10**9,
    )  # fmt: skip
    try:
        applying.apply(plain, final=False)
        validate(plain, Log("none"))
    except ValidationLateError:
        return ValidationLateError(f"no test connection arrived within {PROBE_SECONDS} s")
    except NetinitError as error:
        return error
    return None


def renew() -> None:
    """Move this process into a new network namespace with `lo` up. Raises NamespaceError."""
    namespaces.unshare()
    with Links() as links:
        links.set_up(LOOPBACK_INDEX)
