"""`kubectl netinit doctor`."""

from __future__ import annotations

from netinit.cli.kubectl.about import make_command

command = make_command("doctor")
