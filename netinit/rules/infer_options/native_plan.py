"""The native nft rules that Istio makes since 1.27, as a plan: that of the current layout, whose packets they treat alike but for two.

Like those of earlier releases (`release_plans`), they are never programmed. They differ from the rules of the same options in
iptables, and so from the plan: only TCP in the state INVALID is dropped; IPv6 is captured where it is off, too; jumps to the chains
of DNS are for both families; and each listed port has its own pair of rules, where there is a pair.
"""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import FAMILIES
from netinit.options import INET, OFF, SettledOptions
from netinit.rules.infer_options.release_plans import WITHOUT_OURS
from netinit.rules.layouts import current
from netinit.rules.layouts.inbound import TCP
from netinit.rules.matches.packet import Port, Source
from netinit.rules.model import ISTIO_DROP, ISTIO_INBOUND, ISTIO_OUTPUT_DNS, MANGLE, Chain, Plan, Rule

FIRST = 27  # the minor release of Istio 1
FROM_PASSTHROUGH = 3  # in TPROXY mode, the place of IPv4's rule for what the proxy passes on, which IPv6 moved
OF_DNS = (ISTIO_OUTPUT_DNS, ISTIO_INBOUND)


def settle_as(options: SettledOptions) -> SettledOptions:
    """Return the options with which the current layout treats packets as Istio's native rules do with `options`."""
    return options.replace(istio_exact=True, ipv6=INET if options.ipv6 == OFF else options.ipv6)


def plan(options: SettledOptions) -> Plan:
    """Return Istio's native rules for options that `settle_as` gives."""
    options = options.replace(**WITHOUT_OURS)
    made = current.plan(options)

    def change(table: str, chain: Chain) -> Chain:
        rules = [_change(rule, made) for rule in chain.rules]
        returned = [rule for rule in rules if any(isinstance(match, Source) for match in rule.matches)]
        if (table, chain.name) == (MANGLE, ISTIO_INBOUND) and len(returned) == len(FAMILIES):
            rules.remove(returned[0])
            rules.insert(FROM_PASSTHROUGH, returned[0])
        return chain.replace(rules=tuple(_each_port(rules)))

    tables = tuple([one.replace(chains=tuple([change(one.name, chain) for chain in one.chains])) for one in made.tables])
    return made.replace(tables=tables, made_from=options)


def _change(rule: Rule, made: Plan) -> Rule:
    if rule.target.calls == ISTIO_DROP:
        return rule.replace(matches=(TCP, *rule.matches))
    if rule.origin and rule.origin.option == "redirect_dns" and rule.target.calls in OF_DNS:
        return rule.replace(families=made.families)
    return rule


def _each_port(rules: list[Rule]) -> Iterator[Rule]:
    """Yield rules; of two that are a pair, both for one port after the other."""
    left = iter(rules)
    for rule in left:
        if not rule.paired:
            yield rule
            continue
        other = next(left)
        for port in _ports_of(rule):
            yield _for_port(rule, port).replace(paired=False)
            yield _for_port(other, port)


def _ports_of(rule: Rule) -> tuple[int | tuple[int, int], ...]:
    return next(match.ports for match in rule.matches if isinstance(match, Port))


def _for_port(rule: Rule, port: int | tuple[int, int]) -> Rule:
    matches = [match.replace(ports=(port,)) if isinstance(match, Port) else match for match in rule.matches]
    return rule.replace(matches=tuple(matches))
