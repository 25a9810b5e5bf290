"""pyroute2 is loaded where Python has no OpenSSL and no SQLite, as in the image, and nothing of that is left behind."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from netinit.kernel import links

MISSING = {"OpenSSL": ("_ssl",), "SQLite": ("_sqlite3",), "the package sqlite3": ("sqlite3", "_sqlite3"), "both": ("_ssl", "sqlite3", "_sqlite3")}
LOAD = "from netinit.kernel import links; library = links.load_pyroute2(); "


@pytest.fixture(params=MISSING)
def hidden(request) -> str:
    """What hides the modules from Python."""
    return f"import sys; sys.modules.update(dict.fromkeys({MISSING[request.param]!r})); "


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pyroute2_alone_cannot_be_loaded_without_them(hidden):
    assert run(f"{hidden}\ntry: import pyroute2\nexcept ImportError: print('no')") == "no", "what this is for"


def test_it_is_loaded_all_the_same(hidden):
    assert run(f"{hidden}{LOAD}print(library.IPRoute.__name__)") == "IPRoute"


def test_nobody_else_takes_what_stood_in_for_them(hidden):
    code = "".join([f"\ntry: import {name}\nexcept ImportError: print('none')\nelse: print(hasattr({name}, '__file__'))" for name in ("ssl", "sqlite3")])
    told = run(f"{hidden}{LOAD}{code}").split()
    assert set(told) <= {"none", "True"}
    assert "none" in told


class RecordedLinks(links.Links):
    """Writes requests down in place of sending them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []

    def request(self, kind: int, flags: int, body: bytes) -> None:
        self.sent.append((kind, flags, body))


def test_a_neighbour_is_permanent():
    made = RecordedLinks()
    made.add_neighbour(7, "10.0.0.1", "02:00:00:00:00:01")
    ((kind, _, body),) = made.sent
    assert (kind, struct.unpack_from("=BxxxiH", body)) == (28, (2, 7, 0x80)), "RTM_NEWNEIGH of AF_INET, NUD_PERMANENT"
