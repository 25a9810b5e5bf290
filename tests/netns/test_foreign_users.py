"""Pods with users of their own: whoever is root in such a namespace must not become anything on the machine by us."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hostile import stranger, tool
from laboratory import Pod
from netinit.kernel import read_text
from netinit.kernel.detect import owned_sets
from netinit.kernel.open_pod import OpenPod
from programming import FOLDERS, REDIRECT, SIDECAR, TOOL, needs
from sweeps import choose, pairs

# An ordinary user of the machine makes a user and a network namespace, is root there, and hunts for our processes:
# whatever it can trace it makes open a file that root's group may read, by the group and descriptors of the victim.
HUNT = """
import glob
class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs".split()]
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
def poke(pid, address, data):
    data += bytes(-len(data) % 8)
    for offset in range(0, len(data), 8):
        libc.ptrace(4, pid, address + offset, int.from_bytes(data[offset:offset + 8], "little"))
def call(pid, number, *arguments):
    saved, now = Registers(), Registers()
    libc.ptrace(12, pid, None, ctypes.addressof(saved))
    ctypes.memmove(ctypes.addressof(now), ctypes.addressof(saved), ctypes.sizeof(saved))
    old = libc.ptrace(1, pid, saved.rip, None) & 0xFFFFFFFFFFFFFFFF
    poke(pid, saved.rip, (old & ~0xFFFF | 0x050F).to_bytes(8, "little"))
    now.rax, now.orig_rax = number, 0xFFFFFFFFFFFFFFFF
    for name, value in zip(("rdi", "rsi", "rdx"), arguments): setattr(now, name, value)
    libc.ptrace(13, pid, None, ctypes.addressof(now))
    libc.ptrace(9, pid, None, None); os.waitpid(pid, 0x40000000)
    libc.ptrace(12, pid, None, ctypes.addressof(now))
    poke(pid, saved.rip, old.to_bytes(8, "little")); libc.ptrace(13, pid, None, ctypes.addressof(saved))
    return ctypes.c_longlong(now.rax).value
me = os.getpid()
loot = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
while True:
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me: continue
        pid = int(name)
        try:
            if os.readlink(f"/proc/{name}/ns/user") != os.readlink("/proc/self/ns/user"): continue
            os.write(loot, f"looked into {open(f'/proc/{name}/comm').read().strip()}\\n".encode())
            for descriptor in os.listdir(f"/proc/{name}/fd"):
                os.write(loot, f"descriptor {os.readlink(f'/proc/{name}/fd/{descriptor}')}\\n".encode())
        except OSError: pass
        if libc.ptrace(16, pid, None, None): continue  # PTRACE_ATTACH
        try:
            os.waitpid(pid, 0x40000000)
            os.write(loot, f"attached to {open(f'/proc/{name}/comm').read().strip()}\\n".encode())
            registers = Registers(); libc.ptrace(12, pid, None, ctypes.addressof(registers))
            place = registers.rsp - 4096
            poke(pid, place, sys.argv[2].encode() + bytes(1))
            got = call(pid, 2, place, 0, 0)
            os.write(loot, f"opened {got}\\n".encode())
            if got >= 0:
                count = call(pid, 0, got, place, 64)
                os.write(loot, f"read {count}\\n".encode())
        except OSError: pass
        libc.ptrace(17, pid, None, None)
"""
BECOME = """
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its own /proc entries are its own again
assert not os.access(sys.argv[2], os.R_OK), "the file is nobody's secret"
unshare(NEWUSER | NEWNET); libc.prctl(4, 1, 0, 0, 0)
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write("0 65534 1"); open("/proc/self/gid_map", "w").write("0 65534 1")
"""

CARELESS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
user, net = [os.open(f"/proc/{sys.argv[1]}/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
assert not libc.setns(user, 0x10000000)
os.setresgid(0, 0, 0); os.setresuid(0, 0, 0)
assert not libc.setns(net, 0x40000000)
os.execv("/bin/sleep", ["sleep", "0.5"])
"""

SECRET = "GROUP-ROOT-SECRET\n"
ROOT_GROUP = 0  # a login has it among the supplementary groups, a service often not: here whatever is attacked has it


