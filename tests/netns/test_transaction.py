"""A run is a transaction on the kernel: whichever step fails, the namespace is as it was before.

The old backend and the new one share nothing but the transaction: `make test` takes hand-overs in which each is the old one and
the new one once, and a first run of most; `make prove` takes all pairs, and both modes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal

import pytest

from lab_state import describe_state
from laboratory import Pod
from netinit.backends import legacy_edits, lock
from netinit.backends.ipset import SetsBackend
from netinit.backends.iptables import XtablesBackend
from netinit.backends.legacy import LegacyBackend
from netinit.backends.machine import Machine
from netinit.backends.nft_removal import NftRemoval
from netinit.base.errors import ApplyError, LockedError, NetinitError
from netinit.kernel import netlink
from netinit.kernel.nf_tables import NFT_MSG_DELTABLE, NfTables, Refusal
from netinit.options import Options
from netinit.pods.apply import apply, remove
from programming import (
    SIDECAR,
    add_foreign_rules,
    check_same,
    force_beside,
    needs,
    run_tool,
    state,
    variant_of,
)
from sweeps import choose

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc", "iptables-nft with sets", "iptables-legacy with sets")
SETS = " with sets"
MODES = ("REDIRECT", "TPROXY")
PAIRS = [
    (one, other) for one in BACKENDS for other in BACKENDS
    if {variant_of(one), variant_of(other)} != {"iptables-legacy"} and (one, other) != ("iptables-legacy with sets", "libiptc")
]  # fmt: skip
HAND_OVERS = choose(
    [
        ("iptables-legacy", "iptables-nft", "TPROXY"),
        ("iptables-nft", "libiptc", "REDIRECT"),
        ("libiptc", "nftables", "TPROXY"),
        ("nftables", "iptables-legacy with sets", "REDIRECT"),
        ("iptables-legacy with sets", "iptables-nft with sets", "TPROXY"),
        ("iptables-nft with sets", "iptables-legacy", "REDIRECT"),
    ],
    [(*pair, mode) for pair in PAIRS for mode in MODES],
)
WITHOUT_LIBIPTC = [backend for backend in BACKENDS if backend != "libiptc"]  # which takes longest, and goes back as iptables-legacy does
FIRST_RUNS = choose(
    [(backend, MODES[number % 2]) for number, backend in enumerate(WITHOUT_LIBIPTC[2:], 1)],  # those with sets do all that those without do
    [(backend, mode) for backend in BACKENDS for mode in MODES],
)


def options_of(backend, mode, *more):
    """Options of two families in which every kind of step is needed."""
    name, _, sets = backend.partition(SETS)
    networks = [f"10.{number}.0.0/16" for number in range(6)]
    lists = ["--ipset-threshold", "3", "-x", ",".join(networks)] if backend.endswith(SETS) else []
    assert not sets
    patient = ["--lock-timeout", "2m"]  # all pods here share the machine's lock
    return Options.from_argv([*SIDECAR, "--ipv6", "on", "-m", mode, "--backend", name, *patient, *lists, *more])


def need(backend):
    """Skips where programs are missing."""
    needs(backend.removesuffix(SETS))
    if backend.endswith(SETS) and shutil.which("ipset") is None:
        pytest.skip("ipset is not installed: apt-get install ipset")


def sets_of(pod):
    return pod.run(["ipset", "save"]).stdout if shutil.which("ipset") else ""


def everything(pod):
    """All that a run may change, the places of policy rules, the elements of sets and iptables-nft's empty tables too.

    Empty tables of iptables-legacy are the kernel's, which makes them to be read and keeps them.
    """
    sets = re.sub(" initval 0x[0-9a-f]+", "", sets_of(pod))  # drawn by the kernel for every set anew
    tables = pod.run(["nft", "list", "tables"]).stdout if shutil.which("nft") else ""
    return state(pod) + "\n".join(sorted([*sets.splitlines(), *tables.splitlines()]))


class FailingLink:
    """Netlink whose changes count as steps."""

    def __init__(self, machine):
        self._machine = machine

    def __getattr__(self, name):
        found = getattr(netlink, name)
        if not name.startswith("change_"):
            return found

        def change(*given, **more):
            if self._machine.fails():
                raise OSError(105, "No buffer space available")
            found(*given, **more)

        return change


class FailingMachine(Machine):
    """This machine, on which the n-th change fails, a commit of rules after the first family's or table's; later ones work."""

    def __init__(self, at):
        self.link = FailingLink(self)
        self._left = at
        self.failed = False

    def fails(self):
        self._left -= 1
        self.failed = self.failed or not self._left
        return not self._left

    def load(self, name, options, families):
        backend = super().load(name, options, families)
        if isinstance(backend, SetsBackend):  # where half a commit fails it goes on without sets: see test_ipset
            commit, destroy = backend.commit, backend._destroy

            def refuse_sets(change):
                if self.fails():
                    raise ApplyError("the kernel is out of memory")
                commit(change)

            def destroy_half(names):
                if names and self.fails():
                    destroy(names[1:])
                    raise ApplyError("the set is in use")
                destroy(names)

            backend.commit, backend._destroy = refuse_sets, destroy_half
        elif isinstance(backend, XtablesBackend):
            feed = backend.feed

            def feed_half(scripts):
                if not self.fails():
                    return feed(scripts)
                first, *others = scripts
                done = feed({first: scripts[first]}) if others else {}
                return {**done, (others or [first])[-1]: ApplyError("the kernel is out of memory")}

            backend.feed = feed_half
            commit_rules = backend.commit

            def refuse_removal(change):
                if isinstance(change, NftRemoval) and self.fails():
                    raise ApplyError("the kernel is out of memory")
                commit_rules(change)

            backend.commit = refuse_removal
        else:
            commit = backend.commit

            def refuse(change):
                if self.fails():
                    raise ApplyError("the kernel is out of memory")
                commit(change)

            backend.commit = self._failing_edits(backend.commit) if isinstance(backend, LegacyBackend) else refuse
        return backend

    def _failing_edits(self, commit):
        make_edit = legacy_edits.make_edit

        def make_half(family, edit, undo):
            if self.fails():
                raise OSError(errno.ENOMEM, f"table {edit.table}: Cannot allocate memory")
            make_edit(family, edit, undo)

        def refuse_edits(change):
            legacy_edits.make_edit = make_half
            try:
                commit(change)
            finally:
                legacy_edits.make_edit = make_edit

        return refuse_edits


def fail_in_turn(pod, act):
    """Runs `act` until no step is left that could fail; each failing run leaves everything as before. The number of steps."""
    before = everything(pod)
    for number in range(1, 60):
        machine = FailingMachine(number)
        with pod.entered():
            try:
                act(machine)
            except NetinitError as error:
                assert machine.failed, f"step {number}: {error}"
                assert "failed too" not in str(error), error
            else:
                assert not machine.failed, f"step {number} failed, and the run says it succeeded"
                return number - 1
        check_same(everything(pod), before, f"step {number} failed")
    pytest.fail("there is no end of steps")


@pytest.mark.parametrize(("old", "new", "mode"), HAND_OVERS, ids=[f"{old} to {new}-{mode}" for old, new, mode in HAND_OVERS])
def test_a_hand_over_whose_steps_fail_in_turn_leaves_all_as_before(require_netns, old, new, mode):
    need(old)
    need(new)
    with Pod() as pod:
        with pod.entered():
            apply(options_of(old, mode, "-o", "9000"))
        steps = fail_in_turn(pod, lambda machine: apply(options_of(new, mode, "--reconcile"), machine=machine))
        least = 2 if variant_of(old.removesuffix(SETS)) != variant_of(new.removesuffix(SETS)) else 1
        assert steps >= least + (mode == "TPROXY") * (least - 1)


def test_libiptc_changes_no_rules_that_it_could_not_put_back(require_netns):
    need("libiptc")
    need("iptables-legacy with sets")
    with Pod() as pod, pod.entered():
        apply(options_of("iptables-legacy with sets", "REDIRECT", "-o", "9000"))
        before = everything(pod)
        with pytest.raises(ApplyError, match=r"ISTIO_OUTPUT could not be put back: .*--match-set .*; use --backend iptables-legacy"):
            apply(options_of("libiptc", "REDIRECT", "--reconcile"))
        check_same(everything(pod), before, "nothing was changed")


@pytest.mark.parametrize(("backend", "mode"), FIRST_RUNS)
def test_a_first_run_another_mode_and_a_removal_whose_steps_fail_in_turn_leave_all_as_before(require_netns, backend, mode):
    need(backend)
    other = MODES[mode == MODES[0]]
    with Pod() as pod:
        if backend != "nftables":
            add_foreign_rules(pod, variant_of(backend.removesuffix(SETS)))
        assert fail_in_turn(pod, lambda machine: apply(options_of(backend, mode), machine=machine)) >= 1
        assert fail_in_turn(pod, lambda machine: apply(options_of(backend, other, "--reconcile"), machine=machine)) >= 1
        assert fail_in_turn(pod, lambda machine: remove(Options(), machine=machine)) >= 1


@pytest.mark.parametrize("mode", choose(MODES[1:], MODES))
def test_a_removal_from_two_backends_whose_steps_fail_in_turn_leaves_all_as_before(require_netns, mode):
    need("iptables-nft")
    need("iptables-legacy")
    with Pod() as pod:
        with pod.entered():
            apply(options_of("iptables-nft", mode))
        force_beside(pod, options_of("iptables-legacy", mode))
        clean = {"iptables-nft", "iptables-legacy"}
        assert fail_in_turn(pod, lambda machine: remove(Options(), machine=machine)) >= len(clean)


@contextlib.contextmanager
def held(path):
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(("new", "mode"), [("iptables-nft", "TPROXY"), ("nftables", "REDIRECT")])
def test_a_lock_that_the_other_backend_needs_is_had_before_the_first_change(pod, tmp_path, new, mode):
    need("iptables-legacy")
    need(new)
    with pod.entered():
        apply(options_of("iptables-legacy", mode))
    before = describe_state(pod)
    path = tmp_path / "xtables.lock"
    with held(path):
        for words in (("--backend", new, "--reconcile"), ("--cleanup-only",)):
            arguments = (*SIDECAR, "--ipv6", "on", "-m", mode, *words, "--lock-timeout", "1s")
            refused = run_tool(pod, "apply", *arguments, env={"XTABLES_LOCKFILE": str(path)})
            assert refused.returncode == 1
            assert f"iptables-legacy: {path} is held by process {os.getpid()}" in refused.stderr, refused.stderr
            check_same(describe_state(pod), before, " ".join(words))


def test_the_lock_is_held_over_the_whole_run(pod, tmp_path, monkeypatch):
    need("iptables-legacy")
    need("iptables-nft")
    path = tmp_path / "xtables.lock"
    monkeypatch.setattr(lock, "XTABLES_LOCK", str(path))
    with pod.entered():
        apply(options_of("iptables-legacy", "TPROXY"))
        seen = []

        class Watching(FailingMachine):
            def fails(self):
                with path.open() as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        seen.append("free")
                    except BlockingIOError:
                        seen.append("held")
                return False

        apply(options_of("iptables-nft", "TPROXY", "--reconcile"), machine=Watching(0))
        assert len(seen) > 5
        assert set(seen) == {"held"}
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with held(path), pytest.raises(LockedError):
            remove(Options(backend="iptables-legacy"), machine=Busy())


class Busy(Machine):
    """This machine with legacy rules, whatever there are."""

    def load(self, name, options, families):
        backend = super().load("iptables-legacy", options.replace(lock_timeout=10**8), families)
        observe = backend.observe
        backend.observe = lambda _=None: observe().replace(ours=True)
        return backend

    def occupied(self, options, *, thorough):
        return ("iptables-legacy",)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, ApplyError), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_in_the_middle_goes_back(pod, number, raised):
    need("iptables-legacy")
    need("iptables-nft")
    with pod.entered():
        apply(options_of("iptables-legacy", "TPROXY"))
    before = everything(pod)

    class Ended(FailingMachine):
        def fails(self):
            if super().fails():
                os.kill(os.getpid(), number)
            return False

    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    for at in (1, 3, 5):
        with pod.entered(), pytest.raises(raised):
            apply(options_of("iptables-nft", "TPROXY", "--reconcile"), machine=Ended(at))
        check_same(everything(pod), before, f"signal in step {at}")
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_native_tables_whose_transaction_was_made_and_never_acknowledged_are_put_back(pod, monkeypatch):
    """With all that somebody had put into them: sets and maps, objects, comments and counters' values."""
    need("nftables")
    with pod.entered():
        apply(options_of("nftables", "TPROXY", "-o", "9000", "-x", "10.0.0.0/8,192.0.2.0/24,2001:db8::/32", "--rule-comments"))
    for line in (
        "add chain inet istio-proxy-nat mine", "add counter inet istio-proxy-nat seen", "add quota inet istio-proxy-nat most { over 5 mbytes; }",
        "add set inet istio-proxy-nat named { type ipv4_addr; flags interval, timeout; elements = { 10.0.0.0/8 timeout 1h } }",
        "add map inet istio-proxy-nat where { type inet_service : verdict; elements = { 80 : jump mine, 81 : drop } }",
        "add rule inet istio-proxy-nat mine ip daddr @named counter packets 5 bytes 6 name-less".removesuffix(" name-less"),
        "add rule inet istio-proxy-nat mine tcp dport vmap @where", 'add rule inet istio-proxy-nat mine counter name "seen"',
        'add rule inet istio-proxy-nat mine limit rate 5/second meta mark set 7 accept comment "theirs"',
    ):  # fmt: skip
        pod.run(["nft", line], check=True)
    before = forget_expiry(pod.run(["nft", "list", "ruleset"], check=True).stdout)
    made = []
    commit = NfTables.commit

    def unheard(link, messages, **more):
        found = commit(link, messages, **more)
        if not made:
            made.append(pod.run(["nft", "list", "ruleset"], check=True).stdout)
            raise OSError(105, "No buffer space available")
        return found

    monkeypatch.setattr(NfTables, "commit", unheard)
    for act in (lambda: apply(options_of("nftables", "TPROXY", "--reconcile")), lambda: remove(Options())):
        made.clear()
        with pod.entered(), pytest.raises(NetinitError, match="No buffer space available") as raised:
            act()
        assert "failed too" not in str(raised.value)
        assert made[0] != before
        check_same(forget_expiry(pod.run(["nft", "list", "ruleset"], check=True).stdout), before, str(raised.value))


