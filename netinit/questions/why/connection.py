"""The steps "rules", "listeners", "routes" and "conntrack": explain's answer to the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from netinit.base.errors import NetinitError
from netinit.base.findings import FindingKind
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.live.recipients import (
    APPLICATION_ABSENT,
    APPLICATION_ELSEWHERE,
    APPLICATION_ON_LOOPBACK,
    NOT_THE_PROXY,
    OF_ALL,
    OF_ONE,
    PROXY_ABSENT,
    PROXY_ELSEWHERE,
    PROXY_NOT_TRANSPARENT,
    QUEUE_FULL,
    RESOLVER_ABSENT,
)
from netinit.questions.audit import kinds
from netinit.questions.connections import Question
from netinit.questions.explain import REPAIR
from netinit.questions.option_names import name_options, translate
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, count_unexamined, failed, passed, unknown
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED

NOT_AS_PLANNED = FindingKind(
    "NI333", "not-as-planned",
    "The live rules are not those that the pod asks for: some are missing, differ, or are not in force. `netinit "
    "verify` says what differs; `kubectl netinit fix POD` restores them.",
)
DROPPED_CONNECTION = FindingKind(
    "NI312", "dropped",
    "A rule in the pod's own network namespace drops or rejects the connection: the client sees a timeout, or a "
    "refusal. The answer names the rule, and the option that made it.",
)
PAST_THE_PROXY = FindingKind(
    "NI311", "past-the-proxy",
    "The pod's own options let this connection pass its proxy: an excluded port, network or user. Outbound, it is "
    "plain text, without the mesh's routes; inbound, the application gets the mutual TLS that the client's proxy "
    "sends. If that is what you want, the cause is elsewhere; else remove the exclusion.",
)

RULES, LISTENERS, ROUTES, CONNTRACK = "rules", "listeners", "routes", "conntrack"
Explain = Callable[[Question], Tree]
"""Answers a question with the object of netinit/data/explain.schema.json. Raises NetinitError."""
KINDS = {kind.code: kind for kind in (*OF_ONE.values(), *OF_ALL.values(), NOT_THE_PROXY)}  # of who listens
REMEDIES = {
    PROXY_ABSENT: "see why the proxy is not up; to wait for it: holdApplicationUntilProxyStarts, or a native sidecar",
    PROXY_ELSEWHERE: "let the proxy listen on all addresses of both families, or turn off capture of the family",
    PROXY_NOT_TRANSPARENT: "set interceptionMode TPROXY for the proxy too (annotation sidecar.istio.io/interceptionMode)",
    APPLICATION_ABSENT: "compare the port with containerPort and the Service's targetPort; is the application up?",
    APPLICATION_ON_LOOPBACK: "let the application listen on 0.0.0.0 or [::] instead of 127.0.0.1",
    APPLICATION_ELSEWHERE: "let the application listen on 0.0.0.0 or [::]",
    QUEUE_FULL: "the program does not accept: it hangs, is too slow, or its backlog is too short",
    NOT_THE_PROXY: "let the application listen on another port; if it is the proxy, let it run as the user that the rules exempt",
    RESOLVER_ABSENT: 'set ISTIO_META_DNS_CAPTURE: "true" for the proxy (proxyMetadata), or do not capture DNS',
}
_ENDED = ("refused", "unanswered", "passed")


class ConnectionAnswer(Record):
    """Explain's answer: `changes` pairs an option, in its author's words, with the verdict that it would bring.

    `interface`: where the connection comes in; empty for one that goes out.
    """

    verdict: str
    sentence: str
    is_inbound: bool
    destination: str
    changes: tuple[tuple[str, str], ...] = ()
    containers: tuple[str, ...] = ()
    interface: str = ""
    listeners: tuple[Tree, ...] | None = None
    warnings: tuple[str, ...] = ()
    is_lost: bool = False

    @property
    def change(self) -> str:
        """What would have it captured; empty if nothing that was tried."""
        return next((change for change, verdict in self.changes if verdict == CAPTURED), "")


def read_answers(tree: Tree) -> tuple[ConnectionAnswer, ...]:
    """Read explain's object, with the answers for other containers."""
    return tuple([_read(mapping(one)) for one in (tree, *sequence(tree.get("others")))])


def _read(tree: Tree) -> ConnectionAnswer:
    listeners = tree.get("listeners")
    changes = [mapping(one) for one in sequence(tree.get("changes"))]
    packet = mapping(tree.get("packet"))
    return ConnectionAnswer(
        verdict=string(tree.get("verdict")), sentence=string(tree.get("sentence")), is_inbound=packet.get("direction") == "inbound",
        destination=string(tree.get("original_destination")),
        changes=tuple([(string(one.get("change")), string(one.get("verdict"))) for one in changes]),
        containers=tuple(map(string, sequence(tree.get("containers")))), interface=string(packet.get("interface")),
        listeners=None if listeners is None else tuple(map(mapping, sequence(listeners))),
        warnings=tuple(map(string, sequence(tree.get("warnings")))), is_lost=mapping(tree.get("answer")).get("arrives") is False,
    )  # fmt: skip


