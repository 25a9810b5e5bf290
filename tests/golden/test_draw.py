"""The drawing of a connection's way through a sidecar's rules, as GitHub shows it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from netinit.cli import start
from netinit.simulate.draw import Box, Picture, Row, render_dot, render_mermaid, render_text

COMMAND = "draw -p 15001 -z 15006 -u 1337 -b '*' -i '*' -d 15090,15021,15020 --ipv6 off --to 10.1.2.3:443 --uid 1000 --format mermaid"
PICTURES = Path(__file__).parent / "draw"


def test_the_drawing_on_file_is_what_the_command_draws(capsys, golden):
    assert start.run(["netinit", *shlex.split(COMMAND)], {}) == 0
    golden({PICTURES / "path.mmd": capsys.readouterr().out})


@pytest.mark.parametrize(("suffix", "render"), [("txt", render_text), ("mmd", render_mermaid), ("dot", render_dot)])
def test_names_in_a_drawing_are_escaped_as_its_format_asks(golden, suffix, render):
    name = 'x_"&\\<'
    rows = (
        Row(1, "-p udp -j x", "UDP, to port 53", "", name, to=name, packets=4711, comment='a "b"'),
        Row(2, "", "", "all goes to the proxy", "REDIRECT 15001", port=15001, hit=True),
        Row(9, "2 more like this", "2 more like this", "p", "RETURN", more=2),
    )
    called = Row(1, "-p tcp", "TCP", "", "REDIRECT 9", port=9, packets=1)
    boxes = {"OUTPUT": Box("OUTPUT", "DROP", rows, 4, hit=True), name: Box(name, "", (called,), 1), "INPUT": Box("INPUT", "ACCEPT", (), 0)}
    made = Picture("rules of <1>", 'from "[`x`]"', {"nat": boxes, "fil&ter": {"a": Box("a", "", (), 0)}})
    golden({PICTURES / f"names.{suffix}": render(made)})