def forget_expiry(listing):
    return re.sub(r" expires \w+", "", listing)


def test_where_tables_that_became_empty_cannot_be_removed_all_is_as_before(pod, monkeypatch):
    need("iptables-nft")
    with pod.entered():
        apply(options_of("iptables-nft", "TPROXY"))
    before = everything(pod)

    commit = NfTables.commit

    def refuse_tables(self, messages, **more):
        """Refuse every transaction that deletes a table."""
        deletes = any(kind == NFT_MSG_DELTABLE for _, (kind, _, _) in messages)
        return (Refusal(number=105, message=0),) if deletes else commit(self, messages, **more)

    monkeypatch.setattr(NfTables, "commit", refuse_tables)
    with pod.entered(), pytest.raises(ApplyError, match=r"^empty tables of iptables-nft cannot be removed: No buffer space available$"):
        remove(Options())
    check_same(everything(pod), before, "a removal that failed at its end")


def test_a_table_of_somebody_s_own_with_a_chain_of_our_name_stays_as_it_is(pod):
    need("iptables-nft")
    with pod.entered():
        apply(options_of("iptables-nft", "REDIRECT"))
    own = "table ip own {\n chain ISTIO_OUTPUT {\n }\n chain early {\n type filter hook output priority -300; policy accept;\n }\n}\n"
    pod.run(["nft", "-f", "-"], stdin=own, check=True)
    listed = pod.run(["nft", "list", "table", "ip", "own"], check=True).stdout
    with pod.entered():
        remove(Options())
    assert pod.run(["nft", "list", "ruleset"], check=True).stdout == listed


