"""Applying and removing on a machine in memory: every refusal, hand-over and failure, without privileges."""

from __future__ import annotations

import os
import signal

import pytest

from core import plan
from memory_machine import MemoryMachine
from netinit.backends.routes import BOOT, FULL_MASK
from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    LockedError,
    NamespaceError,
    NetinitError,
    OptionError,
)
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW
from netinit.kernel.netlink import LocalRoute, PolicyRule
from netinit.kernel.run import Signals
from netinit.options import LOOP_MARK, Options
from netinit.options.interception import AMBIENT_MARK, AMBIENT_MASK, INTERIM_BITS, NODE_PROXY_MARK
from netinit.pods import reset_connections
from netinit.pods.apply import apply, remove
from netinit.pods.init_run import _answer_late_signal, _log_outcome
from netinit.pods.transaction import Task, find_interim, interim_mark
from netinit.pods.verify import verify
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import PROMISES
from netinit.rules.promises import leave_out
from sweeps import crossed

NFT, LEGACY, NFTABLES, LIBIPTC = "iptables-nft", "iptables-legacy", "nftables", "libiptc"
SIDES = (NFT, LEGACY, NFTABLES)
PAIRS = [(one, other) for one in SIDES for other in SIDES]
MODES = ("REDIRECT", "TPROXY")
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*", "-d", "15090", "--ipv6", "on")
FOREIGN = "*nat\n:THEIRS - [0:0]\n-A OUTPUT -p tcp -j THEIRS\n-A THEIRS -j RETURN\nCOMMIT\n"


@pytest.fixture
def machine():
    return MemoryMachine()


def asked(backend, *more, mode="REDIRECT"):
    return Options.from_argv([*SIDECAR, "-m", mode, "--backend", backend, *more])


def ours(machine):
    """The backends that hold rules of ours."""
    return [name for name in SIDES if "ISTIO_" in machine.tables[name].list_rules(IPV4)]


def as_planned(machine, options):
    return [one.describe() for one in verify(options, machine).differences] == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", SIDES)
def test_a_first_run_programs_and_a_second_finds_nothing_to_do(machine, backend, mode):
    options = asked(backend, mode=mode)
    first = apply(options, machine=machine)
    assert (first.backend, first.changed) == (backend, True)
    assert "ISTIO_OUTPUT" in first.rules["IPv4"]
    assert as_planned(machine, options)
    assert ours(machine) == [backend]

    steps = len(machine.steps)
    second = apply(options, machine=machine)
    assert (second.changed, len(machine.steps)) == (False, steps)
    assert "ISTIO_OUTPUT" in second.rules["IPv4"]
    assert apply(options, machine=machine, final=False).rules == {}
    assert machine.held == []


def test_who_does_not_want_to_see_the_rules_gets_none(machine):
    outcome = apply(asked(NFT), machine=machine, final=False)
    assert (outcome.changed, outcome.committed, outcome.rules) == (True, False, {})


def test_force_apply_writes_what_is_right_already(machine):
    apply(asked(NFT), machine=machine)
    before, steps = machine.snapshot(), len(machine.steps)
    assert apply(asked(NFT, "--force-apply"), machine=machine).changed
    assert machine.steps[steps:] == ["iptables-nft IPv4", "iptables-nft IPv6"]
    assert machine.snapshot() == before


@pytest.mark.parametrize("gone", ["rules", "routes", "addresses"])
def test_a_route_an_address_or_a_policy_rule_alone_that_is_missing_is_something_to_do(machine, gone):
    options = asked(NFT, mode="TPROXY")
    apply(options, machine=machine)
    before = machine.snapshot()
    getattr(machine.link, gone).clear()
    assert not as_planned(machine, options)
    assert apply(options, machine=machine).changed
    assert sorted(machine.snapshot().splitlines()) == sorted(before.splitlines())


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_rules_of_another_backend_are_refused_named_and_left_alone(machine, old, new):
    apply(asked(old), machine=machine)
    before = machine.snapshot()
    with pytest.raises(ApplyError, match=f"leftover: {old}: rules of an earlier run are active") as refusal:
        apply(asked(new), machine=machine)
    assert "--reconcile replaces them, --cleanup-only removes them" in str(refusal.value)
    assert machine.snapshot() == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_hand_over_ends_where_a_fresh_start_ends(machine, old, new, mode):
    fresh = MemoryMachine()
    apply(asked(new, mode=mode), machine=fresh)
    apply(asked(old, "-o", "9000", mode=mode), machine=machine)
    assert apply(asked(new, "--reconcile", mode=mode), machine=machine).backend == new
    assert ours(machine) == [new]
    assert machine.snapshot().replace("priority=32763", "").replace("priority=32764", "") == fresh.snapshot().replace(
        "priority=32763", ""
    ).replace("priority=32764", "")
    assert machine.held == []


