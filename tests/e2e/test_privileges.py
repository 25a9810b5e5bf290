"""What the image does with which privileges: every row of the table in docs/security.md, run as containerd, CRI-O or Docker would."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from containers import Image
from engine import ROOT
from laboratory import Pod

pytestmark = pytest.mark.netns
# TPROXY and IPv6 want routes, policy rules and an address too, which no program of iptables makes.
ARGUMENTS = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "TPROXY", "-i", "*", "-b", "*", "--ipv6", "on")
BACKENDS = ("iptables-nft", "nftables", "iptables-legacy")
USERS = ("0", "65532", "65532 under Docker")
CAPABILITIES = ("none", "NET_ADMIN", "NET_ADMIN NET_RAW")
ESCALATIONS = ("no", "yes")
STRANGE = "/strange"  # where a stranger's files are mounted: the image itself holds no other program


@pytest.fixture(scope="session")
def stranger(python_files: Path) -> Stranger:
    """A Python in the container that is somebody else's, of the files of the admission server's image."""
    return Stranger(python_files)


@dataclass(frozen=True)
class Stranger:
    """Runs code of its own in containers of an image."""

    files: Path

    def run(self, image: Image, pod: Pod, *words: str, **limits: Any) -> subprocess.CompletedProcess[str]:
        """What its Python said, given these words, in a container with these limits."""
        (libraries,) = [path.parent for path in (self.files / "usr" / "lib").glob("*/libc.so.6")]
        inside = f"{STRANGE}/{libraries.relative_to(self.files)}"
        (loader,) = libraries.glob("ld-linux*.so.*")
        start = [f"{inside}/{loader.name}", "--library-path", inside, f"{STRANGE}/usr/bin/python3.11"]
        mounts = {STRANGE: self.files, **limits.pop("mounts", {})}
        return image.run(pod.pid, words, entrypoint=start, mounts=mounts, **limits)



@dataclass(frozen=True)
class Case:
    """One run of the image."""

    backend: str
    user: str
    capabilities: str
    escalation: str

    def confinement(self) -> dict[str, object]:
        uid, _, docker = self.user.partition(" under ")
        return {
            "user": f"{uid}:{uid}",
            "capabilities": () if self.capabilities == "none" else tuple(self.capabilities.split()),
            "escalation": self.escalation == "yes",
            "bounding_only": bool(docker),
        }

    def __str__(self) -> str:
        return f"{self.backend}, user {self.user}, {self.capabilities}, escalation {self.escalation}"


def read_table() -> Iterator[tuple[Case, str]]:
    """Each case of the table in docs/security.md with its result; a row stands for every combination of what it names."""
    text = (ROOT / "docs" / "security.md").read_text()
    rows = re.findall(r"^\|(.*)\|$", text.partition("<!-- privileges -->")[2].partition("<!-- end: privileges -->")[0], re.MULTILINE)
    for row in rows[2:]:
        cells = [cell.strip().replace("`", "") for cell in row.split("|")]
        choices = zip(cells[:4], (BACKENDS, USERS, CAPABILITIES, ESCALATIONS), strict=True)
        options = [every if cell == "any" else tuple(cell.split(", ")) for cell, every in choices]
        for values in itertools.product(*options):
            yield Case(*values), cells[4]


TABLE = list(read_table())


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_table_has_every_combination_once():
    named = [case for case, _ in TABLE]
    every = [Case(*values) for values in itertools.product(BACKENDS, USERS, CAPABILITIES, ESCALATIONS)]
    assert sorted(map(str, named)) == sorted(map(str, every))


def test_every_row_of_the_table_is_as_it_says(image: Image, backend: str, pod: Pod):
    wrong = []
    for case, result in TABLE:
        if case.backend != backend:
            continue
        done = image.run(pod.pid, [*ARGUMENTS, "--backend", backend], **case.confinement())
        lines = done.stderr.splitlines()
        if result == "works":
            removed = image.run(pod.pid, ["remove", "--ipv6", "on"])
            right = done.returncode == 0 and "programmed by" in done.stderr and "removed all rules" in removed.stderr
        else:
            right = done.returncode == 1 and len(lines) == 1 and result.removeprefix("error: ") in lines[0]
        if not right:
            wrong.append(f"{case}: wanted {result!r}, but it ended with {done.returncode}:\n{done.stderr[:2000]}")
    assert not wrong, "\n".join(wrong)


LOOK = """
import pathlib
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("seccomp", status["Seccomp"].strip(), "no new privileges", status["NoNewPrivs"].strip(), "bounds", status["CapBnd"].strip())
mounts = [line.split() for line in open("/proc/self/mounts")]
print("root", mounts[0][3].split(",")[0], "writable", sorted(m[1] for m in mounts if m[3].startswith("rw") and not m[1].startswith(("/proc", "/dev", "/sys"))))
for path in ("/x", "/tmp/x", "/run/x"):
    try:
        pathlib.Path(path).touch()
    except OSError as error:
        print(path, error.strerror)
