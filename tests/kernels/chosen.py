"""What is tried on every kernel: backends, options, and which tests stand for which feature of which backend."""

from __future__ import annotations

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
_COMMON = ("-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*", "-d", "15090,15021,15020", "--ipv6", "on")
OPTIONS = {
    "REDIRECT": _COMMON,
    "TPROXY and DNS": (*_COMMON, "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7", "--drop-invalid"),
}
_CONTRACT = "tests/netns/test_backend_contract.py::"
_NATIVE_CONTRACT = "tests/netns/test_nftables_contract.py::"
_NATIVE = "tests/netns/test_nftables.py::"
_TRAFFIC = "tests/netns/test_traffic.py::"
_SETS = "tests/netns/test_ipset.py::"
_PROOF = "tests/netns/test_validation.py::test_good_rules_are_proven_in_both_families_and_directions"
_USERS = "tests/netns/test_verify.py::test_every_backend_programs_a_pod_with_users_of_its_own"
_STRANGERS = "tests/netns/test_foreign_users.py::test_root_of_a_foreign_user_namespace_gets_nothing_out_of_our_processes"
FEATURES = ("contract", "connections", "address sets", "user namespaces")


def _of_iptables(variant: str) -> dict[str, tuple[str, ...]]:
    return {
        "contract": (
            f"{_CONTRACT}test_options_by_the_dozen_keep_the_contract[{variant}]",
            f"{_CONTRACT}test_reconciling_ends_where_a_fresh_start_ends[{variant}]",
            f"{_CONTRACT}test_other_rules_of_ours_are_reported_and_left_alone_without_reconcile[{variant}]",
        ),
        "connections": (
            *(f"{_TRAFFIC}test_a_sidecar_captures_what_it_should_and_nothing_else[{variant}-{family}]" for family in (4, 6)),
            *(f"{_TRAFFIC}test_tproxy_keeps_both_addresses[{variant}-{family}]" for family in (4, 6)),
            f"{_TRAFFIC}test_the_classic_layout_captures_and_refuses_ipv6[{variant}]",
            f"{_PROOF}[more0-{variant}]",
            f"{_PROOF}[more3-{variant}]",
        ),
        "address sets": (
            f"{_SETS}test_long_lists_live_in_sets_from_the_first_run_to_the_removal[{variant}]",
            f"{_SETS}test_connections_to_networks_of_a_set_are_not_captured_and_others_are[{variant}]",
        ),
        "user namespaces": (f"{_USERS}[{variant}]", f"{_STRANGERS}[{variant}]"),
    }


CHOSEN: dict[str, dict[str, tuple[str, ...]]] = {
    "iptables-nft": _of_iptables("iptables-nft"),
    "iptables-legacy": _of_iptables("iptables-legacy"),
    "nftables": {
        "contract": (
            f"{_NATIVE_CONTRACT}test_options_by_the_dozen_keep_the_contract",
            f"{_NATIVE_CONTRACT}test_reconciling_ends_where_a_fresh_start_ends",
            f"{_NATIVE_CONTRACT}test_without_reconcile_the_other_backends_rules_are_named_and_left",
        ),
        "connections": (
            f"{_NATIVE}test_replacing_the_rules_lets_no_connection_by",
            *(f"{_PROOF}[more{number}-nftables]" for number in (0, 1, 3)),
        ),
        "address sets": (
            f"{_NATIVE}test_networks_that_overlap_touch_repeat_or_have_host_bits_capture_exactly_what_they_should",
            f"{_NATIVE}test_ten_thousand_mixed_networks_are_one_rule_a_family_and_compare_equal",
        ),
        "user namespaces": (f"{_USERS}[nftables]", f"{_STRANGERS}[nftables]"),
    },
    "libiptc": {
        "contract": (
            f"{_CONTRACT}test_options_by_the_dozen_keep_the_contract[libiptc]",
            f"{_CONTRACT}test_other_rules_of_ours_are_reported_and_left_alone_without_reconcile[libiptc]",
        ),
        "user namespaces": (f"{_USERS}[libiptc]", f"{_STRANGERS}[libiptc]"),
    },
}


# Left out where the processor is emulated: what takes long, and what tells little that its neighbours do not.
LONG = (
    "by_the_dozen", "where_a_fresh_start_ends", "ten_thousand", "from_the_first_run", "lets_no_connection_by",
    "more0", "more3", "classic_layout", "nothing_else[iptables-nft-6]", "nothing_else[iptables-legacy-4]",
    "both_addresses[iptables-nft-4]", "both_addresses[iptables-legacy", "gets_nothing_out_of_our_processes",
)  # fmt: skip


def tests(parts: str) -> list[str]:
    """Every chosen test, once; of `all` or, where the processor is emulated, of the `short` ones."""
    found = dict.fromkeys(test for features in CHOSEN.values() for chosen in features.values() for test in chosen)
    return [test for test in found if parts == "all" or not any(word in test for word in LONG)]
