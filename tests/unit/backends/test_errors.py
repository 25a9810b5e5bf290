"""What programs and the kernel say: the cause and the remedy of each, as they were heard on real kernels."""

from __future__ import annotations

import errno

import pytest

from netinit.backends import notice_size
from netinit.backends.failure_causes import (
    CAUSES,
    REFUSED,
    WITHOUT_FEATURE,
    cause_of,
    explain_iptables,
    explain_nft,
    explain_owners,
)
from netinit.backends.iptables_nft import NftVariant
from netinit.backends.legacy import LegacyBackend
from netinit.backends.libiptc import LibiptcBackend, explain_number
from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    BusyError,
    KernelFeatureError,
)
from netinit.base.net import FAMILIES
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


@together(
    ("said", "modules", "privileged", "kind", "text"),
    [
        ("Permission denied", "nft", False, BackendUnavailableError, ADMIN),
        ("Operation not permitted", "nft", True, BackendUnavailableError, OWNED),
        ("Permission denied", "legacy IPv4", True, BackendUnavailableError, SPITE),
        ("Message too long", "nft", True, BackendUnavailableError, TOO_MANY),
        ("No buffer space available", "nft", True, BackendUnavailableError, TOO_MANY),
        ("unable to initialize table 'nat'", "legacy IPv6", False, BackendUnavailableError, ADMIN),
        ("unable to initialize table 'nat'", "legacy IPv6", True, KernelFeatureError, LEGACY_6),
        ("unable to initialize table 'mangle'", "legacy IPv4", True, KernelFeatureError, f"said; {WITHOUT_FEATURE}: load ip_tables, iptable_mangle on the node"),
        ("No such file or directory", "nft", True, KernelFeatureError, NOT_NAMED),
        ("Protocol not supported", "nft", True, KernelFeatureError, NOT_NAMED),
        ("No such file or directory", "legacy IPv6", True, KernelFeatureError, NOT_NAMED.replace("nf_tables, nft_compat", "ip6_tables, ip6table_nat")),
        ("Invalid argument", "nft", True, ApplyError, "said"),
        ("line 3 failed", "nft", False, ApplyError, "said"),
        ("Resource temporarily unavailable", "nft", False, BusyError, "said; the kernel is busy: try again, or let --retries do it"),
        ("Device or resource busy", "legacy IPv4", True, BusyError, "said; the kernel is busy: try again, or let --retries do it"),
    ],
)  # fmt: skip
def test_a_refusal_in_words_is_a_cause_and_a_remedy(said, modules, privileged, kind, text):
    error = explain_iptables(said, "said", modules, privileged=privileged)
    assert (type(error), str(error)) == (kind, text)


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


def test_very_many_rules_are_worth_a_notice():
    assert [*notice_size(20_000, FAMILIES[0])] == []
    assert [*notice_size(20_001, FAMILIES[0])] == ["IPv4: 20,001 rules are here: each read takes seconds"]


def test_words_without_a_known_cause_are_a_refusal():
    assert cause_of("it is in use") == cause_of("Invalid argument") == REFUSED


def test_each_words_stand_once():
    words = [one for _, several in CAUSES for one in several]
    assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize(("kind", "number", "text"), [
    (NftVariant, errno.ENOENT, f"iptables-nft: the kernel does not list its rules: No such file or directory; {NOT_NAMED[6:]}"),
    (LegacyBackend, errno.ENOENT, f"iptables-legacy: the kernel does not list its rules: No such file or directory; {NOT_NAMED[6:].replace('nf_tables, nft_compat', 'ip_tables, iptable_nat')}"),
    (NftVariant, errno.EINVAL, "iptables-nft: the kernel does not list its rules: Invalid argument"),
    (LibiptcBackend, errno.ENOENT, "libiptc: the kernel does not list its rules: No such file or directory; load ip_tables and its tables on the node"),
])  # fmt: skip
def test_a_kernel_that_does_not_list_its_rules_is_named_with_the_modules_of_the_variant(kind, number, text, monkeypatch):
    monkeypatch.setattr("netinit.backends.iptables.detect.has_capability", lambda _: True)
    made = kind(comments=False, families=FAMILIES, lock_timeout=1, own_files=True)
    assert str(made.refusal(OSError(number, "x"))) == text
