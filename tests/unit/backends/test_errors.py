"""What programs and the kernel say: the cause and the remedy of each, as they were heard on real kernels."""

from __future__ import annotations

import contextlib
import errno

import pytest

from netinit.backends import Change, notice_size
from netinit.backends.failure_causes import (
    CAUSES,
    IN_USE,
    IPSET,
    IPTABLES,
    OTHER_LOCK,
    REFUSED,
    WITHOUT_FEATURE,
    cause_of,
    condense,
    explain_iptables,
    explain_nft,
    explain_owners,
)
from netinit.backends.iptables import LegacyVariant, XtablesState
from netinit.backends.iptables_nft import NftVariant
from netinit.backends.libiptc import LibiptcBackend, explain_number
from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    BusyError,
    KernelFeatureError,
    LateError,
    LockedError,
)
from netinit.base.net import FAMILIES
from netinit.kernel import run
from netinit.rules.model import EMPTY_PLAN
from sweeps import together


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    """What is advised depends on where the process runs, which is another test's subject."""
    for module in ("failure_causes", "libiptc"):
        monkeypatch.setattr(f"netinit.backends.{module}.advise", lambda *_: ADVICE)
    monkeypatch.setattr("netinit.kernel.modules.can_help", lambda _: True)


ADVICE = "that would help"
ADMIN = f"said; NET_ADMIN is missing: {ADVICE}"
SPITE = "said; the kernel refused it in spite of NET_ADMIN: legacy tables need NET_RAW and an owning user namespace too"
OWNED = "said; the kernel refused it in spite of NET_ADMIN: another process may own the table (flags owner in nft list ruleset)"
LEGACY_6 = f"said; {WITHOUT_FEATURE}: load ip6_tables, ip6table_nat on the node"
NFT_COMPAT = f"said; {WITHOUT_FEATURE}: load nf_tables, nft_compat on the node"
NOT_NAMED = f"said; {WITHOUT_FEATURE}: load nf_tables, nft_compat, xt_REDIRECT, xt_owner and the like on the node"
OWNER = f"said; {WITHOUT_FEATURE}: load xt_owner on the node"
TOO_MANY = (
    "said; the rules are too many for one transaction in a pod with a user namespace of its own:"
    " list fewer networks, or raise net.core.wmem_max on the node"
)
# What iptables 1.8.9 says on Debian's kernel 6.1 without xt_owner, and without nf_tables.
NO_OWNER = "Warning: Extension owner revision 0 not supported, missing kernel module?\n" + "Warning: Extension owner is not supported, missing kernel module?\n" * 2
NO_TABLES = "Warning: Extension conntrack revision 0 not supported, missing kernel module?\nWarning: Extension CONNMARK revision 0 not supported, missing kernel module?\nWarning: Extension tcp revision 0 not supported, missing kernel module?\niptables-nft-restore v1.8.9 (nf_tables): unknown option '--nfmask'\nError occurred at line: 8\n"
FAILED = "iptables-nft-restore v1.8.9 (nf_tables): \nline 16: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT\nline 17: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT\n"


