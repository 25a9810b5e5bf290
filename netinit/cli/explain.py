"""`netinit explain`: what happens to a connection, and which option made it so."""

from __future__ import annotations

from typing import Any

import click

from netinit.base.output import show_artefact, to_json
from netinit.base.shown import Lines, escape, lines, quote
from netinit.cli.face import answer as show_answer
from netinit.cli.face import color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.question import (
    DIRECTIONS,
    Ground,
    Question,
    find_ground,
    ground_options,
    make_packet,
    question_options,
    spell_options,
)
from netinit.options import Interception, Options
from netinit.rules.packet import Packet
from netinit.simulate.endpoints import spell_endpoint, spell_packet
from netinit.simulate.explain import Explanation, explain
from netinit.simulate.trace import TraceStep


@click.command("explain", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.argument("direction", type=click.Choice(DIRECTIONS), required=False)
@question_options
@ground_options
@click.option("--json", "as_json", is_flag=True, help="Print an object; netinit/data/explain.schema.json describes it.")
@color_option
@click.option("--all", "everything", is_flag=True, help="Also show the rules that were checked and do not match.")
def command(  # noqa: PLR0917
    options: Options,
    direction: str | None,
    pod: str,
    select: str,
    pod_ip: tuple[str, ...],
    live: bool,
    as_json: bool,
    everything: bool,
    **asked: Any,
) -> int:
    """Show what happens to one connection, and why.

    The rules are those that the options ask for; with --pid, --netns or --live the live rules, from which the options
    that made them are read back; with --pod those of a pod's init container, and with both the live rules compared
    with these. Nothing is sent and nothing is changed: the packet's path through the rules is simulated.
    Where the result cannot be known, the answer says so.

      netinit explain --to 10.1.2.3:443 --uid 1000 -i '*' -b '*'

      netinit explain --from 10.9.9.9 --to-port 8080 inbound --pid 4711

      kubectl get pod NAME -o yaml | netinit explain --pod - --to 10.1.2.3:443
    """
    ground = find_ground(options, pod, select, pod_ip, live)
    packet = make_packet(Question(direction=direction or "", **asked), ground.surroundings)
    source, answer, warned = answer_question(ground, packet)
    made = ground.options.get(source)
    if as_json:
        show_artefact(render_json(answer, source, made, ground.warnings + warned, everything=everything))
        return 0
    note(ground.notes)
    warn(ground.warnings + warned)
    show_answer(render_text(answer, everything=everything))
    return 0


def answer_question(ground: Ground, packet: Packet) -> tuple[str, Explanation, tuple[str, ...]]:
    """Where the rules are that decide, the answer, and warnings.

    Where two places hold rules (iptables-nft and iptables-legacy), the kernel runs both in an order that it does not
    show; the answer counts only when the other place's rules do nothing to the packet.
    """
    found = {
        source: explain(
            packet,
            rulesets[packet.family],
            ground.surroundings[packet.family],
            options=ground.options.get(source),
            wanted=ground.wanted,
            origins=ground.origins,
        )
        for source, rulesets in ground.rulesets.items()
        if packet.family in rulesets
    }
    acting = {source: answer for source, answer in found.items() if _acts(answer)}
    ours = {source: answer for source, answer in found.items() if source in ground.options}
    source, answer = next(iter((acting or ours or found).items()))
    if len(acting) > 1:
        reason = f"{' and '.join(acting)} both have rules for this connection, and the kernel does not show which it runs first"
        caveat = f"{reason}: remove one of them (netinit remove)"
        return source, answer.unknown_because(reason), (caveat,)
    return source, answer, ()


def _acts(answer: Explanation) -> bool:
    """Whether rules of this place look at the connection; foreign tables, which nobody reads, are of no place."""
    return any(step.rule is not None and step.holds is not False for step in answer.trace.steps)


def render_text(answer: Explanation, *, everything: bool) -> Lines:
    """The sentence, the packet, the path, and what would change it."""
    printed = [answer.sentence, "", f"packet: {spell_packet(answer.trace.first)}", "path:"]
    place = None
    shown = shown_steps(answer, everything=everything)
    width = max([len(_head(step)) for step in shown if step.rule] or [0])
    for step in shown:
        if (step.hook, step.table) != place and step.table and step.rule:
            place = (step.hook, step.table)
            printed.append(f"  {step.hook}, table {step.table}")
        printed.append(_line(answer, step, width))
    if answer.changes:
        printed += ["what would change it:", *[f"  {change}: {verdict}" for change, verdict in answer.changes]]
    return lines([line.rstrip() for line in printed])


def _head(step: TraceStep) -> str:
    return escape(f"{step.chain} {step.rule.number if step.rule else '-'}")


def _line(answer: Explanation, step: TraceStep, width: int) -> str:
    if step.rule is None:
        return f"  * {step.outcome}" if not step.chain else f"    {step.chain}: {step.outcome}"
    mark = {True: "✔", False: "·", None: "?"}[step.holds]
    count = f"  [{step.rule.packets} packets]" if step.rule.packets is not None else ""
    origin = answer.option_of(step)
    why = step.rule.purpose + (f" ({origin})" if origin else "")
    said = f"  with comment {quote(step.rule.comment)}" if step.rule.comment else ""
    return f"    {mark} {_head(step):<{width}}  {step.rule.bare_text}{said}{f'  # {why}' if why else ''}{count}"


def shown_steps(answer: Explanation, *, everything: bool) -> list[TraceStep]:
    """The steps worth telling: rules that hold or may hold, what the kernel does; on demand all."""
    if everything:
        return list(answer.trace.steps)
    ends = ("the chain ends", "the policy is ACCEPT", "NAT is not asked")
    return [step for step in answer.trace.steps if step.holds is not False and not step.outcome.startswith(ends)]


def render_json(
    answer: Explanation, source: str, made: Interception | None, warnings: tuple[str, ...], *, everything: bool
) -> str:
    """An object as netinit/data/explain.schema.json describes it."""
    trace = answer.trace
    packet = trace.first
    found = {
        "verdict": answer.verdict,
        "redirect_port": trace.redirect_port or None,
        "original_destination": answer.original_destination,
        "sentence": answer.sentence,
        "transparent": trace.transparent,
        "packet": {
            "family": packet.family.name,
            "direction": "inbound" if packet.in_interface else "outbound",
            "protocol": packet.protocol,
            "source": spell_endpoint(packet.family, packet.source, None),
            "destination": answer.original_destination,
            "interface": packet.in_interface,
            "uid": packet.uid,
            "gid": packet.gid,
            "mark": packet.mark,
        },
        "reason": trace.reason,
        "zone": trace.zone,
        "source": source,
        "options": spell_options(made) if made else None,
        "path": [_step_object(answer, step) for step in shown_steps(answer, everything=everything)],
        "changes": [{"change": change, "verdict": verdict} for change, verdict in answer.changes],
        "warnings": list(warnings),
    }
    return to_json(found)


def _step_object(answer: Explanation, step: TraceStep) -> dict[str, Any]:
    return {
        "hook": step.hook,
        "table": step.table,
        "chain": step.chain,
        "number": step.rule.number if step.rule else None,
        "rule": step.rule.text if step.rule else "",
        "purpose": step.rule.purpose if step.rule else "",
        "comment": step.rule.comment if step.rule else "",
        "origin": answer.origin_of(step),
        "outcome": step.outcome,
        "holds": step.holds,
        "packets": step.rule.packets if step.rule else None,
    }
