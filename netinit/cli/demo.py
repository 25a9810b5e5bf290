"""`netinit demo`: a pod, its plan, real connections through the rules, and the restored namespace.

Every claim is measured: servers report where connections arrived, snapshots what was left behind.
"""

from __future__ import annotations

import difflib
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import click

from netinit.base.errors import LabError
from netinit.base.net import FAMILIES, join_host
from netinit.base.output import answers_a_terminal, can_show, show_painted
from netinit.cli.console import color_option, wants_colour
from netinit.cli.rootless import run_again
from netinit.cli.values import OneOf
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.lab import APP_ID, PROXY_ID, Arrival, Pod, Probe, find_obstacle
from netinit.options import AUTO, BACKENDS, Options
from netinit.pods.apply import apply, remove
from netinit.pods.planning import settle
from netinit.pods.verify import verify
from netinit.rules.iptables.write import KNOWN_TABLES, write_rule
from netinit.rules.layouts import plan as plan_for
from netinit.rules.live_listing import list_snapshot
from netinit.rules.model import Plan, Rule
from netinit.rules.render import ip_commands

TITLE, CHAIN, TEXT, COMMENT, GOOD, BAD = "title", "chain", "text", "comment", "good", "bad"

# As Istio's template passes for a sidecar. --ipv6 on, because `auto` follows the pod's first address, IPv4 here.
SIDECAR_FLAGS = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020 --ipv6 on"
OUTBOUND, INBOUND, EXCLUDED = 15001, 15006, 15021
OUTSIDE_SERVER = {4: "203.0.113.7", 6: "2001:db8::7"}
PATIENCE = 3.0  # seconds until a connection counts as lost, even on a busy machine
LOCALHOST = {4: "127.0.0.1", 6: "::1"}
PASSTHROUGH = {family.version: family.passthrough_address for family in FAMILIES}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output and its kind; GOOD and BAD are results of checks."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A connection, who listens at its destination, and the proxy port that must receive it (0: none)."""

    what: str
    probe: Probe
    addressee: str
    captured_at: int = 0

    @property
    def dialled(self) -> str:
        """The connection's destination, in the servers' notation."""
        return join_host(self.probe.host, self.probe.port)

    def went_directly(self, arrival: Arrival) -> bool:
        """Whether the server at the dialled address answered."""
        return arrival.server == self.addressee and arrival.local == self.dialled


def play(backend: str) -> Iterator[Line]:
    """Yield the demonstration's lines. Raises LabError if no pod can be created, and the error of apply."""
    options = Options.from_argv([*shlex.split(SIDECAR_FLAGS), "--backend", backend])
    obstacle = find_obstacle()
    if obstacle:
        raise LabError(obstacle)
    with Pod() as pod:
        pod.open_servers(app=(80,), proxy=(OUTBOUND, INBOUND, EXCLUDED), outside=(80,))
        before = describe(pod)
        yield from present(pod)
        with pod.entered():
            plan = plan_for(settle(options))
        yield from draw(plan)
        yield from program(pod, options)
        yield Line(TITLE, "Connections; who answers shows where they arrived")
        for attempt, arrival in send(pod, attempts(pod)):
            yield judge(attempt, arrival)
        yield from inspect(pod, options)
        yield from clean(pod, options, before)


def present(pod: Pod) -> Iterator[Line]:
    """Introduce the pod's processes, and show that connections work before the rules exist."""
    yield Line(TITLE, "A pod made of network namespaces")
    yield Line(TEXT, f"pod      {' and '.join(pod.addresses)}; held by process {pod.pid}")
    yield Line(TEXT, f"app      in it, uid {APP_ID}, on port 80")
    ports = f"{OUTBOUND} (outbound), {INBOUND} (inbound), {EXCLUDED} (health)"
    yield Line(TEXT, f"proxy    in it, uid {PROXY_ID}, on ports {ports}")
    servers = " and ".join([OUTSIDE_SERVER[version] for version in pod.versions])
    yield Line(TEXT, f"client   beyond the veth pair, and the servers on port 80: {servers}")
    yield from control(pod, "without rules")


