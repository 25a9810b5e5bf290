"""Nothing that a pod or the environment holds, hides or hangs keeps a run from ending."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core import plan
from hostile import stranger, tool
from laboratory import Pod
from netinit.backends import lock
from netinit.backends.legacy import LegacyBackend
from netinit.backends.libiptc import LibiptcBackend
from netinit.backends.machine import Machine
from netinit.base.errors import BackendUnavailableError, LockedError
from netinit.kernel import namespaces, open_pod
from netinit.options import Options
from programming import FOLDERS, REDIRECT, SIDECAR, TOOL, needs, run_tool, start_tool, state
from sweeps import choose, crossed

LEGACY = (*REDIRECT, "--backend", "iptables-legacy")
ODD_LOCKS = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)),
    "a symbolic link": lambda path: Path(path).symlink_to("/etc/shadow"),
}


# Lock files


@crossed(kind=ODD_LOCKS, backend=["iptables-legacy", "libiptc"])
def test_a_lock_file_that_is_none_is_refused_by_name_and_nothing_is_changed(pod, tmp_path, kind, backend):
    needs(backend)
    path = tmp_path / "lock"
    ODD_LOCKS[kind](path)
    before = state(pod)
    refused = run_tool(pod, "apply", *REDIRECT, "--backend", backend, env={"XTABLES_LOCKFILE": str(path)})
    assert refused.returncode == 1
    assert f"XTABLES_LOCKFILE: '{path}' cannot be opened: it is {kind}, not a regular file; name a regular file in a writable folder" in refused.stderr, refused.stderr
    assert state(pod) == before
    told = run_tool(pod, "doctor", *SIDECAR, env={"XTABLES_LOCKFILE": str(path)})
    assert f"XTABLES_LOCKFILE: {path} cannot be opened: it is {kind}, not a regular file" in told.stdout, told.stdout


def test_the_usual_lock_files_place_is_looked_at_as_well(pod, tmp_path, monkeypatch):
    needs("iptables-legacy")
    os.mkfifo(tmp_path / "xtables.lock")
    monkeypatch.setattr(lock, "XTABLES_LOCK", str(tmp_path / "xtables.lock"))
    for backend in (LegacyBackend(), LibiptcBackend()):
        with pod.entered(), pytest.raises(BackendUnavailableError, match=r"xtables\.lock' cannot be opened: it is a FIFO, not a regular file"):
            backend.commit(backend.observe().compare(plan(Options.from_argv(REDIRECT))).change())


def test_dev_null_is_a_lock_file_that_locks_nothing(pod):
    needs("iptables-legacy")
    done = run_tool(pod, "apply", *LEGACY, env={"XTABLES_LOCKFILE": "/dev/null"})
    assert done.returncode == 0, done.stderr


# The lock of a pod, held by the pod

HOLD = "import fcntl; held = os.open('/proc/self/ns/net', os.O_RDONLY); fcntl.flock(held, fcntl.LOCK_EX)"
AS_NOBODY = "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534); "


def test_an_unprivileged_process_of_the_pod_cannot_keep_the_operator_away(pod):
    needs("iptables-nft")
    with contextlib.ExitStack() as stack:
        with pod.entered():
            holder = stack.enter_context(stranger(AS_NOBODY + HOLD))
        place = ["--netns", pod.path, "--lock-timeout", "300ms"]
        for words, then in ((["apply", *REDIRECT], "programmed by"), (["remove"], "removed all rules")):
            done = tool(*words, *place)
            assert done.returncode == 0, done.stderr
            assert then in done.stderr
            assert re.search(rf"the pod's own lock is held by process {holder.pid} \(python3[\d.]*\): continued without it", done.stderr), done.stderr
        refused = run_tool(pod, "remove", "--lock-timeout", "300ms")
        assert refused.returncode == 1, "inside the lock of the namespace is the only one there is"
        assert f"is being programmed by process {holder.pid} (" in refused.stderr


def test_a_holder_whose_lock_was_taken_by_a_process_that_is_gone_is_named(pod):
    needs("iptables-nft")
    with pod.entered():
        descriptor = os.open(namespaces.OWN, os.O_RDONLY)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
        # ParsedFlags by a process that ends at once; the copy that stays is the sleeper's.
        sleeper = subprocess.Popen(["/bin/sleep", "infinity"], pass_fds=[descriptor])
        subprocess.run([sys.executable, "-c", f"import fcntl; fcntl.flock({descriptor}, fcntl.LOCK_EX)"], pass_fds=[descriptor], check=True)
        os.close(descriptor)
    try:
        done = tool("apply", *REDIRECT, "--netns", pod.path, "--lock-timeout", "200ms")
        assert done.returncode == 0, done.stderr
        assert f"process {sleeper.pid} (sleep)" in done.stderr, done.stderr
    finally:
        sleeper.kill()
        sleeper.wait()


def test_runs_from_outside_exclude_each_other_by_a_lock_that_no_pod_can_open(pod):
    needs("iptables-nft")
    with open_pod.OpenPod(netns=pod.path) as opened, opened.lock(10**9, pytest.fail):
        named = os.fstat(pod.descriptor)
        path = Path(open_pod.FOLDER, f"{named.st_dev}-{named.st_ino}.lock")
        status = path.stat()
        assert (Path(open_pod.FOLDER).stat().st_mode & 0o7777, status.st_mode & 0o7777, status.st_uid) == (0o700, 0o600, 0)
        refused = tool("apply", *REDIRECT, "--netns", pod.path, "--lock-timeout", "200ms")
        assert refused.returncode == 1
        assert f"the pod is being programmed by process {os.getpid()} (" in refused.stderr, refused.stderr
        inside = run_tool(pod, "apply", *REDIRECT, "--lock-timeout", "200ms")
        assert f"the network namespace is being programmed by process {os.getpid()} (" in inside.stderr, "an init container waits for it too"
    assert not path.exists(), "the lock's file is left"
    assert tool("apply", *REDIRECT, "--netns", pod.path).returncode == 0


def is_locked(path):
    try:
        with Path(path).open("rb") as file:  # another open file description than the holder's, also in its child
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def test_work_that_wants_a_pods_locks_holds_both_while_it_runs_and_other_work_none(pod):
    named = os.fstat(pod.descriptor)
    outer = Path(open_pod.FOLDER, f"{named.st_dev}-{named.st_ino}.lock")

    def look(*_):
        return Path(namespaces.OWN).stat().st_ino == named.st_ino, is_locked(namespaces.OWN), is_locked(outer)

    with pod.entered():
        sleeper = subprocess.Popen(["/bin/sleep", "infinity"])
        assert Machine().inside(Options(), look, locks=pytest.fail) == (True, True, False), "in the pod itself there is one lock"
    try:
        for place in (Options(pid=sleeper.pid), Options(netns=pod.path)):
            assert Machine().inside(place, look, locks=pytest.fail) == (True, True, True)
            assert Machine().inside(place, look) == (True, False, False)
        with open_pod.OpenPod(pid=sleeper.pid) as opened, opened.lock(10**9, pytest.fail):
            hurried = Options(pid=sleeper.pid, lock_timeout=10**8)
            assert Machine().inside(hurried, look) == (True, True, True), "who only reads waits for nobody"
            with pytest.raises(LockedError, match=f"the pod is being programmed by process {os.getpid()} "):
                Machine().inside(hurried, look, locks=pytest.fail)
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("trap", ["writable", "link"])
def test_a_folder_for_locks_that_somebody_else_made_is_refused(pod, tmp_path, monkeypatch, trap):
    place = tmp_path / "locks"
    monkeypatch.setattr(open_pod, "FOLDER", str(place))
    if trap == "writable":
        place.mkdir()
        place.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    with open_pod.OpenPod(netns=pod.path) as opened, pytest.raises(open_pod.NamespaceError, match="is not a folder of mode 0700 of uid 0"):
        opened.lock(10**8, pytest.fail)


def test_a_run_waits_for_the_one_before_from_inside_and_tool(pod):
    needs("iptables-nft")
    words = (*REDIRECT, "--lock-timeout", "4m")
    runs = [start_tool(pod, *words) for _ in range(3)]
    runs += [subprocess.Popen([*TOOL, *words, "--netns", pod.path], env={"PATH": FOLDERS}, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[1] for process in runs]
    assert [process.returncode for process in runs] == [0] * 6, said
    assert sum("nothing to do" in text for text in said) == 5, said


# What else may be short or change


def test_a_jump_of_the_wall_clock_neither_ends_nor_lengthens_waiting(pod):
    """In a time namespace the clocks are others; the wall clock is the machine's, so it is the code that is checked."""
    with pod.entered():
        holder = os.open(namespaces.OWN, os.O_RDONLY)
        fcntl.flock(holder, fcntl.LOCK_EX)
    faked = f"import time; time.time = lambda: 4e9; time.time_ns = lambda: 4 * 10**18; import sys; sys.path.insert(0, {str(Path(namespaces.__file__).parents[2])!r}); sys.argv = ['netinit', 'apply', *{list(REDIRECT)!r}, '--lock-timeout', '300ms']; from netinit.cli.start import main; main()"
    try:
        refused = pod.run([sys.executable, "-c", faked], env={"PATH": FOLDERS})
    finally:
        os.close(holder)
    assert refused.returncode == 1
    assert "raise --lock-timeout" in refused.stderr
    assert "2096-" in refused.stderr, "the log tells the wall clock's time"


