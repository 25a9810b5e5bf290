"""Sources of a pod's rules: the node agent, an ephemeral container, or only the manifest."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from netinit.base.errors import ClusterError, NetinitError, OptionError, ParseError
from netinit.base.sanitize import quote, shorten, split_message
from netinit.base.system import LINUX
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.cli.captured_run import run_captured
from netinit.kernel import children
from netinit.kubectl.objects import RUNNING, ClusterPod, read_pods
from netinit.kubectl.program import Kubectl, StreamingProgram, describe_failure, read_json
from netinit.node.settings import AgentSettings
from netinit.options import Interception, Options

AGENT_LABEL = "app.kubernetes.io/name=netinit-node"
AGENT_CONTAINER = "agent"
FROM_MANIFEST = ("explain", "audit", "draw")  # read live rules only with --live; verify and doctor always do
_SENT = (*[flag.field for flag in Interception.flags], "backend", "native_nftables", "force_iptables_binary", "ipset_threshold")
SECONDS_OF_A_QUESTION = 2.0  # added per pod to the default timeout
MAX_LINES, MAX_ANSWER = 2000, 1 << 20  # of an answer that is shown; the second in characters
_PULL_SECONDS, _PAUSE = 90.0, 1.0
ANSWER_SECONDS = 60.0  # of a child that answers by the manifest, as of an agent's
Found = TypeVar("Found")
_STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """netinit's answer for a pod: exit code, output, notes, and its source."""

    code: int
    output: str
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def text(self) -> tuple[str, ...]:
        """The answer's lines, truncated."""
        return bound(self.output)

    @property
    def tree(self) -> Tree:
        """The answer to a question with --json. Raises ClusterError if it is not a JSON object."""
        found = read_json(self.output)
        if found is None:
            raise ClusterError("; ".join(self.notes) or "no answer")
        return found


@dataclass(frozen=True, slots=True)
class PodQuestion:
    """A command for a pod: its arguments, and the options its rules should have."""

    verb: str
    words: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    @property
    def live(self) -> tuple[str, ...]:
        """The command line to run inside the pod."""
        own = Options(**{name: getattr(self.options, name) for name in _SENT})
        # The uid is given explicitly: the default is that of a user of the machine, which is another one there.
        always = () if own.traits.proxy_mark else ("proxy_uids",)
        return (self.verb, *own.to_argv(always=always), *(("--live",) if self.verb in FROM_MANIFEST else ()), *self.words)


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """The lines of a continuous command as they come; `find_code` finds the exit code if kubectl's status is another."""

    followed: StreamingProgram
    source: str
    find_code: Callable[[], int] | None = None


