"""Which rules are meant: those of options or of a manifest's pod, as they would be planned, or live ones. Pure.

Manifests are handed in as texts, live rules as what was read of a namespace, the options of the node's agent as those of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.listeners import Listeners
from netinit.base.net import FAMILIES, IPV6, parse_address
from netinit.base.sanitize import quote
from netinit.inject.deciding.podfile import PodFacts, describe_other_proxy
from netinit.options import Interception, Options, SettledOptions, offline
from netinit.options.command_line import format_options, read_value
from netinit.options.kinds import quote_value
from netinit.questions.option_names import name_options, translate
from netinit.questions.pod_rules import LiveRules, PodRules
from netinit.rules.infer_options import find_other_values, native_plan
from netinit.rules.infer_options.release_plans import AFTER, layout_of, name_releases, settle_as
from netinit.rules.infer_options.release_plans import plan as plan_of_release
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN, Plan
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import EXAMPLE_POD, stand_in

POD, RULES = "--pod", "--rules"
PLAN = "plan"  # the place of rules that are not live
MAX_NAMED = 5  # pods in a message
ReadServers = Callable[[], Sequence[str]]
"""Returns the name servers of a machine; called only if they are needed."""


@dataclass(frozen=True, slots=True)
class RuleSource:
    """The rules that a question is about.

    `name`: of the pod or namespace; `notes`: where they come from; `warnings`: what is doubtful about them; `facts`: of the
    manifest, if there is one.
    """

    name: str
    rules: PodRules
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: PodFacts | None = None


def name_manifests(files: Sequence[object]) -> str:
    """The option that messages name before manifests; empty if some of them are arguments."""
    return "" if files else POD


def name_namespace(options: Options) -> str:
    """The namespace that the options name, for messages."""
    return f"pid {options.pid}" if options.pid else options.netns or "this namespace"


Made = dict[tuple[Any, ...], tuple[PodRules, tuple[str, ...]]]
"""Rules, with the warnings of their plans, by all that they are made of."""


def find_planned(
    options: Options | None = None, facts: PodFacts | None = None, pod_ip: tuple[str, ...] = (), read_servers: ReadServers = tuple,
    made: Made | None = None,
) -> RuleSource:  # fmt: skip
    """The rules that a pod, or the options (None: defaults), would have.

    Of the options, a pod takes the name servers that it needs; options alone have those of `read_servers`. Pods that differ in
    nothing that decides get the same rules, the same object, from `made`.
    """
    options = options or Options()
    facts = facts and complete_servers(facts, options)
    addresses = tuple(read_value(address, parse_address, "--pod-ip") for address in pod_ip) or (facts.addresses if facts else ())
    given, read_servers = (facts.options, tuple) if facts else (options, read_servers)
    notes, warnings = _add_pod_notes(facts)
    release, whose = _find_release(facts)
    notes += whose
    made = {} if made is None else made
    kept = not facts or facts.intercepted or facts.in_doubt
    bare = (given, addresses, kept, facts.doubt if facts and facts.in_doubt else "", release)
    if bare not in made:
        made[bare] = _make_rules(*bare, read_servers)
    known = (*bare, *_deciding(facts)) if facts else bare
    if known not in made:
        rules = _with_facts(made[bare][0], facts)
        made[known] = (rules, tuple([translate(one, rules.names) for one in made[bare][1]]))
    rules, more = made[known]
    return RuleSource(facts.name if facts else "the options", rules, notes, warnings + more, facts)


def _find_release(facts: PodFacts | None) -> tuple[int | None, tuple[str, ...]]:
    """Return N if the program of Istio 1.N makes a pod's rules, one of today where its image names no release, and a note on it."""
    if not (facts and facts.program.is_istio):
        return None, ()
    release = facts.program.release
    if release is None:
        return AFTER, (f"{facts.name}: {facts.program.note}: the rules are taken for those of {name_releases(AFTER, 0)}",)
    return release, (f"{facts.name}: {facts.program.note}, and the rules are those that this release makes",)


