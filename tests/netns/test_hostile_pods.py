"""What a pod can have too much of, or name so that somebody reads it wrongly: neither stops nor deceives an operator."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from hostile import stranger, tool
from laboratory import NetworkNamespace
from netinit.base.errors import NetinitError
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import open_pod
from netinit.kernel.detect import loaded_sets, owned_sets
from netinit.kernel.snapshot import reader
from netinit.pods import host
from programming import FOLDERS, REDIRECT, ROOT, SIDECAR, TOOL, needs, run_tool
from sweeps import choose

OPTIONS = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "80", "-i", "*", "--ipv6", "off")
NATIVE = (*OPTIONS, "--native-nftables")
TOO_MANY = choose(201_000, 1_000_000)  # elements of a set, of which 200,000 are read at most
ODD_NAMES = (b"a\x1cb", b"d\xc2\x85e", "u\u2028v".encode(), b"e\x1b[2J", b"\xff\xfe", "w\u3000x".encode())  # none has white space, says the kernel


@pytest.fixture
def inside(require_netns):
    with NetworkNamespace("hostile") as namespace:
        yield namespace


def call(namespace, *command, stdin=""):
    with namespace.entered():
        subprocess.run(command, input=stdin.encode(), env={"PATH": FOLDERS}, check=True, capture_output=True)


# Names


@pytest.fixture
def oddly_connected(inside):
    """A pod whose every way out leads through an interface with a name that reads like several words or lines."""
    call(inside, "ip", "link", "set", "lo", "up")
    for number, name in enumerate(ODD_NAMES):
        call(inside, "ip", "link", "add", name, "type", "veth", "peer", "name", f"p{number}")
        for command in (["link", "set", f"p{number}", "up"], ["link", "set", name, "up"], ["addr", "add", f"10.9.{number}.1/24", "dev", name],
                        ["-6", "addr", "add", f"fd00:{number}::1/64", "dev", name, "nodad"], ["route", "add", f"192.0.2.{number}/32", "dev", name]):  # fmt: skip
            call(inside, "ip", *command)
    call(inside, "ip", "route", "add", "default", "dev", ODD_NAMES[0])
    return inside


def test_no_name_of_an_interface_breaks_or_forges_an_answer(oddly_connected):
    needs("iptables-nft")
    assert run_tool(oddly_connected, "apply", *OPTIONS).returncode == 0
    for words, wanted in (
        (["verify", *OPTIONS], "as planned: "),
        (["verify", "--live", *OPTIONS], "as planned: "),
        (["explain", "--live", "--to", "198.51.100.1:80"], "captured: goes to the proxy on 15001"),
        (["explain", "--live", "--to", "192.0.2.4:80", "--uid", "1337"], r"it leaves through \xff\xfe: by the routing table"),
        (["explain", "--live", "--from", "10.9.0.7", "--to-port", "80"], r"coming in through a\x1cb"),
        (["draw", "--live"], "ISTIO_REDIRECT"),
        (["doctor", *OPTIONS], ""),
    ):
        done = run_tool(oddly_connected, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert wanted in done.stdout, (words, done.stdout)
        text = done.stdout + done.stderr
        assert "internal error" not in text
        assert all(line.isprintable() for line in text.replace("\t", " ").split("\n")), text.encode()


def test_routes_are_read_as_the_kernel_wrote_them(oddly_connected):
    with oddly_connected.entered():
        around = {family.version: host.read_surroundings(family) for family in FAMILIES}
    names = {os.fsdecode(name) for name in ODD_NAMES}
    assert {name for _, name in around[4].routes} == names
    assert {name for _, name in around[6].routes} >= names
    assert around[4].default_interface == os.fsdecode(ODD_NAMES[0])


def test_more_routes_than_are_read_are_an_error_that_says_so(oddly_connected, monkeypatch):
    monkeypatch.setattr(reader, "MAX_BYTES", 100)
    with oddly_connected.entered(), pytest.raises(NetinitError, match="there is more here that affects packets than netinit reads; "):
        host.read_surroundings(IPV4)


# Sizes


def networks(count, comment=""):
    more = f' comment "{comment}"' if comment else ""
    return ", ".join([f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}{more}" for number in range(1 << 24, (1 << 24) + 2 * count, 2)])


@pytest.mark.parametrize("kind", choose(["a set"], ["a set", "a rule"]))
def test_a_set_of_hundreds_of_thousands_in_a_table_of_our_name_keeps_nobody_from_repairing(inside, kind):
    """nft takes minutes to list a set of a million: neither verify nor remove may want that, nor of a part of it.

    What is read is bounded in bytes: `make test` has fewer elements with long comments, which the kernel adds in a fifth of the time.
    """
    elements = networks(*choose((40_000, "x" * 100), (TOO_MANY, "")))
    assert run_tool(inside, "apply", *NATIVE).returncode == 0
    script = {
        "a set": f"add set inet istio-proxy-nat big {{ type ipv4_addr; }}\nadd element inet istio-proxy-nat big {{ {elements} }}\n",
        "a rule": f"add rule inet istio-proxy-nat istio-output ip daddr {{ {networks(min(TOO_MANY, 300_000))} }} return\n",
    }[kind]
    call(inside, "nft", "-f", "-", stdin=script)
    verified = run_tool(inside, "verify", *NATIVE)
    assert verified.returncode == 3, verified.stderr
    assert "the whole table, which cannot be read safely" in verified.stdout
    assert "it has more elements than are read" in verified.stdout
    if kind == "a set":
        assert run_tool(inside, "apply", *NATIVE, "--reconcile").returncode == 0
        assert run_tool(inside, "verify", *NATIVE).returncode == 0
    removed = run_tool(inside, "remove")
    assert (removed.returncode, "removed all rules" in removed.stderr) == (0, True), removed.stderr


@pytest.mark.skipif(shutil.which("ipset", path=FOLDERS) is None, reason="ipset is not installed: apt-get install ipset")
@pytest.mark.parametrize("name", choose(["netinit-nft-exclude-4"], ["big", "netinit-nft-exclude-4"]))
def test_a_long_address_set_is_counted_and_not_read(inside, name):
    lines = [f"create {name} hash:ip family inet maxelem {TOO_MANY + 1}", *[f"add {name} 10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(TOO_MANY)]]
    call(inside, "ipset", "restore", stdin="\n".join(lines) + "\n")
    with inside.entered():
        assert {one.name: one.size for one in loaded_sets()} == {name: TOO_MANY}
        assert owned_sets() == ({name: TOO_MANY} if name.startswith("netinit") else {})
    chosen = (*OPTIONS, "--backend", "iptables-nft", "-x", "10.0.0.0/8,11.0.0.0/8", "--ipset-threshold", "1")
    assert run_tool(inside, "apply", *chosen, "--reconcile").returncode == 0
    verified = run_tool(inside, "verify", *chosen)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert run_tool(inside, "remove").returncode == 0
    with inside.entered():
        assert {one.name: one.size for one in loaded_sets()} == ({} if name.startswith("netinit") else {name: TOO_MANY})


def test_a_visit_gets_no_more_memory_than_it_needs_and_says_so(inside):
    with open_pod.OpenPod(netns=inside.path) as pod:
        with pytest.raises(NetinitError, match="it exceeds the memory limit"):
            pod.run_inside(lambda: len(bytearray(open_pod.MEMORY)))
        assert pod.run_inside(lambda: len(bytearray(1 << 28))) == 1 << 28


def test_what_a_program_prints_in_a_visit_has_an_end(inside):
    def fill() -> int:
        descriptor = os.memfd_create("text")
        os.truncate(descriptor, open_pod.MAX_OUTPUT)
        os.lseek(descriptor, 0, os.SEEK_END)
        return os.write(descriptor, b"more")

    with open_pod.OpenPod(netns=inside.path) as pod, pytest.raises(OSError, match="File too large"):
        pod.run_inside(fill)


# Locks


def test_a_lock_on_dev_null_is_nobodys_obstacle(inside):
    """Anybody may open /dev/null and hold a lock on it; where no lock file is about the pod none is taken."""
    needs("iptables-legacy")
    hold = """
