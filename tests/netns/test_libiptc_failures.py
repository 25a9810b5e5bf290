"""The backend libiptc where it cannot do its work: refusals, missing libraries, locks that others hold."""

from __future__ import annotations

import contextlib
import fcntl
import os
import posix
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from laboratory import NetworkNamespace
from legacy import (
    DEFAULT,
    LEGACY,
    OTHER,
    add_foreign_rules,
    change_to,
    filled,
    fresh,
    listing,
    listings,
    tables_of,
)
from netinit.backends import libiptc
from netinit.backends import lock as locking
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.errors import ApplyError, BackendUnavailableError, LateError, LockedError
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.kernel import children, run
from programming import load, needs
from readable import NOBODY

pytestmark = pytest.mark.netns

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def libraries():
    needs("libiptc")


# Refusals


def test_what_the_kernel_refuses_is_an_error_and_changes_nothing():
    with fresh():
        good = "*nat\n:A1 - [0:0]\n-A OUTPUT -j A1\nCOMMIT\n"
        assert LibiptcBackend().feed(dict.fromkeys(FAMILIES, good)) == {}
        before = listings()
        for line, says in {
            "-A PREROUTING -m owner --uid-owner 1337 -j RETURN": "the kernel refused the new rules of table nat: Invalid argument",
            "-A OUTPUT -j NOWHERE": "there is no chain NOWHERE",
            "-A OUTPUT -m nonesuch -j RETURN": "-m nonesuch: not understood, and not kept; use --backend iptables-legacy",
            "-A OUTPUT -j QUEUE": "QUEUE: not understood",
            "-A OUTPUT -p tcp -m tcp --dport 65536 -j RETURN": "-m tcp --dport 65536: not understood",
            "-A OUTPUT -m owner -j RETURN": "-m owner: not understood",
            "-A OUTPUT --dport 80 -j RETURN": "--dport 80: not understood",
            "-A OUTPUT -p nonesuch -j RETURN": "'nonesuch'",
            "-A NOWHERE -j RETURN": "No chain/target/match by that name",
            "-D OUTPUT -p tcp -j RETURN": "there is no such rule in the chain",
            "-D OUTPUT 7": "Index of deletion too big",
            "-I OUTPUT 7 -j RETURN": "Index of insertion too big",
            "-X A1": "Too many links",
            "-A OUTPUT -d 10.0.0.0/255.0.255.0 -j RETURN": "-d 10.0.0.0/255.0.255.0: not understood",
            "-E A1 A2": "is not understood",
        }.items():
            errors = LibiptcBackend().feed({IPV4: f"*nat\n-A OUTPUT -j ACCEPT\n{line}\nCOMMIT\n"})
            assert list(errors) == [IPV4], line
            assert isinstance(errors[IPV4], ApplyError), line
            assert says in str(errors[IPV4]), line
            assert f"line 3: {line!r}" in str(errors[IPV4]) or "new rules of table nat" in says, line
            assert listings() == before, line
        assert LibiptcBackend().feed({IPV6: "*nat\n-A OUTPUT -d 10.0.0.0/8 -j RETURN\nCOMMIT\n"})


def test_rules_that_python_iptables_loses_or_crashes_on_are_as_iptables_makes_them():
    """Its NOTRACK lacks the flag that makes it one, and its NFLOG ends the process."""
    rules = "-A PREROUTING -p tcp -m tcp -j NFLOG --nflog-group 5 --nflog-prefix x\n-A PREROUTING -j NOTRACK\n"
    with fresh() as namespace:
        assert LibiptcBackend().feed({IPV4: f"*raw\n{rules}COMMIT\n"}) == {}
        made = listing(IPV4)
        load(namespace, LEGACY, IPV4, "*raw\n-F PREROUTING\nCOMMIT\n")
        load(namespace, LEGACY, IPV4, f"*raw\n{rules}COMMIT\n")
        assert made == listing(IPV4).replace("-j NOTRACK", "-j CT --notrack")  # two notations of one target
        assert made.count("-A ") == 2