def _deciding(facts: PodFacts) -> tuple[Any, ...]:
    """What of a pod decides about the answers besides its rules."""
    named = (tuple(sorted(facts.origins.items())), facts.by_annotation)
    return (*named, _why_outside(facts), facts.other_proxy, facts.has_tunnel, facts.shared_owners, facts.proxy_ports, facts.may_mark)


def _make_rules(  # noqa: PLR0917 - what they are made of
    given: Options, addresses: tuple[str, ...], has_any: bool, doubt: str, release: int | None, read_servers: ReadServers
) -> tuple[PodRules, tuple[str, ...]]:
    """The rules of options, for both cases that --ipv6 auto distinguishes if the addresses are not known, and the warnings."""
    settled = given.settle(offline(addresses, read_servers))
    rules, more = _plan(settled, addresses, doubt, release, has_any=has_any)
    second = settled if addresses else given.settle(offline(tuple(EXAMPLE_POD.values()), read_servers))
    if second.ipv6 != settled.ipv6:
        rules = replace(rules, ipv4_first=replace(_plan(second, (), doubt, release, has_any=has_any)[0], families=(IPV6,)))
    return rules, settled.warnings + more


def _plan(
    options: SettledOptions, addresses: tuple[str, ...], doubt: str, release: int | None, *, has_any: bool
) -> tuple[PodRules, tuple[str, ...]]:
    """The rules of options, if the pod `has_any`, and the warnings of their plan. `doubt`: why it may have none.

    `release`: N if the program of Istio 1.N makes them. Raises OptionError for options that it does not have.
    """
    if release is not None and has_any:
        options, made = _plan_of_istio(options, release)
    else:
        made = plan(options) if has_any else EMPTY_PLAN
    loaded = {family: load_plan(made, family) for family in FAMILIES}
    rulesets = {PLAN: {family: replace(one, doubt=doubt) for family, one in loaded.items()}}
    around = {family: stand_in(family, addresses) for family in FAMILIES}
    return PodRules(rulesets, around, {} if made is EMPTY_PLAN else {PLAN: options}), made.warnings


def _plan_of_istio(options: SettledOptions, release: int) -> tuple[SettledOptions, Plan]:
    """Return the rules that the program of Istio 1.`release` makes, and the options with which today's layout treats packets alike."""
    if options.native_nftables:
        options = native_plan.settle_as(options)
        return options, native_plan.plan(options)
    options = settle_as(options.replace(layout=layout_of(release)), release)
    return options, plan_of_release(options, release)


def _why_outside(facts: PodFacts) -> str:
    """Why a pod has no rules; empty if it has, or may have."""
    if facts.intercepted or facts.in_doubt:
        return ""
    if facts.host_network:
        return "hostNetwork: true: the pod uses its node's network"
    return describe_other_proxy(facts.other_proxy) if facts.other_proxy else facts.notes[0]


def _with_facts(rules: PodRules, facts: PodFacts | None) -> PodRules:
    """The rules with what a manifest knows of their pod."""
    if not facts:
        return rules
    other = rules.ipv4_first
    return replace(
        rules, ipv4_first=other and _with_facts(other, facts), origins=facts.origins, names=name_options(facts),
        has_tunnel=facts.has_tunnel is True, shared_owners=facts.shared_owners, proxy_ports=facts.proxy_ports,
        outside=_why_outside(facts), is_gateway=bool(facts.other_proxy), may_mark=facts.may_mark,
    )  # fmt: skip


def describe_live(name: str, found: LiveRules, by: str, facts: PodFacts | None) -> RuleSource:
    """Live rules, with what they show of their options and where these are not the known ones.

    `by`: whose options are known, which the rules should have been created by; empty if none are.
    """
    notes, warnings = _add_pod_notes(facts)
    warnings += found.warnings
    for source, inferred in found.inferred.items():
        warnings += tuple(f"{source}: not shown by the rules: {text}" for text in inferred.unread)
        if inferred.options is None:
            continue
        release = f"{'' if inferred.older.exact else 'what is most like '}{inferred.older}, read as " if inferred.older else ""
        notes += (f"{source}: rules of {release}{format_options(inferred.options.given)}",)
        if found.rules.snapshot:  # a dump has no listeners
            notes += _describe_tunnel_listener(inferred.options, found.rules.snapshot.listeners)
        wanted = found.rules.wanted if by else inferred.recorded
        wanted = wanted and inferred.settle_as(wanted)
        others = find_other_values(wanted, inferred.options) if wanted and wanted is not inferred.options else ()
        if others:
            texts = [(flag.label, *[quote_value(flag.kind.write(value)) for value in (live, wanted)]) for flag, wanted, live in others]
            words = [f"{label} is {is_live} and not {is_wanted}" for label, is_live, is_wanted in texts]
            whose = by or "the options recorded in the nft table's comment"
            warnings += (f"{source}: the rules are not those that {whose} would make: {'; '.join(words)}",)
    return RuleSource(name, _with_facts(found.rules, facts), notes, warnings, facts)