"""


def test_the_containers_are_confined_as_kubernetes_does_it(image: Image, pod: Pod, stranger: Stranger):
    done = stranger.run(image, pod, "-I", "-S", "-c", LOOK, capabilities=("NET_ADMIN",))
    assert done.stdout.splitlines() == [
        "seccomp 2 no new privileges 1 bounds 0000000000001000",
        f"root ro writable ['{STRANGE}']",
        "/x Read-only file system",
        "/tmp/x Read-only file system",
        "/run/x Read-only file system",
    ], done.stdout + done.stderr


def test_without_net_admin_the_termination_log_has_the_same_line(image: Image, pod: Pod, tmp_path: Path):
    log = tmp_path / "termination-log"
    log.touch()
    log.chmod(0o666)  # as the kubelet makes it
    for user in ("0:0", "65532:65532"):
        log.write_text("")
        done = image.run(pod.pid, ARGUMENTS, user=user, capabilities=(), mounts={"/dev/termination-log": log})
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert log.read_text().strip() == done.stderr.split("\t")[-1].strip()
        assert "NET_ADMIN is missing" in log.read_text()


@pytest.mark.parametrize("arguments", [["render", "-b", "*", "--ipv6", "off"], ["--dry-run", "-b", "*", "--ipv6", "off"]])
def test_a_dry_run_wants_no_privileges_at_all(image: Image, pod: Pod, arguments):
    done = image.run(pod.pid, arguments, user="65532:65532", capabilities=())
    assert done.returncode == 0, done.stderr
    assert "ISTIO_INBOUND" in done.stdout


@pytest.mark.parametrize("backend", ["iptables-nft", "nftables"])
@pytest.mark.parametrize("user", ["0:0", "1337:1337", "65532:65532", "4711:0"])
def test_every_user_programs_the_rules_where_the_container_may(image: Image, pod: Pod, user, backend):
    done = image.run(pod.pid, [*ARGUMENTS, "--backend", backend], user=user, capabilities=("NET_ADMIN",))
    assert done.returncode == 0, done.stderr
    assert "programmed by" in done.stderr


# Code of somebody who may start programs in the container, not of netinit's: what it has, and whether it can have more.
CODE = """
import ctypes, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(*(f"{name} {int(status[name], 16):x}" for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")))
libc = ctypes.CDLL(None, use_errno=True)
bits = 1 << 12 | 1 << 13
refused = libc.capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0))
print("raised by itself:", not refused)
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print("raw socket: yes")
except PermissionError:
    print("raw socket: no")
