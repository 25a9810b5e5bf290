"""Where the user decides, `explain` says what becomes of the kernel's own sockets, which have none."""

from __future__ import annotations

import pytest

SIDECAR = "-b * -i * --redirect-dns --dns-servers 8.8.8.8 --ipv6 off"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--to 8.8.8.8:80 --uid 1337", "further subflows of MPTCP, NFS) have none: their packets are captured to port 15001"),
        ("--to 8.8.8.8:80 --uid 1000 --gid 1337", "further subflows of MPTCP, NFS) have none: their packets are captured to port 15001"),
        ("--to 8.8.8.8:53 --udp --uid 1337", "WireGuard, VXLAN) have none: their packets are captured to port 15053"),
        ("--to 8.8.8.8:80 --uid 1000", ""),  # captured, whoever sends it
        ("--to 8.8.8.8:9 --udp --uid 1337", ""),  # captured from nobody
        ("--from 10.9.9.9 --to-port 8080", ""),  # of no socket here
    ],
)
def test_the_kernels_own_sockets_are_named_where_the_user_decides_alone(run, words, said):
    done = run(f"netinit explain {SIDECAR} {words}")
    assert done.code == 0
    assert ("the kernel's own sockets" in done.err) is bool(said)
    assert said in done.err


def test_the_same_warning_of_several_pods_is_said_once(run):
    done = run("netinit explain --pod examples/pod.yaml --pod examples/native-sidecar.yaml --to 10.1.2.3:443 --uid 1337")
    assert done.err.count("the kernel's own sockets") == 1
