"""`kubectl netinit check`: all pods of a mesh in one table."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from netinit.base.errors import ClusterError, DriftError, NetinitError, OptionError
from netinit.base.sanitize import MAX_RULE_LENGTH, Lines, lines, shorten
from netinit.base.tables import count, format_table
from netinit.base.tree import mapping, sequence, string, strings
from netinit.cli.console import answer_either
from netinit.cli.values import OneOf
from netinit.inject.deciding.podfile import PodFacts, read_object
from netinit.inject.deciding.webhooks import INJECTION_LABEL, REVISION_LABEL
from netinit.kube.resources import PODS
from netinit.kubectl.common_options import cluster_options
from netinit.kubectl.objects import ClusterPod, check_name, read_pod, read_pods
from netinit.kubectl.program import Kubectl
from netinit.kubectl.sources import AgentSource, PodQuestion, ask_child
from netinit.options import Options
from netinit.questions.audit import kinds
from netinit.questions.audit.report import examine, to_object
from netinit.questions.rule_sources import find_planned

Row = dict[str, Any]
JSON, TABLE = "json", "table"
PLANNED, DIFFERENT, NOT_READ, STARTING, ENDED = "as planned", "different", "not read", "starting", "ended"
MAX_NAMES = 2  # of a workload's pods whose rows differ from its other pods'
MAX_TEXTS = 5  # about a row; -o json has all
_EXPIRED = "Error from server (Expired)"  # how kubectl says that a list's pages are gone
_BYPASSES = {kind.name for kind in kinds.BYPASSES}


@click.command("check")
@cluster_options
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="The pods of all namespaces.")
@click.option("-o", "--output", "form", type=OneOf((TABLE, JSON)), default=TABLE, show_default=True, help="The format.")
def command(kubectl: Kubectl, *, namespace: str, agent_namespace: str, everywhere: bool, form: str) -> int:
    """Show all pods of the mesh: injected, rules as planned, bypasses, warnings, and who does not listen.

    Pods without a sidecar in namespaces with automatic injection are listed too. Rules are read through the node agent; without
    one they are "not read", and bypasses are those of the manifest. Equal pods of a workload are one row, each text is printed once,
    by its number. A pod that waits for its first start is "starting". No container is added to any pod.

    Exit codes: 0; 3 if the rules of a pod are not as planned.
    """
    if everywhere and namespace:
        raise OptionError("-A: means all namespaces; leave out --namespace")
    agent, meshed = AgentSource(kubectl, agent_namespace), MeshedNamespaces(kubectl, everywhere=everywhere)
    rows = _look_at_all(_list_pods(kubectl, namespace, everywhere=everywhere), agent, meshed)
    answer_either({"pods": rows, "notes": meshed.notes}, render_rows(rows), as_json=form == JSON, notes=meshed.notes)
    return DriftError.exit_code if any(row["rules"] == DIFFERENT for row in rows) else 0


def _list_pods(kubectl: Kubectl, namespace: str, *, everywhere: bool) -> Iterator[ClusterPod]:
    """Yield the pods, read page by page; all at once where only kubectl knows the namespace.

    The API server gives further pages of a list for five minutes or so. Of a cluster that takes longer, the rest is listed by
    namespace, from that of the last pod on: lists are in the order of etcd's keys.
    """
    if not (everywhere or namespace):
        yield from read_pods(kubectl.get("pods"))
        return
    last = ""
    try:
        for page in kubectl.list_pages(PODS, namespace):
            for pod in map(read_pod, page):
                last = pod.namespace
                yield pod
    except ClusterError as error:
        if _EXPIRED not in str(error) or not everywhere:
            raise
        listed = [mapping(mapping(one).get("metadata")).get("name") for one in sequence(kubectl.get("namespaces").get("items"))]
        keys = [f"{check_name(name, 'namespace')}/" for name in listed]
        for key in sorted([one for one in keys if one >= f"{last}/"]):
            yield from _list_pods(kubectl, key.removesuffix("/"), everywhere=False)


class MeshedNamespaces:
    """Namespaces with injection, and in `notes` what could not be determined."""

    def __init__(self, kubectl: Kubectl, *, everywhere: bool) -> None:
        self.notes: list[str] = []
        self._kubectl = kubectl
        self._known: dict[str, bool] = {}
        if everywhere:
            self._read(lambda: sequence(kubectl.get("namespaces").get("items")))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name not in self._known and not self.notes:
            self._read(lambda: [self._kubectl.get("namespace", name)])
        return self._known.setdefault(name, False)

    def _read(self, read: Callable[[], list[Any]]) -> None:
        try:
            for metadata in (mapping(mapping(one).get("metadata")) for one in read()):
                labels = strings(metadata.get("labels"))
                is_meshed = bool(labels.get(REVISION_LABEL)) or labels.get(INJECTION_LABEL) == "enabled"
                self._known[string(metadata.get("name"))] = is_meshed
        except ClusterError as error:
            self.notes = [f"only pods that have a proxy are listed: {error}"]


@dataclass(frozen=True, slots=True)
class InterceptedPod:
    """What is kept of an injected pod until all are listed: no tree; `facts` are shared by pods that are intercepted alike."""

    pod: ClusterPod
    facts: PodFacts
    is_starting: bool


def _look_at_all(pods: Iterable[ClusterPod], agent: AgentSource, meshed: Container[str]) -> list[Row]:
    """A row for each pod of the mesh. Agents are asked twice: about all rules, then about those that differ."""
    rows: dict[str, Row] = {}
    found: dict[str, InterceptedPod] = {}
    alike: dict[Any, PodFacts] = {}
    for pod in pods:
        row, facts = _look(pod, agent, meshed=pod.namespace in meshed)
        if row:
            rows[pod.title] = row
        if facts and not pod.ended:
            shared = alike.setdefault(_describe_interception(facts), facts)
            found[pod.title] = InterceptedPod(replace(pod, tree={}), shared, pod.is_starting)
    agent.prepare([(one.pod, _question("verify", one.facts)) for one in found.values()])
    for title, one in found.items():
        rows[title] |= _verify(one.pod, one.facts, agent)
        if one.is_starting and rows[title]["rules"] in (DIFFERENT, NOT_READ):
            rows[title] |= {"rules": STARTING, "differences": [], "listeners": []}
    differ = [found[title] for title, row in rows.items() if row["rules"] == DIFFERENT]
    agent.prepare([(one.pod, _question("audit", one.facts)) for one in differ])
    seen: dict[Any, Row] = {}
    for title, one in found.items():
        rows[title] |= _audit(one.pod, one.facts, agent, seen, live=rows[title]["rules"] == DIFFERENT)
    return list(rows.values())


def _describe_interception(facts: PodFacts) -> tuple[Options, tuple[bool, ...]]:
    """What rules and their audit follow from."""
    return facts.options, tuple(":" in address for address in facts.addresses)


def _look(pod: ClusterPod, agent: AgentSource, *, meshed: bool) -> tuple[Row | None, PodFacts | None]:
    """A pod's row from its manifest, None outside the mesh and for a gateway, and its facts if it is intercepted."""
    row: Row = {
        "namespace": pod.namespace, "workload": pod.workload, "name": pod.name, "injected": False, "reason": "", "rules": None,
        "differences": [], "bypasses": None, "byDesign": None, "source": None, "warnings": [], "listeners": [],
    }  # fmt: skip
    try:
        facts = read_object(pod.tree)
        if not facts.programs and facts.intercepted:  # the agent's configuration applies
            facts = read_object(pod.tree, agent.base(pod.node))
    except NetinitError as error:
        return row | {"reason": "its options cannot be read", "warnings": [str(error)]}, None
    if facts.other_proxy:
        return None, None  # a gateway, a waypoint: no rules are planned for it
    if not facts.intercepted:
        reason = "on its node's network" if facts.host_network else "neither an init container nor a proxy"
        return (row | {"reason": reason} if meshed and not pod.ended else None), None
    row |= {"injected": True, "reason": facts.programmed_by, "warnings": [str(finding) for finding in facts.findings]}
    return row | {"rules": ENDED} if pod.ended else row, facts