@together(
    ("said", "modules", "privileged", "kind", "text"),
    [
        ("Fatal: can't open lock file /run/xtables.lock: Permission denied", "nft", False, BackendUnavailableError, ADMIN),
        ("Could not fetch rule set generation id: Permission denied (you must be root)", "nft", False, BackendUnavailableError, ADMIN),
        ("Could not fetch rule set generation id: Permission denied (you must be root)", "nft", True, BackendUnavailableError, OWNED),
        ("Permission denied (you must be root)", "legacy IPv4", True, BackendUnavailableError, SPITE),
        ("Message too long", "nft", True, BackendUnavailableError, TOO_MANY),
        ("No buffer space available", "nft", True, BackendUnavailableError, TOO_MANY),
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
        ("Resource temporarily unavailable", "nft", False, BusyError, "said; the kernel is busy: try again, or let --retries do it"),
        ("Device or resource busy", "legacy IPv4", True, BusyError, "said; the kernel is busy: try again, or let --retries do it"),
        ("iptables: Unable to initialize Netlink socket: Protocol not supported", "nft", True, KernelFeatureError, NFT_COMPAT),
        ("cache initialization failed: Operation not supported", "nft", True, KernelFeatureError, NFT_COMPAT),
        ("unable to initialize table 'mangle'", "legacy IPv4", True, KernelFeatureError, f"said; {WITHOUT_FEATURE}: load ip_tables, iptable_mangle on the node"),
        ("Table does not exist (do you need to insmod?)", "legacy IPv6", True, KernelFeatureError, NOT_NAMED.replace("nf_tables, nft_compat", "ip6_tables, ip6table_nat")),
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


def lack(modules):
    return f"said; {WITHOUT_FEATURE}: load {modules} on the node, or use an iptables backend"


@together(
    ("number", "asked", "old_kernel", "kind", "text"),
    [
        (1, "", "", BackendUnavailableError, ADMIN),
        (13, "", "old", BackendUnavailableError, ADMIN),
        (90, "", "", BackendUnavailableError, TOO_MANY),
        (105, "", "old", BackendUnavailableError, TOO_MANY),
        (16, "", "", BusyError, "said; the kernel is busy: try again, or let --retries do it"),
        (11, "", "old", BusyError, "said; the kernel is busy: try again, or let --retries do it"),
        (2, "", "", KernelFeatureError, lack("nf_tables, nft_chain_nat, nft_redir, nft_ct and (for TPROXY) nft_tproxy, nft_socket")),
        (22, "", "", KernelFeatureError, lack("nf_tables, nft_chain_nat, nft_redir, nft_ct and (for TPROXY) nft_tproxy, nft_socket")),
        (2, "redir", "", KernelFeatureError, lack("nft_redir")),
        (2, "fib", "", KernelFeatureError, lack("nft_fib, nft_fib_inet")),
        (2, "reject", "", KernelFeatureError, lack("nft_reject, nft_reject_inet")),
        (2, "chain nat", "", KernelFeatureError, lack("nft_chain_nat")),
        (93, "chain filter", "", KernelFeatureError, lack("nf_tables, nft_chain_nat, nft_redir, nft_ct and (for TPROXY) nft_tproxy, nft_socket")),
        (95, "", "kernel 4.1 is older than 5.2", BackendUnavailableError, "said; kernel 4.1 is older than 5.2: use an iptables backend"),
        (17, "", "", ApplyError, "said"),
        (17, "", "old", ApplyError, "said"),
    ],
)
def test_what_nf_tables_refuses(number, asked, old_kernel, kind, text):
    error = explain_nft(number, "said", asked, old_kernel)
    assert (type(error), str(error)) == (kind, text)


@pytest.mark.parametrize(
    ("number", "opening", "kind", "remedy"),
    [
        (1, True, BackendUnavailableError, f"; legacy tables need NET_ADMIN and NET_RAW: {ADVICE}"),
        (13, False, BackendUnavailableError, f"; legacy tables need NET_ADMIN and NET_RAW: {ADVICE}"),
        (2, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (3, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (92, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (97, True, BackendUnavailableError, "; load ip_tables and its tables on the node"),
        (11, True, BusyError, "; the kernel is busy: try again, or let --retries do it"),
        (16, False, BusyError, "; the kernel is busy: try again, or let --retries do it"),
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
    error = explain_number(2, "said", opening=False, modules="ip_tables", missing=["owner", "tcp", "udp", "MARK"])
    assert str(error) == OWNER.replace("xt_owner", "xt_owner, xt_tcpudp, xt_mark")


@pytest.mark.parametrize(("script", "said"), [
    ("-A OUTPUT -m owner --uid-owner 1337 -j RETURN\n", "no user 1337, its last is 999"),
    ("-A OUTPUT -m owner --uid-owner 0 -j RETURN\n-A OUTPUT -m owner --gid-owner 999-1000 -j RETURN\n", "no group 1000, its last is 999"),
    ("-A OUTPUT -m owner --uid-owner 0-999 -j RETURN\n-A OUTPUT -m owner --gid-owner 999\n", ""),
    ("-A OUTPUT -j RETURN\n", ""),
])  # fmt: skip
def test_users_that_a_user_namespace_does_not_map_are_named(script, said, monkeypatch):
    maps = {"/proc/self/uid_map": "0 100000 900\n900 7 100\n", "/proc/self/gid_map": "0 100000 1000\n"}
    monkeypatch.setattr("netinit.backends.failure_causes.read_text", maps.__getitem__)
    remedy = ", and iptables takes no rule about one: remove it, or use --backend nftables"
    assert explain_owners(script) == (said and f"this user namespace (hostUsers: false) has {said}{remedy}")


def test_without_a_map_of_users_none_is_missed(monkeypatch):
    monkeypatch.setattr("netinit.backends.failure_causes.read_text", lambda _: "")
    assert explain_owners("-A OUTPUT -m owner --uid-owner 1337 -j RETURN\n") == ""


class Finished:
    program = "iptables-legacy-restore"

    def __init__(self, status, errors=""):
        self.status, self.errors = status, errors


@pytest.mark.parametrize(
    ("ends", "kind", "text"),
    [
        ([(1, "line 3\n failed"), (0, "")], ApplyError, "IPv4: iptables-legacy-restore: line 3 failed"),
        ([(2, ""), (-9, "")], ApplyError, "IPv4: iptables-legacy-restore: ended with status 2 and no message; IPv6: iptables-legacy-restore: ended with status -9 and no message"),
        ([(0, ""), (4, "")], LockedError, f"IPv6: iptables-legacy-restore: ended with status 4 and no message; {OTHER_LOCK}"),
        ([(0, ""), (4, "Another app holds the xtables lock")], LockedError, f"IPv6: iptables-legacy-restore: Another app holds the xtables lock; {OTHER_LOCK}"),
        ([(4, "line 3 failed"), (0, "")], ApplyError, "IPv4: iptables-legacy-restore: line 3 failed"),
        ([(0, ""), (3, "the lock")], ApplyError, "IPv6: iptables-legacy-restore: the lock"),
    ],
)
def test_each_family_that_fails_is_named_with_what_its_program_said(ends, kind, text, monkeypatch):
    monkeypatch.setattr("netinit.backends.iptables.detect.find_restore", lambda *_: "/sbin/x")
    monkeypatch.setattr("netinit.backends.iptables.detect.has_capability", lambda _: True)
    monkeypatch.setattr("netinit.backends.failure_causes.read_text", lambda _: "")
    backend = LegacyVariant(families=FAMILIES)
    monkeypatch.setattr(backend, "_run", lambda jobs: [Finished(*end) for end, _ in zip(ends, jobs, strict=True)])
    before = XtablesState(families=FAMILIES, encoded=(), comments=False, in_use=False, ours=False, foreign=False, notices=())
    with pytest.raises(kind) as caught:
        backend.commit(Change(scripts={"IPv4": "4", "IPv6": "6"}, before=before, plan=EMPTY_PLAN))
    assert (type(caught.value), str(caught.value)) == (kind, text)


def test_a_program_that_is_killed_after_its_deadline_says_nothing_about_the_backend(tmp_path, monkeypatch):
    (tmp_path / "program").write_text("#!/bin/sh\necho 'No chain/target/match by that name' >&2\nexec sleep 600\n")
    (tmp_path / "program").chmod(0o755)
    monkeypatch.setattr("netinit.backends.iptables.detect.find_restore", lambda *_: str(tmp_path / "program"))
    monkeypatch.setattr(run, "SECONDS", 0.2)
    monkeypatch.setattr(LegacyVariant, "lock", lambda _: contextlib.nullcontext())
    answers = LegacyVariant(families=FAMILIES, lock_timeout=0).feed(dict.fromkeys(FAMILIES, ""))
    assert [type(one) for one in answers.values()] == [LateError, LateError]


def test_a_program_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr("netinit.backends.iptables.detect.find_restore", lambda variant, family: "" if (variant, family) == ("legacy", FAMILIES[1]) else "/x")
    with pytest.raises(BackendUnavailableError) as caught:
        LegacyVariant(families=FAMILIES).feed(dict.fromkeys(FAMILIES, ""))
    assert str(caught.value) == "ip6tables-legacy-restore is not installed: add the package iptables to the image"


def test_very_many_rules_are_worth_a_notice():
    assert [*notice_size(20_000, FAMILIES[0])] == []
    assert [*notice_size(20_001, FAMILIES[0])] == ["IPv4: 20,001 rules are here: each read takes seconds"]


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
