"""What apply makes the kernel hold for each golden is what the golden's files make it hold; second runs find nothing to do, and removal leaves nothing.

The package's apply, and that of the static executable which NETINIT_EXECUTABLE names. What each run of the package sent to the kernel, and what it
held after the executable's, is recorded with the test as one sum for each golden: equal on every machine, whatever its architecture.
"""

from __future__ import annotations

import hashlib
import json
import os
from _socket import socket
from pathlib import Path
from struct import unpack_from
from typing import ClassVar

import pytest

from bare_executable import BareExecutable
from core import settled
from goldens import FOLDER, SAMPLE, options_of, words_of
from laboratory import NetworkNamespace
from netinit.backends.machine import Machine
from netinit.base.net import FAMILIES
from netinit.kernel import netlink, table_replacement
from netinit.kernel.netlink import NLM_F_ACK, NLM_F_DUMP
from netinit.pods import apply as applying
from programming import check_same, needs, state

pytestmark = pytest.mark.netns
FLAGS_AT = 6  # in struct nlmsghdr
DEVICE = "link add eth0 type veth peer name peer\nlink set eth0 up\naddress add 2001:db8::10/64 dev eth0 nodad\n"  # of a pod for which --ipv6 auto is on
EXECUTABLE = os.environ.get("NETINIT_EXECUTABLE", "")
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
COUNTERS_AT = slice(88, 96)  # in struct ipt_replace, ip6t_replace: where the caller wants the old counters, another place each time


class Heard(socket):
    """A socket whose changes of the kernel are kept, in order."""

    kept: ClassVar[list[bytes]] = []

    def send(self, data):
        if unpack_from("=H", data, FLAGS_AT)[0] & (NLM_F_DUMP | NLM_F_ACK) != NLM_F_DUMP:  # a dump is repeated where something else changed
            self.kept.append(data)
        return super().send(data)

    def setsockopt(self, level, option, value):
        if option == table_replacement.SET_REPLACE and isinstance(value, bytes):
            self.kept.append(value[: COUNTERS_AT.start] + value[COUNTERS_AT.stop :])
        super().setsockopt(level, option, value)


class GoldenMachine(Machine):
    """This machine, but for addresses and name servers: those that goldens are written for."""

    def settle(self, options, servers=None):
        return settled(options)


@pytest.fixture
def heard(monkeypatch):
    kept = []
    monkeypatch.setattr(Heard, "kept", kept)
    for module in (netlink, table_replacement):
        monkeypatch.setattr(module, "socket", Heard)
    return kept


def load_files(namespace, backend, behaviour):
    """The golden's files, as their programs load them."""
    folder = FOLDER / behaviour
    if backend == "nftables":
        namespace.run(["nft", "-f", folder / "nft.txt"], check=True)
        return
    sets = folder / "ipset.txt"
    own = (lambda text: text.replace("netinit-nft-", "netinit-legacy-")) if backend == "iptables-legacy" else str
    if sets.exists():
        namespace.run(["ipset", "restore"], stdin=own(sets.read_text()), check=True)
    for family in FAMILIES:
        program = f"{backend.replace('iptables', family.program)}-restore"
        text = (folder / f"{family.program}.txt").read_text()
        namespace.run([program, "-w", "--noflush"], stdin=own(text), check=True)


def rules_of(namespace):
    """All rules, of whatever backend, without the addresses and routes beside them, of which golden files have none for programs."""
    return state(namespace).partition("# addresses, ")[0]


def sum_of(content):
    """A few digits that differ where the content does."""
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_kernel_lists_of_each_golden_what_it_lists_of_its_files(backend, heard, require_netns, record_property):
    needs(backend)
    sums = {}
    for behaviour in SAMPLE:
        options = options_of(behaviour).replace(backend=backend)
        with NetworkNamespace("golden") as namespace:
            load_files(namespace, backend, behaviour)
            wanted = rules_of(namespace)
        with NetworkNamespace("golden") as namespace:
            before = state(namespace)
            heard.clear()
            with namespace.entered():
                applying.apply(options, machine=GoldenMachine())
                sent = [*heard]
                again = applying.apply(options, machine=GoldenMachine())
            check_same(rules_of(namespace), wanted, f"{behaviour}: not as its files")
            with namespace.entered():
                applying.remove(options, machine=GoldenMachine())
            check_same(state(namespace), before, f"{behaviour}: removed, and not as before")
        assert not again.changed, behaviour
        sums[behaviour] = sum_of(b"".join(sent))
    assert len(set(sums.values())) > len(SAMPLE) // 2, "what was sent was not heard"
    record_property("sums", json.dumps(sums))


@pytest.fixture
def executable(tmp_path):
    """The static executable in a root of its own, without files for users and name servers, as those for which goldens are written."""
    return BareExecutable(Path(EXECUTABLE), tmp_path / "root")


@pytest.mark.skipif(not EXECUTABLE, reason="NETINIT_EXECUTABLE names no static executable; make arm64 links one")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_executable_alone_programs_each_golden_as_its_files_verifies_and_removes_it(backend, executable, require_netns, record_property):
    needs(backend)
    sums = {}
    for behaviour in SAMPLE:
        argv, environ = words_of(behaviour)
        words = [*argv, "--backend", backend]
        with NetworkNamespace("golden") as namespace:
            load_files(namespace, backend, behaviour)
            wanted = rules_of(namespace)
        with NetworkNamespace("golden") as namespace:
            namespace.run(["ip", "-batch", "-"], stdin=DEVICE, check=True)
            before = state(namespace)
            for command, said in (
                (("istio-iptables", *words), f"programmed by {backend}"),
                (("netinit", "apply", *words), f"rules are as planned ({backend}): nothing to do"),
                (("netinit", "verify", *words), "as planned"),
            ):
                done = executable.run(namespace, *command, env=environ)
                assert (done.returncode, said in done.stdout + done.stderr) == (0, True), f"{behaviour}: {command[:2]}: {done.stdout}{done.stderr}"
                check_same(rules_of(namespace), wanted, f"{behaviour}: after {command[:2]} not as its files")
            removed = executable.run(namespace, "netinit", "remove", env=environ)
            assert removed.returncode == 0, removed.stderr
            check_same(state(namespace), before, f"{behaviour}: removed, and not as before")
        sums[behaviour] = sum_of(wanted.encode())
    record_property("sums", json.dumps(sums))
