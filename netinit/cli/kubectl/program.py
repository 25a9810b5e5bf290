"""Runs the user's kubectl from PATH with the user's environment; its output is untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netinit.base.errors import ClusterError, NetinitError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree
from netinit.kernel import run
from netinit.kernel.streaming_program import Followed

MAX_BYTES = 256 << 20  # per answer; a thousand pods are about 20 MiB
MAX_ERROR = 400  # characters of an error that are shown


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program with its flags (--context, --kubeconfig) and environment."""

    program: str
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def ask(self, *words: str) -> run.Finished:
        """Run `kubectl WORDS`; see its `status`. Raises BackendUnavailableError."""
        return self.ask_all([(words, "")])[0]

    def ask_all(self, asked: Sequence[tuple[Sequence[str], str]], *, extra: float = 0) -> list[run.Finished]:
        """Run several kubectl commands concurrently, each with its standard input, for at most 30 + `extra` s. Raises NetinitError."""
        jobs = [(self.program, (*words[:1], *self.flags, *words[1:]), text) for words, text in asked]
        found = run.run_all(jobs, environment=self.environ, waits=int(extra * 10**9))
        for one in found:
            if isinstance(one, NetinitError):
                raise one
        return [one for one in found if isinstance(one, run.Finished)]

    def follow(self, *words: str) -> Followed:
        """Start `kubectl WORDS` and read its lines as they come. Raises BackendUnavailableError if it cannot start."""
        return Followed(self.program, (*words[:1], *self.flags, *words[1:]), self.environ)

    def get(self, *words: str) -> Tree:
        """The object of `kubectl get WORDS`, or an empty one. Raises ClusterError."""
        done = self.ask("get", *words, "--ignore-not-found", "-o", "json")
        what = f"kubectl get {' '.join(words)}"
        if done.status:
            raise ClusterError(f"{what}: {describe_failure(done)}")
        if len(done.output) > MAX_BYTES:
            raise ClusterError(f"{what}: the answer is longer than {MAX_BYTES >> 20} MiB")
        if not done.output.strip():
            return {}
        tree = read_json(done.output)
        if tree is None:
            raise ClusterError(f"{what}: the answer is not a JSON object; is {self.program} kubectl?")
        return tree


def read_json(text: str) -> Tree | None:
    """The object in a JSON text; None if it holds none."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def describe_failure(done: run.Finished | Followed) -> str:
    """A failed program's error output, truncated."""
    return shorten(done.errors.strip() or f"ended with {done.status}", MAX_ERROR)