def test_what_cannot_be_put_back_is_named(pod):
    need("iptables-legacy")
    need("iptables-nft")
    with pod.entered():
        apply(options_of("iptables-legacy", "TPROXY"))

        class Broken(FailingMachine):
            def fails(self):
                self._left -= 1
                return self._left < 1

        with pytest.raises(ApplyError) as failure:
            apply(options_of("iptables-nft", "TPROXY", "--reconcile"), machine=Broken(4))
    assert "the rollback failed too" in str(failure.value)
    assert "add -4 rule fwmark 0x100d39 lookup 133: the rollback failed too" in str(failure.value)


def test_a_full_disk_behind_the_log_makes_no_failure_of_a_success(pod):
    need("iptables-nft")
    done = run_tool(pod, "apply", *SIDECAR, prefix=("sh", "-c", 'exec "$0" "$@" 2>/dev/full'))
    assert done.returncode == 0
    assert "ISTIO_OUTPUT" in describe_state(pod)


def test_a_listing_that_fails_afterwards_makes_no_failure_of_a_success(pod):
    need("iptables-nft")

    class Blind(Machine):
        def load(self, name, options, families):
            backend = super().load(name, options, families)
            observe, looks = backend.observe, []

            def look(snapshot=None):
                looks.append(snapshot)
                if len(looks) > 1:
                    raise ApplyError("no more memory")
                return observe(snapshot)

            backend.observe = look
            return backend

    with pod.entered():
        apply(options_of("iptables-nft", "REDIRECT"))
        outcome = apply(options_of("iptables-nft", "REDIRECT").replace(reconcile=True, outbound_port=15011), machine=Blind())
    assert outcome.changed
    assert "the rules are programmed, but could not be listed afterwards: no more memory" in outcome.warnings
