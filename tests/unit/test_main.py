"""The program started by its path, without any installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import netinit

MAIN = Path(netinit.__file__).parent / "__main__.py"


def test_a_start_by_a_link_to_a_relative_link_is_one_by_path(tmp_path):
    (tmp_path / "netinit").symlink_to(MAIN.parent)
    (tmp_path / "near").symlink_to("netinit/__main__.py")
    (tmp_path / "istio-iptables").symlink_to("near")
    words = ("-n", "--ipv6", "on", "-b", "80")
    started = [subprocess.run([sys.executable, "-I", "-S", path, *words], capture_output=True, text=True, timeout=30, check=True) for path in (MAIN, tmp_path / "istio-iptables")]
    assert started[0].stdout == started[1].stdout
    assert "--dport 80" in started[1].stdout


def test_the_folder_of_the_package_is_no_place_to_import_from(tmp_path):
    """Python puts it there where it is not isolated: `import inject` would be ours."""
    shutil.copytree(MAIN.parent, tmp_path / "netinit", ignore=shutil.ignore_patterns("__pycache__"))
    start = tmp_path / "netinit" / "cli" / "start.py"
    start.write_text("import sys\ndef main():\n    print(*sys.path, sep='\\n')\n", encoding="utf-8")
    main = tmp_path / "netinit" / "__main__.py"
    done = subprocess.run([sys.executable, "-S", main], capture_output=True, text=True, timeout=30, check=True)
    places = [Path(line).resolve() for line in done.stdout.splitlines()]
    assert (places[0], tmp_path / "netinit" in places) == (tmp_path, False)