def test_tproxy_is_handed_over_by_a_mark_of_its_own(machine):
    apply(asked(LEGACY, mode="TPROXY"), machine=machine)
    seen = []

    def look(step):
        if step.startswith(LEGACY):
            seen.append(machine.tables[NFT].list_rules(IPV4))

    machine.fail = look
    apply(asked(NFT, "--reconcile", mode="TPROXY"), machine=machine)
    assert seen, "the old rules have gone"
    assert all(f"{1337 ^ INTERIM_BITS[0]:#x}" in text and "0x539/" not in text for text in seen)
    assert {rule.mark for rule in machine.link.rules} == {1337}


@pytest.mark.parametrize("mark", [INTERIM_BITS[0], LOOP_MARK ^ INTERIM_BITS[0], 2**32 - 1])
def test_tproxy_is_handed_over_whatever_the_mark(machine, mark):
    apply(asked(LEGACY, "-t", str(mark), mode="TPROXY"), machine=machine)
    apply(asked(NFT, "-t", str(mark), "--reconcile", mode="TPROXY"), machine=machine)
    assert ours(machine) == [NFT]
    assert {rule.mark for rule in machine.link.rules} == {mark}


def test_a_hand_over_asks_no_more_of_the_kernel_than_the_plan(machine):
    options = machine.settle(asked(NFT, mode="TPROXY"))
    reduced = leave_out(plan_for(options), {family: frozenset(PROMISES) for family in FAMILIES})
    interim = find_interim(Task(options=options, plan=reduced, final=False, machine=machine, signals=None), ())
    assert [(table, chain, rule.promise) for table, chain, rule in interim.walk()] == [(table, chain, rule.promise) for table, chain, rule in reduced.walk()]
    assert not {rule.mark for rule in interim.ip_rules} & {rule.mark for rule in reduced.ip_rules}


@pytest.mark.parametrize("bits", INTERIM_BITS)
@pytest.mark.parametrize("known", [0, LOOP_MARK, AMBIENT_MARK, NODE_PROXY_MARK, NODE_PROXY_MARK | 0x5000])
def test_no_rules_know_the_mark_of_a_hand_over(bits, known):
    mark = known ^ bits
    if mark == LOOP_MARK:
        return
    options = asked(NFT, "-t", str(mark), mode="TPROXY")
    others = {mark ^ one for one in INTERIM_BITS if one != bits}
    for left in others:  # marks of an earlier run's policy rules
        found = interim_mark(options, {left})
        assert found not in (0, LOOP_MARK, mark, left)
        assert found & AMBIENT_MASK not in (AMBIENT_MARK, NODE_PROXY_MARK)


@pytest.mark.parametrize("old", [asked(LEGACY), asked(LEGACY, mode="TPROXY"), Options(layout="ambient", backend=LEGACY, ipv6="on")])
def test_an_ambient_layout_takes_over_from_any_other_backend(machine, old):
    apply(old, machine=machine)
    seen = []

    def look(step):
        if step.startswith(LEGACY):
            seen.append("MARK" in machine.tables[NFT].list_rules(IPV4))

    machine.fail = look
    apply(Options(layout="ambient", backend=NFT, ipv6="on", reconcile=True), machine=machine)
    assert ours(machine) == [NFT]
    assert {rule.mark for rule in machine.link.rules} == {AMBIENT_MARK}
    assert seen, "the old rules have gone"
    assert set(seen) == {old.inbound_mode != "TPROXY"}, "beside TPROXY, nothing is taken for the node's proxy by its mark"


