"""Thousands of networks that overlap at random, of both families: every command answers in a millisecond of processor time for each.

`make prove` takes ten thousand, `make test` fewer.
"""

from __future__ import annotations

import ipaddress
import os
import random
import resource
import subprocess

import pytest

from laboratory import Pod
from programming import TOOL
from sweeps import choose

NUMBER = choose(1_000, 10_000)
MAX_SECONDS = NUMBER / 1000  # of processor time
COMMANDS = {
    "explain": ("explain", "--to", "1.2.3.4:80"),
    "audit": ("audit",),
    "lint": ("lint",),
    "verify": ("verify", "--pid", "PID"),
    "diff": ("diff", "--live", "--pid", "PID"),
}


def choose_networks():
    """Networks of all lengths from 8 to 32, so that half of them lie in others; IPv6 has those of 2000::/3."""
    chosen = random.Random(1)
    found = []
    for number in range(NUMBER):
        length = chosen.randint(8, 32)
        first = chosen.getrandbits(length) << 32 - length if number % 2 else (1 << 125 | chosen.getrandbits(125)) >> 128 - length << 128 - length
        found.append(str(ipaddress.ip_network((first, length))) if number % 2 else str(ipaddress.IPv6Network((first, length))))
    return found


@pytest.fixture(scope="module")
def programmed(tmp_path_factory):
    """A pod with all of them, and the file of its options: as an argument they would be too long for execve(2)."""
    path = tmp_path_factory.mktemp("many") / "options.yaml"
    path.write_text(f'istio-service-cidr: "{",".join(choose_networks())}"\nistio-inbound-ports: "*"\nipv6: "on"\n')
    with Pod() as pod:
        done = pod.run([*TOOL, "apply", "--config", str(path), "--backend", "iptables-nft"], env={"PATH": os.environ["PATH"]})
        assert done.returncode == 0, done.stderr
        yield pod, path


@pytest.mark.parametrize("what", COMMANDS)
def test_overlapping_networks_cost_a_command_a_millisecond_each(programmed, what):
    pod, path = programmed
    words = [str(pod.pid) if word == "PID" else word for word in COMMANDS[what]]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*TOOL, *words, "--config", path], capture_output=True, text=True, check=False, timeout=280, env={"PATH": os.environ["PATH"]})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {used:.1f} s")
    assert used < MAX_SECONDS
