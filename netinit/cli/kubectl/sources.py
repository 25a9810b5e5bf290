"""Who reads the rules of a pod: the node agent, an ephemeral container, or nobody, and the manifest is all there is."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netinit.base.errors import ClusterError, NetinitError, ParseError
from netinit.base.shown import quote, shorten, split_message
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.cli.itself import run_netinit
from netinit.cli.kubectl.objects import RUNNING, ClusterPod, read_pods
from netinit.cli.kubectl.program import Kubectl, describe_errors, describe_failure
from netinit.kernel.following import Followed
from netinit.options import Interception, Options

AGENT_LABEL = "app.kubernetes.io/name=netinit-node"
AGENT_CONTAINER = "agent"
LIVE_WORD = ("explain", "audit", "draw")  # these read live rules with --live; verify and doctor always do
FROM_MANIFEST = ("explain", "audit", "draw")
_SENT = (*[flag.field for flag in Interception.flags], "backend", "native_nftables", "force_iptables_binary", "ipset_threshold")
MOST_LINES, MOST_OF_AN_ANSWER = 2000, 1 << 20
NO_IMAGE = "no image for an ephemeral container is known: name it with --image or NETINIT_IMAGE"
_PULL_SECONDS, _PAUSE = 90.0, 1.0
_STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What netinit said of a pod: its exit code, its answer, what it noted, and who was asked."""

    code: int
    output: str
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def text(self) -> tuple[str, ...]:
        """The answer's lines, as many as are shown."""
        return bound(self.output)

    @property
    def tree(self) -> Tree:
        """The answer to a question with --json. ClusterError where it is no object of JSON."""
        try:
            found = json.loads(self.output)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ClusterError("; ".join(self.notes) or "no answer")
        return found


@dataclass(frozen=True, slots=True)
class PodQuestion:
    """A command for a pod: its words, and the options that the pod's rules should be made of."""

    verb: str
    words: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    @property
    def live(self) -> tuple[str, ...]:
        """The command line beside the pod."""
        own = Options(**{name: getattr(self.options, name) for name in _SENT})
        # The uid is spelled out: the default is that of a user of the machine, which is another one there.
        return (self.verb, *own.to_argv(always=("proxy_uids",)), *(("--live",) if self.verb in LIVE_WORD else ()), *self.words)


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """A command about a pod that goes on: its lines as they come, and who reads the rules.

    `find_code` finds out how it ended, where kubectl's own status does not say so.
    """

    followed: Followed
    source: str
    find_code: Callable[[], int] | None = None


class AgentSource:
    """The node agent; the one of each node is looked for once."""

    def __init__(self, kubectl: Kubectl, namespace: str = "") -> None:
        self.kubectl = kubectl
        self.where = ("-n", namespace) if namespace else ("-A",)
        self._agents: dict[str, list[ClusterPod]] | None = None

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """ClusterError where there is no agent, or no right to ask it."""
        agent = self._find(pod.node)
        done = self.kubectl.ask("exec", *self._words(agent, pod, question))
        if done.status:
            raise ClusterError(f"the node agent {agent.title}: {describe_failure(done)}")
        try:
            tree = mapping(json.loads(done.output))
            code = int(string(tree["code"]))
        except (ValueError, KeyError, RecursionError):
            raise ClusterError(f"the node agent {agent.title} gave no answer that can be read; is it another version?") from None
        source = f"live rules, read through the node agent {agent.title}"
        return PodAnswer(code, string(tree.get("answer")), _notes(string(tree.get("notes"))), source)

    def follow(self, pod: ClusterPod, question: PodQuestion) -> LiveAnswer:
        """The same for a command that goes on. ClusterError."""
        agent = self._find(pod.node)
        followed = self.kubectl.follow("exec", "-i", *self._words(agent, pod, question))
        answered = next(followed.lines(), "") == json.dumps({"following": question.verb})
        if not answered:
            followed.finish()
            raise ClusterError(f"the node agent {agent.title}: {describe_errors(followed.errors, followed.status)}")
        return LiveAnswer(followed, f"live, through the node agent {agent.title}")

    def _words(self, agent: ClusterPod, pod: ClusterPod, question: PodQuestion) -> list[str]:
        """The words behind `kubectl exec` that ask the agent."""
        words = ["-n", agent.namespace, agent.name, "-c", AGENT_CONTAINER, "--", "netinit", "node", "run"]
        words += [f"--address={address}" for address in pod.addresses]
        words += [f"--env={name}={value}" for name, value in question.options.to_environ().items()]
        return [*words, "--", *question.live]

    def _find(self, node: str) -> ClusterPod:
        if self._agents is None:
            self._agents = {}
            for one in read_pods(self.kubectl.get("pods", *self.where, "-l", AGENT_LABEL)):
                if one.phase == RUNNING and _is_of_a_daemonset(one.tree):
                    self._agents.setdefault(one.node, []).append(one)
        found = self._agents.get(node, [])
        if not found:
            raise ClusterError(f"no node agent runs on the node {quote(node)}")
        if len({one.namespace for one in found}) > 1:
            names = " and ".join(sorted(one.title for one in found))
            raise ClusterError(f"{names} both say that they are the node agent: choose with --agent-namespace")
        return found[0]


