"""Answers the question of explain for every container of a pod: the sentence, the path, caveats, and what would change it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.json_answers import with_version
from netinit.base.net import IPV6, Network, number_of
from netinit.base.sanitize import Lines, escape, lines, quote
from netinit.base.snapshot import Snapshot
from netinit.live.host import LOST, find_devices, why_unroutable
from netinit.live.lost_answers import find_proxy
from netinit.live.recipients import Recipient
from netinit.live.reverse_path import PASSES, SourceCheck, check_source
from netinit.options import AUTO, ON, Interception
from netinit.options.command_line import format_options
from netinit.questions.connections import Question, make_packets
from netinit.questions.explain import CONVERT, Explanation
from netinit.questions.listening import describe, follow_connection
from netinit.questions.listening import to_object as recipient_to_object
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import RuleSource
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate.answers import AnswerTrace, follow_answer, make_answer
from netinit.simulate.endpoints import format_endpoint, format_packet
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import LoadedRule, Ruleset
from netinit.simulate.stand_ins import EXAMPLE_POD
from netinit.simulate.trace import CAPTURED, DROPPED, UNKNOWN, Trace, TraceStep

SIGNS = {True: "✔", False: "·", None: "?"}  # of rules that match, do not, may
PathRow = tuple[tuple[str, ...], str, str, str]
"""A rule on a path: its place (hook, table, backend) and the place's title, its sign and number, its text; or a text alone."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer for some containers; `containers` is empty if it is for none in particular.

    `source`: the place whose rule or policy decided, or ours if none did. `recipients`: who gets the connection after the rules, in
    a live pod.
    """

    containers: tuple[str, ...]
    source: str
    answer: Explanation
    warnings: tuple[str, ...]
    recipients: tuple[Recipient, ...] = ()


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """The answers for a pod, or for the options: one, or one for each group of containers that get different ones."""

    source: RuleSource
    answers: tuple[Answered, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the rules, and what the path of the first packet does not show."""
        return tuple(dict.fromkeys([*self.source.warnings, *[text for one in self.answers for text in one.warnings]]))


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """The answers for all pods that were asked about. `everything`: also show the rules that do not match."""

    pods: tuple[PodExplanation, ...]
    everything: bool = False

    @property
    def answers(self) -> tuple[Answered, ...]:
        """The answers of all pods."""
        return tuple([one for pod in self.pods for one in pod.answers])

    @property
    def verdict(self) -> str:
        """The first answer's: captured, direct, dropped or unknown."""
        return self.answers[0].answer.verdict

    @property
    def sentence(self) -> str:
        """The first answer's verdict, where the packet goes, and why."""
        return self.answers[0].answer.sentence

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the rules come from."""
        return tuple([text for pod in self.pods for text in pod.source.notes])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful, of all pods."""
        return tuple(dict.fromkeys([text for pod in self.pods for text in pod.warnings]))

    @property
    def text(self) -> str:
        """What `netinit explain` prints."""
        return "".join(self.texts)

    @property
    def texts(self) -> tuple[Lines, ...]:
        """The part of each pod."""
        return tuple([self._render(number, pod) for number, pod in enumerate(self.pods)])

    def _render(self, number: int, pod: PodExplanation) -> Lines:
        printed: list[str] = []
        if len(self.pods) > 1 and pod.source.facts:
            printed += [*[""][:number], f"{pod.source.facts.name}:"]
        for place, one in enumerate(pod.answers):
            if len(pod.answers) > 1:
                plural = "s" if len(one.containers) > 1 else ""
                printed += [*[""][:place], f"container{plural} {', '.join(map(quote, one.containers))}:"]
            printed += _list_lines(one.answer, everything=self.everything, recipients=one.recipients)
        return lines(printed)

    def to_object(self) -> dict[str, Any]:
        """What `netinit explain --json` prints: netinit/data/explain.schema.json describes it."""
        first, *others = [to_object(pod.source, one, everything=self.everything) for pod in self.pods for one in pod.answers]
        return with_version({**first, "others": others})


def explain_connection(sources: Sequence[RuleSource], question: Question, *, everything: bool = False) -> ExplainReport:
    """Say what happens to a connection under each of these rules, and why. Raises OptionError."""
    return ExplainReport(tuple([PodExplanation(one, tuple(answer_each(one, question))) for one in sources]), everything)


def answer_each(rule_source: RuleSource, question: Question) -> list[Answered]:
    """One answer for all containers of a manifest, or several where their users get different ones."""
    found: dict[tuple[object, ...], Answered] = {}
    for containers, packet in make_packets(question, rule_source):
        one = answer_question(_called_at(rule_source.rules, packet), packet)
        key = (one.answer.verdict, one.answer.trace.redirect_port, one.answer.sentence)
        closing = "netinit apply --reconcile, without --istio-exact" if rule_source.rules.options else CONVERT
        old = (ON_OLD_ENTRIES.format(closing=closing),) if one.answer.passes_on_old_entries else ()
        before = found.get(key) or replace(one, warnings=(*one.warnings, *old))
        found[key] = replace(before, containers=before.containers + containers)
    return list(found.values())


