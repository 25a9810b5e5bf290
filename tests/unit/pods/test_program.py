"""The whole job of apply: what is called in which case, what is said, and what an outcome tells. On a machine in memory."""

from __future__ import annotations

import signal

import pytest

from memory_machine import MemoryMachine
from netinit.backends import named_pod
from netinit.backends.iptables import XtablesState
from netinit.base.errors import ApplyError, BackendUnavailableError, BusyError, KernelFeatureError, NoBackendError
from netinit.base.net import IPV4
from netinit.kernel import detect
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW
from netinit.kernel.run import Signals
from netinit.options import Options
from netinit.pods import init_run as job
from netinit.pods import refusals
from netinit.pods.probe import validate as validating
from netinit.rules.model import MISSING, Difference

NFT, LEGACY = "iptables-nft", "iptables-legacy"
SIDECAR = ("-u", "1337", "-i", "*", "-b", "*", "--ipv6", "on")
FOREIGN = "*nat\n:THEIRS - [0:0]\n-A OUTPUT -p udp -j THEIRS\n-A THEIRS -j RETURN\nCOMMIT\n"


def asked(*more, backend=NFT):
    return Options.from_argv([*SIDECAR, "--backend", backend, *more])


class Said:
    """A log that keeps what it hears, and may be full."""

    def __init__(self, level="info", full=False):
        self.lines, self.level, self.full = [], level, full

    def wants(self, level):
        return level == self.level

    def info(self, text, rules=""):
        if self.full:
            raise OSError(28, "No space left on device")
        self.lines.append(("info", text, rules))

    def warn(self, text):
        self.lines.append(("warn", text, ""))


@pytest.fixture
def machine():
    return MemoryMachine()


@pytest.fixture
def story(monkeypatch):
    """What the job calls, in order."""
    calls = []
    outcome = job.Outcome(backend=NFT, changed=True, rules={})

    def note(name, found):
        def call(*given, **named):
            calls.append((name, *[one for one in given if isinstance(one, Options)], *[named[one] for one in ("locked", "final") if one in named]))
            assert name == "validate" or isinstance(named["signals"], Signals)
            return found

        return call

    monkeypatch.setattr(job, "apply", note("apply", outcome))
    monkeypatch.setattr(job, "remove", note("remove", outcome))
    monkeypatch.setattr(validating, "validate", note("validate", None))
    return calls


@pytest.mark.parametrize(
    ("more", "called"),
    [
        ((), ["apply"]),
        (("--run-validation",), ["apply", "validate"]),
        (("--cleanup-only",), ["remove"]),
        (("--cleanup-only", "--run-validation"), ["remove"]),
        (("--skip-rule-apply",), []),
        (("--skip-rule-apply", "--run-validation"), ["validate"]),
        (("--retries", "2"), ["apply"]),
        (("--retries", "2", "--cleanup-only"), ["remove"]),
    ],
)
@pytest.mark.parametrize("place", [(), ("--pid", "7")])
def test_what_is_done_in_the_own_namespace_is_done_in_a_pod(more, called, place, story, monkeypatch):
    visited = []
    monkeypatch.setattr(named_pod, "NamedPod", lambda options, **named: FakePod(options, named, visited))
    options, log = asked("--redirect-dns", *more, *place), Said()
    assert job.main(options, log) == 0
    meant = options
    locked = {"apply": (bool(place), True), "remove": (bool(place),), "validate": ()}
    assert story == [(name, meant, *locked[name]) for name in called]
    if place:
        refuses = [] if "--skip-rule-apply" in more and "--cleanup-only" not in more else ["refuse"]
        validates = [("visit", True, (detect.CAP_SETUID, detect.CAP_SETGID))] if "validate" in called else []
        assert visited == [*refuses, "open", ("lock", options.lock_timeout), "work", "unlock", *validates, "close"]


class FakePod:
    """What a run from outside asks of a pod."""

    def __init__(self, options, named, story):
        assert (options.pid, options.netns) == (7, "")
        story += ["refuse"] * named.pop("refuses")
        assert not named
        self.options, self.story = options, story

    def __enter__(self):
        self.story.append("open")
        return self

    def __exit__(self, *_):
        self.story.append("close")

    def lock(self, nanoseconds, warn):
        assert callable(warn)
        self.story.append(("lock", nanoseconds))
        return FakeLock(self.story)

    def modify_inside(self, action, signals):
        assert isinstance(signals, Signals)
        self.story.append("work")
        action(Signals())

    def run_inside(self, action, *, joins, keep):
        self.story.append(("visit", joins, keep))
        action()


class FakeLock:
    def __init__(self, story):
        self.story = story

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.story.append("unlock")


