"""Files in directories of others: what is opened, what is refused, and in which words."""

from __future__ import annotations

import os
import posix
import re
import socket
from pathlib import Path

import pytest

from netinit.base.errors import NamespaceError
from netinit.kernel import files, libc


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").write_text("nameserver 10.96.0.10\n")
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def count_descriptors():
    return len([*Path("/proc/self/fd").iterdir()])


def make_fifo(path):
    os.mkfifo(path)


def make_folder(path):
    path.mkdir()


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("path", ["/etc/resolv.conf", "etc/resolv.conf", "../../etc/resolv.conf"])
def test_a_file_is_read_below_the_root_wherever_its_name_leads(root, path):
    assert files.read_in_root(root, path) == "nameserver 10.96.0.10\n"


def test_a_link_is_followed_below_the_root(root, tmp_path):
    (tmp_path / "link").symlink_to("/etc/resolv.conf")
    (tmp_path / "\udcff").symlink_to("link")
    assert files.read_in_root(root, "/\udcff") == "nameserver 10.96.0.10\n"
    assert files.read_in_root(root, "/link") == "nameserver 10.96.0.10\n"


@pytest.mark.parametrize("path", ["/etc/nothing", "/etc/resolv.conf/nothing"])
def test_what_does_not_exist_is_empty(root, path):
    assert files.read_in_root(root, path) == ""


@pytest.mark.parametrize(("make", "kind"), [(make_fifo, "a FIFO"), (make_folder, "a folder"), (make_socket, "a socket")])
def test_what_is_no_regular_file_is_refused_and_no_descriptor_stays_open(root, tmp_path, make, kind):
    make(tmp_path / "it")
    before = count_descriptors()
    with pytest.raises(files.UnsuitableFileError) as caught:
        files.read_in_root(root, "/it")
    assert (caught.value.errno, caught.value.strerror) == (22, f"it is {kind}, not a regular file")
    assert count_descriptors() == before


def test_a_file_of_64_kib_is_read_and_a_longer_one_refused(root, tmp_path):
    (tmp_path / "long").write_text("x" * 65536)
    assert files.read_in_root(root, "/long") == "x" * 65536
    (tmp_path / "long").write_text("x" * 65537)
    with pytest.raises(files.UnsuitableFileError, match=re.escape("it is longer than 65536 bytes")):
        files.read_in_root(root, "/long")


def test_what_is_not_utf_8_is_replaced(root, tmp_path):
    (tmp_path / "etc/resolv.conf").write_bytes(b"nameserver \xff\n")
    assert files.read_in_root(root, "/etc/resolv.conf") == "nameserver �\n"


@pytest.mark.parametrize("number", [1, 38])
def test_a_kernel_without_openat2_is_an_error_that_names_the_way_out(root, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "no")

    monkeypatch.setattr(libc, "call", refuse)
    with pytest.raises(NamespaceError) as caught:
        files.read_in_root(root, "/etc/resolv.conf")
    assert str(caught.value) == (
        "foreign files can be opened safely with openat2(2), which this kernel (before 5.6) or a seccomp profile does not have;"
        " for a pod, name its DNS servers with --dns-servers"
    )


@pytest.mark.parametrize("failures", [1, 999, 1000])
def test_a_rename_at_the_same_time_is_tried_again(root, monkeypatch, failures):
    answers, real = iter([True] * failures), libc.call
    pauses = []

    def call(*words):
        if next(answers, False):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real(*words)

    monkeypatch.setattr(libc, "call", call)
    monkeypatch.setattr(files.time, "sleep", pauses.append)
    if failures < 1000:
        assert files.read_in_root(root, "/etc/resolv.conf") == "nameserver 10.96.0.10\n"
    else:
        with pytest.raises(BlockingIOError):
            files.read_in_root(root, "/etc/resolv.conf")
    assert pauses == [0.001] * min(failures, 999)


def test_a_path_that_leads_out_is_refused(root, tmp_path):
    (tmp_path / "link").symlink_to("etc/resolv.conf")
    with pytest.raises(OSError, match="cross-device"):
        files.open_path(root, "../x", files.BENEATH)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_path(root, "link", files.NO_LINKS)


def test_a_lock_file_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "lock"
    before = os.umask(0)
    try:
        os.close(files.open_lock_file(str(path)))
    finally:
        os.umask(before)
    assert path.stat().st_mode == 0o100600
    with pytest.raises(FileNotFoundError):
        files.open_lock_file(str(tmp_path / "other"), make=False)


