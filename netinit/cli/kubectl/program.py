"""Runs the user's kubectl from PATH with the user's environment; its output is untrusted."""

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

MAX_BYTES = 256 << 20  # per answer; a thousand pods are about 20 MiB
MAX_ERROR = 400  # characters of an error that are shown


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program with its flags (--context, --kubeconfig) and environment."""

    program: str
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, flags: tuple[str, ...], environ: Mapping[str, str]) -> Kubectl:
        """Find kubectl on PATH. Raises NetinitError if there is none."""
        program = shutil.which("kubectl", path=environ.get("PATH", ""))
        if not program:
            raise NetinitError("kubectl is not on the PATH; netinit asks the cluster with it: install it")
        return cls(program, flags, {name: text for name, text in environ.items() if _is_text(name + text)})

    def ask(self, *words: str, extra: float = 0) -> run.Finished:
        """Run `kubectl WORDS` for at most 30 + `extra` s; see its `status`. Raises BackendUnavailableError."""
        begun = run.start(self.program, (*words[:1], *self.flags, *words[1:]), environment=self.environ, waits=int(extra * 10**9))
        return run.finish(begun)

    def ask_all(self, asked: Sequence[tuple[Sequence[str], str]], *, extra: float = 0) -> list[run.Finished]:
        """Run several kubectl commands concurrently, each with its standard input. Raises NetinitError."""
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
        try:
            tree = json.loads(done.output)
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict):
            raise ClusterError(f"{what}: the answer is not a JSON object; is {self.program} kubectl?")
        return tree


def describe_failure(done: run.Finished | Followed) -> str:
    """A failed program's error output, truncated."""
    return shorten(done.errors.strip() or f"ended with {done.status}", MAX_ERROR)


def _is_text(text: str) -> bool:
    """Whether a variable is valid UTF-8; others are not passed on."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