def test_other_rules_of_the_same_backend_are_refused_unless_they_are_a_first_part(machine):
    apply(asked(NFT, "-o", "9000"), machine=machine)
    before = machine.snapshot()
    with pytest.raises(ApplyError, match="extra: IPv4 nat ISTIO_OUTPUT rule 1: -p tcp -m tcp --dport 9000 -j RETURN"):
        apply(asked(NFT), machine=machine)
    assert machine.snapshot() == before


def test_what_an_interrupted_first_run_left_is_finished_without_being_asked(machine):
    options = asked(NFT)
    apply(options, machine=machine)
    wanted = machine.snapshot()
    remove(options, machine=machine)
    killed_at = len(machine.steps) + machine.steps.index("iptables-nft IPv6")
    machine.fail = lambda _: SystemExit() if len(machine.steps) > killed_at else None
    with pytest.raises(SystemExit):
        apply(options, machine=machine)
    assert 0 < len(machine.snapshot()) < len(wanted)
    assert ours(machine) == [NFT]
    machine.fail = lambda _: None
    apply(options, machine=machine)
    assert machine.snapshot() == wanted


def fail_in_turn(machine, act):
    """Each change fails once, and the machine is as before; the number of changes."""
    before = machine.snapshot()
    for number in range(1, 60):
        first = len(machine.steps)

        def fail(step, last=first + number):
            kind = ApplyError if step.startswith(SIDES) else OSError
            return kind(105, "no buffer") if len(machine.steps) == last else None

        machine.fail = fail
        try:
            act()
        except NetinitError as error:
            assert "failed too" not in str(error)
        else:
            assert len(machine.steps) < first + number, f"change {number} failed, and the run says it succeeded"
            return number - 1
        assert machine.snapshot() == before, f"change {number}: {machine.steps[first:]}"
        assert machine.held == []
    raise AssertionError("there is no end of changes")


@crossed(pair=PAIRS, mode=MODES)
def test_whichever_change_of_a_hand_over_fails_all_is_as_before(machine, pair, mode):
    old, new = pair
    for side in SIDES[:2]:
        for family in FAMILIES:
            machine.tables[side].execute(family, FOREIGN)
    apply(asked(old, "-o", "9000", mode=mode), machine=machine)
    changes = fail_in_turn(machine, lambda: apply(asked(new, "--reconcile", mode=mode), machine=machine))
    assert changes >= (2 if old == new else 4 if mode == "REDIRECT" else 10)


@pytest.mark.parametrize("mode", MODES)
def test_whichever_change_of_a_first_run_or_a_removal_from_all_sides_fails_all_is_as_before(machine, mode):
    assert fail_in_turn(machine, lambda: apply(asked(NFT, mode=mode), machine=machine)) >= 2
    for side in SIDES[1:]:
        alone = MemoryMachine()
        apply(asked(side, mode=mode), machine=alone)
        machine.tables[side] = alone.tables[side]
    assert ours(machine) == list(SIDES)
    assert fail_in_turn(machine, lambda: remove(Options(), machine=machine)) >= 2 * len(SIDES)
    assert ours(machine) == []
    assert machine.link.rules == machine.link.routes == machine.link.addresses == []
    assert not remove(Options(), machine=machine).changed


def test_what_istio_made_goes_as_well_and_comes_back_with_its_place_where_a_removal_fails(machine):
    machine.link.rules = [
        PolicyRule(family=2, priority=100, mark=1337, mask=FULL_MASK, table=133, protocol=BOOT, plain=True),
        PolicyRule(family=2, priority=50, mark=7, mask=FULL_MASK, table=133, protocol=BOOT, plain=True),
    ]
    machine.link.routes = [LocalRoute(family=2, table=133, protocol=BOOT)]
    assert fail_in_turn(machine, lambda: remove(Options(), machine=machine)) == 2
    assert [rule.mark for rule in machine.link.rules] == [7]
    assert machine.link.routes == []


def test_what_istio_made_with_the_mark_of_the_options_goes_as_well(machine):
    machine.link.rules = [PolicyRule(family=2, priority=50, mark=7, mask=FULL_MASK, table=133, protocol=BOOT, plain=True)]
    machine.link.routes = [LocalRoute(family=2, table=133, protocol=BOOT)]
    assert remove(asked(NFT, "-t", "7", mode="TPROXY"), machine=machine).changed
    assert machine.link.rules == machine.link.routes == []