@pytest.mark.parametrize("target", ["/dev/null", "lock"])
def test_a_link_is_no_lock_file(tmp_path, target):
    (tmp_path / "lock").write_text("")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(files.UnsuitableFileError, match="it is a symbolic link, not a regular file"):
        files.open_lock_file(str(tmp_path / "link"))


def test_no_device_but_null_is_a_lock_file():
    descriptor = files.open_lock_file("/dev/null")
    assert posix.fstat(descriptor).st_rdev == posix.stat("/dev/null").st_rdev
    os.close(descriptor)
    with pytest.raises(files.UnsuitableFileError, match="it is a device, not a regular file"):
        files.open_lock_file("/dev/zero")


class TestOwn:
    """Files of this process's own root, such as the /etc/resolv.conf of a pod from inside."""

    @pytest.mark.parametrize(("make", "kind"), [(make_fifo, "a FIFO"), (make_folder, "a folder"), (make_socket, "a socket")])
    def test_what_is_no_regular_file_is_refused_and_no_descriptor_stays_open(self, tmp_path, make, kind):
        make(tmp_path / "it")
        (tmp_path / "link").symlink_to("it")
        before = count_descriptors()
        for name in ("it", "link"):
            with pytest.raises(files.UnsuitableFileError) as caught:
                files.read_own(str(tmp_path / name))
            assert caught.value.strerror == f"it is {kind}, not a regular file"
        assert count_descriptors() == before

    @pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/full"])
    def test_a_device_is_refused(self, device):
        with pytest.raises(files.UnsuitableFileError, match="it is a device, not a regular file"):
            files.read_own(device)

    def test_a_file_is_read_through_links_and_a_missing_one_is_empty(self, tmp_path):
        (tmp_path / "file").write_text("nameserver 10.96.0.10\n")
        (tmp_path / "link").symlink_to("file")
        assert files.read_own(str(tmp_path / "link")) == "nameserver 10.96.0.10\n"
        assert files.read_own(str(tmp_path / "nothing")) == files.read_own(str(tmp_path / "file/nothing")) == ""

    def test_a_long_file_is_refused(self, tmp_path):
        (tmp_path / "long").write_text("nameserver 10.0.0.1\n" * 4000)
        with pytest.raises(files.UnsuitableFileError, match=re.escape("it is longer than 65536 bytes")):
            files.read_own(str(tmp_path / "long"))

    def test_a_file_that_becomes_a_fifo_after_the_first_look_is_not_waited_for(self, tmp_path, monkeypatch):
        os.mkfifo(tmp_path / "it")
        real = posix.stat(__file__)
        monkeypatch.setattr(files.posix, "stat", lambda _: real)
        with pytest.raises(files.UnsuitableFileError, match="it is a FIFO"):
            files.read_own(str(tmp_path / "it"))


def test_a_file_of_another_program_is_read_whole_and_a_longer_one_refused(tmp_path):
    (tmp_path / "it").write_bytes(b"x" * 200_000)
    assert files.read_regular(str(tmp_path / "it"), 200_000) == b"x" * 200_000
    before = count_descriptors()
    with pytest.raises(files.UnsuitableFileError, match="it is longer than 199999 bytes"):
        files.read_regular(str(tmp_path / "it"), 199_999)
    assert count_descriptors() == before


@pytest.mark.parametrize(("make", "kind"), [(make_fifo, "a FIFO"), (make_folder, "a folder"), (make_socket, "a socket")])
def test_a_file_of_another_program_that_would_block_is_refused_also_behind_a_link(tmp_path, make, kind):
    make(tmp_path / "it")
    (tmp_path / "link").symlink_to("it")
    for name in ("it", "link"):
        with pytest.raises(files.UnsuitableFileError, match=f"it is {kind}, not a regular file"):
            files.read_regular(str(tmp_path / name), 10, follows=True)


def test_a_link_to_another_program_s_file_is_followed_only_where_links_are_usual(tmp_path):
    (tmp_path / "it").write_bytes(b"text")
    (tmp_path / "link").symlink_to("it")
    assert files.read_regular(str(tmp_path / "link"), 10, follows=True) == b"text"
    with pytest.raises(files.UnsuitableFileError, match="it is a symbolic link"):
        files.read_regular(str(tmp_path / "link"), 10)
