"""Every command that judges a live pod, in every situation: none says that a connection is captured that escapes, and none disagrees.

A real connection is the truth of each situation. `make test` takes each on one of its backends, and asks verify and a fifth of the other
commands there; of those that test_verify_in_force.py has, it takes one in four. `make prove` takes all on all backends and asks every command.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator

import pytest

from bpf import attach_xdp
from in_force_cases import DROPS as LISTED_DROPS
from in_force_cases import ESCAPES as LISTED_ESCAPES
from in_force_cases import HARMLESS as LISTED_HARMLESS
from in_force_cases import NATIVE, NFT, OPTIONS, do
from in_force_variants import DROPS, ESCAPES, HARMLESS, IN, IN6, OPAQUE, OUT, OUT6, VARIANTS, Variant
from lab_probes import Probe
from laboratory import Pod, start_servers
from live_commands import EVERYTHING, PARTS, Answer, Answers, Connection, ask, ask_apply, reconcile
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.pods.apply import apply
from programming import needs
from sweeps import choose

CONNECTIONS = {
    OUT: Connection("out", "203.0.113.7", 80), OUT6: Connection("out", "2001:db8::7", 80),
    IN: Connection("in", "10.77.0.2", 80), IN6: Connection("in", "fd77::2", 80, "fd77::1"),
}  # fmt: skip
CAPTURED, ESCAPED, GONE = "captured", "escaped", "gone"
BOTH = dict.fromkeys(
    ("a dormant table of iptables", "a dormant table of our own", "a device has the name of an excluded one"), (OUT, IN)
)
LISTED = {
    **{what: Variant(case.commands, ESCAPES if isinstance(case.truth, (dict, tuple)) else OPAQUE, BOTH.get(what, (case.direction,)), case.backends, case.options)
       for what, case in LISTED_ESCAPES.items()},
    **{what: Variant(case.commands, DROPS, backends=case.backends) for what, case in LISTED_DROPS.items()},
    **{what: Variant(commands, HARMLESS, backends=(NFT, NATIVE)) for what, commands in LISTED_HARMLESS.items()},
}  # fmt: skip
SITUATIONS = {**LISTED, **VARIANTS}
WHOLE = [(what, backend) for what, one in SITUATIONS.items() for backend in one.backends]
FEW = {what: one for turn, (what, one) in enumerate(SITUATIONS.items()) if what in VARIANTS or turn % 4 == 0}
CASES = choose([(what, one.backends[turn % len(one.backends)]) for turn, (what, one) in enumerate(FEW.items())], WHOLE)
ASKED = {what: choose(PARTS[turn % len(PARTS)], EVERYTHING) for turn, what in enumerate(choose(FEW, SITUATIONS))}
MENDED = ("dormant", "a jump that", "a match of", "a return in our own chain")  # what --reconcile takes away


@contextlib.contextmanager
def programmed(backend: str, one: Variant) -> Iterator[tuple[Pod, tuple[str, ...]]]:
    """A pod with servers and rules, and the options of these."""
    argv = (*OPTIONS, *one.options, "--backend", backend)
    with Pod(interfaces=one.interfaces) as pod:
        start_servers(pod, app=(80, 8080, 8081))
        for name in one.interfaces:  # what leaves there arrives outside, too
            pod.neighbours[name].run(["ip", "address", "add", "203.0.113.7/32", "dev", "lo"], check=True)
            pod.neighbours[name].listen(80, name="outside")
        with pod.entered():
            apply(Options.from_argv(argv, {}), final=False)
        yield pod, argv


def happen(pod: Pod, one: Variant, backend: str) -> contextlib.ExitStack:
    """Does what the situation is; what has to go on meanwhile ends with the stack."""
    going_on = contextlib.ExitStack()
    for command in one.commands:
        if command == "OWNER":
            table = "table ip evil { flags owner; chain c { type nat hook output priority -150; tcp dport 80 dnat to 203.0.113.7; }; }\nlist tables\n"
            with pod.entered():
                process = going_on.enter_context(subprocess.Popen(["nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            going_on.callback(process.kill)
            process.stdin.write(table)
            process.stdin.flush()
            for line in process.stdout:
                if "table ip evil" in line:
                    break
        elif command.startswith("XDP "):
            with pod.entered():
                attach_xdp(command.split()[1])
        else:
            do(pod, (command,), backend)
    return going_on


def connect(pod: Pod, directions: tuple[str, ...], answered: tuple[str, ...]) -> dict[str, str]:
    """What happens to a real connection of each direction. One of `answered` has the time that a busy machine needs before it is GONE."""
    found = {}
    for direction in directions:
        asked = CONNECTIONS[direction]
        ids = {"uid": APP_ID, "gid": APP_ID} if asked.direction == "out" else {}
        (arrival,) = (pod if ids else pod.client).probe([Probe(asked.host, asked.port, timeout=10.0 if direction in answered else 0.5, **ids)])
        proxy = (arrival.server, arrival.port) == ("proxy", 15001 if ids else 15006)
        found[direction] = (CAPTURED if proxy else ESCAPED) if arrival.outcome == "answered" else GONE
    return found


def is_mended(what: str) -> bool:
    return any(words in what for words in MENDED)


def name(one: tuple[str, str]) -> str:
    return f"{one[0]} ({one[1]})"


@pytest.fixture(autouse=True)
def no_remedies(monkeypatch):
    """No answer is judged by the options that would change it, whose search takes as long as all else that explain does."""
    monkeypatch.setattr("netinit.questions.explain.find_changes", lambda *_, **__: ())


@pytest.mark.parametrize("one", CASES, ids=name)
def test_no_command_disagrees_with_a_real_connection(one, require_netns):
    what, backend = one
    situation = SITUATIONS[what]
    for each in {backend, NFT}:
        needs(each)
    directions = (OUT, IN, OUT6, IN6) if "--ipv6" in situation.options else (OUT, IN)
    with programmed(backend, situation) as (pod, argv):
        assert set(connect(pod, directions, directions).values()) == {CAPTURED}
        with happen(pod, situation, backend):
            truth = connect(pod, directions, situation.directions if situation.effect in {ESCAPES, HARMLESS} else ())
            with pod.entered():
                called = {one[1] for one in socket.if_nameindex()}
            interface = next(one for one in ("eth0", "eth7", "lo") if one in called)
            asked = {direction: CONNECTIONS[direction]._replace(interface=interface) for direction in directions}
            answers = ask(pod, argv, asked, judged=situation.directions, asked=ASKED[what])
            applied = ask_apply(pod, argv) if "apply" in ASKED[what] else {}
            repaired = reconcile(pod, argv) if situation.effect == ESCAPES else None
            after = connect(pod, situation.directions, situation.directions if is_mended(what) else ()) if repaired else {}
    wrong = [*_judge(what, situation, truth, answers, applied), *(_judge_repair(what, after, repaired) if repaired else ())]
    assert not wrong, f"{what} ({backend}): {truth}\n" + "\n".join(wrong)


EXEMPT = (
    ("dormant", "apply --require-capture"),  # the run before has activated the table
    ("a policy of IPsec", "apply"),  # which does not ask for these, since that loads a module of the kernel
    ("a source of another device", "audit"),  # counts every interface as possible for every source
    ("a source of another device", "explain"),  # answers for every source, where none is given
)
OF_A_CONNECTION = ("explain", "audit")


def _judge(
    what: str, situation: Variant, truth: dict[str, str], answers: Answers, applied: dict[str, Answer]
) -> Iterator[str]:
    """What is not so: of the situation itself, or of what a command says."""
    allowed = {ESCAPES: {ESCAPED}, DROPS: {GONE}, HARMLESS: {CAPTURED}, OPAQUE: {CAPTURED, ESCAPED, GONE}}[situation.effect]
    for direction, real in truth.items():
        affected = direction in situation.directions
        if real not in (allowed if affected else {CAPTURED, GONE}):
            yield f"another situation: the connection {direction} is {real}"
        if not affected and real != CAPTURED:
            continue
        if not affected:
            _, said = answers.connections[direction].get("explain", (False, ""))
            if said.startswith("direct"):
                yield f"{direction}: explain says what is not so: {said}"
            continue
        asked = {**answers.pod, **answers.connections[direction], **applied}
        expected = {ESCAPES: {*asked}, OPAQUE: {*asked}, DROPS: {*OF_A_CONNECTION, "diff"}, HARMLESS: set()}[situation.effect]
        for one in [one for words, one in EXEMPT if words in what]:
            asked.pop(one, None)
        expected &= {*asked}
        alarms = {one for one in asked if asked[one][0]}
        for one in sorted(alarms ^ expected):
            yield f"{direction}: {one} says {'nothing' if one in expected else 'what is not so'}: {asked[one][1][-700:]}"
    named = LISTED_ESCAPES[what].named if what in LISTED_ESCAPES else ()
    said = answers.pod["verify"][1]
    if named and not any(all(word in text for word in named) for text in said.splitlines()):
        yield f"verify does not name {named}: {said}"
    if situation.effect == DROPS and not answers.doubts:
        yield "verify says nothing of what is dropped"


def _judge_repair(what: str, after: dict[str, str], repaired: Answer) -> Iterator[str]:
    if is_mended(what) and set(after.values()) != {CAPTURED}:
        yield f"apply --reconcile has not repaired it: {after}: {repaired}"
    if ESCAPED in after.values() and not repaired[0]:
        yield f"apply --reconcile says nothing of what escapes afterwards: {repaired}"