"""
NOTHING = ["CapInh 0 CapPrm 0 CapEff 0 CapAmb 0", "raised by itself: False", "raw socket: no"]
everyone = pytest.mark.parametrize("user", ["65532:65532", "1337:1337", "4711:4711"])


@everyone
@pytest.mark.parametrize("escalation", [False, True], ids=["no escalation", "escalation"])
@pytest.mark.parametrize("bounding_only", [False, True], ids=["permitted", "bounded"])
def test_code_of_another_user_has_no_capability_though_the_container_may(image: Image, pod: Pod, stranger: Stranger, user, escalation, bounding_only):
    limits = {"user": user, "escalation": escalation, "bounding_only": bounding_only}
    done = stranger.run(image, pod, "-I", "-S", "-c", CODE, **limits)
    assert done.stdout.splitlines() == NOTHING, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["-c", CODE], ["-I", "-S", "-c", CODE], ["-"], ["/code/code.py"], ["-m", "code"], ["-X", "importtime"], ["--", "/code/code.py"]],
    ids=" ".join,
)
@pytest.mark.parametrize("entrypoint", ["/usr/bin/netinit", "/usr/bin/istio-iptables", "/usr/bin/../bin/netinit"])
def test_it_takes_no_option_of_the_interpreter(image: Image, pod: Pod, tmp_path: Path, entrypoint, arguments):
    (tmp_path / "code.py").write_text(CODE)
    done = image.run(pod.pid, arguments, entrypoint=[entrypoint], user="65532:65532", escalation=True, mounts={"/code": tmp_path})
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "CapPrm" not in done.stdout
    assert "import time" not in done.stderr


@pytest.mark.parametrize("name", ["python3", "nft", "-c", "", "/usr/bin/istio-iptables -c"])
def test_it_is_netinit_whatever_its_first_word_is(image: Image, pod: Pod, stranger: Stranger, name):
    code = f"import os; os.execv('/usr/bin/netinit', [{name!r} or ' ', 'version'])"
    done = stranger.run(image, pod, "-c", code, user="65532:65532", escalation=True)
    assert done.stdout.startswith("netinit "), done.stdout + done.stderr


def test_it_is_netinit_without_arguments_where_it_is_started_without_any_word(image: Image, pod: Pod, stranger: Stranger):
    code = """if True:
        import ctypes
        ctypes.CDLL(None).execve(b"/usr/bin/netinit", (ctypes.c_char_p * 1)(None), (ctypes.c_char_p * 1)(None))
    """
    done = stranger.run(image, pod, "-c", code, user="65532:65532", escalation=True)
    assert (done.returncode, "Usage: netinit" in done.stdout) == (2, True), done.stderr


# A netinit that waits for its input, started by somebody else's code, and what that may do to it.
WAITING = """
import ctypes, subprocess, time
child = subprocess.Popen(["/usr/bin/netinit", "inject", "-f", "-"], stdin=subprocess.PIPE)
deadline = time.monotonic() + 20
def look():
    return dict(line.split(":", 1) for line in open(f"/proc/{child.pid}/status"))
def waits():  # for its input, in read(2) of descriptor 0; till then it is this code, or starting
    return open(f"/proc/{child.pid}/cmdline", "rb").read().startswith(b"/usr/bin/netinit") and look()["State"].split()[0] == "S"
while not waits():
    assert time.monotonic() < deadline and child.poll() is None
    time.sleep(0.01)
time.sleep(0.2)
assert waits()
status = look()
print(*(f"{name} {int(status[name], 16):x}" for name in ("CapPrm", "CapEff", "CapAmb")))
libc = ctypes.CDLL(None, use_errno=True)
print("traced:", libc.ptrace(16, child.pid, None, None) == 0)  # PTRACE_ATTACH
try:
    open(f"/proc/{child.pid}/mem", "r+b").close()
    print("written to: True")
except OSError:
    print("written to: False")
child.kill()
"""


@pytest.mark.parametrize(
    ("capabilities", "has"),
    [
        ((), "0"),
        (("NET_RAW",), "0"),
        (("NET_ADMIN",), "1000"),
        (("NET_ADMIN", "NET_RAW"), "3000"),
        (("NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE"), "1000"),
    ],
    ids=str,
)
def test_netinit_has_net_raw_only_beside_net_admin_and_nobody_takes_them_from_it(image: Image, pod: Pod, stranger: Stranger, capabilities, has):
    limits = {"user": "65532:65532", "escalation": True, "capabilities": capabilities}
    done = stranger.run(image, pod, "-c", WAITING, **limits)
    reached = str(not capabilities)  # a process that was never given capabilities is like any other of the same user
    expected = [f"CapPrm {has} CapEff {has} CapAmb 0", f"traced: {reached}", f"written to: {reached}"]
    assert done.stdout.splitlines() == expected, done.stdout + done.stderr


TRACED = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if not pid:
    libc.ptrace(0, 0, None, None)  # PTRACE_TRACEME: the parent rules from the first instruction on
    os.execv("/usr/bin/netinit", ["netinit", "version"])
_, how = os.waitpid(pid, 0)
lines = open(f"/proc/{pid}/status").read().splitlines()
print("stopped:", os.WIFSTOPPED(how), *(line.replace("\\t", " ") for line in lines if line.startswith(("Name", "CapPrm"))))
os.kill(pid, 9)
"""


