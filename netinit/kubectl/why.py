"""`kubectl netinit why`: from a symptom of a pod in the cluster to its cause."""

from __future__ import annotations

import dataclasses

import click

from netinit.base.errors import ClusterError, DriftError, NetinitError
from netinit.base.output import show_object
from netinit.base.sanitize import lines, split_message
from netinit.base.tree import Tree, mapping, string
from netinit.cli.console import answer, color_option, note
from netinit.cli.values import OneOf, takes
from netinit.cli.why import JSON, asked_options, form_options
from netinit.inject.deciding.containers import find_proxy
from netinit.inject.deciding.init_container import find_init
from netinit.inject.deciding.podfile import read_object
from netinit.kubectl.cluster_objects import ClusterReader, find_object, read_pods_of
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources, cluster_options, image_option
from netinit.kubectl.objects import POD, read_pod, split_object
from netinit.kubectl.program import Kubectl
from netinit.kubectl.sources import AgentSource, PodQuestion, ask_child
from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_objects
from netinit.options import Options
from netinit.questions.connections import Question
from netinit.questions.why.asked import WhyQuestion
from netinit.questions.why.connection import Explain
from netinit.questions.why.objects import ClusterObjects, read_objects
from netinit.questions.why.steps import WhyReport

MAX_QUESTIONS = 40  # to the agent: five addresses, or ports, and a name server
WHO_READS = "Who reads the rules: the agent, else the manifest; or only this one."
_NOT_ASKED = "not asked yet"


@click.command("why")
@click.argument("named", **takes("OBJECT"))
@asked_options
@image_option
@click.option("--source", type=OneOf((AUTO, AGENT, EPHEMERAL, MANIFEST)), default=AUTO, show_default=True, help=WHO_READS)
@cluster_options
@form_options("-o", "--output", "--format")
@color_option
def command(
    asked: WhyQuestion, kubectl: Kubectl, *, named: str, image: str, source: str, namespace: str, agent_namespace: str, form: str
) -> int:
    """Find why a connection to or from a pod, its probes, a name, or its start fails; changes nothing.

    OBJECT is a pod's name, or KIND/NAME: of a workload the first pod that is not ready, or its template. Its objects and those of the
    other end are read with get and list: Namespaces, Services, EndpointSlices, pods, NetworkPolicies, PeerAuthentications,
    AuthorizationPolicies, DestinationRules, VirtualServices, ServiceEntries, Sidecars, the ConfigMap istio; what may not be read is
    "?". Rules and listeners are read through the node agent, else the manifest counts; with --source debug by ephemeral containers.

    Exit codes: 0 no step failed, 3 one did, 1 there is no such pod, 2 wrong options.
    """
    kind, name = split_object(named)
    tree = find_object(kubectl, kind, name, namespace)
    chosen = next(iter(read_pods_of(kubectl, kind, tree)), tree)
    reader = ClusterReader(kubectl, chosen)
    spec = mapping(chosen.get("spec"))
    reader.read_around(chosen, asked, is_injected=find_proxy(spec) is not None or find_init(spec) is not None)
    known = read_objects(reader.trees, whole=reader.whole, unread=reader.unread)
    notes: list[str] = []
    answers: dict[Question, Tree] = {}
    if kind_of(chosen) == POD:
        sources = Sources([], kubectl, AgentSource(kubectl, agent_namespace), image, source)
        answers = _ask_live(asked, known, chosen, sources, notes)
    if source in (AGENT, EPHEMERAL) and not answers:
        raise ClusterError("; ".join(notes) or "nothing was asked of the live pod; leave out --source")
    printed, tree_of_report, has_cause = ask_child(lambda: _render(_examine(asked, known, answers)))
    if form == JSON:
        show_object(tree_of_report)
    else:
        note([*notes, *tree_of_report["sources"]])
        answer(lines(split_message(printed)))
    return DriftError.exit_code if has_cause else 0


def kind_of(tree: Tree) -> str:
    """The kind of an object as in a resource's name."""
    return string(tree.get("kind")).lower()


def _render(found: WhyReport) -> tuple[str, Tree, bool]:
    """What is printed of a report, in both forms; a child gives it to this process."""
    return str(found.text), found.to_object(), found.cause is not None


def _examine(asked: WhyQuestion, known: ClusterObjects, answers: dict[Question, Tree]) -> WhyReport:
    explain = (lambda question: _find_answer(answers, question)) if answers else None
    found = why_of_objects(asked, known.workloads[0], known, options=Options(), outlook=Outlook(), explain=explain)
    return dataclasses.replace(found, sources=("live rules, read in the pod's network namespace",)) if answers else found


def _find_answer(answers: dict[Question, Tree], question: Question) -> Tree:
    if question not in answers:
        raise ClusterError("the live pod was not asked")
    return answers[question]


def _ask_live(
    asked: WhyQuestion, known: ClusterObjects, chosen: Tree, sources: Sources, notes: list[str]
) -> dict[Question, Tree]:
    """The live answers to what an examination asks about the pod's rules; none if nobody can read them, and `notes` say why.

    An ephemeral container stays listed in the pod, so that there is one only where it is asked for.
    """
    pod = read_pod(chosen)
    live = [one for one in sources.live(pod) if sources.chosen == EPHEMERAL or isinstance(one, AgentSource)]
    if not live:
        return {}
    try:
        options = read_object(chosen, sources.base(pod)).options
        questions = ask_child(lambda: _list_questions(asked, known))
        wanted = [(question, PodQuestion("explain", write_words(question), options)) for question in questions[:MAX_QUESTIONS]]
        if sources.chosen != EPHEMERAL:
            sources.agent.prepare([(pod, one) for _, one in wanted])
        return {question: live[0].ask(pod, one).tree for question, one in wanted}
    except NetinitError as error:
        notes.append(str(error))
        return {}


def _list_questions(asked: WhyQuestion, known: ClusterObjects) -> list[Question]:
    """What an examination asks about the pod's rules; it does not depend on the answers."""
    found: dict[Question, None] = {}

    def remember(question: Question) -> Tree:
        found[question] = None
        raise ClusterError(_NOT_ASKED)

    ask: Explain = remember
    why_of_objects(asked, known.workloads[0], known, options=Options(), outlook=Outlook(), explain=ask)
    return [*found]


def write_words(question: Question) -> tuple[str, ...]:
    """A question as arguments of explain."""
    valued = {
        "--to": question.to, "--from": question.source, "--to-port": question.to_port, "--uid": question.uid,
        "--interface": question.interface,
    }  # fmt: skip
    words = [word for flag, value in valued.items() if value for word in (flag, value)]
    return ((question.direction or "outbound"), *words, *["--udp"] * question.udp, "--json")