def _describe_tunnel_listener(options: Interception, listeners: Listeners | None) -> tuple[str, ...]:
    """A note on who listens on the HBONE port if the rules exempt it."""
    port = options.sidecar_tunnel
    if not (port and options.inbound_ports):
        return ()
    known = None if listeners is None or listeners.why_unread("tcp") else listeners.sockets
    users = sorted({one.uid for one in known or () if (one.protocol, one.port) == ("tcp", port)})
    if known is None:
        who = "the kernel does not report who listens there"
    else:
        who = f"user {', '.join(map(str, users))} listens there" if users else "no process listens there now"
    return (f"port {port} is left to the proxy's tunnel (HBONE): {who}",)


def _add_pod_notes(facts: PodFacts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and warnings about the manifest's pod, if there is one."""
    if not facts:
        return (), ()
    by_design = [f"{facts.name}: {finding}" for finding in facts.findings if finding.is_note]
    problems = [f"{facts.name}: {finding}" for finding in facts.findings if not finding.is_note]
    return (f"{facts.name}: {'; '.join(facts.notes)}", *by_design), tuple(problems)


def list_conditions(facts: PodFacts | None) -> tuple[str, ...]:
    """What would make a proof about a manifest's pod void, each as a clause that follows `unless`."""
    changers = facts.rule_changers if facts else ()
    found = [f"container {quote(one.container)} changes the rules: {one.right}" for one in changers[:MAX_NAMED]]
    if len(changers) > MAX_NAMED:
        found.append(f"one of {len(changers) - MAX_NAMED} more containers changes the rules")
    return tuple(found)


def refuse_given(given: Mapping[str, str], label: str = POD) -> None:
    """Refuse options of rules beside a pod, which has its own. `given`: fields, with the flags as written. Raises OptionError."""
    rules = {flag.field for flag in Interception.flags} - {"dns_servers"}  # manifests do not contain name servers
    if ignored := [name for field, name in given.items() if field in rules]:
        raise OptionError(*[f"{name}: the pod of {label or 'a file'} has its own options; give one of the two" for name in ignored])


def choose_one(found: Sequence[PodFacts], named: str, label: str = POD) -> PodFacts:
    """The single pod of those that were found where `named` says. Raises OptionError if there are several."""
    if len(found) > 1:
        names = ", ".join([facts.name for facts in found[:MAX_NAMED]]) + (" and more" if len(found) > MAX_NAMED else "")
        of_option = f"{label}: " if label else ""
        raise OptionError(f"{of_option}{len(found)} pods are in {quote_value(named)}: choose one with --select ({names})")
    return found[0]


def complete_servers(facts: PodFacts, options: Options) -> PodFacts:
    """Add the name servers that a pod needs, from the options or its dnsConfig; note if some are missing."""
    if not facts.options.wants_servers:
        return facts
    if options.dns_servers:
        return replace(facts, options=facts.options.replace(dns_servers=options.dns_servers))
    if facts.name_servers:
        named = replace(facts, options=facts.options.replace(dns_servers=facts.name_servers))
        note = "the cluster's name servers, which its pods ask first, are not in the manifest: name all with --dns-servers"
        return named if facts.only_these else replace(named, notes=(*facts.notes, note))
    note = "its name servers are not in the manifest: name them with --dns-servers, DNS counts as not captured without"
    return replace(facts, notes=(*facts.notes, note))