@pytest.fixture
def loot():
    """Where the attacker writes down what it got, and the secret: outside of folders that only root may enter."""
    folder = Path(tempfile.mkdtemp(prefix="netinit-loot-"))
    folder.chmod(0o755)
    secret, found = folder / "secret", folder / "loot"
    secret.write_text(SECRET)
    secret.chmod(0o640)
    found.touch()
    found.chmod(0o666)
    yield str(found), str(secret)
    shutil.rmtree(folder)


@pytest.mark.users
def test_the_trap_works_for_a_program_that_joins_carelessly(require_netns, loot):
    """Else the next test would prove nothing: nsenter keeps root's group, and its program can be traced."""
    found, secret = loot
    with stranger(BECOME, HUNT, arguments=[found, secret]) as attacker:
        for _ in range(20):
            subprocess.run([sys.executable, "-c", CARELESS, str(attacker.pid)], extra_groups=[ROOT_GROUP], check=True)
            if "read" in Path(found).read_text():
                break
    text = Path(found).read_text()
    assert "attached to sleep" in text, text
    assert f"read {len(SECRET)}\n" in text, f"the attacker's tool is broken: {text}"


BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")


@pytest.mark.users
@pytest.mark.parametrize("backend", choose([BACKENDS[0], BACKENDS[-1]], BACKENDS))
def test_root_of_a_foreign_user_namespace_gets_nothing_out_of_our_processes(require_netns, loot, backend):
    found, secret = loot
    needs(backend)
    held = os.open(secret, os.O_RDONLY)
    os.set_inheritable(held, True)  # noqa: FBT003 - its signature
    try:
        with stranger(BECOME, HUNT, arguments=[found, secret]) as attacker:
            place = ["--pid", str(attacker.pid)]
            options = [*REDIRECT, "-u", "0", "-g", "0"]  # the one user that is mapped there
            asked = (["verify", *options], ["explain", "--to", "10.0.0.1:80", *options], ["doctor", *options])
            questions = asked if backend in choose(BACKENDS[:1], BACKENDS) else ()
            for words in (["apply", *options, "--backend", backend], *questions, ["remove"]) * choose(1, 2):
                done = tool(*words, *place, pass_fds=[held], extra_groups=[ROOT_GROUP])
                assert "cannot be entered" not in done.stderr, done.stderr
                assert done.returncode in (0, 3) or words[0] == "doctor" or "ip link set lo up" in done.stderr, (words, done.stdout, done.stderr)
    finally:
        os.close(held)
    assert Path(found).read_text() == "", "the attacker looked into our processes"


@pytest.mark.users
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: apt-get install strace")
@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy"])
def test_a_joined_run_holds_nothing_of_the_callers_and_starts_no_program(require_netns, backend):
    """No group of root's and none of our descriptors are left before it joins, and no program is started at all."""
    with Pod(user_namespace=True) as pod, Path("/etc/shadow").open() as file:
        held = file.fileno()
        os.set_inheritable(held, True)  # noqa: FBT003 - its signature
        descriptor, trace = tempfile.mkstemp(prefix="netinit-trace-")
        os.close(descriptor)
        try:
            subprocess.run(
                ["strace", "-f", "-v", "-s", "4096", "-e", "trace=execve,setgroups,setns,capset,prctl,close", "-o", trace, *TOOL, "apply", *REDIRECT, "-x", "10.0.0.0/8,192.0.2.0/24", "--ipset-threshold", "1", "--backend", backend, "--pid", str(pod.pid)],
                env={"PATH": FOLDERS}, pass_fds=[held], check=True, capture_output=True,
            )  # fmt: skip
            lines = Path(trace).read_text().splitlines()
        finally:
            Path(trace).unlink()
        with pod.entered():
            assert len(owned_sets()) > 0
    calls = [line.partition(" ")[2].strip() for line in lines]
    assert len([call for call in calls if call.startswith("execve(")]) == 1, "a program was started beside the tool"
    joining = next(number for number, call in enumerate(calls) if call.startswith("setns(") and "NEWUSER" in call)
    groups = next(number for number, call in enumerate(calls) if call.startswith("setgroups(0"))
    closed = next(number for number, call in enumerate(calls) if call.startswith(f"close({held})"))
    assert groups < joining
    assert closed < joining