def _called_at(rules: PodRules, packet: Packet) -> PodRules:
    """The rules in a pod that has the address at which it is called, where of its own addresses only an example is known."""
    around = rules.surroundings[packet.family]
    own = [address for name, address in around.addresses if name != LOOPBACK_DEVICE]
    is_example = own == [number_of(EXAMPLE_POD[packet.family.version])]
    is_known = around.is_local(packet.destination) or around.delivers_to_group("udp", packet.destination)
    if rules.snapshot or not (packet.in_interface and packet.destination and is_example) or is_known:
        return rules
    called = around.replace(addresses=(*around.addresses, (around.default_interface, packet.destination)))
    return rules.on_host({**rules.surroundings, packet.family: called}, routes_known=rules.routes_known)


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
        is_bound = packet.source != usual
        ways = find_devices(rules.snapshot, packet if is_bound else packet.replace(source=None))
        answer = _explain_each_way(rules, packet, around, ways, is_bound=is_bound) or answer
    if leaves and rules.snapshot:
        answer = _check_route(rules.snapshot, answer, around.primary_address(around.leaving_interface(packet.destination, 0)))
    if leaves and not (rules.snapshot or around.addresses or _is_of_a_link(packet)):  # known are those of the other family alone
        answer = _without_addresses(rules, packet, answer)
    answer = _check_source(rules, answer)
    answer = replace(answer, answer=None if answer.trace.direct else _find_answer(rules, answer.trace, around))
    last = answer.trace.steps[-1:] if answer.trace.verdict == DROPPED else ()
    deciding = [step.source for step in (answer.trace.cause, *last) if step and step.source]
    source = next(iter(deciding), rules.place)
    made = rules.options.get(source) or rules.made_by or rules.wanted
    recipients = follow_connection(answer.trace, rules.snapshot, source, made) if rules.snapshot and not answer.trace.direct else ()
    caveats = (*_find_caveats(answer), *_find_other_end(answer, rules.join(packet.family), around))
    return Answered((), source, answer, caveats, recipients)


def _is_of_a_link(packet: Packet) -> bool:
    """Whether it goes to a neighbour or a group, for which every device with IPv6 has an address that no list of a pod's shows."""
    destination = packet.destination or 0
    return packet.family is IPV6 and any(one.first <= destination <= one.last for one in (LINK_LOCAL, GROUPS))


def _without_addresses(rules: PodRules, packet: Packet, answer: Explanation) -> Explanation:
    """The answer for a pod without an address of the packet's family, with which --ipv6 auto would turn IPv6 on."""
    name, asked = packet.family.name, rules.made_by and rules.made_by.given.ipv6
    with_one = dict(answer.changes).get(f"{Interception.flag('ipv6').label} {ON}", "") if asked == AUTO else ""
    refused = answer.refused_before_rules(f"the pod has no {name} address, so no route leads there", "")
    return replace(refused, changes=((f"{name} addresses of the pod", with_one or answer.verdict),))


def _find_answer(rules: PodRules, asked: Trace, around: Surroundings) -> AnswerTrace | None:
    """What becomes of the answer; None if there is none, or its way back is not known."""
    ruleset = rules.join(asked.first.family)
    owner = find_proxy(rules.made_by) if asked.verdict == CAPTURED else None
    packet, routed = make_answer(asked, around, owner), around
    if packet and rules.snapshot and not rules.routes_known and not (packet.in_interface or around.is_local(packet.destination)):
        ways = find_devices(rules.snapshot, packet)
        if len(ways) != 1 or LOST in ways:
            return None
        routed = _route_through(around, packet, next(iter(ways)))
    found = follow_answer(asked, ruleset, routed, owner=owner, usual=around)
    if not (found and packet and rules.snapshot) or found.arrives is False:
        return found
    checked = _check_routed(rules.snapshot, found.trace)
    return found if checked.drops is False else replace(found, arrives=False if checked.drops else None, reason=checked.reason)


def _check_route(snapshot: Snapshot, answer: Explanation, usual: int | None) -> Explanation:
    """The answer, if a way leads out. `usual`: the address that the kernel chooses for sockets that are not bound to one."""
    packet = answer.trace.first
    refusal = why_unroutable(snapshot, packet.replace(source=None) if packet.source == usual else packet)
    return answer.refused_before_rules(refusal, "a route that leads there") if refusal else answer


def _check_source(rules: PodRules, answer: Explanation) -> Explanation:
    """The answer, if the kernel takes the packet from its source."""
    if not rules.snapshot or answer.verdict in {DROPPED, UNKNOWN}:
        return answer
    checked = _check_routed(rules.snapshot, answer.trace)
    if checked.drops is None:
        return answer.unknown_because(f"{checked.reason}; without that: {answer.sentence}")
    return answer.dropped_because(checked.reason, checked.remedy) if checked.drops else answer


def _check_routed(snapshot: Snapshot, trace: Trace) -> SourceCheck:
    return check_source(snapshot, trace.routed, is_mark_known=trace.is_mark_known) if trace.routed else PASSES