def test_a_run_that_finds_the_kernel_busy_begins_anew_unless_a_signal_was_heard(monkeypatch):
    for heard, runs in ((0, 3), (signal.SIGTERM, 1)):
        calls, log = [], Said()

        def busy(options, *, signals, heard=heard, calls=calls, **_):
            calls.append(options)
            signals.pending = heard
            raise BusyError("busy")

        monkeypatch.setattr(job, "apply", busy)
        with pytest.raises(ApplyError):
            job.main(asked("--retries", "2", "--retry-delay", "1ms"), log)
        assert len(calls) == runs
        assert [kind for kind, *_ in log.lines] == ["warn"] * (runs - 1)


def test_the_machines_own_namespace_is_not_refused_where_it_is_meant(story, monkeypatch):
    visited = []
    monkeypatch.setattr(named_pod, "NamedPod", lambda options, **named: FakePod(options, named, visited))
    job.main(asked("--pid", "7", "--host-network"), Said())
    assert "refuse" not in visited


def test_the_rules_are_listed_afterwards_where_the_log_is_to_have_them(story):
    job.main(asked(), Said(level="error"))
    assert story[0][-1] is False


def test_a_log_that_is_full_makes_no_failure_and_goes_nowhere_from_then_on(story, monkeypatch):
    redirected = []
    monkeypatch.setattr(refusals.posix, "dup2", lambda _, number: redirected.append(number))
    assert job.main(asked(), Said(full=True)) == 0
    assert redirected == [2]


@pytest.mark.parametrize(("heard", "text"), [(0, "no"), (signal.SIGTERM, "ended by SIGTERM; everything is as it was before")])
def test_an_error_of_looking_says_which_signal_has_ended_the_program(heard, text, monkeypatch):
    signals = Signals()

    def fail(*_, **__):
        signals.pending = heard
        raise ApplyError("no")

    monkeypatch.setattr(job, "apply", fail)
    with pytest.raises(ApplyError, match=f"^{text}$"):
        job._program(asked(), Said(), signals, locked=True)
    assert signals.pending == 0


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "removed", "text"),
    [
        (True, False, "programmed by iptables-nft"),
        (False, False, "rules are as planned (iptables-nft): nothing to do"),
        (True, True, "removed all rules"),
        (False, True, "there were no rules to remove"),
    ],
)
def test_what_was_done_is_one_line(changed, removed, text):
    log = Said()
    job._log_outcome(job.Outcome(backend=NFT, changed=changed, rules={}, warnings=("mind this",)), log, removed=removed)
    assert log.lines == [*([] if removed else [("warn", "mind this", "")]), ("info", text, "")]


def test_rules_follow_by_family_or_dialect():
    log = Said()
    job._log_outcome(job.Outcome(backend=NFT, changed=True, rules={"IPv4": "four", "IPv6": "six", "nft": "native"}), log, removed=False)
    assert log.lines[1:] == [
        ("info", "Final iptables state (IPv4):", "four"), ("info", "Final iptables state (IPv6):", "six"), ("info", "Final nftables state:", "native"),
    ]  # fmt: skip


def test_what_lint_finds_is_warned_of_once(machine):
    outcome = job.apply(asked("--log-group", "5"), machine=machine)
    found = job._lint(outcome)
    (idle,) = [one for one in found if one.startswith("--log-group: ")]
    assert "counts only with --log-rules" in idle
    assert idle not in job._lint(outcome.replace(warnings=(idle,)))
    assert job._lint(outcome.replace(options=None)) == job._lint(job.apply(asked(), machine=MemoryMachine())) == ()


def test_at_most_twenty_differences_are_named():
    line = "  missing: IPv4 nat OUTPUT rule {}: -j ISTIO_OUTPUT"
    begin = "other rules of Istio or netinit are here; --reconcile replaces them, --cleanup-only removes them:"
    made = tuple(Difference(kind=MISSING, where="IPv4", table="nat", chain="OUTPUT", number=n, rule="-j ISTIO_OUTPUT") for n in range(1, 23))
    assert str(refusals.refuse_to_replace(made[:20])).splitlines() == [begin, *[line.format(n) for n in range(1, 21)]]
    assert str(refusals.refuse_to_replace(made)).splitlines() == [begin, *[line.format(n) for n in range(1, 21)], "  and 2 more"]


