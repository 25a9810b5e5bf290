"""The user's kubectl: found on the PATH, started with the user's environment, and believed in nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netinit.base.errors import ClusterError, NetinitError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree
from netinit.kernel import run
from netinit.kernel.streaming_program import Followed

MOST_BYTES = 256 << 20  # of an answer; a thousand pods are about 20 MiB
MOST_OF_AN_ERROR = 400


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program with the flags (--context, --kubeconfig) and the environment that it is started with."""

    program: str
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, flags: tuple[str, ...], environ: Mapping[str, str]) -> Kubectl:
        """NetinitError where there is none."""
        program = shutil.which("kubectl", path=environ.get("PATH", ""))
        if not program:
            raise NetinitError("kubectl is not on the PATH; netinit asks the cluster with it: install it")
        return cls(program, flags, {name: text for name, text in environ.items() if _is_text(name + text)})

    def ask(self, *words: str, extra: float = 0) -> run.Finished:
        """How `kubectl WORDS` ended; it has `extra` seconds beside the usual deadline."""
        begun = run.start(self.program, (*words[:1], *self.flags, *words[1:]), environment=self.environ, waits=int(extra * 10**9))
        return run.finish(begun)

    def ask_all(self, asked: Sequence[tuple[Sequence[str], str]], *, extra: float = 0) -> list[run.Finished]:
        """The same of several at once, each with its standard input. NetinitError."""
        jobs = [(self.program, (*words[:1], *self.flags, *words[1:]), text) for words, text in asked]
        found = run.finish_all(run.start_all(jobs, environment=self.environ, waits=int(extra * 10**9)))
        for one in found:
            if isinstance(one, NetinitError):
                raise one
        return [one for one in found if isinstance(one, run.Finished)]

    def follow(self, *words: str) -> Followed:
        """`kubectl WORDS`, whose lines are read as they come. BackendUnavailableError where it cannot be started."""
        return Followed(self.program, (*words[:1], *self.flags, *words[1:]), self.environ)

    def get(self, *words: str) -> Tree:
        """The object of `kubectl get WORDS`; an empty one where there is none. ClusterError."""
        done = self.ask("get", *words, "--ignore-not-found", "-o", "json")
        what = f"kubectl get {' '.join(words)}"
        if done.status:
            raise ClusterError(f"{what}: {describe_failure(done)}")
        if len(done.output) > MOST_BYTES:
            raise ClusterError(f"{what}: the answer is longer than {MOST_BYTES >> 20} MiB")
        if not done.output.strip():
            return {}
        try:
            tree = json.loads(done.output)
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict):
            raise ClusterError(f"{what}: the answer is not a JSON object; is {self.program} kubectl?")
        return tree


def describe_failure(done: run.Finished) -> str:
    """What a program said when it failed, cut where it is long."""
    return describe_errors(done.errors, done.status)


def describe_errors(errors: str, status: int) -> str:
    """The same of what it wrote on its standard error."""
    return shorten(errors.strip() or f"ended with {status}", MOST_OF_AN_ERROR)


def _is_text(text: str) -> bool:
    """Whether it can be handed on: a variable that is no UTF-8 is left out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