def ask(explain: Explain, question: Question) -> tuple[tuple[ConnectionAnswer, ...], str]:
    """Explain's answers, and why there are none."""
    try:
        return read_answers(explain(question)), ""
    except NetinitError as error:
        return (), str(error)


def examine_answers(
    pod: PodInQuestion, answers: tuple[ConnectionAnswer, ...], *, udp: bool, client_in_mesh: bool | None = False
) -> Iterator[Step]:
    """Say what the rules do, who gets the connection, and what else of the kernel decides. `client_in_mesh`: of one that comes in."""
    if pod.in_mesh is False:
        return
    names = name_options(pod.facts) if pod.facts else {}
    for given in answers:
        one = _in_words_of_author(given, names)
        about = f"to {one.destination}" + (f", of {', '.join(one.containers)}" if len(answers) > 1 and one.containers else "")
        yield judge_rules(one, about, udp=udp, client_in_mesh=client_in_mesh)
        yield from _judge_listeners(one, pod)
        yield from _judge_kernel(one, about)


def _in_words_of_author(one: ConnectionAnswer, names: Mapping[str, str]) -> ConnectionAnswer:
    """An answer of a live pod, which knows flags alone, with the options named as the pod's author does."""
    changes = tuple([(translate(change, names), verdict) for change, verdict in one.changes])
    return one.replace(sentence=translate(one.sentence, names), changes=changes)


def judge_rules(one: ConnectionAnswer, about: str, *, udp: bool, client_in_mesh: bool | None) -> Step:
    """Say whether what the rules do with a connection can be why it fails."""
    if one.is_lost:
        remedy = "remove the foreign rule, or let it pass the proxy's answers"
        return failed(RULES, kinds.UNANSWERED.finding, one.sentence, about, remedy=remedy)
    if one.verdict == CAPTURED:
        return passed(RULES, one.sentence.partition(", because ")[0], about)
    if REPAIR in dict(one.changes):
        text = f"{one.sentence}; the live rules are not those that the pod asks for"
        return failed(RULES, NOT_AS_PLANNED, text, about, remedy=f"kubectl netinit fix POD, or on the node: {REPAIR}")
    if one.verdict == DROPPED:
        change = next((change for change, verdict in one.changes if verdict != DROPPED), "")
        remedy = change or "remove the rule that drops it; if it is not netinit's, ask its owner why it is there"
        return failed(RULES, DROPPED_CONNECTION, one.sentence, about, remedy=remedy)
    if one.verdict != DIRECT:
        return unknown(RULES, one.sentence, about)
    if udp:
        return passed(RULES, f"{one.sentence}; the proxy handles TCP only, so the mesh does nothing to UDP", about)
    if one.is_inbound and client_in_mesh is False:
        return passed(RULES, one.sentence, about)
    if one.change and (not one.is_inbound or client_in_mesh):
        lost = "plain text, past the proxy"
        if one.is_inbound:
            lost = "the client's proxy sends mutual TLS, which the application does not understand"
        return failed(RULES, PAST_THE_PROXY, f"{one.sentence}: {lost}", about, remedy=one.change)
    return unknown(RULES, one.sentence, about) if one.is_inbound else passed(RULES, one.sentence, about)


def _judge_listeners(one: ConnectionAnswer, pod: PodInQuestion) -> Iterator[Step]:
    if one.listeners is None:
        if one.verdict == CAPTURED:
            how = f"kubectl netinit why {pod.kubectl_name} -n {pod.namespace}, or --pid on the node"
            yield unknown(LISTENERS, "who listens is not known: the live pod was not read", pod.title, shown_by=how)
        return
    for listener in one.listeners[:MAX_LISTED]:
        kind, text = KINDS.get(string(listener.get("code"))), string(listener.get("text"))
        about = f"the {string(listener.get('who'))}"
        if not kind:
            yield passed(LISTENERS, text, about)
        elif listener.get("outcome") in _ENDED or kind == NOT_THE_PROXY:
            yield failed(LISTENERS, kind, text, about, remedy=REMEDIES.get(kind, ""), shown_by=_show_proxy(pod, kind))
        else:
            yield unknown(LISTENERS, text, about, kind=kind)
    yield from count_unexamined(LISTENERS, one.listeners, "listeners", pod.title)


def _show_proxy(pod: PodInQuestion, kind: FindingKind) -> str:
    """The command that shows what the proxy is configured to do, where that is the cause."""
    where = f"{pod.kubectl_name} -n {pod.namespace}"
    if kind == PROXY_ABSENT:
        return f"kubectl logs {where} -c istio-proxy"
    if kind.name.startswith(("proxy", "resolver")):
        return f"kubectl exec {where} -c istio-proxy -- pilot-agent request GET listeners"
    return ""


def _judge_kernel(one: ConnectionAnswer, about: str) -> Iterator[Step]:
    """What the rules do not say: the way out, and conntrack entries of other connections."""
    for text in one.warnings:
        if "conntrack entry" in text:
            yield unknown(CONNTRACK, text, about)
    if "the way out depends" in one.sentence:
        yield unknown(ROUTES, one.sentence, about, shown_by="ip rule; ip route show table all")
    elif one.listeners is not None and not one.is_inbound:
        yield passed(ROUTES, "the routing table has a way out", about)
