"""Processes, by what /proc shows of them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from netinit.kernel import processes


def test_this_process_is_listed_and_one_that_has_ended_has_no_namespace():
    assert {1, os.getpid()} <= set(processes.list_processes())
    status = Path("/proc/self/ns/net").stat()
    assert processes.namespace_of("self") == processes.namespace_of(os.getpid()) == (status.st_dev, status.st_ino)
    assert processes.namespace_of(2**22 + 1) is None


def test_a_socket_has_the_group_of_the_process_that_has_it_open():
    with socket.socket() as one, socket.socket() as other:
        inodes = [os.fstat(found.fileno()).st_ino for found in (one, other)]
        assert processes.find_groups(frozenset(inodes)) == dict.fromkeys(inodes, os.getegid())
        assert processes.find_groups(frozenset([inodes[0], 1])) == {inodes[0]: os.getegid()}


def test_a_descriptor_that_is_closed_meanwhile_hides_no_other(monkeypatch):
    """A busy process opens and closes files all the time, and this one has the folder open while it lists it."""

    def read(path):
        if path == "/proc/7/fd/3":
            raise FileNotFoundError(2, "No such file or directory")
        return f"link of {path}"

    monkeypatch.setattr(processes.posix, "listdir", lambda _: ["0", "3", "4"])
    monkeypatch.setattr(processes.posix, "readlink", read)
    assert processes._list_opened(7) == {"0": "link of /proc/7/fd/0", "4": "link of /proc/7/fd/4"}


@pytest.mark.parametrize(("status", "groups"), [("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n", {9: 8}), ("Uid:\t1\t2\t3\t4\n", {}), ("Gid:\t5\t6\t7\n", {}), ("", {})])
def test_the_group_of_a_socket_is_the_one_for_files_and_of_a_process_that_has_ended_there_is_none(status, groups, monkeypatch):
    monkeypatch.setattr(processes, "list_processes", lambda: [3, 4])
    monkeypatch.setattr(processes, "namespace_of", {"self": 1, 3: 2, 4: 1}.__getitem__)
    monkeypatch.setattr(processes, "_list_opened", {3: {"0": "socket:[9]"}, 4: {"0": "/dev/null", "1": "socket:[9]", "2": "socket:[10]"}}.__getitem__)
    monkeypatch.setattr(processes, "read_text", {"/proc/4/status": status}.__getitem__)
    assert processes.find_groups(frozenset([9])) == groups
