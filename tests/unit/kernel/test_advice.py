"""Advice for the situation: a person, a container, a container of a pod."""

from __future__ import annotations

import errno
import posix
import re

import pytest

from netinit.base.errors import NamespaceError
from netinit.kernel import capabilities, detect
from netinit.kernel.capabilities import advise
from netinit.kernel.open_pod import OpenPod

ALL, NONE = "CapBnd:\t000001ffffffffff\n", "CapBnd:\t0000000000000000\n"


@pytest.fixture
def here(monkeypatch):
    """`here(uid=1000, marks=("/.dockerenv",), environ={}, status=…)` puts this process there."""

    def put(uid=0, marks=(), environ=None, status=NONE):
        monkeypatch.setattr(posix, "geteuid", lambda: uid)
        monkeypatch.setattr(posix, "access", lambda path, _: path in marks)
        monkeypatch.setattr(posix, "environ", {name.encode(): b"1" for name in environ or ()})
        for module in (capabilities, detect):
            monkeypatch.setattr(module, "read_text", lambda _: status)

    return put


POD = {"environ": ["KUBERNETES_SERVICE_HOST"]}
IN_POD = "run the init container with securityContext.capabilities.add: [NET_ADMIN]"


@pytest.mark.parametrize(
    ("where", "advice"),
    [
        ({"uid": 1000}, "run it as root (sudo)"),
        ({"uid": 0}, "this root lacks NET_ADMIN: run it where root has all rights"),
        ({"uid": 0, "status": ""}, "or /proc, which shows capabilities, is not mounted: mount -t proc proc /proc"),
        ({"uid": 0, **POD}, IN_POD),
        ({"uid": 65532, **POD}, IN_POD),
        ({"uid": 65532, **POD, "status": ALL}, f"{IN_POD} as user 0"),
        ({"uid": 65532, **POD, "status": NONE + "NoNewPrivs:\t1\n"}, f"{IN_POD} as user 0"),
        ({"uid": 0, "marks": ("/dev/termination-log",)}, IN_POD),
        ({"uid": 0, "marks": ("/.dockerenv",)}, "start the container with --cap-add NET_ADMIN"),
        ({"uid": 5, "marks": ("/run/.containerenv",), "status": ALL}, "start the container with --cap-add NET_ADMIN as user 0"),
    ],
)
def test_everybody_is_advised_of_what_helps_there(here, where, advice):
    here(**where)
    assert advise("NET_ADMIN") == advice


def test_who_looks_at_a_pod_is_told_of_a_debug_container(here):
    here(uid=0, **POD)
    wanted = "give the container securityContext.capabilities.add: [NET_ADMIN], as kubectl debug --profile=netadmin does"
    assert advise("NET_ADMIN", reading=True) == wanted
    here(uid=1000)
    assert advise("NET_ADMIN", reading=True) == advise("NET_ADMIN") == "run it as root (sudo)"


@pytest.mark.parametrize(
    ("number", "uid", "marks", "help_text"),
    [
        (errno.EACCES, 1000, (), "other users' namespaces are root's to enter: run it as root (sudo)"),
        (errno.EPERM, 0, ("/.dockerenv",), "are root's to enter: it needs root with SYS_PTRACE and SYS_ADMIN on the node"),
        (errno.ENOENT, 0, (), "--pid needs a running process, --netns a namespace's path or name"),
    ],
)
def test_a_namespace_that_cannot_be_opened_says_who_can(here, monkeypatch, number, uid, marks, help_text):
    def refuse(*_, **__):
        raise OSError(number, "no")

    here(uid, marks)
    monkeypatch.setattr(posix, "open", refuse)
    with pytest.raises(NamespaceError, match=f"{re.escape(help_text)}$"):
        OpenPod(pid=7)


def test_several_capabilities_are_named_together(here):
    here(uid=0, **POD)
    assert advise("NET_ADMIN", "NET_RAW").endswith("add: [NET_ADMIN, NET_RAW]")
