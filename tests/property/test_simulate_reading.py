"""Rules that are written and read again."""

from __future__ import annotations

from hypothesis import given

from core import plan
from netinit.base.net import FAMILIES, Family
from netinit.options import Options
from netinit.rules.iptables.parse import normalise, normalise_rule, parse_rule
from netinit.rules.iptables.write import write_plan, write_rule
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Source
from netinit.rules.model import Rule
from strategies import made_options


def expand(rule: Rule) -> list[Rule]:
    """The rule once for each element of its lists, in the order in which it is written."""
    rules = [rule]
    for match in rule.matches:
        field = next((name for name in ("networks", "names", "ports") if hasattr(match, name)), "")
        values = getattr(match, field, ())
        if len(values) > 1 and not (field == "ports" and match.negated):
            groups = lists_of_multiport(values) if field == "ports" else [(value,) for value in values]
            singles = [match.replace(**{field: group}) for group in groups]
            rules = [
                one.replace(matches=tuple(single if m == match else m for m in one.matches))
                for one in rules
                for single in singles
            ]
    return rules


def lists_of_multiport(ports: tuple[int | tuple[int, int], ...]) -> list[tuple[int | tuple[int, int], ...]]:
    """Ports one at a time, or where one of them is a range, as many as a multiport takes: 15, of which a range is two."""
    if all(isinstance(port, int) for port in ports):
        return [(port,) for port in ports]
    lists: list[list[int | tuple[int, int]]] = [[]]
    for port in ports:
        taken = sum(1 if isinstance(one, int) else 2 for one in [*lists[-1], port])
        lists += [[]] if taken > 15 else []
        lists[-1].append(port)
    return [tuple(one) for one in lists]


def is_everything(match: Match) -> bool:
    return isinstance(match, Source | Destination) and not match.negated and match.networks[0].length == 0


def read_as(rule: Rule, family: Family) -> Rule:
    """The rule with what a listing cannot tell left out: where it is from, and a match on every address."""
    told = tuple(match for match in rule.matches if not is_everything(match))
    return rule.replace(matches=told, comment="", origin=None, families=(family,), paired=False, promise="")


@given(made_options())
def test_a_written_rule_reads_as_itself(options: Options):
    for table in plan(options).tables:
        for chain in table.chains:
            for rule in chain.inserted + chain.rules:
                for family in rule.families:
                    texts = write_rule(rule, family)
                    wanted = [read_as(one, family) for one in expand(rule)]
                    assert [parse_rule(text, family) for text in texts] == wanted
                    assert all(
                        normalise_rule(parse_rule(text, family)) == normalise_rule(one) for text, one in zip(texts, wanted, strict=True)
                    )


@given(made_options())
def test_a_rule_with_its_purpose_written_into_it_is_the_same_rule(options: Options):
    made = plan(options)
    for family in FAMILIES:
        plain, told = (write_plan(made, family, comments=comments) for comments in (False, True))
        for table, chains in plain.items():
            for name, chain in chains.items():
                for short, long in zip(chain.rules, told[table][name].rules, strict=True):
                    assert normalise(short.text, family) == normalise(long.text, family)
                    assert parse_rule(long.text, family).comment == short.rule.comment


@given(made_options())
def test_different_rules_of_a_chain_have_different_keys(options: Options):
    for family in FAMILIES:
        for chains in write_plan(plan(options), family).values():
            for chain in chains.values():
                texts = {text for text in chain.texts if "/0 " not in text}  # everything is spelled in many ways
                assert len({normalise(text, family) for text in texts}) == len(texts)
