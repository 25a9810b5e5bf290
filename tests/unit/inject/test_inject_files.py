"""Files of inject in folders of other people: links, pipes and devices where a file is expected, and swapped meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from netinit.base.errors import InjectionError, ParseError
from netinit.cli.inject import command as inject
from netinit.kernel.files import UnsuitableFileError
from netinit.library.safe_files import MAX_FILE_BYTES, replace
from sweeps import choose

pytestmark = pytest.mark.usefixtures("templates_parsed_once")

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
STRANGER = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a stranger's files are made under another uid")


def run(*arguments):
    return CliRunner().invoke(inject.command, list(map(str, arguments)), catch_exceptions=True)


def refused(error, pattern, *arguments):
    result = run(*arguments)
    assert isinstance(result.exception, error), result.exception or result.output[:300]
    assert re.search(pattern, str(result.exception)), str(result.exception)


@pytest.fixture
def shared():
    """A folder of root that everybody may enter, with one in it that a stranger owns."""
    folder = Path(tempfile.mkdtemp(prefix="netinit-files-"))
    folder.chmod(0o755)
    theirs = folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    secret = folder / "secret"
    secret.write_text("root alone may read this")
    secret.chmod(0o600)
    yield folder
    shutil.rmtree(folder)


# --- -f ----------------------------------------------------------------------------------------------------------


def test_a_link_that_leaves_the_folder_is_refused(tmp_path):
    folder, outside = tmp_path / "in", tmp_path / "outside.yaml"
    folder.mkdir()
    outside.write_text(POD)
    for target in (outside, "../outside.yaml", "deeper/../../outside.yaml", "/etc/hostname"):
        (folder / "deeper").mkdir(exist_ok=True)
        link = folder / "x.yaml"
        link.symlink_to(target)
        refused(ParseError, "x.yaml: .*a symbolic link that leaves the folder; name the file itself", "-f", folder)
        link.unlink()


def test_a_link_through_another_folder_that_leaves_is_refused(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "outside.yaml").write_text(POD)
    (folder / "way").symlink_to("..")
    (folder / "x.yaml").symlink_to("way/outside.yaml")
    refused(ParseError, "leaves the folder", "-f", folder)


def test_links_that_stay_in_the_folder_are_followed_as_in_a_mounted_config_map(tmp_path):
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "a.yaml").write_text(POD)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "b.yaml").symlink_to("..2026/../a.yaml")
    result = run("-f", tmp_path)
    assert result.exception is None, result.exception
    assert result.stdout.count("name: istio-proxy") == 2


def test_links_that_lead_in_a_circle_or_nowhere_are_errors(tmp_path):
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    refused(ParseError, "a.yaml: cannot be read: too many symbolic links", "-f", tmp_path)
    (tmp_path / "b.yaml").unlink()
    refused(ParseError, "a.yaml: cannot be read: No such file", "-f", tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link to a pipe"])
def test_what_is_no_regular_file_is_never_opened(tmp_path, kind):
    path = tmp_path / "x.yaml"
    if kind == "device":
        if os.geteuid() != 0:
            pytest.skip("needs root: makes a device")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o666)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    refused(ParseError, r"x.yaml: cannot be read: no regular file; move it out of the folder", "-f", tmp_path)


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)
    refused(ParseError, "longer than 128 MiB", "-f", tmp_path)


def test_a_folder_that_is_swapped_for_a_link_while_it_is_read_gives_nothing_from_outside(tmp_path):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (folder / "deep" / "x.yaml").write_text(POD)
    (outside / "x.yaml").write_text(POD.replace("name: p", "name: from-outside"))
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            (folder / "deep").rename(folder / "away")
            (folder / "deep").symlink_to(outside)
            (folder / "deep").unlink()
            (folder / "away").rename(folder / "deep")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = [run("-R", "-f", folder).output for _ in range(60)]
    finally:
        stop.set()
        swapper.join()
    assert not any("from-outside" in text for text in seen)


def test_a_pipe_that_the_user_names_is_read(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, POD.encode())
    os.close(writing)
    try:
        assert "istio-proxy" in run("-f", f"/dev/fd/{reading}").stdout
    finally:
        os.close(reading)


# --- -o ----------------------------------------------------------------------------------------------------------

SWAPPER = """
import os, sys
folder, secret = sys.argv[1:]
os.chdir(folder)
swaps = 0
print("ready", flush=True)
while not os.path.exists("stop"):
    for name in os.listdir("."):
        if name.startswith(".out.yaml."):
            try:
                os.unlink(name)
                os.symlink(secret, name)
                swaps += 1
            except OSError:
                pass
with open("swaps", "w") as file:
    file.write(str(swaps))
