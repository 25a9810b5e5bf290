"""Answers command lines as on another system, without what its Python lacks: `another_system.py SYSTEM`, a JSON list on stdin.

Modules and names of Linux are taken away before netinit is imported, and everything that Python's own libraries need of them is
imported before that. Paths, files and processes stay those of Linux.
"""

from __future__ import annotations

import _socket
import asyncio  # noqa: F401
import ctypes  # noqa: F401
import io
import json
import multiprocessing  # noqa: F401
import os
import pathlib  # noqa: F401
import posix
import shutil  # noqa: F401
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import types
import urllib.request  # noqa: F401

import click  # noqa: F401

OF_LINUX = (
    "O_PATH", "O_TMPFILE", "setns", "unshare", "memfd_create", "pidfd_open", "sched_getaffinity", "O_DIRECT", "eventfd", "splice", "getxattr",
    "copy_file_range", "sendfile", "posix_fadvise", "O_LARGEFILE",
)  # fmt: skip
OF_SOCKETS = ("AF_NETLINK", "NETLINK_", "AF_PACKET", "AF_VSOCK", "SO_MARK", "IP_TRANSPARENT", "SO_BINDTODEVICE")
OF_POSIX = (
    "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_NOCTTY", "fork", "geteuid", "getuid", "getgid", "getegid", "setuid", "setgid",
    "uname", "sysconf", "environb", "fchmod", "chown", "fchown", "killpg", "setsid", "pread", "pwrite", "register_at_fork", "fchdir",
)  # fmt: skip
MODULES = {"linux": (), "darwin": (), "win32": ("posix", "fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "readline", "syslog")}


def become(system: str) -> None:
    """Take away what the system lacks."""
    if system == "linux":
        return
    for name in [*OF_LINUX, *(OF_POSIX if system == "win32" else ())]:
        for module in (os, posix):
            if hasattr(module, name):
                delattr(module, name)
    for name in [name for name in dir(_socket) if name.startswith(OF_SOCKETS)]:
        for module in (_socket, socket):
            if hasattr(module, name):
                delattr(module, name)
    if system == "win32":
        nt = types.ModuleType("nt")
        nt.__dict__.update({name: value for name, value in posix.__dict__.items() if not name.startswith("__")})
        sys.modules["nt"] = nt
    for name in MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
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