def test_routes_of_others_that_do_the_same_serve_and_stay(machine):
    theirs = [LocalRoute(family=2, table=133, protocol=4), LocalRoute(family=10, table=133, protocol=BOOT, plain=False)]
    machine.link.routes = list(theirs)
    apply(asked(NFT, mode="TPROXY"), machine=machine)
    assert machine.link.routes == theirs
    assert verify(asked(NFT, mode="TPROXY"), machine).differences == ()
    remove(Options(), machine=machine)
    assert (machine.link.routes, machine.link.rules) == (theirs, [])


def test_a_route_elsewhere_in_the_table_of_marked_packets_is_an_error(machine):
    before = machine.snapshot()
    machine.fail = lambda step: OSError(17, "File exists") if step == "add route" else None
    with pytest.raises(ApplyError, match=r"-4 route .*\(ip -4 route show table 133\): delete it, or choose .*tproxy-route-table"):
        apply(asked(NFT, mode="TPROXY"), machine=machine)
    assert machine.snapshot() == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", [NFT, LEGACY])
def test_a_lock_of_either_side_is_had_before_the_first_change(machine, side, mode):
    apply(asked(LEGACY, mode=mode), machine=machine)
    before, steps = machine.snapshot(), len(machine.steps)
    machine.locked = {side}
    with pytest.raises(LockedError, match=f"{side} is held by"):
        apply(asked(NFT, "--reconcile", mode=mode), machine=machine)
    assert (machine.snapshot(), machine.steps[steps:], machine.held) == (before, [], [])


def test_a_removal_has_the_locks_of_all_sides_before_the_first_change(machine):
    apply(asked(LEGACY), machine=machine)
    machine.tables[NFT] = machine.tables[LEGACY]
    before, steps = machine.snapshot(), len(machine.steps)
    machine.locked = {LEGACY}
    with pytest.raises(LockedError, match="iptables-legacy is held by"):
        remove(Options(), machine=machine)
    assert (machine.snapshot(), machine.steps[steps:], machine.held) == (before, [], [])


def test_what_somebody_else_made_meanwhile_is_theirs_when_the_run_fails(machine):
    def fail(step):
        if step == "add route":
            machine.link.routes.append(LocalRoute(family=2, table=133, protocol=BOOT))
            return OSError(17, "File exists")
        return ApplyError("no memory") if step == "iptables-nft IPv4" else None

    machine.fail = fail
    with pytest.raises(ApplyError, match="no memory"):
        apply(asked(NFT, "--ipv6", "off", mode="TPROXY"), machine=machine)
    assert machine.link.rules == []
    assert machine.link.routes[:1] == [LocalRoute(family=2, table=133, protocol=BOOT)]


def test_libiptc_finds_what_iptables_legacy_made(machine):
    machine.tables[LIBIPTC] = machine.tables[LEGACY]
    machine.occupied = lambda options, *, thorough: (LEGACY,)  # who can see them is asked once
    apply(asked(LEGACY), machine=machine)
    assert not apply(asked(LIBIPTC), machine=machine).changed


def test_locks_are_held_until_the_last_step_or_its_undoing(machine):
    apply(asked(LEGACY, mode="TPROXY"), machine=machine)
    held = set()

    def watch(step):
        held.add(tuple(machine.held))
        return ApplyError("no") if step == "delete rule" else None

    machine.fail = watch
    with pytest.raises(ApplyError):
        apply(asked(NFT, "--reconcile", mode="TPROXY"), machine=machine)
    assert held == {("namespace", NFT, LEGACY)}


def test_a_held_namespace_is_an_error_unless_the_caller_holds_it(machine):
    machine.locked = {"namespace"}
    for act in (apply, remove):
        with pytest.raises(LockedError, match="namespace is held by"):
            act(asked(NFT), machine=machine)
        act(asked(NFT), machine=machine, locked=True)


def test_the_machine_s_own_namespace_wants_host_network(machine):
    machine.own = True
    for act in (apply, remove):
        with pytest.raises(NamespaceError):
            act(asked(NFT), machine=machine)
        act(asked(NFT, "--host-network"), machine=machine)