"""


@root
def test_a_stranger_who_swaps_the_temporary_file_for_a_link_gains_nothing(shared):
    theirs, secret = shared / "theirs", shared / "secret"
    words = [sys.executable, "-I", "-S", "-c", SWAPPER, str(theirs), str(secret)]
    attacker = subprocess.Popen(words, user=STRANGER, group=STRANGER, extra_groups=(), stdout=subprocess.PIPE)
    try:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        told = 0
        end = time.monotonic() + choose(1, 3)
        while time.monotonic() < end or not told:
            try:
                replace(str(theirs / "out.yaml"), "text\n" * 5000)
            except OSError:
                told += 1
            assert secret.stat().st_mode & 0o777 == 0o600, "the stranger can read root's file now"
            assert secret.read_text() == "root alone may read this"
    finally:
        (theirs / "stop").touch()
        attacker.communicate()
    swaps = int((theirs / "swaps").read_text())
    assert swaps, "the attacker never came in between: the test shows nothing"
    assert told, f"{swaps} swaps, and nobody was told"


@root
def test_a_link_of_a_stranger_is_not_followed(shared):
    theirs, secret = shared / "theirs", shared / "secret"
    (theirs / "out.yaml").symlink_to(secret)
    os.chown(theirs / "out.yaml", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UnsuitableFileError, match="a symbolic link on the path belongs to the user 65534"):
        replace(str(theirs / "out.yaml"), "x")
    (theirs / "sub").symlink_to(shared)
    os.chown(theirs / "sub", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UnsuitableFileError, match="belongs to the user 65534"):
        replace(str(theirs / "sub" / "secret"), "x")
    (shared / "mine").symlink_to("theirs/sub/secret")
    with pytest.raises(UnsuitableFileError, match="belongs to the user 65534"):
        replace(str(shared / "mine"), "x")
    assert secret.read_text() == "root alone may read this"
    pod = shared / "pod.yaml"
    pod.write_text(POD)
    refused(
        InjectionError,
        "-o: .*out.yaml: cannot be written: a symbolic link on the path belongs",
        "-f",
        pod,
        "-o",
        theirs / "out.yaml",
    )


@root
def test_a_pipe_of_a_stranger_is_not_opened(shared):
    pipe = shared / "theirs" / "out.yaml"
    os.mkfifo(pipe)
    os.chown(pipe, STRANGER, STRANGER)
    with pytest.raises(UnsuitableFileError, match="it belongs to the user 65534"):
        replace(str(pipe), "x")


@root
def test_the_mode_of_a_strangers_file_is_not_taken_over(shared):
    target = shared / "theirs" / "out.yaml"
    target.write_text("x")
    os.chown(target, STRANGER, STRANGER)
    target.chmod(0o6777)
    replace(str(target), "text")
    assert target.stat().st_mode & 0o7777 & ~0o644 == 0
    assert target.stat().st_uid == 0


def test_a_link_of_ones_own_is_followed_and_stays(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "real.yaml").write_text("before")
    (tmp_path / "link").symlink_to("deep/../deep/real.yaml")
    replace(str(tmp_path / "link"), "after")
    assert (tmp_path / "deep" / "real.yaml").read_text() == "after"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "new").symlink_to(tmp_path / "deep" / "made.yaml")
    replace(str(tmp_path / "new"), "made")
    assert (tmp_path / "deep" / "made.yaml").read_text() == "made"
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["made.yaml", "real.yaml"]


def test_open_files_and_devices_are_written_to(tmp_path):
    replace("/dev/null", "x")
    reading, writing = os.pipe()
    replace(f"/dev/fd/{writing}", "through a pipe")
    os.close(writing)
    assert os.read(reading, 100) == b"through a pipe"
    os.close(reading)
    program = "from netinit.library.safe_files import replace; replace('/dev/stdout', 'to the end')"
    with (tmp_path / "log").open("a") as log:
        log.write("before\n")
        log.flush()
        subprocess.run([sys.executable, "-c", program], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "before\nto the end", "the open file is written to, not replaced"


@pytest.mark.parametrize("name", ["", ".", "..", "folder", "folder/", "file/", "file/x", "none/x"])
def test_names_that_are_no_file_change_nothing(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("before")
    with pytest.raises(OSError):
        replace(f"{tmp_path}/{name}", "x")
    assert sorted(path.name for path in (tmp_path).iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "before"


def test_a_failed_write_leaves_nothing(tmp_path):
    target = tmp_path / "out.yaml"
    target.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        replace(str(target), "\ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["out.yaml"]
    assert target.read_text() == "before"


@root
def test_the_folder_that_cannot_be_read_is_named(shared):
    closed = shared / "in" / "closed"
    closed.mkdir(parents=True, mode=0o700)
    (shared / "in" / "a.yaml").write_text(POD)
    (shared / "in").chmod(0o755)
    program = f"import sys; sys.path[:0] = {sys.path!r}; from netinit.library.manifest_files import read_manifests; read_manifests(sys.argv[1:], recursive=True)"
    words = [sys.executable, "-c", program, str(shared / "in")]
    done = subprocess.run(words, user=STRANGER, group=STRANGER, extra_groups=(), capture_output=True, text=True, check=False)
    assert f"ParseError: {closed}: cannot be read: Permission denied" in done.stderr, done