class AgentSource:
    """The node agents; questions for a node are asked at once, and nodes concurrently.

    Anyone can set an agent's label. So an agent must run in the namespace and service account that a ClusterRoleBinding of
    the chart names, which only who may grant its rights can create, or in the namespace that the user names.
    """

    def __init__(self, kubectl: Kubectl, namespace: str = "") -> None:
        self.kubectl = kubectl
        self.namespace = namespace
        self._agents: dict[str, ClusterPod] | None = None
        self._answers: dict[tuple[str, PodQuestion], PodAnswer | ClusterError] = {}

    def prepare(self, asked: Iterable[tuple[ClusterPod, PodQuestion]]) -> None:
        """Ask the agents all of these questions and cache the answers for `ask`."""
        by_agent: dict[str, tuple[ClusterPod, list[tuple[ClusterPod, PodQuestion]]]] = {}
        for pod, question in asked:
            try:
                agent = self.find(pod.node)
            except ClusterError as error:
                self._answers[pod.title, question] = error
                continue
            by_agent.setdefault(agent.title, (agent, []))[1].append((pod, question))
        calls = []
        for agent, questions in by_agent.values():
            asked_here = [
                {"uids": pod.uids, "title": pod.title, "environ": question.options.to_environ(), "words": question.live}
                for pod, question in questions
            ]
            calls.append((("exec", "-i", *_words(agent)), "".join([json.dumps(one) + "\n" for one in asked_here])))
        extra = SECONDS_OF_A_QUESTION * max((len(questions) for _, questions in by_agent.values()), default=0)
        for (agent, questions), done in zip(by_agent.values(), self.kubectl.ask_all(calls, extra=extra), strict=True):
            listed = done.output.splitlines()
            for number, (pod, question) in enumerate(questions):
                line = listed[number] if number < len(listed) else ""
                self._answers[pod.title, question] = _read_answer(agent, line, describe_failure(done) if done.status else "")

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """Answer a question. Raises ClusterError without an agent or the right to ask it."""
        if (pod.title, question) not in self._answers:
            self.prepare([(pod, question)])
        found = self._answers.pop((pod.title, question))  # a repeated question is asked again
        if isinstance(found, ClusterError):
            raise found
        return found

    def follow(self, pod: ClusterPod, question: PodQuestion) -> LiveAnswer:
        """Start a continuous command in the agent. Raises ClusterError."""
        agent = self.find(pod.node)
        about = [f"--uid={uid}" for uid in pod.uids]
        about += [f"--env={name}={value}" for name, value in question.options.to_environ().items()]
        followed = self.kubectl.follow("exec", "-i", *_words(agent), *about, "--", *question.live)
        answered = next(followed.lines(), "") == json.dumps({"following": question.verb})
        if not answered:
            followed.finish()
            raise ClusterError(f"the node agent {agent.title}: {describe_failure(followed)}")
        return LiveAnswer(followed, f"live, through the node agent {agent.title}")

    def base(self, node: str) -> Options:
        """Options for all pods from the configuration of a node's agent; the defaults if it is not readable."""
        try:
            containers = sequence(mapping(self.find(node).tree.get("spec")).get("containers"))
            words = next(sequence(mapping(one).get("args")) for one in containers if mapping(one).get("name") == AGENT_CONTAINER)
            settings = AgentSettings.from_argv([string(word) for word in words[2:]], {"NODE_NAME": node})
        except (ClusterError, OptionError, StopIteration):
            return Options()
        return settings.base.replace(reconcile=False)

    def find(self, node: str) -> ClusterPod:
        """The agent of a node. Raises ClusterError if there is no trusted one."""
        if self._agents is None:
            where = ("-n", self.namespace) if self.namespace else ("-A",)
            found = read_pods(self.kubectl.get("pods", *where, "-l", AGENT_LABEL))
            accounts = None if self.namespace else self._read_accounts()
            running = [one for one in found if one.phase == RUNNING and one.is_of_a_daemonset]
            self._agents = {one.node: one for one in running if accounts is None or (one.namespace, one.account) in accounts}
        if node not in self._agents:
            raise ClusterError(f"no node agent runs on the node {quote(node)}")
        return self._agents[node]

    def _read_accounts(self) -> set[tuple[str, str]]:
        try:
            tree = self.kubectl.get("clusterrolebindings", "-l", AGENT_LABEL)
        except ClusterError as error:
            raise ClusterError(f"which node agent to trust is not known, name its namespace with --agent-namespace: {error}") from None
        subjects = [mapping(one) for item in sequence(tree.get("items")) for one in sequence(mapping(item).get("subjects"))]
        return {(string(one.get("namespace")), string(one.get("name"))) for one in subjects if one.get("kind") == "ServiceAccount"}


def _words(agent: ClusterPod) -> list[str]:
    return ["-n", agent.namespace, agent.name, "-c", AGENT_CONTAINER, "--", "netinit", "node", "run"]


def _read_answer(agent: ClusterPod, line: str, failure: str) -> PodAnswer | ClusterError:
    """Parse one line of the agent's answer; `failure` is the reason if kubectl failed."""
    tree = read_json(line) or {}
    code = tree.get("code")
    if not isinstance(code, int):
        return ClusterError(f"the node agent {agent.title}: {failure or 'gave no answer that can be read; is it another version?'}")
    if tree.get("error"):
        return ClusterError(f"the node agent {agent.title}: {shorten(string(tree['error']))}")
    source = f"live rules, read through the node agent {agent.title}"
    return PodAnswer(code, string(tree.get("answer")), _notes(string(tree.get("notes"))), source)


