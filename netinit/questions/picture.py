"""The picture of a pod's chains, with the path of a connection highlighted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from netinit.base.errors import OptionError
from netinit.base.net import IPV4, Family
from netinit.questions.answers import answer_question
from netinit.questions.connections import Question, make_packet
from netinit.questions.rule_sources import PLAN, RuleSource
from netinit.questions.several_pods import list_some
from netinit.simulate.draw import Picture, choose_tables, make_picture

EVERY_TABLE = "all"


def draw_rules(
    rule_source: RuleSource, question: Question, family: Family | None = None, tables: Sequence[str] = ()
) -> tuple[Picture, tuple[str, ...]]:
    """Draw the rules of a family (default: that of the connection, else IPv4), with warnings.

    Draws the tables that are named, all for EVERY_TABLE, by default those that decide where packets go. If the question names a
    connection, the rules on its path are highlighted, and the caption is the answer. Raises OptionError.
    """
    warnings, rules = rule_source.warnings, rule_source.rules
    source, trace, caption = next(iter(rules.rulesets)), None, ""
    chosen = family or IPV4
    if question.names_an_end:
        packet = make_packet(question, rules.surroundings)
        if family and packet.family is not family:
            raise OptionError(f"--family: the connection in question is {packet.family.name}; leave one of them out")
        chosen = packet.family
        found = answer_question(rules, packet)
        source, answer, warnings = found.source, found.answer, warnings + found.warnings
        path = tuple(step for step in answer.trace.steps if step.source in ("", source))
        trace, caption = replace(answer.trace, steps=path), answer.sentence
    elif given := [field.name for field in fields(question) if getattr(question, field.name)]:
        label = question.direction or f"--{given[0].replace('_', '-')}"
        raise OptionError(f"{label}: needs a connection; name one with --to or --from")
    rulesets = rules.rulesets[source]
    if chosen not in rulesets:
        raise OptionError(f"--family: {chosen.name} is off in this namespace")
    title = f"{chosen.name} rules, {'as the options plan them' if source == PLAN else f'live ({source})'}"
    ruleset = rulesets[chosen]
    if EVERY_TABLE in tables:
        tables = ()
    elif not tables:
        tables = choose_tables(ruleset, trace)
        hidden = [table for table in make_picture(ruleset, title=title).tables if table not in tables]
        title += f"; --table all also draws {list_some(hidden)}" if hidden else ""
    return make_picture(ruleset, title=title, trace=trace, caption=caption, tables=tables), warnings