def test_when_one_family_fails_the_other_is_put_back():
    with fresh() as namespace:
        add_foreign_rules(namespace)
        backend = LibiptcBackend()
        backend.commit(change_to(backend, DEFAULT))
        before = filled()
        change = change_to(backend, OTHER)
        broken = change.replace(scripts={**change.scripts, "IPv6": change.scripts["IPv6"] + "*raw\n-X NONE\nCOMMIT\n"})
        with pytest.raises(ApplyError, match=r"^IPv6: libiptc: line \d+: '-X NONE': No chain/target/match"):
            backend.commit(broken)
        assert filled() != before
        backend.roll_back(broken)
        assert filled() == before


def test_a_child_that_crashes_is_an_error_of_its_family():
    answers = libiptc._ask({IPV4: lambda _: os.kill(os.getpid(), signal.SIGKILL), IPV6: lambda _: "well"})
    assert str(answers[IPV4]) == ("libiptc: the process for IPv4 was killed by signal 9; use --backend iptables-legacy")
    assert isinstance(answers[IPV4], ApplyError)
    assert answers[IPV6] == "well"


def test_a_child_that_does_not_end_in_time_says_nothing_about_libiptc(monkeypatch):
    monkeypatch.setattr(run, "SECONDS", 0.1)
    answers = libiptc._ask({IPV4: lambda _: time.sleep(60)})
    assert (type(answers[IPV4]), str(answers[IPV4])) == (
        LateError, "libiptc: the process for IPv4 did not end within 0 s and was killed; use --backend iptables-legacy"
    )  # fmt: skip


def test_an_unforeseen_error_of_a_child_is_told():
    answers = libiptc._ask({IPV4: lambda _: 1 / 0})
    assert str(answers[IPV4]) == "libiptc: ZeroDivisionError: division by zero"


# What is missing


def test_without_privileges_the_error_names_them(readable):
    with NetworkNamespace("unprivileged") as namespace:
        done = namespace.run([*readable, *NOBODY, sys.executable, "-c", FEED_AND_TELL], check=True)
    assert done.stdout.startswith(
        "BackendUnavailableError: libiptc: table nat of IPv4 cannot be opened: Permission denied (you must be root); "
        "legacy tables need NET_ADMIN and NET_RAW: "
    ), done.stdout


FEED_AND_TELL = r"""
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.net import IPV4
for error in LibiptcBackend(own_files=False).feed({IPV4: "*nat\n-A OUTPUT -j RETURN\nCOMMIT\n"}).values():
    print(f"{type(error).__name__}: {error}", end="")
"""


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "iptc", None)
    with fresh():
        backend = LibiptcBackend()
        with pytest.raises(
            BackendUnavailableError, match="python-iptables: not installed: pip install python-iptables"
        ):
            backend.commit(change_to(backend, DEFAULT))