def test_who_traces_it_gains_nothing(image: Image, pod: Pod, stranger: Stranger):
    done = stranger.run(image, pod, "-c", TRACED, user="65532:65532", escalation=True)
    assert done.stdout.strip() == "stopped: True Name: netinit CapPrm: 0000000000000000", done.stdout + done.stderr


EVIL = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) { close(open("/evil/loaded", O_CREAT | O_WRONLY, 0666)); }
"""
# What programs such as netinit start, and what Python's ctypes (to find a library) and click (to complete a command line) would start.
PROGRAMS = (
    "nft", "ipset", "iptables-nft-save", "iptables-nft-restore", "ip6tables-nft-save", "ip6tables-nft-restore",
    "iptables-legacy-save", "iptables-legacy-restore", "gcc", "cc", "ld", "ldconfig", "objdump", "bash",
)  # fmt: skip
EVIL_PROGRAM = '#include <fcntl.h>\nint main(void) { return open("/evil/loaded", O_CREAT | O_WRONLY, 0666) < 0; }\n'
EVIL_MODULE = "import posix; posix.close(posix.open('/evil/loaded', posix.O_CREAT | posix.O_WRONLY))\n"
VARIABLES = {
    "LD_PRELOAD": "/evil/evil.so",
    "LD_AUDIT": "/evil/evil.so",
    "LD_LIBRARY_PATH": "/evil",
    "XTABLES_LIBDIR": "/evil",
    "IPTABLES_LIB_DIR": "/evil",
    "IP6TABLES_LIB_DIR": "/evil",
    "GCONV_PATH": "/evil",
    "PYTHONPATH": "/evil",
    "PYTHONHOME": "/evil",
    "PYTHONINSPECT": "1",
    "PATH": "/evil",
}


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that everybody may write, with libraries and programs that leave a file there when they are used."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "evil.c").write_text(EVIL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "evil.so", folder / "evil.c"], check=True)
    for name in ("libxt_tcp.so", "libxt_owner.so", "libxt_REDIRECT.so", "libxtables.so.12", "libexpat.so.1", "libnftables.so.1"):
        (folder / name).symlink_to("evil.so")
    (folder / "program.c").write_text(EVIL_PROGRAM)
    subprocess.run(["gcc", "-static", "-o", folder / "program", folder / "program.c"], check=True)
    for name in PROGRAMS:
        (folder / name).symlink_to("program")
    for name in ("sitecustomize", "encodings", "netinit"):
        (folder / f"{name}.py").write_text(EVIL_MODULE)
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("user", ["65532:65532", "0:0"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variable", VARIABLES)
def test_the_environment_makes_netinit_load_nothing(image: Image, pod: Pod, evil: Path, variable, backend, user):
    (evil / "loaded").unlink(missing_ok=True)
    limits = {"user": user, "mounts": {"/evil": evil}, "environment": {variable: VARIABLES[variable]}}
    done = image.run(pod.pid, [*ARGUMENTS, "--backend", backend], **limits)
    assert done.returncode == 0, done.stderr
    assert "programmed by" in done.stderr
    assert not (evil / "loaded").exists(), f"{variable} was followed"


@pytest.mark.parametrize("name", ["_NETINIT_COMPLETE", "_ISTIO_IPTABLES_COMPLETE"])
def test_a_question_for_completions_starts_no_shell_of_somebody_else_s(image: Image, pod: Pod, evil: Path, name):
    (evil / "loaded").unlink(missing_ok=True)
    asked = {name: "bash_source", "PATH": "/evil"}
    done = image.run(pod.pid, [], user="65532:65532", mounts={"/evil": evil}, environment=asked)
    assert "Traceback" not in done.stderr
    assert not (evil / "loaded").exists(), done.stdout + done.stderr


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT", "PYTHONPATH"])
def test_another_program_in_the_container_follows_the_environment(image: Image, pod: Pod, stranger: Stranger, evil: Path, variable):
    """So that the test before this one can fail: the folder does its work."""
    (evil / "loaded").unlink(missing_ok=True)
    limits = {"mounts": {"/evil": evil}, "environment": {variable: VARIABLES[variable]}}
    done = stranger.run(image, pod, "-c", "pass", **limits)
    assert (evil / "loaded").exists(), done.stdout + done.stderr