@pytest.mark.parametrize(
    ("missing", "uid", "failures", "text"),
    [
        ((CAP_NET_ADMIN,), 0, {NFT: "no"}, "NET_ADMIN is missing (uid 0): give NET_ADMIN"),
        ((CAP_NET_ADMIN,), 5, {NFT: "no"}, "NET_ADMIN is missing (uid 5, under allowPrivilegeEscalation: false): give NET_ADMIN"),
        ((CAP_NET_RAW,), 0, {LEGACY: "no", "libiptc": "neither"}, ("NET_RAW is missing (uid 0), which legacy iptables needs: give NET_ADMIN, NET_RAW;"
         " --backend iptables-nft and nftables do with NET_ADMIN")),
        ((CAP_NET_RAW,), 0, {LEGACY: "no", NFT: "neither"}, "no backend works here:\n  iptables-legacy: no\n  iptables-nft: neither"),
        ((), 0, {LEGACY: "no"}, "no backend works here:\n  iptables-legacy: no"),
    ],
)  # fmt: skip
def test_why_nothing_works(machine, missing, uid, failures, text, monkeypatch):
    monkeypatch.setattr(refusals.posix, "geteuid", lambda: uid)
    monkeypatch.setattr("netinit.pods.refusals.may_gain", lambda: False)
    monkeypatch.setattr("netinit.pods.refusals.advise", lambda *names: f"give {', '.join(names)}")
    machine.capabilities -= set(missing)
    error = refusals.no_backend_works({name: BackendUnavailableError(text) for name, text in failures.items()}, machine)
    kind = NoBackendError if text.startswith("no backend") else BackendUnavailableError
    assert (type(error), str(error)) == (kind, text)


@pytest.mark.parametrize("kind", [BackendUnavailableError, KernelFeatureError])
def test_nothing_works_knows_whether_modules_would_help(machine, kind):
    error = refusals.no_backend_works({NFT: BackendUnavailableError("no"), LEGACY: kind("load it")}, machine)
    assert error.of_kernel is (kind is KernelFeatureError)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def test_a_removal_names_the_backends_that_held_rules(machine):
    job.apply(asked(), machine=machine)
    other = MemoryMachine()
    job.apply(asked(backend=LEGACY), machine=other)
    machine.tables[LEGACY] = other.tables[LEGACY]
    outcome = job.remove(asked(), machine=machine)
    assert (outcome.backend, outcome.changed, outcome.rules) == (f"{NFT}, {LEGACY}", True, {})


def test_a_removal_takes_routes_that_stand_alone(machine):
    options = asked("-m", "TPROXY")
    job.apply(options, machine=machine)
    for kernel in machine.tables.values():
        for tables in kernel.tables.values():
            tables.clear()
    outcome = job.remove(options, machine=machine)
    assert (outcome.backend, outcome.changed, machine.link.rules, machine.link.routes) == ("", True, [], [])
    assert job.remove(options, machine=machine).changed is False


def test_routes_under_other_numbers_are_ours_by_the_plans_hints(machine):
    options = asked("-m", "TPROXY", "-t", "77", "-r", "88")
    job.apply(options, machine=machine)
    assert job.remove(options, machine=machine).changed
    assert (machine.link.rules, machine.link.routes) == ([], [])


def test_an_outcome_with_foreign_rules_is_read_again_and_names_what_stands_before(machine):
    machine.tables[NFT].execute(IPV4, FOREIGN)
    first, second = (job.apply(asked(), machine=machine) for _ in range(2))
    for outcome in (first, second):
        assert any("THEIRS" in warning for warning in outcome.warnings)
        assert "THEIRS" in outcome.rules["IPv4"]
        assert (outcome.backend, outcome.committed) == (NFT, False)
    assert (first.changed, second.changed) == (True, False)


def test_nothing_foreign_is_nothing_to_warn_of(machine):
    assert [job.apply(asked(), machine=machine).warnings for _ in range(2)] == [(), ()]


def test_what_cannot_be_listed_afterwards_is_a_warning_beside_the_others(machine, monkeypatch):
    monkeypatch.setattr(XtablesState, "describe", lambda *_: (_ for _ in ()).throw(ApplyError("no more memory")))
    job.apply(asked(), machine=machine)
    outcome = job.apply(asked("--force-apply"), machine=machine)
    assert outcome.warnings == ("the rules are programmed, but could not be listed afterwards: no more memory",)
    assert (outcome.changed, outcome.rules, outcome.committed) == (True, {}, False)


def test_leftovers_alone_are_what_is_refused(machine):
    job.apply(asked(), machine=machine)
    with pytest.raises(ApplyError) as refusal:
        job.apply(asked(backend=LEGACY), machine=machine)
    assert len(str(refusal.value).splitlines()) == 2
    assert "leftover: iptables-nft" in str(refusal.value)


def test_what_cannot_be_put_back_names_its_backend(machine):
    job.apply(asked("-m", "TPROXY", backend=LEGACY), machine=machine)
    wanted = asked("-m", "TPROXY", "--reconcile")
    commits = []

    def fail(what):
        commits.extend([what] if "iptables" in what else [])
        return ApplyError("stuck") if len(commits) > 4 else None

    machine.fail = fail
    with pytest.raises(ApplyError, match=f"{LEGACY}: the rollback failed too|{NFT}: putting back"):
        job.apply(wanted, machine=machine)


def test_no_lock_is_taken_where_only_routes_are_missing(machine):
    options = asked("-m", "TPROXY")
    job.apply(options, machine=machine)
    machine.link.rules.clear()
    machine.locked = {NFT}
    assert job.apply(options, machine=machine).changed
