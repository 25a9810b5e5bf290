"""Runs the user's kubectl from PATH with the user's environment; its output is untrusted."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlencode

from netinit.base.errors import BackendUnavailableError, ClusterError, NetinitError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree
from netinit.kernel.run import Finished
from netinit.kube.kubectl_program import find_error
from netinit.kube.resources import PAGE, Resource, take_page

if sys.platform == "linux":
    from netinit.kernel import run
    from netinit.kernel.followed_program import Followed
else:
    from netinit.kernel import portable_run as run
    from netinit.kernel.portable_run import PortableFollowed as Followed

MAX_BYTES = 256 << 20  # per answer; a thousand pods are about 20 MiB
MAX_FOLLOWED_BYTES = 64 << 20  # of all that a followed program prints
MAX_ERROR = 400  # characters of an error that are shown
_MAX_AT_ONCE = 32  # commands; each takes some 40 MiB, and a cluster has a thousand nodes whose agents are asked
_PAUSE = 0.1  # seconds between two reads of a followed program's output
_ENDING = 10.0  # seconds that it may take to end


class StreamingProgram:
    """A program whose output lines are read as they come, as a context manager.

    Ctrl-C does not reach it; a byte or the end of its input ends it.
    """

    def __init__(self, path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._program = Followed(path, arguments, environment)
        self._read = 0
        self._rest = b""
        self._waiting: deque[bytes] = deque()
        self.status = 0  # exit status and error output, after `finish`
        self.errors = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def lines(self) -> Iterator[str]:
        """Yield lines until the program ends; a second call continues. Raises NetinitError above MAX_FOLLOWED_BYTES."""
        ended = False
        while self._waiting or not ended:
            while self._waiting:
                yield self._waiting.popleft().decode("utf-8", "replace").removesuffix("\r")
            pieces, ended = self._program.read(_PAUSE) if not ended else ([], True)
            for data in pieces:
                self._read += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._waiting.extend(whole)
                if self._read > MAX_FOLLOWED_BYTES:
                    limit = f"{self._program.program} printed more than {MAX_FOLLOWED_BYTES >> 20} MiB"
                    raise NetinitError(f"{limit}: ask for less, or less often")
            if ended and self._rest:
                self._waiting.append(self._rest)
                self._rest = b""

    def request_end(self) -> None:
        """Ask the program to end; `lines` yields the rest of its output."""
        self._program.request_end()

    def finish(self) -> None:
        """Ask the program to end and wait; after 10 s kill it."""
        if self._program.is_open:
            self.request_end()
            self.status, self.errors = self._program.finish(_ENDING)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program with its flags (--context, --kubeconfig) and environment."""

    program: str
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def ask(self, *words: str) -> Finished:
        """Run `kubectl WORDS`; see its `status`. Raises BackendUnavailableError."""
        return self.ask_all([(words, "")])[0]

    def ask_all(self, asked: Sequence[tuple[Sequence[str], str]], *, extra: float = 0) -> list[Finished]:
        """Run kubectl commands, some concurrently, each with its standard input, for at most 30 + `extra` s. Raises NetinitError."""
        jobs = [(self.program, (*words[:1], *self.flags, *words[1:]), text) for words, text in asked]
        found: list[Finished | BackendUnavailableError] = []
        for first in range(0, len(jobs), _MAX_AT_ONCE):
            found += _run_at_once(jobs[first : first + _MAX_AT_ONCE], self.environ, int(extra * 10**9))
        for one in found:
            if isinstance(one, NetinitError):
                raise one
        return [one for one in found if isinstance(one, Finished)]

    def follow(self, *words: str) -> StreamingProgram:
        """Start `kubectl WORDS` and read its lines as they come. Raises BackendUnavailableError if it cannot start."""
        return StreamingProgram(self.program, (*words[:1], *self.flags, *words[1:]), self.environ)

    def get(self, *words: str) -> Tree:
        """The object of `kubectl get WORDS`, or an empty one. Raises ClusterError."""
        found = self._read(words, self.ask(*_list(words)))
        if isinstance(found, ClusterError):
            raise found
        return found

    def get_all(self, asked: Sequence[Sequence[str]]) -> list[Tree | ClusterError]:
        """What `get` returns or raises for each of these words; kubectl runs for all of them at once."""
        done = self.ask_all([(_list(words), "") for words in asked])
        return [self._read(words, one) for words, one in zip(asked, done, strict=True)]

    def list_pages(self, resource: Resource, namespace: str = "") -> Iterator[list[Tree]]:
        """Yield the objects of a namespace, or of all, page by page, so that neither kubectl nor this process holds all.

        `kubectl get -o json` prints nothing before it has all of them. Raises ClusterError.
        """
        query = {"limit": str(PAGE)}
        while True:
            words = "--raw", f"{resource.path(namespace)}?{urlencode(query)}"
            page = self._read(words, self.ask("get", *words))
            if isinstance(page, ClusterError):
                raise page
            yield [resource.typed(one) for one in take_page(page, query)[0]]
            if not query["continue"]:
                return

    def _read(self, words: Sequence[str], done: Finished) -> Tree | ClusterError:
        what = f"kubectl get {' '.join(words)}"
        if done.status:
            return ClusterError(f"{what}: {describe_failure(done)}")
        if len(done.output) > MAX_BYTES:
            return ClusterError(f"{what}: the answer is longer than {MAX_BYTES >> 20} MiB")
        if not done.output.strip():
            return {}
        tree = read_json(done.output)
        return ClusterError(f"{what}: the answer is not a JSON object; is {self.program} kubectl?") if tree is None else tree


def _run_at_once(
    jobs: Sequence[tuple[str, Sequence[str], str]], environment: Mapping[str, str], waits: int
) -> list[Finished | BackendUnavailableError]:
    """Run programs (path, arguments, input) at once; an error takes the place of one that cannot be started."""
    begun: list[Any] = []
    for path, arguments, text in jobs:
        try:
            begun.append(run.start(path, arguments, stdin=text, environment=environment, waits=waits))
        except BackendUnavailableError as error:
            begun.append(error)
    return [one if isinstance(one, BackendUnavailableError) else run.finish(one) for one in begun]


def _list(words: Sequence[str]) -> tuple[str, ...]:
    return "get", *words, "--ignore-not-found", "-o", "json"


def read_json(text: str) -> Tree | None:
    """The object in a JSON text; None if it holds none."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def describe_failure(done: Finished | StreamingProgram) -> str:
    """Why a program failed, by its error output, truncated."""
    return shorten(find_error(done.errors) or f"ended with {done.status}", MAX_ERROR)
