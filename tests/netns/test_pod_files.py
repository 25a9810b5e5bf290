"""A pod's /etc/resolv.conf is whatever its owner made of it; an operator reads it as root of the machine."""

from __future__ import annotations

import itertools
import os
import socket
import time
from pathlib import Path

import pytest

from hostile import chrooted, stranger, tool
from netinit.base.errors import NamespaceError, NetinitError
from netinit.kernel import children
from netinit.kernel.files import read_in_root
from netinit.kernel.open_pod import FOLDER as LOCKS
from netinit.kernel.open_pod import OpenPod
from programming import SIDECAR
from sweeps import choose, pairs

DNS = (*SIDECAR, "--redirect-dns", "--ipv6", "off")
SECRET = "6.6.6.6 HOST-FILE-CONTENT"
COMMANDS = {
    words[0]: words
    for words in (["verify", *DNS], ["apply", *DNS], ["remove", "--redirect-dns"], ["explain", "--to", "10.0.0.1:80", *DNS], ["doctor", *DNS])
}


@pytest.fixture
def root(tmp_path):
    """A pod's root folder without a resolv.conf."""
    (tmp_path / "pod" / "etc").mkdir(parents=True)
    return tmp_path / "pod"


@pytest.fixture
def secret(tmp_path):
    """A file of the machine that only its root may read."""
    path = tmp_path / "secret"
    path.write_text(f"nameserver {SECRET}\n")
    path.chmod(0o600)
    return path


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


UNSUITABLE = {
    "a FIFO": os.mkfifo,
    "a device": lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)),  # /dev/zero
    "a folder": os.mkdir,
    "a socket": make_socket,
}


@pytest.mark.parametrize(("command", "kind"), pairs(COMMANDS, UNSUITABLE))
def test_what_is_no_regular_file_is_refused_by_name_before_anything_is_locked(root, kind, command):
    UNSUITABLE[kind](root / "etc" / "resolv.conf")
    with chrooted(root) as pod:
        named = Path(f"/proc/{pod.pid}/ns/net").stat()
        refused = tool(*COMMANDS[command], "--pid", str(pod.pid))
        rules = tool("verify", "--pid", str(pod.pid), *SIDECAR, "--ipv6", "off").stdout
    assert refused.returncode == 1, refused.stdout + refused.stderr
    said = refused.stdout + refused.stderr
    assert f"/etc/resolv.conf of process {pod.pid} cannot be read: it is {kind}, not a regular file; name the servers with --dns-servers" in said
    assert rules.startswith("no rules of netinit here"), "something was programmed"
    assert not Path(LOCKS, f"{named.st_dev}-{named.st_ino}.lock").exists(), "a lock is left"


LINKS = {"absolute": "{secret}", "upwards": "../../../../../../../../../..{secret}"}


@pytest.mark.parametrize(("command", "kind"), pairs(COMMANDS, LINKS))
def test_a_link_to_a_file_of_the_machine_leads_nowhere(root, secret, kind, command):
    (root / "etc" / "resolv.conf").symlink_to(LINKS[kind].format(secret=secret))
    with chrooted(root) as pod:
        done = tool(*COMMANDS[command], "--pid", str(pod.pid))
        live = tool("verify", "--json", *DNS, "--dns-servers", "9.9.9.9", "--pid", str(pod.pid))
    assert "6.6.6.6" not in done.stdout + done.stderr + live.stdout, "a file of the machine was read"
    assert "HOST-FILE" not in done.stdout + done.stderr


def test_a_link_through_proc_leads_nowhere_either(root, secret):
    (root / "proc").mkdir()
    (root / "etc" / "resolv.conf").symlink_to(f"/proc/{os.getpid()}/root{secret}")
    code = """
unshare(NEWNET | NEWNS)
assert not libc.mount(b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
assert not libc.mount(b"proc", (sys.argv[1] + "/proc").encode(), b"proc", 0, None)
os.chroot(sys.argv[1]); os.chdir('/')
assert "6.6.6.6" in open("/etc/resolv.conf").read(), "the trap works for who walks into it"
"""
    with stranger(code, arguments=[str(root)]) as pod:
        done = tool("verify", *DNS, "--pid", str(pod.pid))
    assert done.returncode == 1
    assert "6.6.6.6" not in done.stdout + done.stderr
    assert "/etc/resolv.conf of process" in done.stderr
    assert "Traceback" not in done.stderr


