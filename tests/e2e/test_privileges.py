"""What the image does with which privileges: every row of the table in docs/security.md, run as containerd, CRI-O or Docker would."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from containers import Image
from engine import ROOT
from netinit.lab import Pod

pytestmark = pytest.mark.netns
# TPROXY and IPv6 want routes, policy rules and an address too, which no program of iptables makes.
ARGUMENTS = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "TPROXY", "-i", "*", "-b", "*", "--ipv6", "on")
BACKENDS = ("iptables-nft", "nftables", "iptables-legacy", "libiptc")
USERS = ("0", "65532", "65532 under Docker")
CAPABILITIES = ("none", "NET_ADMIN", "NET_ADMIN NET_RAW")
ESCALATIONS = ("no", "yes")


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


def test_the_containers_are_confined_as_kubernetes_does_it(image: Image, pod: Pod):
    done = image.run(pod.pid, ["-I", "-S", "-c", LOOK], entrypoint=["/usr/bin/python3.11"], capabilities=("NET_ADMIN",))
    assert done.stdout.splitlines() == [
        "seccomp 2 no new privileges 1 bounds 0000000000001000",
        "root ro writable []",
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
