"""`kubectl netinit audit`."""

from __future__ import annotations

from netinit.cli.kubectl.pod_command import make_command

command = make_command("audit")