def _question(verb: str, facts: PodFacts) -> PodQuestion:
    return PodQuestion(verb, ("--json",), facts.options)


def _verify(pod: ClusterPod, facts: PodFacts, agent: AgentSource) -> Row:
    try:
        found = agent.ask(pod, _question("verify", facts))
        report = found.tree
    except NetinitError as error:
        return {"rules": NOT_READ, "source": "manifest", "reasonNotRead": str(error)}
    ours = [mapping(one) for one in sequence(report.get("differences"))]
    texts = [" ".join(filter(None, (string(one.get("kind")), string(one.get("chain")), string(one.get("rule"))))) for one in ours]
    rules = PLANNED if report.get("ok") is True else DIFFERENT
    return {"rules": rules, "source": found.source, "differences": texts, "listeners": _list_listeners(report)}


def _list_listeners(report: Row) -> list[str]:
    """What is wrong with who listens in the pod, as its `verify` found; an older netinit on the node does not say."""
    found = [one for one in sequence(report.get("listeners")) if isinstance(one, dict)]
    return [f"{string(one.get('text'))} ({string(one.get('code'))})" for one in found]


def _audit(pod: ClusterPod, facts: PodFacts, agent: AgentSource, seen: dict[Any, Row], *, live: bool) -> Row:
    """The bypasses of live rules if they differ, else those of the manifest's, once for equal pods."""
    if live:
        try:
            found = agent.ask(pod, _question("audit", facts))
            return _summarize(mapping(next(iter(sequence(found.tree.get("pods"))), {})))
        except NetinitError:
            return {}
    key = _describe_interception(facts)
    if key not in seen:
        try:
            seen[key] = ask_child(lambda: _summarize(to_object(examine(find_planned(facts=facts), ()), full=False)))
        except NetinitError as error:
            seen[key] = {"bypasses": None, "auditError": str(error)}
    return seen[key]


