"""What programs and the kernel say: the cause and the remedy of each, as they were heard on real kernels."""

from __future__ import annotations

import errno

import pytest

from netinit.backends.failure_causes import (
    CAUSES,
    IN_USE,
    IPSET,
    IPTABLES,
    REFUSED,
    WITHOUT_FEATURE,
    cause_of,
    condense,
    explain_iptables,
    explain_nft,
    explain_number,
)
from netinit.backends.iptables import LegacyVariant, NftVariant
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.errors import ApplyError, BackendUnavailableError, BusyError, KernelFeatureError, LockedError
from netinit.base.net import FAMILIES
from sweeps import together


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    """What is advised depends on where the process runs, which is another test's subject."""
    monkeypatch.setattr("netinit.backends.failure_causes.advise", lambda *_: ADVICE)


ADVICE = "that would help"
ADMIN = f"said; NET_ADMIN is missing: {ADVICE}"
SPITE = "said; the kernel refused it in spite of NET_ADMIN: legacy tables need NET_RAW and an owning user namespace too"
LEGACY_6 = f"said; {WITHOUT_FEATURE}: load ip6_tables, ip6table_nat on the node"
NFT_COMPAT = f"said; {WITHOUT_FEATURE}: load nf_tables, nft_compat on the node"
NOT_NAMED = f"said; {WITHOUT_FEATURE}: load nf_tables, nft_compat, xt_REDIRECT, xt_owner and the like on the node"
OWNER = f"said; {WITHOUT_FEATURE}: load xt_owner on the node"
# What iptables 1.8.9 says on Debian's kernel 6.1 without xt_owner, and without nf_tables.
NO_OWNER = "Warning: Extension owner revision 0 not supported, missing kernel module?\n" + "Warning: Extension owner is not supported, missing kernel module?\n" * 2
NO_TABLES = "Warning: Extension conntrack revision 0 not supported, missing kernel module?\nWarning: Extension CONNMARK revision 0 not supported, missing kernel module?\nWarning: Extension tcp revision 0 not supported, missing kernel module?\niptables-nft-restore v1.8.9 (nf_tables): unknown option '--nfmask'\nError occurred at line: 8\n"
FAILED = "iptables-nft-restore v1.8.9 (nf_tables): \nline 16: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT\nline 17: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT\n"


@together(
    ("said", "modules", "privileged", "kind", "text"),
    [
        ("Fatal: can't open lock file /run/xtables.lock: Permission denied", "nft", False, BackendUnavailableError, ADMIN),
        ("Could not fetch rule set generation id: Permission denied (you must be root)", "nft", False, BackendUnavailableError, ADMIN),
        ("Could not fetch rule set generation id: Permission denied (you must be root)", "nft", True, BackendUnavailableError, SPITE),
        ("unable to initialize table 'nat'", "legacy IPv6", False, BackendUnavailableError, ADMIN),
        ("unable to initialize table 'nat'", "legacy IPv6", True, KernelFeatureError, LEGACY_6),
        ("Could not fetch rule set generation id: Invalid argument", "nft", True, KernelFeatureError, NFT_COMPAT),
        ("RULE_APPEND failed (No such file or directory): rule in chain OUTPUT", "nft", True, KernelFeatureError, NOT_NAMED),
        ("Warning: Extension owner is not supported, missing kernel module? No chain/target/match by that name.", "nft", True, KernelFeatureError, OWNER),
        (NO_OWNER + FAILED, "nft", True, KernelFeatureError, OWNER),
        (NO_OWNER + "iptables-restore: line 24 failed", "legacy IPv4", True, KernelFeatureError, OWNER),
        (NO_TABLES, "nft", True, KernelFeatureError, NFT_COMPAT),
        (NO_OWNER.replace("owner", "MARK") + FAILED, "nft", True, KernelFeatureError, OWNER.replace("xt_owner", "xt_mark")),
        ("RULE_APPEND failed (Invalid argument): rule in chain OUTPUT", "nft", True, ApplyError, "said"),
        ("line 3 failed", "nft", False, ApplyError, "said"),
    ],
)  # fmt: skip
def test_what_iptables_says(said, modules, privileged, kind, text):
    error = explain_iptables(said, "said", modules, locked=False, privileged=privileged)
    assert (type(error), str(error)) == (kind, text)


def test_words_are_told_once_and_what_is_missing_is_named_at_the_end():
    assert condense(" ".join((NO_OWNER + FAILED).split())) == (
        "iptables-nft-restore v1.8.9 (nf_tables): line 16: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT (and 1 more)"
    )
    assert condense(NO_OWNER + "iptables-restore: line 24 failed") == "iptables-restore: line 24 failed"
    assert condense("iptables: line 3 failed") == "iptables: line 3 failed"
    assert condense(NO_OWNER) == NO_OWNER


