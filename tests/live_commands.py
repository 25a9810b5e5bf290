"""What every command that judges a live pod says of one connection, asked of the code behind the command, without a process for each.

Each answer is a pair: whether the command sees that the connection is not captured (or cannot know), and what it said.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from laboratory import Pod
from netinit.base.errors import NetinitError
from netinit.base.json_answers import with_version
from netinit.kernel import children
from netinit.kubectl import check
from netinit.library.assertion_files import read_assertions
from netinit.library.diff import read_live_pair
from netinit.library.rule_reading import LIVE, PodChoice, find_rule_source
from netinit.node.jobs import VERIFY, Job, JobResult
from netinit.node.programmer import perform
from netinit.options import Options
from netinit.pods.apply import apply
from netinit.pods.doctor.findings import find_escapes
from netinit.pods.live import infer_run
from netinit.pods.verify import verify
from netinit.questions.answers import answer_each
from netinit.questions.audit.assertions import rule_on
from netinit.questions.comparison import EQUAL, compare
from netinit.questions.comparison import to_object as to_diff
from netinit.questions.connections import Question
from netinit.questions.plan_comparison import Report
from netinit.questions.rule_sources import RuleSource
from netinit.questions.verify import to_object
from netinit.simulate.trace import CAPTURED


class Connection(NamedTuple):
    """A connection of the application to outside (`direction` out), or of somebody outside to the pod."""

    direction: str
    host: str
    port: int
    peer: str = "10.77.0.1"  # who calls the pod
    uid: int = 1000
    interface: str = ""  # that a caller's packets come in through

    @property
    def assertion(self) -> str:
        version = "ipv6" if ":" in self.host else "ipv4"
        if self.direction == "in":
            return f"inbound {version} tcp port {self.port} is captured"
        return f"outbound {version} tcp to {self.host} port {self.port} not by proxy with mark 0 is captured"

    @property
    def question(self) -> Question:
        to = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        if self.direction == "in":
            return Question("inbound", to, self.peer, "", udp=False, uid="", gid="", interface=self.interface, mark=0)
        return Question("outbound", to, "", "", udp=False, uid=str(self.uid), gid="", interface="", mark=0)


Answer = tuple[bool, str]
PARTS = (("explain", "audit"), ("verify without flags", "sweep"), ("diff",), ("doctor",), ("apply",))  # what is asked beside verify
EVERYTHING = tuple(one for part in PARTS for one in part)


class Answers(NamedTuple):
    """What each command says that only looks: of the pod, and of each connection. `doubts` are what verify cannot decide."""

    pod: dict[str, Answer]
    connections: dict[str, dict[str, Answer]]
    doubts: tuple[str, ...]


def ask(
    pod: Pod, argv: tuple[str, ...], connections: dict[str, Connection], *, judged: tuple[str, ...], asked: tuple[str, ...] = EVERYTHING
) -> Answers:
    """Asks verify, and the commands `asked`, once; those that answer for a single connection, once for each: audit for the `judged` alone.

    `argv` are apply's options.
    """
    options = Options.from_argv(argv, {})
    with pod.entered():
        report = verify(options)
        found = {"verify": _of_report(report), "kubectl netinit check": _of_check(report, options)}
        if "verify without flags" in asked:
            shown = infer_run(Options())
            found["verify without flags"] = _of_report(verify(shown[0], snapshot=shown[-1])) if shown else (True, "no rules of netinit here")
        each: dict[str, dict[str, Answer]] = {name: {} for name in connections}
        rule_source = find_rule_source(Options(), LIVE) if {"explain", "audit"} & {*asked} else None
        for name, connection in connections.items():
            if rule_source and "explain" in asked:
                each[name]["explain"] = _ask_explain(rule_source, connection)
            if rule_source and "audit" in asked and name in judged:
                each[name]["audit"] = _ask_audit(rule_source, connection)
        if "diff" in asked:
            (pair,) = read_live_pair(options, PodChoice())
            found["diff"] = _of_diff(to_diff(compare(pair)))
        if "doctor" in asked:
            found["doctor"] = _of_doctor()
    if "sweep" in asked:
        done = look(pod, options)
        found["sweep"] = (bool(done.error or done.differences), str(done))
    return Answers(found, each, report.doubts)


def _ask_explain(rule_source: RuleSource, connection: Connection) -> Answer:
    (answered,) = answer_each(rule_source, connection.question)
    return answered.answer.verdict != CAPTURED, answered.answer.sentence


def _ask_audit(rule_source: RuleSource, connection: Connection) -> Answer:
    (ruling,) = rule_on(rule_source.rules, read_assertions([connection.assertion]))
    shown = ruling.counterexample.sentence if ruling.counterexample else ""
    return ruling.holds is not True, f"{ruling.holds}: {shown}"


def look(pod: Pod, options: Options, known: str = "") -> JobResult:
    """What a node's agent finds in the pod, in a child that enters it; `known` is the judgement of an earlier look."""
    job = Job.of(VERIFY, options, seconds=20.0)
    return JobResult.check(children.ask(lambda: perform(job, f"/proc/{pod.pid}/ns/net", -1, known), seconds=60, what="a look"))


def ask_apply(pod: Pod, argv: tuple[str, ...]) -> dict[str, Answer]:
    """What a second run says: an error, or that packets escape or may; it repairs nothing."""
    words = {"apply": (), "apply --require-capture": ("--require-capture",)}
    with pod.entered():
        return {name: _of_apply(Options.from_argv((*argv, *more), {})) for name, more in words.items()}


def reconcile(pod: Pod, argv: tuple[str, ...]) -> Answer:
    """What apply --reconcile says after it has repaired what it can."""
    with pod.entered():
        return _of_apply(Options.from_argv((*argv, "--reconcile"), {}))


def _of_report(report: Report) -> Answer:
    return bool(report.differences), "\n".join([*[one.describe() for one in report.differences], *report.warnings])


def _of_check(report: Report, options: Options) -> Answer:
    """As `kubectl netinit check` judges the report that a node's agent gives it."""

    class Found(NamedTuple):
        tree: dict[str, Any]
        source: str = "agent"

    class Agent:
        def ask(self, *_: object) -> Found:
            return Found(with_version(to_object(report, options)))

    class Facts(NamedTuple):
        options: Options

    row = check._verify(None, Facts(options), Agent())  # type: ignore[arg-type]
    return row["rules"] != check.PLANNED, str(row)


def _of_diff(compared: dict[str, Any]) -> Answer:
    """What is captured by the plan and not, or perhaps not, by what is there; another treatment is a difference, too, and no harm."""
    lost = [one for one in compared["differences"] if one["before"].startswith(CAPTURED) and not one["after"].startswith(CAPTURED)]
    assert compared["result"] != EQUAL or not (lost or compared["routing"])
    return bool(lost or compared["routing"]), str([*lost, *compared["routing"]])


def _of_doctor() -> Answer:
    found = tuple(find_escapes(Options()))
    return bool(found), "; ".join([one.message for one in found])


def _of_apply(options: Options) -> Answer:
    try:
        outcome = apply(options, final=False)
    except NetinitError as error:
        return True, str(error)
    said = [one for one in outcome.warnings if one.startswith(("escaping: ", "inactive: ", "shadowing: ")) or "was dormant" in one]
    return bool(said), "; ".join(outcome.warnings)
