"""The bundle of a start's modules: used when it is fresh, ignored in every other case."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import netinit

PACKAGE = Path(netinit.__file__).parent
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020")
SHOW = "import sys; print(type(sys.modules['netinit.options'].__spec__.loader).__name__, file=sys.stderr)"


@pytest.fixture
def copy(tmp_path):
    """The package at another place, with a bundle."""
    root = tmp_path / "copy"
    shutil.copytree(PACKAGE, root / "netinit", ignore=shutil.ignore_patterns("__pycache__", "inject", "lab"))
    done = subprocess.run([sys.executable, "-m", "netinit.bundle"], cwd=root, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).read_bytes()
    return root


def loader_of_options(root):
    """How a start by path imported netinit.options, and what it printed; the start itself is a dry run."""
    code = (
        f"import runpy, sys; sys.argv[:] = [{str(root / 'netinit' / '__main__.py')!r}, '-n', '--ipv6', 'off', '-b', '80'];"
        "sys.exit = None\n"
        "import posix; leave = posix._exit\n"
        "def tell(code):\n"
        "    print(type(sys.modules['netinit.options'].__spec__.loader).__name__, file=sys.stderr); leave(code)\n"
        "posix._exit = tell\n"
        f"runpy.run_path({str(root / 'netinit' / '__main__.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.strip(), done.stdout


def bundle_of(root):
    (path,) = (root / "netinit" / "__pycache__").glob("*.bundle")
    return path


def test_a_fresh_bundle_is_used_and_does_the_same(copy):
    loader, printed = loader_of_options(copy)
    assert loader == "BundleFinder"
    bundle_of(copy).unlink()
    again, expected = loader_of_options(copy)
    assert again == "SourceFileLoader"
    assert printed == expected
    assert "ISTIO_IN_REDIRECT" in printed


def test_a_source_that_changed_makes_the_whole_bundle_count_for_nothing(copy):
    source = copy / "netinit" / "rules" / "targets.py"
    source.write_text(source.read_text() + "\n# one more line\n")
    assert loader_of_options(copy)[0] == "SourceFileLoader"


@pytest.mark.netns
def test_a_start_reads_no_module_beside_the_bundle(copy):
    command = ["unshare", "-n", sys.executable, "-I", "-S", "-v", str(copy / "netinit" / "__main__.py"), *SIDECAR]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = [line for line in done.stderr.splitlines() if line.startswith("# code object from") and "/netinit/" in line]
    assert read == [], "import it in one of netinit.bundle.ROOTS"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xe3\x00\x00", b"(\x03\x00\x00\x00NNN"])
def test_a_bundle_that_cannot_be_read_counts_for_nothing(copy, content):
    bundle_of(copy).write_bytes(content)
    assert loader_of_options(copy)[0] == "SourceFileLoader"


def test_errors_name_the_source_as_ever(copy):
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(copy / "netinit" / "__main__.py"), "-p", "0", "--debug"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{copy}/netinit/__main__.py" in done.stderr or "netinit/options.py" in done.stderr
    assert "options.py" in done.stderr