def _is_of_a_daemonset(tree: Tree) -> bool:
    """A label anybody can write; this an API server writes for a DaemonSet's pods."""
    owners = sequence(mapping(tree.get("metadata")).get("ownerReferences"))
    return any(mapping(owner).get("kind") == "DaemonSet" and mapping(owner).get("controller") is True for owner in owners)


class EphemeralSource:
    """An ephemeral container of netinit's image in the pod. It ends by itself, but stays listed until the pod is gone."""

    def __init__(self, kubectl: Kubectl, image: str, seconds: float = _PULL_SECONDS, pause: float = _PAUSE) -> None:
        self.kubectl = kubectl
        self.image = image
        self.seconds = seconds
        self.pause = pause

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """ClusterError where no image is known, the container is not let in, or does not run."""
        if not self.image:
            raise ClusterError(NO_IMAGE)
        name = _make_name()
        done = self.kubectl.ask("debug", *self._words(pod, name, question))
        if done.status:
            raise ClusterError(f"kubectl debug: {describe_failure(done)}")
        code = self._wait(pod, name)
        told = self.kubectl.ask("logs", "-n", pod.namespace, pod.name, "-c", name)
        if told.status:
            raise ClusterError(f"kubectl logs: {describe_failure(told)}")
        source = f"live rules, read by the ephemeral container {name}, which has ended and stays listed until the pod is gone"
        return PodAnswer(code, told.output, (), source)

    def follow(self, pod: ClusterPod, question: PodQuestion) -> LiveAnswer:
        """The same for a command that goes on: kubectl is attached to the container. ClusterError."""
        if not self.image:
            raise ClusterError(NO_IMAGE)
        name = _make_name()
        followed = self.kubectl.follow("debug", "-i", *self._words(pod, name, question))
        source = f"live, by the ephemeral container {name}, which stays listed until the pod is gone when it has ended"
        return LiveAnswer(followed, source, lambda: self._wait(pod, name))

    def _words(self, pod: ClusterPod, name: str, question: PodQuestion) -> list[str]:
        """The words behind `kubectl debug` that start the container."""
        environ = [f"--env={key}={value}" for key, value in question.options.to_environ().items()]
        return [
            "-n", pod.namespace, pod.name, f"--image={self.image}", "--profile=netadmin", f"--container={name}", "--quiet",
            "--arguments-only", *environ, "--", *question.live,
        ]  # fmt: skip

    def _wait(self, pod: ClusterPod, name: str) -> int:
        """The container's exit code."""
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


def _make_name() -> str:
    return f"netinit-{secrets.token_hex(4)}"


class ManifestSource:
    """The pod's manifest: what its rules should be, whatever they are."""

    name = "the pod's manifest alone: what the rules should be; the live ones were not read"

    def ask(self, pod: ClusterPod, question: PodQuestion) -> PodAnswer:
        """ClusterError where the command is about live rules alone."""
        if question.verb not in FROM_MANIFEST:
            raise ClusterError(f"{question.verb} is about what is there, which a manifest does not show")
        done = run_netinit((question.verb, "--pod", "-", *question.words), stdin=json.dumps(pod.tree))
        return PodAnswer(done.status, done.output, _notes(done.errors), self.name)


PodSource = AgentSource | EphemeralSource | ManifestSource


def ask_first(sources: Sequence[PodSource], pod: ClusterPod, question: PodQuestion) -> PodAnswer:
    """The answer of the first source that has one; its notes say why those before have none. ClusterError."""
    refused: list[str] = []
    for source in sources:
        try:
            found = source.ask(pod, question)
        except (ClusterError, ParseError) as error:
            refused.append(str(error))
            continue
        except NetinitError as error:  # a program that cannot be started
            raise ClusterError(str(error)) from None
        return PodAnswer(found.code, found.output, (*refused, *found.notes), found.source)
    raise ClusterError(f"{pod.title}: {'; '.join(refused)}")


def _notes(text: str) -> tuple[str, ...]:
    """The lines of another run's stderr, without the label that is put before each of them again."""
    return tuple(line.removeprefix("note: ") for line in bound(text))


def bound(text: str) -> tuple[str, ...]:
    """The lines of somebody's answer, as many as are shown."""
    if not text:
        return ()
    found = split_message(shorten(text, MOST_OF_AN_ANSWER))
    return tuple(found[:MOST_LINES]) + (("…",) if len(found) > MOST_LINES else ())
