"""Messages between the agent's two processes: jobs and results as plain JSON, validated by the reader. Pure.

The privileged process reads what the process on the network wrote; options arrive as a command line and an environment,
and are parsed as a pod's would be.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.net import parse_address
from netinit.base.tree import explain_json_error
from netinit.options import Options

APPLY, REMOVE, VERIFY, SUBSCRIBE = "apply", "remove", "verify", "subscribe"
LOOK_AGAIN = "look-again"  # of many pods: those where nothing has changed since they were verified
JUDGE_CONNECTIONS, SUBSCRIBE_CONNECTIONS = "judge-connections", "subscribe-connections"
CHECK_PROBES, REPAIR_PROBES = "check-probes", "repair-probes"  # of the node's own namespace, which is not entered
SUBSCRIPTIONS = (SUBSCRIBE, SUBSCRIBE_CONNECTIONS)
OF_THE_NODE = (CHECK_PROBES, REPAIR_PROBES)
KINDS = (APPLY, REMOVE, VERIFY, LOOK_AGAIN, JUDGE_CONNECTIONS, *SUBSCRIPTIONS, *OF_THE_NODE)
MAX_DIFFERENCES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job in one namespace, which is passed as a descriptor or is at `path`.

    `cgroup` is the pod's path in the node's cgroup file system, mounted at `cgroup_folder`; empty if it is not known.
    `uids`: pods by address, for the jobs of the node. `pods`: the VERIFY jobs that LOOK_AGAIN is about. With a subscription
    the descriptor is a Unix socket, through which the notification sockets are sent.
    """

    kind: str
    argv: tuple[str, ...] = ()
    environ: dict[str, str]
    seconds: float
    path: str = ""
    cgroup_folder: str = ""
    cgroup: str = ""
    uids: dict[str, str] = field(default_factory=dict)
    pods: tuple[Job, ...] = ()

    @staticmethod
    def of(kind: str, options: Options, *, seconds: float, **more: Any) -> Job:
        """Return the job for these options; those that name a namespace are ignored. `more`: further fields."""
        return Job(kind=kind, argv=options.to_argv(), environ=options.to_environ(), seconds=seconds, **more)

    def encode(self) -> bytes:
        """Encode the job as a message."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Job:
        """Decode a message. Raises ParseError."""
        try:
            return Job._read(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ParseError(f"this is not a job: {explain_json_error(error)}") from None

    @staticmethod
    def _read(tree: Any) -> Job:
        uids = {parse_address(address): uid for address, uid in tree["uids"].items()}
        pods = tuple([Job._read(one) for one in tree["pods"]])
        job = Job(**{**tree, "argv": tuple(tree["argv"]), "uids": uids, "pods": pods})
        texts = (job.kind, job.path, job.cgroup_folder, job.cgroup, *job.argv, *job.environ, *job.environ.values(), *uids.values())
        if job.kind not in KINDS or not all(isinstance(text, str) for text in texts) or not isinstance(job.seconds, float):
            raise ParseError("this is not a job: a field has the wrong type")
        if any(one.kind != VERIFY or one.pods for one in pods):
            raise ParseError("this is not a job: it is about jobs that are not checks of pods")
        return job

    def options(self, netns: str) -> Options:
        """Return the options, for the namespace at this path. Raises OptionError."""
        given = _read_options(self.argv, *self.environ.items())
        timeout = max(1, min(given.lock_timeout, int(self.seconds * 10**9)))
        return given.replace(
            netns=netns, pid=0, cni_mode=True, host_network=False, lock_timeout=timeout, cleanup_only=self.kind == REMOVE
        )


@lru_cache(maxsize=16)  # one child reads those of many pods, which are mostly alike
def _read_options(argv: tuple[str, ...], *environ: tuple[str, str]) -> Options:
    return Options.from_argv(argv, dict(environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job. `error` says why it failed; `late` and `gone` are kinds of failure.

    `pods`: of a LOOK_AGAIN job, the result of each check, None where it takes a process of its own.
    `judgement` is a VERIFY job's Judgement as netinit.kernel.answers encodes it; it stays in the privileged process.
    """

    error: str = ""
    late: bool = False
    gone: bool = False  # the namespace does not exist, or no longer; not one that is there and cannot be entered
    backend: str = ""
    changed: bool = False
    ours: bool = True  # rules of ours exist
    differences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    judgement: str = ""
    generation: int = 0  # of nf_tables, of the rules that a VERIFY job has judged; 0 where the kernel has none
    pods: tuple[JobResult | None, ...] = ()

    @staticmethod
    def check(answer: object) -> JobResult:
        """Return a process's answer if it is a result; a pod may have taken over the child. Raises ParseError."""
        usual = JobResult()
        if not isinstance(answer, JobResult) or any(type(getattr(answer, one)) is not type(getattr(usual, one)) for one in _FIELDS):
            raise ParseError("this is not a result")
        if not all(isinstance(text, str) for text in (*answer.differences, *answer.warnings)):
            raise ParseError("this is not a result: a difference or warning is not a text")
        for one in answer.pods:
            if one is not None:
                JobResult.check(one)
        return answer


_FIELDS = tuple(one.name for one in fields(JobResult))
