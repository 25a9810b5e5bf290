"""What a snapshot answers about the machine that it is of."""

from __future__ import annotations

import errno

import pytest

from netinit.base.snapshot import INET, AttachedProgram, Device, NftTable, Snapshot, explain_unread


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EFBIG, "more here that affects packets than netinit reads"), (errno.EMSGSIZE, "more here that affects packets than netinit reads"),
        (errno.EINTR, "changes faster than it can be read; try again"), (errno.EPERM, "the kernel does not report what affects packets here: no"),
    ],
)  # fmt: skip
def test_the_kernel_is_not_blamed_for_netinits_own_limits(number, words):
    said = explain_unread(OSError(number, "no"))
    assert words in said
    assert ("the kernel does not" in said) == (number == errno.EPERM)


def test_devices_are_named_by_their_index_and_sysctls_by_their_path():
    found = Snapshot(links=(Device(index=1, name="lo"), Device(index=7, name="eth0")), settings=(("ipv4/ip_forward", "1"),))
    assert (found.name_of(7), found.name_of(8)) == ("eth0", "")
    assert (found.setting("ipv4/ip_forward"), found.setting("ipv6/nonesuch")) == ("1", "")


def test_a_table_is_named_as_nft_does_and_one_of_an_unknown_family_by_its_number():
    assert [str(NftTable(family=family, name="nat")) for family in (INET, 77)] == ["inet nat", "77 nat"]


def test_a_program_is_described_by_number_name_and_place():
    assert str(AttachedProgram(where="cgroup /a", number=7, name="drop")) == 'program 7 "drop" (cgroup /a)'
    assert str(AttachedProgram(where="eth0\n", number=7)) == r"program 7 (eth0\n)"
    assert str(AttachedProgram(where="x" * 401, number=7)) == f"program 7 ({'x' * 400}…)"