def attempts(pod: Pod) -> list[Attempt]:
    """The connections to make in both families, and where the sidecar's options send them."""
    app, proxy = APP_ID, PROXY_ID
    made = []

    def sent_by(uid: int, to: str, source: str | None = None) -> Probe:
        return Probe(to, 80, uid=uid, gid=uid, source=source, timeout=PATIENCE)

    for version, host in zip(pod.versions, pod.addresses, strict=True):
        outside, loopback, source = OUTSIDE_SERVER[version], LOCALHOST[version], PASSTHROUGH[version]
        health = Probe(host, EXCLUDED, timeout=PATIENCE)
        made += [
            Attempt(what="client → pod", probe=Probe(host, 80, timeout=PATIENCE), addressee="app", captured_at=INBOUND),
            Attempt(what="client → pod, excluded port", probe=health, addressee="proxy"),
            Attempt(what="app → outside", probe=sent_by(app, outside), addressee="outside", captured_at=OUTBOUND),
            Attempt(what="app → its own pod IP", probe=sent_by(app, host), addressee="app"),
            Attempt(what="app → itself over loopback", probe=sent_by(app, loopback), addressee="app"),
            Attempt(what="proxy → outside", probe=sent_by(proxy, outside), addressee="outside"),
            Attempt(what="proxy → own pod by endpoint", probe=sent_by(proxy, host), addressee="app", captured_at=INBOUND),
            Attempt(what=f"proxy → app from {source}", probe=sent_by(proxy, host, source), addressee="app"),
        ]
    return made


def control(pod: Pod, when: str) -> Iterator[Line]:
    """Make the same connections without rules: they arrive where they were sent."""
    made = [attempt for attempt in attempts(pod) if attempt.probe.source is None]  # the source address ::6 exists only with the rules
    direct = [attempt.went_directly(arrival) for attempt, arrival in send(pod, made)]
    yield check(all(direct), f"{when} {sum(direct)} of {len(direct)} connections arrive where they are addressed")


def send(pod: Pod, made: list[Attempt]) -> list[tuple[Attempt, Arrival]]:
    """Make the attempts, those of a side concurrently, and report where each arrived."""
    found: dict[Attempt, Arrival] = {}
    for outside in (True, False):
        own = [attempt for attempt in made if (attempt.probe.uid is None) is outside]
        found |= zip(own, pod.probe([attempt.probe for attempt in own], outside=outside), strict=True)
    return [(attempt, found[attempt]) for attempt in made]


def judge(attempt: Attempt, arrival: Arrival) -> Line:
    """Report where an attempt arrived, and whether that is correct: captured with its destination known, or directly."""
    good = attempt.went_directly(arrival)
    if attempt.captured_at:
        captured = "proxy", attempt.captured_at, attempt.dialled
        good = (arrival.server, arrival.port, arrival.original_destination) == captured
    if arrival.outcome != "answered":
        place = str(arrival)
    elif arrival.local == attempt.dialled:
        place = f"{arrival.server}, directly"
    else:
        place = f"{arrival.server} on {arrival.port}, original destination {arrival.original_destination}"
    text = f"{attempt.what:28}{attempt.dialled:20}{place}"
    if good:
        return Line(GOOD, text)
    wanted = f"the proxy on {attempt.captured_at}" if attempt.captured_at else f"{attempt.addressee}, directly"
    return Line(BAD, f"{text}; must be {wanted}")


def draw(plan: Plan) -> Iterator[Line]:
    """The plan's chains in iptables syntax, with each rule's purpose and option."""
    yield Line(TITLE, "The plan")
    yield Line(TEXT, f"netinit {SIDECAR_FLAGS}")
    for table in plan.tables:
        for chain in table.chains:
            yield Line(CHAIN, f"{table.name} {chain.name}")
            comment = ""
            for rule in chain.all_rules:
                if rule.comment != comment:
                    comment = rule.comment
                    yield Line(COMMENT, f"  # {comment} ({rule.origin_label})")
                yield from (Line(TEXT, f"  {text}") for text in _format_rule(rule, plan))
    commands = [command for family in plan.families for command in ip_commands(plan, family)]
    yield from (Line(TEXT, f"also: {command}") for command in commands)


def program(pod: Pod, options: Options) -> Iterator[Line]:
    """Apply twice; the second run must change nothing."""
    yield Line(TITLE, "Programming")
    for change in (True, False):
        started = time.perf_counter()
        with pod.entered():
            outcome = apply(options, final=False)
        took = (time.perf_counter() - started) * 1000
        what = "programmed" if outcome.changed else "nothing to do"
        run_name = "first run" if change else "second run"
        yield check(outcome.changed is change, f"{run_name}: {what}, {took:.0f} ms ({outcome.backend})")