def _summarize(audited: Row) -> Row:
    """The bypasses: those by design as a number, the others by name."""
    rows = [row for row in map(mapping, sequence(audited.get("traffic"))) if string(row.get("kind")) in _BYPASSES]
    named = [f"{string(row.get('title'))} ({string(row.get('by'))})" for row in rows if row.get("by") != kinds.DESIGN]
    return {"bypasses": named, "byDesign": sum(row.get("by") == kinds.DESIGN for row in rows)}


def render_rows(rows: list[Row]) -> Lines:
    """The pods by namespace and workload, what to act on first; then each text about them, once."""
    if not rows:
        return lines(["no pod here is in a mesh"])
    texts: dict[str, int] = {}  # each with its number, in the order of the rows
    groups: dict[tuple[Any, ...], list[str]] = {}
    for row in sorted(rows, key=_order):
        if row["rules"] != ENDED:
            said = _list_texts(row)
            key = (row["namespace"], row["workload"], row["rules"], tuple(said[:MAX_TEXTS]), len(said))
            groups.setdefault(key, []).append(row["name"])
    split = [key[:2] for key in groups]
    table = []
    for (namespace, workload, rules, said, number), names in groups.items():
        title = workload if split.count((namespace, workload)) == 1 else f"{workload}: {_join(names)}"
        marks = [f"[{texts.setdefault(text, len(texts) + 1)}]" for text in said]
        marks += [f"+{number - len(said)}"] if number > len(said) else []
        table.append((f"  {title}", count(len(names), "pod"), "not injected" if rules is None else rules, " ".join(marks)))
    heads = dict.fromkeys(namespace for namespace, *_ in groups)
    aligned = list(zip(groups, format_table(table), strict=True))
    printed = [line for one in heads for line in (one, *[text for key, text in aligned if key[0] == one])]
    printed += ["", *[f"[{number}] {text}" for text, number in texts.items()]] if texts else []
    return lines([*printed, *[""] * bool(printed), _sum_up(rows)])


def _order(row: Row) -> tuple[int, str, str, str]:
    states = {DIFFERENT: 0, None: 1, NOT_READ: 2, STARTING: 3, PLANNED: 4, ENDED: 5}
    return states[row["rules"]], row["namespace"], row["workload"], row["name"]


def _list_texts(row: Row) -> list[str]:
    """What there is to say about a pod, what to act on first."""
    found = [] if row["injected"] else [f"not injected: {row['reason']}"]
    found += [row["reasonNotRead"]] if row["rules"] == NOT_READ else []
    found += [*row["differences"], *row["listeners"], *[f"bypasses the proxy: {one}" for one in row["bypasses"] or ()]]
    return list(dict.fromkeys([shorten(one, MAX_RULE_LENGTH) for one in (*found, *row["warnings"])]))


def _join(names: list[str]) -> str:
    more = f" +{len(names) - MAX_NAMES}" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"


def _sum_up(rows: list[Row]) -> str:
    counts = {f"with rules {word}": sum(row["rules"] == word for row in rows) for word in (PLANNED, DIFFERENT, NOT_READ)}
    counts |= {word: sum(row["rules"] == word for row in rows) for word in (STARTING, ENDED)}
    counts |= {"not injected": sum(not row["injected"] for row in rows)}
    return f"{count(len(rows), 'pod')}: {', '.join([f'{number} {text}' for text, number in counts.items() if number])}"
