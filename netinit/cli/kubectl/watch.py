"""`kubectl netinit watch`."""

from __future__ import annotations

from netinit.cli.kubectl.stream_command import make_live_command

command = make_live_command("watch")
