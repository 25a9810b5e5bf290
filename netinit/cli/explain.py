"""`netinit explain`: what happens to a connection, and which option causes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from netinit.base.net import IPV6, Network
from netinit.base.output import show_object
from netinit.base.sanitize import Lines, escape, lines, quote
from netinit.cli.console import answer as show_answer
from netinit.cli.console import color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand, json_option
from netinit.cli.rule_sources import (
    Question,
    RuleChoice,
    RuleSource,
    ask_about_a_connection,
    find_rule_sources,
    format_options,
    make_packets,
    rule_source_options,
)
from netinit.live.host import LOST, find_devices
from netinit.options import TPROXY, Options
from netinit.questions.explain import CONVERT, Explanation
from netinit.questions.pod_rules import PodRules
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.endpoints import format_endpoint, format_packet
from netinit.simulate.ruleset import LoadedRule
from netinit.simulate.trace import CAPTURED, DROPPED, FORWARDED, TraceStep

SIGNS = {True: "✔", False: "·", None: "?"}  # of rules that match, do not, may
PathRow = tuple[tuple[str, ...], str, str, str]
"""A rule on a path: its place (hook, table, backend) and the place's title, its sign and number, its text; or a text alone."""


@click.command("explain", cls=FlagCommand, shows=ANY_NAMESPACE)
@ask_about_a_connection
@rule_source_options
@json_option("explain")
@color_option
@click.option("--all", "everything", is_flag=True, help="Also show the rules that were checked and do not match.")
def command(options: Options, question: Question, choice: RuleChoice, *, as_json: bool, everything: bool) -> int:
    """Show what happens to a connection, and why.

    The rules are those of the options or of --pod; with --pid, --netns or --live the live ones, compared with those of
    --pod if given. The path is simulated: nothing is sent or changed. The answer says why something cannot be known.
    Exit codes: 0 answered, whatever the verdict, also unknown; 1 the rules cannot be read; 2 wrong options.
    """
    found = [(rule_source, answer_each(rule_source, question)) for rule_source in find_rule_sources(options, choice)]
    if as_json:
        first, *others = [to_object(rule_source, one, everything=everything) for rule_source, answers in found for one in answers]
        show_object({**first, "others": others})
        return 0
    for number, (rule_source, answers) in enumerate(found):
        note(rule_source.notes)
        warn(dict.fromkeys([*rule_source.warnings, *[text for one in answers for text in one.warnings]]))
        if len(found) > 1 and rule_source.facts:
            show_answer(lines([*[""][:number], f"{rule_source.facts.name}:"]))
        for place, one in enumerate(answers):
            if len(answers) > 1:
                plural = "s" if len(one.containers) > 1 else ""
                show_answer(lines([*[""][:place], f"container{plural} {', '.join(map(quote, one.containers))}:"]))
            show_answer(render_text(one.answer, everything=everything))
    return 0


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer for some containers; `containers` is empty if it is for none in particular.

    `source`: the place whose rule or policy decided, or ours if none did.
    """

    containers: tuple[str, ...]
    source: str
    answer: Explanation
    warnings: tuple[str, ...]


def answer_each(rule_source: RuleSource, question: Question) -> list[Answered]:
    """One answer for all containers of a manifest, or several where their users get different ones."""
    found: dict[tuple[object, ...], Answered] = {}
    for containers, packet in make_packets(question, rule_source):
        one = answer_question(rule_source.rules, packet)
        key = (one.answer.verdict, one.answer.trace.redirect_port, one.answer.sentence)
        closing = "netinit apply --reconcile, without --istio-exact" if rule_source.rules.options else CONVERT
        old = (ON_OLD_ENTRIES.format(closing=closing),) if one.answer.passes_on_old_entries else ()
        before = found.get(key) or replace(one, warnings=(*one.warnings, *old))
        found[key] = replace(before, containers=before.containers + containers)
    return list(found.values())


def answer_question(rules: PodRules, packet: Packet) -> Answered:
    """The answer for no container in particular.

    If several places hold rules (iptables-nft and iptables-legacy), the kernel runs all of them in an order that it does not
    expose: an answer that depends on it is unknown.
    """
    around = rules.surroundings[packet.family]
    answer = rules.explain(packet, around)
    leaves = not packet.in_interface and not around.is_local(packet.destination)
    if leaves and rules.snapshot and not rules.routes_known:
        usual = around.primary_address(around.leaving_interface(packet.destination, 0))
        sent = packet.replace(source=None) if packet.source == usual else packet  # a socket may be bound to another address
        answer = _explain_each_way(rules, packet, around, find_devices(rules.snapshot, sent)) or answer
    last = answer.trace.steps[-1:] if answer.trace.verdict == DROPPED else ()
    deciding = [step.source for step in (answer.trace.cause, *last) if step and step.source]
    source = next(iter(deciding), rules.place)
    return Answered((), source, answer, tuple(_find_caveats(rules, answer)))


def _explain_each_way(rules: PodRules, packet: Packet, around: Surroundings, ways: frozenset[str]) -> Explanation | None:
    """The answer if policy rules or several routes decide: unknown if they differ, None if one drops the packet."""
    if LOST in ways:
        return None
    host = Network((packet.family.version, packet.destination or 0, packet.family.bits))
    found = {name: rules.explain(packet, around.replace(routes=((host, name),), doubtful=())) for name in sorted(ways)}
    if len({(one.verdict, one.trace.redirect_port) for one in found.values()}) == 1:
        return next(iter(found.values()))
    described = ", ".join([f"{one.verdict} through {name}" for name, one in found.items()])
    return next(iter(found.values())).unknown_because(f"the way out depends on more than the destination: {described}")


def _find_caveats(rules: PodRules, answer: Explanation) -> Iterator[str]:
    """Facts that the path of the first packet does not show."""
    trace = answer.trace
    if trace.disputed:
        yield f"{trace.reason}: remove one of them (netinit remove)"
    if trace.first.protocol != "tcp":
        return
    link_local = trace.first.family is IPV6 and LINK_LOCAL.first <= (trace.first.destination or 0) <= LINK_LOCAL.last
    if link_local and not trace.first.in_interface and answer.verdict == CAPTURED:
        yield TO_A_NEIGHBOUR
    if trace.fate == FORWARDED and any(one.inbound_mode == TPROXY and one.inbound_ports for one in rules.options.values()):
        yield ANSWERS_DIVERTED


LINK_LOCAL = Network.parse("fe80::/10")
TO_A_NEIGHBOUR = (
    "the proxy does not answer this connection: the kernel drops what comes from a link-local address through lo; exclude fe80::/10"
    " (--istio-service-exclude-cidr)"
)
ANSWERS_DIVERTED = (
    "the answers to this connection do not arrive: with TPROXY the kernel delivers packets of known connections to this pod"
    " instead of forwarding them"
)
ON_OLD_ENTRIES = (
    "a connection of this kind is not captured where it begins on a conntrack entry that another connection left; to close it:"
    " {closing}"
)


def render_text(answer: Explanation, *, everything: bool) -> Lines:
    """Format the sentence, the packet, its path, and changes of options."""
    printed = [answer.sentence, "", f"packet: {format_packet(answer.trace.first)}", "path:"]
    printed += format_path([_path_row(answer, step) for step in shown_steps(answer, everything=everything)])
    if answer.changes:
        printed += ["what would change it:", *[f"  {change}: {verdict}" for change, verdict in answer.changes]]
    return lines([line.rstrip() for line in printed])


def format_path(rows: list[PathRow]) -> list[str]:
    """Align the rules of a path, and print the title of a place where another one begins."""
    width = max([len(head) for _, _, head, _ in rows], default=0)
    printed: list[str] = []
    at: tuple[str, ...] = ()
    for place, title, head, text in rows:
        if title and place != at:
            printed.append(f"  {title}")
            at = place
        printed.append(f"    {head:<{width}}  {text}" if head else text)
    return printed


def _path_row(answer: Explanation, step: TraceStep) -> PathRow:
    rule = step.rule
    if rule is None:
        return (), "", "", f"    {step.chain}: {step.outcome}" if step.chain else f"  * {step.outcome}"
    title = f"{step.hook}, table {step.table}{f' of {step.source}' if step.source else ''}" if step.table else ""
    head = f"{SIGNS[step.holds]} " + escape(f"{step.chain} {rule.number}")
    count = f"  [{rule.packets} packets]" if rule.packets is not None else ""
    return (step.hook, step.table, step.source), title, head, f"{format_rule(rule, answer.option_of(step))}{count}"


def format_rule(rule: LoadedRule, option: str) -> str:
    """A rule on a path: its text, a foreign comment, its purpose and the option behind it."""
    why = rule.purpose + (f" ({option})" if option else "")
    comment = f"  with comment {quote(rule.comment)}" if rule.comment else ""
    return f"{rule.bare_text}{comment}{f'  # {why}' if why else ''}"


def shown_steps(answer: Explanation, *, everything: bool) -> list[TraceStep]:
    """The steps to show: matching or possibly matching rules and kernel actions; with `everything` all steps."""
    if everything:
        return list(answer.trace.steps)
    ends = ("the chain ends", "the policy is ACCEPT", "NAT is skipped")
    return [step for step in answer.trace.steps if step.holds is not False and not step.outcome.startswith(ends)]


def to_object(rule_source: RuleSource, one: Answered, *, everything: bool) -> dict[str, Any]:
    """An answer in the form of netinit/data/explain.schema.json, without `others`."""
    answer, source, made = one.answer, one.source, rule_source.rules.options.get(one.source)
    trace = answer.trace
    packet = trace.first
    return {
        "pod": rule_source.facts.name if rule_source.facts else "", "containers": list(one.containers), "verdict": answer.verdict,
        "redirect_port": trace.redirect_port or None, "original_destination": answer.original_destination,
        "sentence": answer.sentence, "transparent": trace.transparent,
        "packet": {
            "family": packet.family.name, "direction": "inbound" if packet.in_interface else "outbound", "protocol": packet.protocol,
            "source": format_endpoint(packet.family, packet.source, None), "destination": answer.original_destination,
            "interface": packet.in_interface, "uid": packet.uid, "gid": packet.gid, "mark": packet.mark,
        },
        "reason": trace.reason, "zone": trace.zone, "source": source, "options": format_options(made.given) if made else None,
        "path": [_step_object(answer, step) for step in shown_steps(answer, everything=everything)],
        "changes": [{"change": change, "verdict": verdict} for change, verdict in answer.changes],
        "warnings": [*rule_source.warnings, *one.warnings],
    }  # fmt: skip


def _step_object(answer: Explanation, step: TraceStep) -> dict[str, Any]:
    rule = step.rule
    return {
        "hook": step.hook, "table": step.table, "place": step.source, "chain": step.chain, "number": rule.number if rule else None,
        "rule": rule.text if rule else "", "purpose": rule.purpose if rule else "", "comment": rule.comment if rule else "",
        "origin": answer.origin_of(step), "outcome": step.outcome, "holds": step.holds, "packets": rule.packets if rule else None,
    }  # fmt: skip