def test_one_that_cannot_work_makes_room_for_the_next(machine):
    machine.missing = {NFT}
    assert apply(asked("auto"), machine=machine).backend == LEGACY
    machine.missing = {NFT, LEGACY, NFTABLES, LIBIPTC}
    with pytest.raises(BackendUnavailableError) as failure:
        apply(asked("auto"), machine=machine)
    assert str(failure.value).splitlines()[:2] == ["no backend works here:", "  iptables-legacy: iptables-legacy is not installed"]


def test_one_that_fails_in_the_middle_is_put_back_before_the_next_is_tried(machine):
    machine.fail = lambda step: BackendUnavailableError("no such table") if step == "iptables-nft IPv6" else None
    options = asked("auto", mode="TPROXY")
    assert apply(options, machine=machine).backend == LEGACY
    assert ours(machine) == [LEGACY]


@pytest.mark.parametrize(
    ("kept", "backend", "words"),
    [({CAP_NET_RAW}, "auto", "NET_ADMIN is missing"), ({CAP_NET_ADMIN}, LEGACY, "NET_RAW is missing"), ({CAP_NET_ADMIN}, LIBIPTC, "NET_RAW is missing"),
     ({CAP_NET_ADMIN}, NFT, "no backend works here"), ({CAP_NET_ADMIN}, "auto", "no backend works here")],
)  # fmt: skip
def test_the_privilege_that_is_missing_is_named(machine, kept, backend, words):
    machine.capabilities = kept
    machine.missing = {NFT, LEGACY, NFTABLES, LIBIPTC}
    with pytest.raises(BackendUnavailableError, match=words):
        apply(asked(backend), machine=machine)


def test_rules_that_nobody_can_look_at_are_no_reason_to_remove_half(machine):
    apply(asked(LEGACY), machine=machine)
    machine.missing = {LEGACY, LIBIPTC}
    with pytest.raises(BackendUnavailableError, match="iptables-legacy is not installed"):
        remove(Options(), machine=machine)


def test_what_cannot_be_put_back_is_named(machine):
    apply(asked(LEGACY, mode="TPROXY"), machine=machine)
    machine.fail = lambda step: ApplyError("no memory") if step.startswith(LEGACY) else OSError(12, "") if step.startswith("delete") else None
    with pytest.raises(ApplyError) as failure:
        apply(asked(NFT, "--reconcile", mode="TPROXY"), machine=machine)
    text = str(failure.value)
    assert text.startswith("IPv4: no memory; IPv6: no memory; ")
    assert "add -4 rule fwmark 0x100d39 lookup 133: the rollback failed too: Cannot allocate memory" in text


def test_rules_of_others_that_stand_first_are_a_warning(machine):
    machine.tables[NFT].execute(IPV4, "*nat\n-A OUTPUT -p tcp -j RETURN\nCOMMIT\n")
    outcome = apply(asked(NFT), machine=machine)
    assert [text for text in outcome.warnings if text.startswith("shadowing: IPv4 nat OUTPUT rule 1")]
    assert apply(asked(NFT), machine=machine).warnings == outcome.warnings