@pytest.mark.parametrize("limit", [f"--nofile={number}" for number in range(5, 16, choose(2, 1))])
def test_with_few_descriptors_a_run_does_all_or_says_what_it_lacks(pod, limit):
    needs("iptables-nft")
    clean = state(pod)
    done = run_tool(pod, "apply", *REDIRECT, "--backend", "iptables-nft", prefix=["prlimit", limit])
    if done.returncode:
        assert state(pod) == clean, "half done"
        assert "Traceback" not in done.stderr
        assert re.search("oo many open files|Error 24|Errno 24", done.stderr), done.stderr
    else:
        assert run_tool(pod, "verify", *REDIRECT).returncode == 0


@pytest.mark.users
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_with_no_more_processes_a_run_says_so_and_changes_nothing(require_netns, place):
    """The limit counts for users other than root; in a pod's user namespace root is one."""
    needs("iptables-nft")
    with Pod(user_namespace=True) as pod:
        clean = state(pod)
        entering = ["nsenter", "-t", str(pod.pid), "-U", "-n"] if place == "inside" else []
        more = ["--pid", str(pod.pid)] if place == "outside" else []
        done = subprocess.run(
            [*(["prlimit", "--nproc=1"] if place == "outside" else []), *entering, *(["prlimit", "--nproc=1"] if place == "inside" else []),
             *TOOL, "apply", *REDIRECT, "--backend", "iptables-nft", *more], env={"PATH": FOLDERS}, capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode:
            assert "cannot be started: Resource temporarily unavailable" in done.stderr, done.stderr
            assert "Traceback" not in done.stderr
            assert state(pod) == clean
        else:  # root of this user namespace has CAP_SYS_RESOURCE there, which some kernels take for enough
            assert tool("verify", *REDIRECT, "--pid", str(pod.pid)).returncode == 0


def test_an_earlier_version_of_the_tool_and_this_one_exclude_each_other_by_the_namespaces_lock(pod):
    """An earlier version knows no other lock; it takes the one on the namespace itself, inside and from outside."""
    needs("iptables-nft")
    earlier = "import fcntl, os, sys; held = os.open('/proc/self/ns/net', os.O_RDONLY); fcntl.flock(held, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    with pod.entered():
        other = subprocess.Popen([sys.executable, "-c", earlier], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "held\n"
        waiting = subprocess.Popen([*TOOL, "apply", *REDIRECT, "--netns", pod.path], env={"PATH": FOLDERS}, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        assert waiting.poll() is None, "it did not wait for the other version"
        other.stdin.close()
        assert waiting.wait() == 0
        waiting.stderr.close()
