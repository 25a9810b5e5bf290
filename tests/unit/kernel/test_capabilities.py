"""Which capabilities are put into effect, by what the kernel tells of this process."""

from __future__ import annotations

import errno
import posix
import subprocess
import sys

import pytest

from netinit.kernel import capabilities
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW

BOTH = 1 << CAP_NET_ADMIN | 1 << CAP_NET_RAW
WHOLE = "Name:\tx\nCapInh:\t{inh:016x}\nCapPrm:\t{prm:016x}\nCapEff:\t{eff:016x}\nCapBnd:\t{bnd:016x}\nCapAmb:\t{amb:016x}\nNoNewPrivs:\t1\n"


def status(*, inh=0, prm=0, eff=0, bnd=0, amb=0):
    return WHOLE.format(inh=inh, prm=prm, eff=eff, bnd=bnd, amb=amb)


@pytest.fixture
def raised(monkeypatch):
    """The calls that would change this process; it runs as an ordinary user."""
    calls = []
    monkeypatch.setattr(posix, "geteuid", lambda: 65532)
    monkeypatch.setattr(capabilities, "_raise", lambda sets, numbers: calls.append(numbers))
    return calls


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (status(prm=BOTH), (CAP_NET_ADMIN, CAP_NET_RAW)),
        (status(prm=1 << CAP_NET_ADMIN), (CAP_NET_ADMIN,)),
        (status(prm=BOTH, amb=1 << CAP_NET_ADMIN), (CAP_NET_RAW,)),
        (status(prm=1 << 21 | 1), ()),
        (status(bnd=BOTH), ()),
        (status(prm=BOTH).replace("CapAmb", "Other"), (CAP_NET_ADMIN, CAP_NET_RAW)),  # as gVisor tells it
        ("", ()),  # no /proc
    ],
    ids=["both", "one", "the other is ambient", "others", "only bounded", "no CapAmb", "nothing told"],
)
def test_what_is_permitted_and_not_yet_ambient_is_raised(monkeypatch, raised, text, wanted):
    monkeypatch.setattr(capabilities, "read_text", lambda _: text)
    assert capabilities.raise_permitted() == wanted
    assert raised == ([wanted] if wanted else [])


def test_root_needs_nothing(monkeypatch, raised):
    monkeypatch.setattr(posix, "geteuid", lambda: 0)
    monkeypatch.setattr(capabilities, "read_text", lambda _: status(prm=BOTH))
    assert capabilities.raise_permitted() == ()
    assert not raised


def test_a_refusal_is_no_error(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(posix, "geteuid", lambda: 65532)
    monkeypatch.setattr(capabilities, "read_text", lambda _: status(prm=BOTH))
    monkeypatch.setattr(capabilities, "_raise", refuse)
    assert capabilities.raise_permitted() == ()


ASK = f"""
import ctypes  # while every folder can be read
import posix
from netinit.kernel import capabilities
if not posix.geteuid():
    posix.setresgid(65534, 65534, 65534)
    posix.setresuid(65534, 65534, 65534)
try:
    capabilities._raise({{"CapPrm": {BOTH}}}, {(CAP_NET_ADMIN, CAP_NET_RAW)})
except OSError as error:
    print(error.strerror)
"""


def test_the_kernel_refuses_what_is_not_permitted():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "Operation not permitted\n", done.stdout + done.stderr


def test_whether_privileges_may_be_gained_is_read(monkeypatch):
    monkeypatch.setattr(capabilities, "read_text", lambda _: status())
    assert not capabilities.may_gain()
    monkeypatch.setattr(capabilities, "read_text", lambda _: status().replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"))
    assert capabilities.may_gain()
