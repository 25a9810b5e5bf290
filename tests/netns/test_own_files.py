"""Files of the pod itself, read by the init container: whoever mounts them can neither hang it nor fill its memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from programming import SIDECAR
from sweeps import pairs

DNS = (*SIDECAR, "--redirect-dns", "--ipv6", "off")
MAIN = [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "../../netinit/__main__.py")]  # noqa: PTH118, PTH120
KIB = 300 << 10  # of address space: a run needs a fifth
# In a network and mount namespace of its own, with a file in place of another one.
SCRIPT = 'mount --make-rprivate / && mount --bind "$1" "$2" && ip link set lo up && ulimit -v ' + str(KIB) + ' && shift 2 && "$@"; code=$?; iptables-save -t nat >&2; exit $code'


def run(source, target, *words):
    return subprocess.run(
        ["unshare", "-n", "-m", "bash", "-c", SCRIPT, "-", str(source), target, *MAIN, *words], capture_output=True, text=True, check=False
    )  # fmt: skip


def make_fifo(path):
    os.mkfifo(path)


def make_zero(path):
    os.mknod(path, 0o20666, os.makedev(1, 5))


def make_long(path):
    path.write_text("nameserver 10.0.0.1\n" * 2_500_000)


FILES = [(make_fifo, "it is a FIFO, not a regular file"), (make_zero, "it is a device, not a regular file"), (make_long, "it is longer than 65536 bytes")]


COMMANDS = [("apply", *DNS), ("apply", *DNS, "--dry-run"), ("verify", *DNS), ("lint", *DNS), ("explain", "--to", "10.0.0.1:53", *DNS)]


@pytest.mark.parametrize(("file", "words"), pairs(FILES, COMMANDS))
def test_name_servers_that_cannot_be_read_are_an_error_with_the_file_and_the_option(file, words, tmp_path):
    make, why = file
    make(tmp_path / "file")
    done = run(tmp_path / "file", "/etc/resolv.conf", *words)
    assert done.returncode == 1, done
    assert f"/etc/resolv.conf cannot be read: {why}; name the servers with --dns-servers" in done.stderr
    assert "ISTIO_OUTPUT" not in done.stderr, "something was programmed"


@pytest.mark.parametrize(("make", "why"), FILES)
def test_with_its_servers_named_a_pod_starts_whatever_the_file_is(make, why, tmp_path):
    make(tmp_path / "file")
    for more in (("--dns-servers", "10.96.0.10"), ("--capture-all-dns",)):
        done = run(tmp_path / "file", "/etc/resolv.conf", "apply", *DNS, *more)
        assert done.returncode == 0, done
        assert "ISTIO_OUTPUT" in done.stderr
        if more == ("--capture-all-dns",):
            assert f"it is not known whether the name server is Docker's resolver: /etc/resolv.conf cannot be read: {why}" in done.stderr


@pytest.mark.parametrize(("make", "why"), FILES)
def test_users_that_cannot_be_looked_up_are_given_by_number(make, why, tmp_path):
    """On nftables, which runs no program: iptables itself looks up even a number, and ends only by its deadline."""
    make(tmp_path / "file")
    done = run(tmp_path / "file", "/etc/passwd", "apply", "-b", "*", "-i", "*", "--ipv6", "off", "--backend", "nftables")
    assert done.returncode == 0, done
    done = run(tmp_path / "file", "/etc/passwd", "apply", "-u", "envoy", "-b", "*", "--ipv6", "off")
    assert done.returncode == 2
    assert "-u: 'envoy' cannot be looked up: /etc/passwd is not a regular file of at most 16 MiB; pass a number" in done.stderr