import fcntl; os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534); held = os.open("/dev/null", os.O_RDONLY)
try: fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: pass  # somebody else holds it: all the better
"""
    with stranger(hold):
        done = tool("apply", *OPTIONS, "--backend", "iptables-legacy", "--netns", inside.path, "--lock-timeout", "1s", "--cni-mode")
        assert done.returncode == 0, done.stderr
        removed = tool("remove", "--netns", inside.path, "--lock-timeout", "1s", "--cni-mode")
        assert removed.returncode == 0, removed.stderr


# Two versions


EARLIER = "2e45783"  # a release from before runs from outside had a lock of their own
LATER = ("env", "NETINIT_ISTIO_EXACT=1", *TOOL)  # the earlier one has Istio's rules alone


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The command of an earlier version."""
    folder = tmp_path_factory.mktemp("earlier")
    packed = subprocess.run(["git", "-C", ROOT, "archive", EARLIER, "netinit"], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the commit {EARLIER} is not here: git fetch --unshallow")
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return (*TOOL[:-1], str(folder / "netinit" / "__main__.py"))


@pytest.mark.parametrize("seed", range(choose(1, 6)))
def test_two_versions_that_race_end_as_one_of_them_wants_and_both_can_verify_it(inside, earlier, seed):
    needs("iptables-nft")
    dice = random.Random(seed)

    def start(command, words, place):
        if place == "inside":
            return inside.popen([*command, *words], env={"PATH": FOLDERS})
        return subprocess.Popen([*command, *words, "--netns", inside.path], env={"PATH": FOLDERS}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    patient = ("--lock-timeout", "4m")
    jobs = [dice.choice([["apply", *REDIRECT, *patient], ["remove", *patient]]) if seed % 2 else ["apply", *REDIRECT, *patient] for _ in range(6)]
    runs = [start(command, words, dice.choice(["inside", "outside"])) for words, command in zip(jobs, [earlier, LATER] * 3, strict=True)]
    said = [process.communicate()[1] for process in runs]
    assert [process.returncode for process in runs] == [0] * 6, said
    verdicts = []
    for command in (earlier, LATER):
        verify = start(command, ["verify", *REDIRECT], "outside")
        verify.communicate()
        verdicts.append(verify.returncode)
    there = "ISTIO" in inside.run(["iptables-nft-save"]).stdout
    assert verdicts == ([0, 0] if there else [3, 3])
    assert there or seed % 2, "all of them applied"


# The connection table


FILL = """
import os, socket, struct, sys
from ctypes import CDLL
# Established connections that nobody may drop early, told to the kernel one by one (IPCTNL_MSG_CT_NEW of nfnetlink_conntrack.h)
def attribute(kind, value): return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
def way(source, destination, ports):
    addresses = attribute(1, source) + attribute(2, destination)
    return attribute(0x8001, addresses) + attribute(0x8002, attribute(1, b"\\x11") + attribute(2, ports[0]) + attribute(3, ports[1]))
asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
one, other, ports = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2"), (b"\\xf1\\xf2", b"\\xf3\\xf4")
body = struct.pack("=BBH", 2, 0, 0) + attribute(0x8001, way(one, other, ports)) + attribute(0x8002, way(other, one, ports[::-1]))
body += attribute(3, struct.pack(">I", 14)) + attribute(7, struct.pack(">I", 3600))  # seen reply, assured, confirmed
def message(number, flags):
    ports = struct.pack(">H", 1 + number % 60000), struct.pack(">H", 1 + number // 60000)
    return struct.pack("=IHHII", 16 + len(body), 1 << 8, flags, number, 0) + body.replace(b"\\xf1\\xf2", ports[0]).replace(b"\\xf3\\xf4", ports[1])
done, refused = 0, {}
while not refused:  # of each hundred the last is acknowledged, the others where they are refused
    last = done + 99
    asking.send(b"".join([message(number, 0x601) for number in range(done, last)]) + message(last, 0x605))
    answered = -1
    while answered != last:
        code, answered = struct.unpack_from("=i4xHHI", asking.recv(4096), 16)[::3]
        if code: refused[answered] = code
    done += 100 - len(refused)
code = min(refused.values())
print(done, os.strerror(-code))
"""


def test_a_full_connection_table_keeps_nobody_from_programming_and_the_doctor_tells(inside):
    needs("iptables-nft")
    limit = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    if limit > 1_000_000:
        pytest.skip(f"nf_conntrack_max is {limit}: filling it takes minutes")
    assert run_tool(inside, "apply", *REDIRECT).returncode == 0  # from here on connections are tracked
    done = inside.run(["/usr/bin/python3", "-I", "-S", "-c", FILL], check=True, timeout=240).stdout.split(maxsplit=1)
    assert int(done[0]) >= limit - 1000, done
    assert done[1].strip() == "Cannot allocate memory"
    with inside.entered():
        assert int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text()) >= limit - 1000
    for words, code in ((["verify", *REDIRECT], 0), (["remove"], 0), (["apply", *REDIRECT], 0), (["verify", *REDIRECT], 0), (["explain", "--live", "--to", "10.0.0.1:80"], 0)):
        done = run_tool(inside, *words)
        assert done.returncode == code, (words, done.stderr)
    told = run_tool(inside, "doctor", *SIDECAR)
    assert "connection tracking" in told.stdout.lower() or "nf_conntrack" in told.stdout, told.stdout


def test_of_tens_of_thousands_of_rules_the_operator_hears_before_they_are_read(inside):
    needs("iptables-nft")
    rules = "".join([f"-A THEIRS -s 10.{n >> 16}.{n >> 8 & 255}.{n & 255}/32 -j ACCEPT\n" for n in range(21_000)])
    call(inside, "iptables-nft-restore", stdin=f"*filter\n:THEIRS - [0:0]\n{rules}COMMIT\n")
    told = run_tool(inside, "verify", *OPTIONS)
    assert told.returncode == 3, "no rules of ours"
    assert "warn\tthere are some 21,000 rules: reading them takes seconds" in told.stderr, told.stderr
