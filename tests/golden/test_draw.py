"""The drawing of a connection's way through a sidecar's rules, as GitHub shows it."""

from __future__ import annotations

import shlex
from pathlib import Path

from netinit.cli import start

COMMAND = "draw -p 15001 -z 15006 -u 1337 -b '*' -i '*' -d 15090,15021,15020 --ipv6 off --to 10.1.2.3:443 --uid 1000 --format mermaid"
PICTURE = Path(__file__).parent / "draw" / "path.mmd"


def test_the_drawing_on_file_is_what_the_command_draws(capsys, golden):
    assert start.run(["netinit", *shlex.split(COMMAND)], {}) == 0
    golden({PICTURE: capsys.readouterr().out})