@pytest.mark.parametrize("user_namespace", [False, pytest.param(True, marks=pytest.mark.users)])
def test_inside_only_net_admin_and_net_raw_are_left_and_no_more_can_be_got(require_netns, user_namespace):
    """By what the child itself reads of it."""
    with Pod(user_namespace=user_namespace) as pod, OpenPod(pid=pod.pid) as opened:
        status = opened.run_inside(lambda: read_text("/proc/self/status"))
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert f"{name}:\t0000000000003000" in status, status
    assert "NoNewPrivs:\t1" in status
    assert re.search(r"^Groups:\t *$", status, re.MULTILINE), status


@pytest.mark.users
def test_a_user_namespace_without_root_is_refused_with_a_reason(require_netns):
    with stranger("os.setresuid(65534, 65534, 65534); unshare(NEWUSER | NEWNET)") as pod:
        refused = tool("apply", *REDIRECT, "--pid", str(pod.pid))
        assert refused.returncode == 1
        assert "the user namespace of the pod has no root" in refused.stderr, refused.stderr
        assert tool("verify", *REDIRECT, "--pid", str(pod.pid)).returncode == 3, "reading wants no root inside"


@pytest.mark.parametrize(
    ("owner", "own_users"), [pytest.param(*pair, marks=[pytest.mark.users] * pair[1]) for pair in pairs([0, 65534], [True, False])]
)
def test_netinit_in_a_folder_that_is_closed_to_others_works_on_pods_all_the_same(require_netns, tmp_path, owner, own_users):
    """Inside of the pod it can read nothing of its own: what it needs was loaded before."""
    needs("iptables-nft")
    closed = tmp_path / "closed"
    shutil.copytree(Path(TOOL[-1]).parent, closed / "netinit")
    for path in (closed, *closed.rglob("*")):
        os.chown(path, owner, owner)
    closed.chmod(0o700)
    program = [sys.executable, "-I", "-S", str(closed / "netinit" / "__main__.py")]
    with Pod(user_namespace=own_users) as pod:
        for words in (["apply", *SIDECAR, "--redirect-dns", "--dns-servers", "10.0.0.10"], ["verify", *SIDECAR, "--redirect-dns", "--dns-servers", "10.0.0.10"], ["remove"]):
            done = subprocess.run([*program, *words, "--pid", str(pod.pid)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (words[0], done.stdout + done.stderr)


def test_the_number_of_a_process_that_ended_is_never_taken_for_another(require_netns):
    """Between opening and reading the process ends, and the next one gets its number."""
    script = f"""
import os, sys
sys.path.insert(0, {str(Path.cwd())!r})
from netinit.kernel.open_pod import OpenPod
from netinit.options import Options
from netinit.base.errors import NamespaceError
import ctypes
libc = ctypes.CDLL(None)
def start():
    pid = os.fork()
    if not pid:
        libc.unshare(0x40000000)
        os.kill(os.getpid(), 19)
        os._exit(0)
    os.waitpid(pid, 2)
    return pid
first = start()
pod = OpenPod(pid=first)
inode = os.fstat(pod._namespace).st_ino
os.kill(first, 9); os.waitpid(first, 0)
open("/proc/sys/kernel/ns_last_pid", "w").write(str(first - 1))
second = start()
assert second == first, (first, second)
try:
    pod.read_resolv_conf()
except NamespaceError as error:
    print("refused:", error)
print(pod.run_inside(lambda: os.stat("/proc/self/ns/net").st_ino) == inode, os.stat(f"/proc/{{second}}/ns/net").st_ino == inode)
os.kill(second, 9)
"""
    done = subprocess.run(
        ["unshare", "-p", "-f", "-m", "--mount-proc", "/usr/bin/python3", "-c", script], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "refused: /etc/resolv.conf of process" in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("True False\n"), done.stdout + done.stderr
