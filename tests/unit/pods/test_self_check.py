"""What apply makes of what a snapshot shows when the rules are programmed; the kernel's own answers are in tests/netns/test_apply_checks.py."""

from __future__ import annotations

import pytest

from memory_machine import MemoryMachine
from netinit.base.errors import ApplyError
from netinit.base.snapshot import DORMANT, IP, AttachedProgram, Device, NftTable, Snapshot
from netinit.options import Options
from netinit.pods.apply import NotInForceError, apply

LOOPBACK = Device(index=1, name="lo", flags=9)
DORMANT_NAT = Snapshot(links=(LOOPBACK,), tables=(NftTable(family=IP, name="nat", flags=DORMANT),))
CHOOSES_SOCKETS = Snapshot(links=(LOOPBACK,), programs=(AttachedProgram(where="sk_lookup of the network namespace", number=7),))


class Examined(MemoryMachine):
    """One on which something foreign is, with this snapshot, or this error instead."""

    def __init__(self, found):
        super().__init__()
        self.found = found
        self.asked = []

    def is_plain(self, known, *, tables, addresses, excluded, own_legacy, sure):
        self.asked.append((len(known), own_legacy, sure))
        return self.found is None

    def read_snapshot(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def asked(*more, backend="iptables-nft"):
    return Options.from_argv(["-u", "1337", "-b", "*", "-i", "*", "--ipv6", "off", "--backend", backend, *more])


def test_nothing_foreign_is_no_warning_and_asks_for_no_snapshot():
    machine = Examined(None)
    machine.read_snapshot = lambda: pytest.fail("the prover is not needed")
    assert apply(asked(), machine=machine).warnings == ()
    assert machine.asked


@pytest.mark.parametrize("runs", [1, 2])
def test_rules_that_are_not_in_force_are_an_error_and_stay(runs):
    machine = Examined(None if runs == 2 else DORMANT_NAT)
    if runs == 2:
        apply(asked(), machine=machine)
        machine.found = DORMANT_NAT
    with pytest.raises(NotInForceError, match=r"are programmed and stay, but are not in force:\n  inactive: ip nat: flags dormant"):
        apply(asked(), machine=machine)
    assert "-j ISTIO_OUTPUT" in machine.snapshot()


def test_reconcile_programs_rules_that_are_not_in_force_anew_once():
    machine = Examined(None)
    apply(asked(), machine=machine)
    machine.found, machine.steps = DORMANT_NAT, []
    with pytest.raises(NotInForceError):
        apply(asked("--reconcile"), machine=machine)
    assert machine.steps == ["iptables-nft IPv4"]


@pytest.mark.parametrize("runs", [1, 2])
def test_what_takes_packets_away_is_a_warning_and_with_require_capture_an_error(runs):
    machine = Examined(CHOOSES_SOCKETS)
    if runs == 2:
        apply(asked(), machine=machine)
    warnings = apply(asked(), machine=machine).warnings
    assert any(one.startswith("escaping: BPF: program 7 (sk_lookup of the network namespace)") for one in warnings), warnings
    with pytest.raises(ApplyError, match=r"(?s)stay, but --require-capture is set, and packets .* may escape:\n.*  escaping: BPF: program 7 \(sk_lookup"):
        apply(asked("--require-capture"), machine=machine)
    assert "-j ISTIO_OUTPUT" in machine.snapshot()


@pytest.mark.parametrize("required", [False, True])
def test_programs_are_asked_for_where_capture_is_required(required):
    machine = Examined(None)
    apply(asked(*["--require-capture"] * required), machine=machine)
    assert [sure for _, _, sure in machine.asked] == [required]


def test_what_cannot_be_known_is_a_warning_and_with_require_capture_an_error():
    machine = Examined(PermissionError(1, "Operation not permitted"))
    (warning,) = apply(asked(), machine=machine).warnings
    assert warning == "whether foreign rules divert captured traffic is not known: Operation not permitted"
    with pytest.raises(ApplyError, match=r"--require-capture is set, and whether .* is not known: Operation not permitted"):
        apply(asked("--require-capture"), machine=machine)