def inspect(pod: Pod, options: Options) -> Iterator[Line]:
    """Verify the rules from outside, through the process that holds the pod."""
    yield Line(TITLE, "Verifying from outside, as an operator on the node")
    report = verify(options.replace(pid=pod.pid))
    count = len(report.differences)
    found = f"{count} differences from the plan" if count else "as planned"
    yield check(count == 0, f"netinit verify --pid {pod.pid} …: {found} ({report.backend})")
    yield from (Line(BAD, difference.describe()) for difference in report.differences)


def clean(pod: Pod, options: Options, before: list[str]) -> Iterator[Line]:
    """Remove the rules and compare the namespace with its initial state."""
    yield Line(TITLE, "Removing")
    with pod.entered():
        outcome = remove(options)
    yield check(outcome.changed, f"removed ({outcome.backend})")
    after = describe(pod)
    yield check(before == after, f"rules, addresses, routes and policy rules are as before ({len(before)} lines compared)")
    changes = difflib.unified_diff(before, after, "before", "after", lineterm="", n=0)
    yield from (Line(TEXT, f"  {change}") for change in changes)
    yield from control(pod, "without the rules again")


def describe(pod: Pod) -> list[str]:
    """Describe the pod's chains, rules, addresses, routes and policy rules; without counters and empty built-in chains."""
    with pod.entered():
        found = read_snapshot()
    described = []
    for family, legacy in product(FAMILIES, (False, True)):
        for table, listed in list_snapshot(found, family, legacy=legacy).items():
            for chain, policy in listed.policies.items():
                label = f"IPv{family.version} {table} {chain}"
                described += [f"{label}: policy {policy}"] if policy != "ACCEPT" else []
                described += [f"{label} {rule}" for rule in listed.rules[chain]]
    native = [one for one in found.tables if one.name not in KNOWN_TABLES]
    return [*described, *map(repr, (*native, *found.addresses, *found.routing_rules, *found.routes))]


def check(good: bool, text: str) -> Line:
    """A line with the result of a check."""
    return Line(GOOD if good else BAD, text)


def _format_rule(rule: Rule, plan: Plan) -> list[str]:
    """The rule's texts; those of one family, where the families differ, with its name."""
    texts = {family: write_rule(rule, family) for family in plan.families if family in rule.families}
    if len(texts) == len(plan.families) and len({tuple(found) for found in texts.values()}) == 1:
        return next(iter(texts.values()))
    return [f"{family.name} {text}" for family, found in texts.items() for text in found]


MARKS = {GOOD: "✔", BAD: "✘"}
PLAIN_MARKS = {GOOD: "ok", BAD: "NO"}  # for encodings without either symbol
STYLES = {TITLE: "1;36", CHAIN: "1", COMMENT: "2", GOOD: "32", BAD: "1;31", TEXT: ""}


@click.command("demo")
@click.option(
    "--backend", type=OneOf((AUTO, *BACKENDS)), default=AUTO, show_default=True,
    help="The backend that programs the kernel.",
)  # fmt: skip
@color_option
def command(backend: str) -> int:
    """Create a pod of network namespaces and watch interception work.

    Prints the plan, programs it, opens real connections over IPv4 and IPv6, shows where each one arrived, verifies and removes
    the rules. Nothing outside of its own namespaces changes. A plain user runs it in a user namespace (package uidmap).

    Exit code 1 if a check fails.
    """
    if os.geteuid() != 0:
        run_again(["demo", "--backend", backend])
    colour = wants_colour(answers_a_terminal())
    marks = MARKS if can_show("".join(MARKS.values())) else PLAIN_MARKS
    kinds: Counter[str] = Counter()
    for line in play(backend):
        show_line(line, colour=colour, marks=marks)
        kinds[line.kind] += 1
    wrong, right = kinds[BAD], kinds[GOOD]
    end = f"{wrong} of {wrong + right} checks failed" if wrong else f"All {right} checks passed"
    show_line(Line(TITLE, end), colour=colour, marks=marks)
    return 1 if wrong else 0


def show_line(line: Line, *, colour: bool, marks: dict[str, str]) -> None:
    """Print a line; titles follow a blank line."""
    style = STYLES[line.kind] if colour else ""
    mark = marks.get(line.kind, "")
    if line.kind == TITLE:
        show_painted([[]])
    show_painted([[("" if line.kind == TITLE else "  ", ""), (mark or line.text, style), (f" {line.text}" if mark else "", "")]])
