"""pyroute2 is loaded where Python has no OpenSSL, as in the image, and nothing of that is left behind."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_OPENSSL = "import sys; sys.modules['_ssl'] = None; from netinit.kernel import route_library; "


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", WITHOUT_OPENSSL + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pyroute2_alone_cannot_be_loaded_without_openssl():
    code = "import sys; sys.modules['_ssl'] = None\ntry: import pyroute2\nexcept ImportError: print('no')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "no\n", "what this is for"


def test_it_is_loaded_all_the_same():
    assert run("print(route_library.load().IPRoute.__name__)") == "IPRoute"


def test_nobody_else_takes_the_stand_in_for_openssl():
    assert run("route_library.load()\ntry: import ssl\nexcept ImportError: print('still none')") == "still none"
