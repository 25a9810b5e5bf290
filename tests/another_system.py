"""Answers command lines as on another system, without what its Python lacks: `another_system.py SYSTEM`, a JSON list on stdin.

Modules and names of Linux are taken away before netinit is imported, and everything that Python's own libraries need of them is
imported before that. Paths, files and processes stay those of Linux.
"""

from __future__ import annotations

import _ctypes
import _socket
import ast
import asyncio  # noqa: F401
import ctypes  # noqa: F401
import importlib.util
import io
import json
import multiprocessing  # noqa: F401
import os
import posix
import select
import shutil  # noqa: F401
import socket
import subprocess  # noqa: F401
import sys
import tempfile
import types
import urllib.request  # noqa: F401
from pathlib import Path

import click  # noqa: F401

OF_LINUX = (
    "O_PATH", "O_TMPFILE", "setns", "unshare", "memfd_create", "pidfd_open", "sched_getaffinity", "O_DIRECT", "eventfd", "splice", "getxattr",
    "copy_file_range", "posix_fadvise", "O_LARGEFILE", "pipe2", "setresuid", "setresgid",
)  # fmt: skip
OF_SOCKETS = ("AF_NETLINK", "NETLINK_", "AF_PACKET", "AF_VSOCK", "SO_MARK", "IP_TRANSPARENT", "SO_BINDTODEVICE", "SOCK_NONBLOCK", "MSG_CMSG_CLOEXEC")
OF_POSIX_SOCKETS = ("MSG_DONTWAIT", "AF_UNIX", "send_fds", "recv_fds", "CMSG_", "SCM_RIGHTS")
USED_BY_PYTHON = {"posix_spawn", "_fork_exec", "fspath", "register_at_fork", "WNOHANG", "waitpid", "waitstatus_to_exitcode"}  # by Python's own libraries of Linux, which run here
MODULES = {"linux": (), "darwin": (), "win32": ("posix", "fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "readline", "syslog")}


def names_of_windows() -> set[str]:
    """The names that the operating system's module has there, by the types of the standard library."""
    types_of_it = Path(importlib.util.find_spec("mypy").origin).parent / "typeshed" / "stdlib" / "nt.pyi"
    return {one.name for node in ast.walk(ast.parse(types_of_it.read_text("utf-8"))) if isinstance(node, ast.ImportFrom) for one in node.names}


def take_away(modules, is_lacking) -> None:
    """Delete the names of the modules that the system lacks."""
    for name in [name for name in dir(modules[0]) if is_lacking(name)]:
        for module in modules:
            if hasattr(module, name):
                delattr(module, name)


def become(system: str) -> None:
    """Take away what the system lacks."""
    if system == "linux":
        return
    is_windows = system == "win32"
    take_away((posix, os), OF_LINUX.__contains__)
    take_away((_socket, socket), lambda name: name.startswith((*OF_SOCKETS, *(OF_POSIX_SOCKETS if is_windows else ()))))
    if is_windows:
        there = names_of_windows() | {"environ", "error", "stat_result"}
        nt = types.ModuleType("nt")
        nt.__dict__.update({name: value for name, value in posix.__dict__.items() if name in there})
        nt.environ = {os.fsdecode(name): os.fsdecode(value) for name, value in posix.environ.items()}
        sys.modules["nt"] = nt
        take_away((os,), lambda name: name in posix.__dict__ and not name.startswith("_") and name not in there | USED_BY_PYTHON)
        take_away((select,), ("poll", "epoll", "POLLIN").__contains__)
        take_away((_ctypes,), ("dlopen", "dlsym").__contains__)
    for name in MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    tempfile._O_TMPFILE_WORKS = False
    sys.platform = system


if __name__ == "__main__":
    environ = dict(os.environ)
    become(sys.argv[1])
    from netinit.cli.start import run

    answers = []
    for words in json.load(sys.stdin):
        own, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
        code = run(["netinit", *words], environ)
        answers.append([code, sys.stdout.getvalue(), sys.stderr.getvalue()])
        sys.stdout = own
    print(json.dumps(answers))
