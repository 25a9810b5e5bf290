"""What is tried on every kernel: backends, options, and which tests stand for which feature of which backend."""

from __future__ import annotations

import itertools

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


_TAKEN = "tests/kernel/test_assumptions.py::"
RANDOM = "tests/kernel/test_simulator_against_kernel.py::test_every_connection_ends_where_the_simulator_says"
CONNECTIONS = 200  # for each of three backends; those that IPv6's rules do not see are left out: 500 and more remain
ASSUMPTIONS = {  # what the simulator takes for granted, and the tests that hold it; for random connections, where each ends and what it counts
    "of two chains of equal priority at a hook one decides, and no listing says which": f"{_TAKEN}test_of_two_chains_with_the_priority_of_nat_one_decides_and_the_simulator_leaves_open_which",
    "the states of a SYN on a known connection: open, half closed, in TIME_WAIT, reset by either end": f"{_TAKEN}test_a_syn_has_the_state_that_the_simulator_gives_it_whatever_it_meets",
    "a reset outside of the window is INVALID (`nf_conntrack_tcp_ignore_invalid_rst` is 0)": f"{_TAKEN}test_a_reset_outside_of_the_window_is_invalid_unless_tcp_ignore_invalid_rst_says_otherwise",
    "a mark ends at the border of a namespace (veth)": f"{_TAKEN}test_a_mark_ends_at_the_border_of_a_namespace",
    "`-m socket` and nft's `socket` find a connection in TIME_WAIT": f"{_TAKEN}test_a_connection_in_time_wait_still_has_a_socket",
    "redirected IPv6 arrives at `::1`, and inbound at the device's address": f"{_TAKEN}test_a_redirected_connection_of_ipv6_arrives_at_the_loopback_address_and_its_answers_come_back",
    "random connections end where the simulator says, and rules count what it says": RANDOM,
}

CHOSEN = {backend: _of(backend) for backend in BACKENDS}
_BUILT = [backend for backend in BACKENDS if backend != "libiptc"]  # those that want no library that is compiled
_GOLDENS = "tests/kernel/test_goldens_in_kernel.py::"
GOLDENS = f"{_GOLDENS}test_the_kernel_lists_of_each_golden_what_it_lists_of_its_files"
EXECUTABLE = f"{_GOLDENS}test_the_executable_alone_programs_each_golden_as_its_files_verifies_and_removes_it"
ARM64 = {  # what is tried on an emulated machine of this architecture, and the tests of each
    "the demo, with connections of both families": [f"tests/netns/test_demo.py::test_every_connection_arrives_where_it_must_in_both_families[{one}]" for one in _BUILT],
    **{
        feature: [CHOSEN[one][feature] for one in _BUILT if feature in CHOSEN[one]]
        for feature in FEATURES
    },
    "the goldens' text": ["tests/golden/test_rules.py"],
    "the goldens' bytes are those of iptables and nft": ["tests/kernel/test_encoding_against_kernel.py"],
    "the kernel lists of each golden what it lists of its files": [GOLDENS],
    "calls and structs: bpf(2), openat2(2), capset(2), setns(2), inotify(7), sock_diag(7)": [
        "tests/netns/test_cgroup_programs.py", "tests/unit/kernel/test_files.py", "tests/unit/kernel/test_capabilities.py",
        "tests/unit/kernel/test_namespaces.py", "tests/unit/kernel/test_file_changes.py", "tests/netns/test_listeners.py",
    ],
    "the images' launcher, compiled for it": ["tests/netns/test_launcher.py"],
    "the CNI plugin, compiled for it": ["tests/unit/node/test_plugin.py"],
    "the static executable, linked for it, alone: `apply`, `verify` and removal of each golden": [EXECUTABLE],
}  # fmt: skip


WHOLE = " whole"  # behind `goldens` and `arm64`: with all goldens in the kernel, and random connections


def tests(parts: str) -> list[str]:
    """The tests of `all`, of `simulator` for its assumptions alone, of `goldens` for what the kernel holds of them, or of `arm64`."""
    name, whole = parts.removesuffix(WHOLE), parts.endswith(WHOLE)
    features = [test for features in CHOSEN.values() for test in features.values()]
    taken = [test for test in ASSUMPTIONS.values() if whole or test != RANDOM]
    of = {"all": [*features, *ASSUMPTIONS.values()], "simulator": [*ASSUMPTIONS.values()], "goldens": [GOLDENS, EXECUTABLE], "arm64": [*itertools.chain(*ARM64.values()), *taken]}
    return of[name]