def test_a_lock_of_iptables_comes_before_what_it_says():
    error = explain_iptables("Permission denied", "said", "nft", locked=True, privileged=False)
    assert (type(error), str(error)) == (LockedError, "said; it waits for another lock than XTABLES_LOCKFILE names: use a newer iptables")


@together(
    ("number", "asked", "old_kernel", "kind", "remedy"),
    [
        (1, "", "", BackendUnavailableError, "; NET_ADMIN is missing"),
        (1, "", "old", BackendUnavailableError, "; NET_ADMIN is missing"),
        (90, "", "", BackendUnavailableError, "; the rules are too many for one transaction"),
        (16, "", "", BusyError, "; the kernel is busy: try again"),
        (2, "", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nf_tables, nft_chain_nat"),
        (22, "", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nf_tables"),
        (2, "redir", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nft_redir on the node"),
        (2, "fib", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nft_fib, nft_fib_inet on the node"),
        (2, "chain nat", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nft_chain_nat on the node"),
        (93, "", "", KernelFeatureError, f"; {WITHOUT_FEATURE}: load nf_tables"),
        (95, "", "kernel 4.1 is older than 5.2", BackendUnavailableError, "; kernel 4.1 is older than 5.2: use an iptables backend"),
        (17, "", "", ApplyError, ""),
    ],
)
def test_what_nf_tables_refuses(number, asked, old_kernel, kind, remedy):
    error = explain_nft(number, "said", asked, old_kernel)
    assert type(error) is kind
    assert str(error).startswith(f"said{remedy}")
    assert remedy or str(error) == "said"


@pytest.mark.parametrize(
    ("number", "opening", "kind", "remedy"),
    [
        (1, True, BackendUnavailableError, f"; legacy tables need NET_ADMIN and NET_RAW: {ADVICE}"),
        (13, False, BackendUnavailableError, f"; legacy tables need NET_ADMIN and NET_RAW: {ADVICE}"),
        (2, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (3, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (92, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (97, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (2, False, ApplyError, ""),  # a rule of an extension that the kernel has not
        (22, True, ApplyError, ""),
    ],
)
def test_what_libiptc_says_by_number(number, opening, kind, remedy):
    error = explain_number(number, "said", opening=opening, modules="ip_tables")
    assert (type(error), str(error)) == (kind, f"said{remedy}")


def test_libiptc_names_the_modules_of_extensions_that_the_kernel_does_not_list():
    error = explain_number(2, "said", opening=False, modules="ip_tables", missing=["owner"])
    assert (type(error), str(error)) == (KernelFeatureError, OWNER)


@pytest.mark.parametrize(
    ("said", "cause"),
    [("ipset v7.17: Set cannot be destroyed: it is in use by a kernel component", IN_USE), ("ipset v7.17: Syntax error", REFUSED), ("Permission denied", REFUSED)],
)
def test_what_ipset_says(said, cause):
    assert cause_of(IPSET, said) == cause


def test_words_mean_what_they_mean_for_the_program_that_says_them():
    assert cause_of(IPTABLES, "it is in use") == cause_of(IPTABLES, "Invalid argument") == cause_of(IPSET, "Table does not exist") == REFUSED


def test_each_words_stand_once():
    for causes in CAUSES.values():
        words = [one for _, several in causes for one in several]
        assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize(("kind", "number", "text"), [
    (NftVariant, errno.ENOENT, f"iptables-nft: the kernel does not list its rules: No such file or directory; {NOT_NAMED[6:]}"),
    (LegacyVariant, errno.ENOENT, f"iptables-legacy: the kernel does not list its rules: No such file or directory; {NOT_NAMED[6:].replace('nf_tables, nft_compat', 'ip_tables, iptable_nat')}"),
    (NftVariant, errno.EINVAL, "iptables-nft: the kernel does not list its rules: Invalid argument"),
    (LibiptcBackend, errno.ENOENT, "libiptc: the kernel does not list its rules: No such file or directory; load ip_tables and its tables on the node"),
])  # fmt: skip
def test_a_kernel_that_does_not_list_its_rules_is_named_with_the_modules_of_the_variant(kind, number, text, monkeypatch):
    monkeypatch.setattr("netinit.backends.iptables.detect.has_capability", lambda _: True)
    made = kind(comments=False, families=FAMILIES, lock_timeout=1, own_files=True)
    assert str(made.refusal(OSError(number, "x"))) == text