@dataclass(frozen=True, slots=True)
class EphemeralSource:
    """An ephemeral container with netinit's image. It exits by itself but stays listed until the pod is deleted."""

    kubectl: Kubectl
    image: str
    seconds: float = _PULL_SECONDS
    pause: float = _PAUSE

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """Answer a question. Raises ClusterError if no image is known, or the container is rejected or does not run."""
        name, words = self._begin(pod, question)
        done = self.kubectl.ask("debug", *words)
        if done.status:
            raise ClusterError(f"kubectl debug: {describe_failure(done)}")
        code = self._wait(pod, name)
        logs = self.kubectl.ask("logs", "-n", pod.namespace, pod.name, "-c", name)
        if logs.status:
            raise ClusterError(f"kubectl logs: {describe_failure(logs)}")
        source = f"live rules, read by the ephemeral container {name}, which has ended and stays listed until the pod is deleted"
        answer, notes = _split_log(logs.output) if "--json" in question.words else (logs.output, ())
        return PodAnswer(code, answer, notes, source)

    def follow(self, pod: ClusterPod, question: PodQuestion) -> LiveAnswer:
        """Start a continuous command and attach to its container. Raises ClusterError."""
        name, words = self._begin(pod, question)
        followed = self.kubectl.follow("debug", "-i", *words)
        source = f"live, by the ephemeral container {name}, which stays listed until the pod is deleted"
        return LiveAnswer(followed, source, lambda: self._wait(pod, name))

    def _begin(self, pod: ClusterPod, question: PodQuestion) -> tuple[str, list[str]]:
        """A new container's name, and the arguments of `kubectl debug` that create it."""
        if not self.image:
            raise ClusterError("no image for an ephemeral container is known: name it with --image or NETINIT_IMAGE")
        name = f"netinit-{secrets.token_hex(4)}"
        environ = [f"--env={key}={value}" for key, value in question.options.to_environ().items()]
        return name, [
            "-n", pod.namespace, pod.name, f"--image={self.image}", "--profile=netadmin", f"--container={name}", "--quiet",
            "--arguments-only", *environ, "--", *question.live,
        ]  # fmt: skip

    def _wait(self, pod: ClusterPod, name: str) -> int:
        until = time.monotonic() + self.seconds
        why = "it has not started"
        while True:
            tree = self.kubectl.get("pod", pod.name, "-n", pod.namespace)
            listed = sequence(mapping(tree.get("status")).get("ephemeralContainerStatuses"))
            state = next((mapping(mapping(one).get("state")) for one in listed if mapping(one).get("name") == name), {})
            ended, waiting = mapping(state.get("terminated")), mapping(state.get("waiting"))
            if ended:
                code = ended.get("exitCode")
                return code if isinstance(code, int) else 1
            why = string(waiting.get("reason")) or why
            if why in _STUCK or time.monotonic() > until:
                raise ClusterError(f"the ephemeral container {name} of {pod.title} does not end: {quote(why)}")
            time.sleep(self.pause)


def ask_child(action: Callable[[], Found]) -> Found:
    """What `action` returns in a child of this process with a deadline: manifests may be hostile.

    Where no process can be forked, it runs here, and the caller can interrupt it.
    """
    if not LINUX:
        return action()
    return children.ask(action, seconds=ANSWER_SECONDS, what="the answer by the manifest", kept=None)


class ManifestSource:
    """The pod's manifest: the intended rules, not the live ones. A child of this process answers, within bounds."""

    name = "only the pod's manifest: what the rules should be; the live ones were not read"

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """Answer a question. Raises ClusterError if the command requires live rules."""
        if question.verb not in FROM_MANIFEST:
            raise ClusterError(f"{question.verb} needs the live state, which a manifest does not show")
        words, manifest = (question.verb, "--pod", "-", *question.words), json.dumps(pod.tree)
        done = ask_child(lambda: run_captured(words, {}, manifest))
        return PodAnswer(done.code, done.output, _notes(done.errors), self.name)


LiveSource = AgentSource | EphemeralSource
PodSource = LiveSource | ManifestSource
Source = TypeVar("Source", bound=PodSource)


def find_first(sources: Sequence[Source], pod: ClusterPod, ask: Callable[[Source], Found]) -> tuple[Found, tuple[str, ...]]:
    """What the first source gives that does not refuse, and why earlier ones did. Raises ClusterError."""
    refused: list[str] = []
    for source in sources:
        try:
            return ask(source), tuple(refused)
        except (ClusterError, ParseError) as error:
            refused.append(str(error))
        except NetinitError as error:  # a program that cannot be started
            raise ClusterError(str(error)) from None
    raise ClusterError(f"{pod.title}: {'; '.join(refused)}")


def ask_first(sources: Sequence[PodSource], pod: ClusterPod, question: PodQuestion) -> PodAnswer:
    """The answer of the first source that has one, with notes on why earlier ones failed. Raises ClusterError."""
    found, refused = find_first(sources, pod, lambda source: source.ask(pod, question))
    return replace(found, notes=(*refused, *found.notes))


def _split_log(log: str) -> tuple[str, tuple[str, ...]]:
    """Separate the JSON object in a container's log (stdout and stderr merged) from the lines around it."""
    printed = log.splitlines()
    if "{" not in printed or "}" not in printed:
        return log, bound(log)
    first, last = printed.index("{"), len(printed) - printed[::-1].index("}")
    return "\n".join(printed[first:last]), _notes("\n".join([*printed[:first], *printed[last:]]))


def _notes(text: str) -> tuple[str, ...]:
    """The lines of another run's stderr without their label, which is added again."""
    return tuple(line.removeprefix("note: ") for line in bound(text))


def bound(text: str) -> tuple[str, ...]:
    """Truncate a remote answer to the lines to show."""
    if not text:
        return ()
    found = split_message(shorten(text, MAX_ANSWER))
    return tuple(found[:MAX_LINES]) + (("…",) if len(found) > MAX_LINES else ())