def test_links_that_stay_inside_are_followed(root):
    (root / "run").mkdir()
    (root / "run" / "resolv.conf").write_text("nameserver 10.96.0.10\n")
    for link in ("/run/resolv.conf", "../run/resolv.conf", "../../../run/resolv.conf"):
        (root / "etc" / "resolv.conf").unlink(missing_ok=True)
        (root / "etc" / "resolv.conf").symlink_to(link)
        with chrooted(root) as pod, OpenPod(pid=pod.pid) as opened:
            assert opened.read_resolv_conf() == "nameserver 10.96.0.10\n", link


RENAME = """
open("/etc/one", "w").close()
while True:
    os.rename("/etc/one", "/etc/other")
    os.rename("/etc/other", "/etc/one")
"""


def test_a_file_behind_a_link_upwards_is_read_whatever_is_renamed_meanwhile(root):
    (root / "run").mkdir()
    (root / "run" / "resolv.conf").write_text("nameserver 10.96.0.10\n")
    (root / "etc" / "resolv.conf").symlink_to("../run/resolv.conf")
    code = "unshare(NEWNET | NEWNS); os.chroot(sys.argv[1]); os.chdir('/')"
    with stranger(code, RENAME, arguments=[str(root)]) as pod:
        folder = os.open(root, os.O_PATH)
        try:
            for _ in range(2000):
                assert read_in_root(folder, "/etc/resolv.conf") == "nameserver 10.96.0.10\n"
        finally:
            os.close(folder)
        assert pod.poll() is None, "it stopped renaming"


def test_a_long_file_is_refused_and_a_missing_one_names_no_server(root):
    with chrooted(root) as pod, OpenPod(pid=pod.pid) as opened:
        assert opened.read_resolv_conf() == ""
        with (root / "etc" / "resolv.conf").open("wb") as file:
            file.truncate(1 << 33)
        with pytest.raises(NamespaceError, match="it is longer than 65536 bytes; name the servers with --dns-servers"):
            opened.read_resolv_conf()


SWAP = """
names = []
for number in range(4):
    name = f"/etc/{number}"
    names.append(name)
open("/etc/good", "w").write("nameserver 10.96.0.10\\n")
number = 0
while True:
    number += 1
    kind = number % 4
    if kind == 0: os.link("/etc/good", "/etc/next")
    elif kind == 1: os.symlink(sys.argv[2], "/etc/next")
    elif kind == 2: os.mkfifo("/etc/next")
    else: os.mknod("/etc/next", 0o20666, os.makedev(1, 5))
    os.rename("/etc/next", "/etc/resolv.conf")
    if os.path.exists("/etc/next"): os.unlink("/etc/next")  # renaming a link to itself leaves it
"""


def test_a_file_that_is_swapped_all_the_time_is_either_read_whole_or_refused(root, secret):
    code = "unshare(NEWNET | NEWNS); os.chroot(sys.argv[1]); os.chdir('/')"
    seen = {"read": 0, "refused": 0, "nothing": 0}
    with stranger(code, SWAP, arguments=[str(root), str(secret)]) as pod, OpenPod(pid=pod.pid) as opened:
        for number in itertools.count():  # on a busy machine one finds the same again and again
            if number >= choose(30, 400) and seen["read"] and seen["refused"]:
                break
            try:
                text = opened.read_resolv_conf()
            except NamespaceError as error:
                assert "not a regular file" in str(error), error
                seen["refused"] += 1
            else:
                assert text in ("", "nameserver 10.96.0.10\n"), "another file was read"
                seen["read" if text else "nothing"] += 1
        assert pod.poll() is None, "it stopped swapping"


def test_a_file_system_that_never_answers_ends_in_an_error(monkeypatch):
    with pytest.raises(NetinitError, match=r"resolv\.conf: it did not finish within 0 s and was stopped"):
        children.ask(lambda: time.sleep(60), seconds=0.2, what="resolv.conf")