def _route_through(around: Surroundings, packet: Packet, device: str) -> Surroundings:
    host = Network((packet.family.version, packet.destination or 0, packet.family.bits))
    return around.replace(routes=((host, device),), doubtful=())


def _explain_each_way(
    rules: PodRules, packet: Packet, around: Surroundings, ways: frozenset[str], *, is_bound: bool
) -> Explanation | None:
    """The answer if policy rules or several routes decide: unknown if they differ, None if one drops the packet.

    Unless its socket `is_bound` to an address, the packet has that of the device through which it leaves.
    """
    if LOST in ways:
        return None
    found = {}
    for name in sorted(ways):
        source = packet.source if is_bound else around.primary_address(name) or packet.source
        found[name] = rules.explain(packet.replace(source=source), _route_through(around, packet, name))
    if len({(one.verdict, one.trace.redirect_port) for one in found.values()}) == 1:
        return next(iter(found.values()))
    described = ", ".join([f"{one.verdict} through {name}" for name, one in found.items()])
    return next(iter(found.values())).unknown_because(f"the way out depends on more than the destination: {described}")


def _find_caveats(answer: Explanation) -> Iterator[str]:
    """Facts that the path of the first packet does not show."""
    trace = answer.trace
    if trace.disputed:
        yield f"{trace.reason}: remove one of them (netinit remove)"
    if trace.first.protocol != "tcp":
        return
    link_local = trace.first.family is IPV6 and LINK_LOCAL.first <= (trace.first.destination or 0) <= LINK_LOCAL.last
    if link_local and not trace.first.in_interface and answer.verdict == CAPTURED:
        yield TO_A_NEIGHBOUR


def _find_other_end(answer: Explanation, ruleset: Ruleset, around: Surroundings) -> Iterator[str]:
    """What becomes of the same packet from a socket of the kernel's own, if the user decides: no rule sees a user there."""
    first = answer.trace.first
    if not first.has_socket or first.protocol not in KERNEL_SOCKETS:
        return
    if answer.trace.verdict == UNKNOWN or answer.is_refused_before_rules:
        return
    other = simulate(first.replace(has_socket=False, uid=None, gid=None), ruleset, around)
    if (other.verdict, other.redirect_port) != (answer.verdict, answer.trace.redirect_port):
        port = f" to port {other.redirect_port}" if other.redirect_port else ""
        yield WITHOUT_A_USER.format(who=KERNEL_SOCKETS[first.protocol], end=f"{other.verdict}{port}")


KERNEL_SOCKETS = {"tcp": "further subflows of MPTCP, NFS", "udp": "WireGuard, VXLAN"}
WITHOUT_A_USER = "the user decides here, and the kernel's own sockets ({who}) have none: their packets are {end}"
LINK_LOCAL, GROUPS = Network.parse("fe80::/10"), Network.parse("ff00::/8")
TO_A_NEIGHBOUR = (
    "the proxy does not answer this connection: the kernel drops what comes from a link-local address through lo; exclude fe80::/10"
    " (--istio-service-exclude-cidr)"
)
ON_OLD_ENTRIES = (
    "a connection of this kind is not captured where it begins on a conntrack entry that another connection left; to close it:"
    " {closing}"
)


def render_text(answer: Explanation, *, everything: bool) -> Lines:
    """Format the sentence, the packet, its path, and changes of options."""
    return lines(_list_lines(answer, everything=everything))


def _list_lines(answer: Explanation, *, everything: bool, recipients: tuple[Recipient, ...] = ()) -> list[str]:
    printed = [answer.sentence, *map(describe, recipients), "", f"packet: {format_packet(answer.trace.first)}", "path:"]
    printed += format_path([_path_row(answer, step) for step in shown_steps(answer, everything=everything)])
    if answer.changes:
        printed += ["what would change it:", *[f"  {change}: {verdict}" for change, verdict in answer.changes]]
    return [line.rstrip() for line in printed]


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
    title = f"{step.hook}, table {step.table}{f' of {step.source}' if step.source else ''}"
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
        "captured_or_dropped": bool(trace.dropped_by), "reason": trace.reason, "zone": trace.zone, "source": source,
        "options": format_options(made.given) if made else None,
        "answer": {"arrives": answer.answer.arrives, "reason": answer.answer.reason} if answer.answer else None,
        "path": [_step_object(answer, step) for step in shown_steps(answer, everything=everything)],
        "changes": [{"change": change, "verdict": verdict} for change, verdict in answer.changes],
        "warnings": [*rule_source.warnings, *one.warnings],
        "listeners": [recipient_to_object(recipient) for recipient in one.recipients] if rule_source.rules.snapshot else None,
    }  # fmt: skip


def _step_object(answer: Explanation, step: TraceStep) -> dict[str, Any]:
    rule = step.rule
    return {
        "hook": step.hook, "table": step.table, "place": step.source, "chain": step.chain, "number": rule.number if rule else None,
        "rule": rule.text if rule else "", "purpose": rule.purpose if rule else "", "comment": rule.comment if rule else "",
        "origin": answer.origin_of(step), "outcome": step.outcome, "holds": step.holds, "packets": rule.packets if rule else None,
    }  # fmt: skip