@pytest.mark.mounts
@pytest.mark.parametrize(
    ("hide", "says"),
    [
        (
            "mount -t tmpfs none /usr/sbin && mount --bind /dev/null {libxtables}",
            "python-iptables: cannot be imported: /sbin/ldconfig is missing; install it",
        ),
        ("mount --bind /dev/null {libip4tc}", "python-iptables: finds no libxtables, libip4tc or libip6tc"),
        ("mount --bind /dev/null {libxtables}", "python-iptables: finds no libxtables, libip4tc or libip6tc"),
    ],
)
def test_without_a_library_or_the_linker_s_tool_the_error_says_which_and_the_remedy(hide, says):
    """In a mount namespace from which they are gone."""
    found = {name: next(Path("/usr/lib").rglob(f"{name}.so.*.*"), None) for name in ("libip4tc", "libxtables")}
    unshare, python = shutil.which("unshare"), shlex.quote(sys.executable)
    script = f"{hide.format_map(found)} && exec {python} -c '{PROGRAM}'"
    done = subprocess.run(
        [unshare, "--net", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith(says), done
    assert "--backend" in done.stdout


def test_the_libraries_and_the_extensions_folder_are_found_without_starting_a_program(monkeypatch):
    def find():
        import ctypes.util

        def audit(event, _):
            assert event not in STARTS, event

        sys.addaudithook(audit)
        folder = libiptc._find_without_programs()
        maps = Path("/proc/self/maps").read_text()
        loaded = all(name in maps for name in SONAMES)
        return folder, loaded, tuple([ctypes.util.find_library(name) for name in ("xtables", "ip4tc", "ip6tc", "c", "ssl")])

    folder, loaded, names = children.ask(find, seconds=30, what="the search")
    assert (Path(folder).name, bool([*Path(folder).glob("libxt_*.so")])) == ("xtables", True)
    assert (names, loaded) == ((*SONAMES, None), True)
    monkeypatch.setitem(libiptc._SONAMES, "ip4tc", "libnonesuch.so.2")
    with pytest.raises(OSError, match=r"libnonesuch\.so\.2"):
        children.ask(find, seconds=30, what="the search")


STARTS = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.fork", "os.forkpty"}
SONAMES = ("libxtables.so.12", "libip4tc.so.2", "libip6tc.so.2", "libc.so.6")


@pytest.mark.mounts
def test_no_program_of_the_system_is_needed():
    script = f"mount -t tmpfs none /usr/sbin && exec {shlex.quote(sys.executable)} -c '{PROGRAM}'"
    unshare = shutil.which("unshare")
    done = subprocess.run([unshare, "--net", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "libiptc: the input ends without COMMIT\n"


PROGRAM = """
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.net import IPV4
print(*LibiptcBackend().feed({IPV4: "*nat"}).values())
"""


# The lock


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock file of this test's own in the place of /run/xtables.lock, which all the machine shares."""
    path = tmp_path / "xtables.lock"
    path.touch()
    monkeypatch.setattr(locking, "XTABLES_LOCK", str(path))
    return path


@contextlib.contextmanager
def held(path):
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


SCRIPT = "*nat\n-A OUTPUT -j RETURN\nCOMMIT\n"


def test_a_lock_held_by_another_is_waited_for_and_then_names_the_holder(lock):
    with fresh(), held(lock):
        with pytest.raises(LockedError, match=rf"libiptc: {lock} is held by process {os.getpid()} \(.*\): wait for it"):
            LibiptcBackend(lock_timeout=2 * 10**8).feed({IPV4: SCRIPT})
        assert tables_of(IPV4) == []


def test_a_lock_that_becomes_free_is_taken(lock):
    with fresh():
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            releasing = threading.Timer(0.2, fcntl.flock, (file, fcntl.LOCK_UN))
            releasing.start()
            taken = LibiptcBackend().lock()
            with taken:
                releasing.join()
                with held_already(lock):
                    pass
        assert LibiptcBackend(lock_timeout=0).feed({IPV4: SCRIPT}) == {}


@contextlib.contextmanager
def held_already(path):
    """Nobody else gets the lock when the block begins."""
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield


def test_the_lock_is_held_while_the_rules_change(lock):
    with fresh():
        free = libiptc._ask
        seen = []

        def ask(jobs):
            with held_already(lock):
                seen.append(len(jobs))
            return free(jobs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(libiptc, "_ask", ask)
            assert LibiptcBackend().feed(dict.fromkeys(FAMILIES, SCRIPT)) == {}
        assert seen == [2]
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_file_that_xtables_lockfile_names_is_the_lock(lock, tmp_path, monkeypatch):
    named = tmp_path / "named.lock"
    monkeypatch.setitem(posix.environ, b"XTABLES_LOCKFILE", str(named).encode())
    with fresh(), held(lock):
        assert LibiptcBackend(lock_timeout=0).feed({IPV4: SCRIPT}) == {}
        with held(named), pytest.raises(LockedError, match=str(named)):
            LibiptcBackend(lock_timeout=0).feed({IPV4: SCRIPT})


def test_a_named_lock_that_cannot_be_opened_is_an_error(monkeypatch):
    monkeypatch.setitem(posix.environ, b"XTABLES_LOCKFILE", b"/nonesuch/lock")
    with pytest.raises(
        BackendUnavailableError, match="XTABLES_LOCKFILE: '/nonesuch/lock' cannot be opened: No such file"
    ):
        LibiptcBackend().feed({IPV4: SCRIPT})


def test_no_lock_is_needed_where_the_root_is_read_only_or_the_files_are_the_host_s(lock, monkeypatch):
    with fresh(), held(lock):
        assert LibiptcBackend(lock_timeout=0, own_files=False).feed({IPV4: SCRIPT}) == {}
        monkeypatch.setattr(locking, "XTABLES_LOCK", "/proc/xtables.lock")
        assert LibiptcBackend(lock_timeout=0).feed({IPV4: SCRIPT}) == {}
        assert listing(IPV4).count("-A OUTPUT -j RETURN") == 2
