"""`kubectl netinit doctor`."""

from __future__ import annotations

from netinit.cli.kubectl.pod_command import make_command

command = make_command("doctor")
