"""What a child needs is loaded before it can read nothing of this machine any more."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from netinit.kernel import preload

PACKAGE = Path(preload.__file__).parents[1]
OF_LIBIPTC = {"ctypes.util", "importlib.util", "iptc", "os", "site", "sys"}  # its own child's
LATER = {"_json", "json.encoder"}  # with json


def find_late_imports(path):
    """What functions of a file import from elsewhere than netinit."""
    for function in [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
            yield from (name for name in names if not name.startswith("netinit"))


def test_everything_that_functions_import_late_is_on_the_list():
    found = {name for room in preload.ROOMS for path in (PACKAGE / room).rglob("*.py") for name in find_late_imports(path)}
    assert found - OF_LIBIPTC - LATER == set(preload.LAZY)


def test_every_module_of_the_rooms_can_be_loaded_without_installed_packages():
    program = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); from netinit.kernel import preload; preload.load_all({str(PACKAGE)!r});"
        " before = set(sys.modules); import netinit.backends.nftables, netinit.rules.layouts.classic, netinit.pods.doctor.examination;"
        " print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_folder_that_cannot_be_listed_is_closed(tmp_path):
    assert preload.is_open("/usr/bin")
    tmp_path.chmod(0o711)
    assert not preload.is_open(str(tmp_path))


@pytest.mark.parametrize(("mode", "is_open"), [(0o755, True), (0o700, False), (0o750, False), (0o711, True)])
def test_a_folder_below_a_closed_one_is_closed(open_folder, mode, is_open):
    outer = open_folder / "outer"
    (outer / "inner").mkdir(parents=True)
    (outer / "inner").chmod(0o755)
    outer.chmod(mode)
    assert preload.is_open(str(outer / "inner")) is is_open
