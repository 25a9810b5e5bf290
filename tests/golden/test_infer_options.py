"""What rules tell of their options where some are missing or a foreign one stands among them: each change that is told, and what is told then.

    pytest tests/golden/test_infer_options.py --update-golden

writes the files anew; what changed is then for a person to read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from netinit.base.net import FAMILIES, IPV4
from netinit.options import Options, offline
from netinit.rules.infer_options import from_chains, from_iptables, release_plans
from netinit.rules.infer_options.older_releases import list_rules
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import write_rule
from netinit.rules.layouts import plan
from release_options import SETS, settle

FOLDER = Path(__file__).parent / "inferred"
CLASSIC = {"layout": "classic", "inbound_ports": "*", "ipv6": "on", "exclude_inbound_ports": "22", "virtual_interfaces": ("tap0",), "proxy_uids": "5", "proxy_gids": "7"}
OPTIONS = {name: settle(name) for name in SETS if name not in ("tproxy-nothing", "dns-of-ipv4", "nothing")} | {
    name: Options(**fields).settle(offline())
    for name, fields in {
        "classic": {**CLASSIC, "outbound_cidrs": "*", "exclude_outbound_cidrs": "10.1.0.0/16"},
        "classic-networks": {**CLASSIC, "outbound_cidrs": "10.0.0.0/8,fd00::/8", "exclude_outbound_cidrs": "10.1.0.0/16,fd01::/16", "keep_local_loopback": True},
        "classic-tproxy": {**CLASSIC, "outbound_cidrs": "*", "inbound_mode": "TPROXY", "ipv6": "off"},
        "ambient": {"layout": "ambient", "ipv6": "on", "redirect_dns": True, "virtual_interfaces": ("tap0",), "tunnel_port": 15009},
        "ambient-ingress": {"layout": "ambient", "ipv6": "off", "ingress": True},
    }.items()
}  # fmt: skip
RELEASES = {(name, minor): settle(name) for name, minor in (("all-ports-of-both-families", 0), ("tproxy", 5), ("dns-of-all-servers", 8), ("dns", 20))}
FOREIGN = ("-d 10.9.9.9/32 -j RETURN", "-p tcp -m tcp --dport 9 -j RETURN", "-j RETURN", "-m owner --uid-owner 9 -j RETURN", "-p tcp -j REDIRECT --to-ports 9")


def describe(found, known):
    """In what inferred options differ from those of all rules, and what is unknown."""
    if found.options is None:
        return ["no options", *found.unread]
    told = []
    for flag in Options.flags:
        one, other = (getattr(options, flag.field, None) for options in (found.options, known.options))
        told += [f"{flag.field}: {', '.join(map(str, one)) if type(one) is tuple else one}"] if one != other else []
    of, before = (f"{one.older}{', among others' * (not one.older.exact)}" if one.older else "today" for one in (found, known))
    told += [f"rules of: {of}"] if of != before else []
    return [*told, *[text for text in found.unread if text not in known.unread]]


def leave_out(rules, left):
    return {family: {at: [one for one in its if not left(at, one)] for at, its in chains.items()} for family, chains in rules.items()}


def text_of(rule):
    return " | ".join(dict.fromkeys([text for family in rule.families for text in write_rule(rule, family)]))


def change(rules, *, in_detail):
    """Yield what is changed, and the rules then; in detail, each rule is left out, and foreign ones are there."""
    places = dict.fromkeys([place for chains in rules.values() for place in chains])
    listed = {(place, rule): None for chains in rules.values() for place, its in chains.items() for rule in its}
    for place in places:
        yield f"without {' '.join(place)}", leave_out(rules, lambda at, _, place=place: at == place)
    for kind in dict.fromkeys([type(rule.target) for _, rule in listed]):
        yield f"without {kind.__name__}", leave_out(rules, lambda _, one, kind=kind: isinstance(one.target, kind))
    for kind in dict.fromkeys([type(match) for _, rule in listed for match in rule.matches]):
        yield f"without rules by {kind.__name__}", leave_out(rules, lambda _, one, kind=kind: any(isinstance(match, kind) for match in one.matches))
    for family in FAMILIES:
        yield f"{family.name} alone", {family: rules.get(family, {})}
        yield f"nothing in {family.name}", {**rules, family: {}}
    for place, rule in listed if in_detail else ():
        yield f"without {' '.join(place)} {text_of(rule)}", leave_out(rules, lambda at, one, place=place, rule=rule: (at, one) == (place, rule))
    for place in [one for one in places if one[0] == "nat" and rules.get(IPV4, {}).get(one)] if in_detail else ():
        for text in FOREIGN:
            foreign = parse_rule(text, IPV4)
            its = rules[IPV4][place]
            for where, more in (("first", [foreign, *its]), ("last", [*its, foreign])):
                yield f"{where} in {' '.join(place)} {text}", {**rules, IPV4: {**rules[IPV4], place: more}}


def page(rules, read, *, in_detail=True):
    known = read(rules)
    assert known.options
    told: dict[str, list[str]] = {}
    for what, changed in change(rules, in_detail=in_detail):
        if said := describe(read(changed), known):
            told.setdefault("\n".join([f"  {line}" for line in said]), []).append(what)
    return "".join(["".join([f"{line}\n" for line in (*whats, said, "")]) for said, whats in told.items()])


def rules_in_nft(made):
    """A plan's rules as nft has them: a list is one rule."""
    found = {family: {} for family in made.families}
    for table, chain, rule in made.walk():
        for family in rule.families:
            found[family].setdefault((table, chain), []).append(rule)
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_what_changed_rules_of_today_tell_is_on_file(name, golden):
    made = plan(OPTIONS[name])
    routing = {one.mark: one.table for one in made.ip_rules}
    golden({FOLDER / f"{name}.txt": page(rules_in_nft(made), lambda rules: from_chains(rules, routing))})


@pytest.mark.parametrize(("name", "minor"), RELEASES)
def test_what_changed_rules_of_a_release_tell_is_on_file(name, minor, golden):
    made = release_plans.plan(release_plans.settle_as(RELEASES[name, minor], minor), minor)
    routing = {one.mark: one.table for one in made.ip_rules}
    golden({FOLDER / f"{name}-1.{minor}.txt": page(list_rules(made), lambda rules: from_iptables(rules, routing), in_detail=False)})