class Said:
    """A log that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def info(self, text, rules=""):
        self.lines.append(f"{text} {rules}".strip())

    warn = info


def test_the_log_says_whether_the_rules_were_listed_afterwards_or_are_what_was_committed(machine):
    first, second = (apply(asked(NFT), machine=machine) for _ in range(2))
    assert (first.committed, second.committed) == (True, False)
    assert first.rules["IPv4"].splitlines()[:2] == ["*nat", ":ISTIO_INBOUND - [0:0]"]
    for family, text in first.rules.items():
        for line in text.splitlines():
            assert line.startswith(":") or line in second.rules[family].splitlines(), "a second run has read the same rules"
    log = Said()
    _log_outcome(first.replace(rules={"IPv4": "table"}), log, removed=False)
    assert log.lines[-1] == "Final iptables state (IPv4), as committed: table"
    _log_outcome(second.replace(rules={"nft": "table"}), log, removed=False)
    assert log.lines[-1] == "Final nftables state: table"


def test_what_was_committed_beside_foreign_rules_is_listed_afterwards(machine):
    machine.tables[NFT].execute(IPV4, FOREIGN)
    outcome = apply(asked(NFT), machine=machine)
    assert outcome.changed
    assert not outcome.committed
    assert "-A OUTPUT -p tcp -j THEIRS" in outcome.rules["IPv4"]


def send_at(machine, number):
    """Asks this process to end in the step of that number, from 1."""

    def fail(_):
        if len(machine.steps) == number:
            os.kill(os.getpid(), signal.SIGTERM)

    machine.steps.clear()
    machine.fail = fail


def test_a_signal_in_any_step_goes_back_and_in_the_last_one_leaves_all_done(machine):
    apply(asked(LEGACY, mode="TPROXY"), machine=machine)
    before, wanted = machine.snapshot(), asked(NFT, "--reconcile", mode="TPROXY")
    other = MemoryMachine()
    apply(asked(LEGACY, mode="TPROXY"), machine=other)
    other.steps.clear()
    apply(wanted, machine=other)
    steps = len(other.steps)
    assert steps >= 10, "every kind of step is among them"
    for number in range(1, steps):
        send_at(machine, number)
        with pytest.raises(ApplyError, match=r"^ended by SIGTERM; everything is as it was before$"):
            apply(wanted, machine=machine, signals=Signals())
        assert sorted(machine.snapshot().splitlines()) == sorted(before.splitlines()), f"step {number} of {steps}"
        assert machine.held == []
    signals = Signals()
    send_at(machine, steps)
    apply(wanted, machine=machine, signals=signals)
    signals.stop()
    assert signals.take() == signal.SIGTERM
    machine.fail = lambda _: None
    assert as_planned(machine, wanted)


def test_a_signal_in_a_removal_goes_back(machine):
    apply(asked(NFT, mode="TPROXY"), machine=machine)
    before = machine.snapshot()
    send_at(machine, 1)
    with pytest.raises(ApplyError, match=r"^ended by SIGTERM; everything is as it was before$"):
        remove(asked(NFT, mode="TPROXY"), machine=machine, signals=Signals())
    assert sorted(machine.snapshot().splitlines()) == sorted(before.splitlines())


def test_a_backend_whose_program_a_signal_ended_makes_no_room_for_the_next(machine):
    def fail(_):
        os.kill(os.getpid(), signal.SIGTERM)
        return BackendUnavailableError("the program was killed by signal 9")

    machine.fail = fail
    with pytest.raises(ApplyError, match=r"^ended by SIGTERM"):
        apply(asked("auto"), machine=machine)
    assert {step.partition(" ")[0] for step in machine.steps} <= {"add", NFT}


@pytest.mark.parametrize(
    ("more", "said"), [((), "SIGTERM came when everything was done"), (("--run-validation",), "ended by SIGTERM; the rules are programmed, and were not validated")]
)
def test_a_signal_that_came_too_late_ends_what_was_to_follow(more, said):
    signals, log = Signals(), Said()
    signals.pending = signal.SIGTERM
    if more:
        with pytest.raises(ApplyError) as raised:
            _answer_late_signal(asked(NFT, *more), log, signals)
        log.info(str(raised.value))
    else:
        _answer_late_signal(asked(NFT), log, signals)
    assert (log.lines, signals.pending) == ([said], 0)


def test_no_signal_is_not_spoken_of():
    log = Said()
    _answer_late_signal(asked(NFT, "--run-validation"), log, Signals())
    assert log.lines == []


@pytest.mark.parametrize("change", [apply, remove])
def test_another_namespace_is_refused_since_this_one_would_be_changed(machine, change):
    for given in ({"pid": 4711}, {"netns": "/run/netns/x"}):
        with pytest.raises(OptionError) as caught:
            change(asked(NFT).replace(**given), machine=machine)
        assert str(caught.value) == "pid, netns: this changes the network namespace of its own process: enter the pod's namespace before"
    assert not ours(machine)


@pytest.mark.parametrize(("words", "told"), [((), "warnings"), (("--reset-existing",), "unended")])
def test_connections_that_cannot_be_listed_are_a_warning_and_a_failure_where_they_should_be_ended(monkeypatch, words, told):
    def fail():
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("netinit.pods.reset_connections.has_sockets", lambda: True)
    monkeypatch.setattr("netinit.kernel.tcp_sockets.list_tcp", fail)
    options = Options.from_argv([*SIDECAR, *words])
    found = reset_connections.look(options, plan(options))
    said = "whether connections are older than the rules cannot be known: sock_diag: Operation not permitted"
    assert getattr(found, told) == (said if words else (said,))
