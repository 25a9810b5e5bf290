"""The picture that the README shows is the one that its command draws."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "tests" / "golden" / "draw" / "path.svg"


def test_the_readmes_picture_is_what_its_command_draws(golden):
    (command,) = re.findall(r"^netinit (draw .*--format svg.*?) *(?:#.*|>.*)?$", (ROOT / "README.md").read_text(), re.MULTILINE)
    done = subprocess.run([sys.executable, "-m", "netinit", *shlex.split(command)], capture_output=True, text=True, check=True)
    golden({PICTURE: done.stdout})
