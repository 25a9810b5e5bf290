"""What is tried on every kernel: backends, options, and which tests stand for which feature of which backend."""

from __future__ import annotations

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
CHOSEN_BY_NETINIT = "netinit's choice"  # no --backend: one that serves must be found
_COMMON = ("-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*", "-d", "15090,15021,15020", "--ipv6", "on")
OPTIONS = {
    "REDIRECT": _COMMON,
    "TPROXY and DNS": (*_COMMON, "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7", "--drop-invalid"),
    "address sets": (*_COMMON, "-x", "192.0.2.0/25,198.51.100.0/24,2001:db8::/48,2001:db8:2::/48", "--ipset-threshold", "2"),
}
_EVERY = "tests/netns/test_every_kernel.py::"
_USERS = "tests/netns/test_verify.py::test_every_backend_programs_a_pod_with_users_of_its_own"
_SETS = "tests/netns/test_ipset.py::test_connections_to_networks_of_a_set_are_not_captured_and_others_are"
_NATIVE_SETS = (
    "tests/netns/test_nftables.py::test_networks_that_overlap_touch_repeat_or_have_host_bits_capture_exactly_what_they_should"
)
FEATURES = ("contract", "connections", "TPROXY", "address sets", "user namespaces")
_OF_SETS = {"iptables-nft": f"{_SETS}[iptables-nft]", "iptables-legacy": f"{_SETS}[iptables-legacy]", "nftables": _NATIVE_SETS}


def _of(backend: str) -> dict[str, str]:
    features = {
        "contract": f"{_EVERY}test_a_first_run_a_second_another_choice_and_the_removal_keep_the_contract[{backend}]",
        "connections": f"{_EVERY}test_connections_of_both_families_arrive_where_they_should[{backend}]",
        "TPROXY": f"{_EVERY}test_tproxy_captures_both_families_and_keeps_both_addresses[{backend}]",
        "user namespaces": f"{_USERS}[{backend}]",
    }
    return features | ({"address sets": _OF_SETS[backend]} if backend in _OF_SETS else {})


CHOSEN = {backend: _of(backend) for backend in BACKENDS}


def tests() -> list[str]:
    """Every chosen test."""
    return [test for features in CHOSEN.values() for test in features.values()]
