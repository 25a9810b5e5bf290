"""What a type checker says of the constructor of Options; `make lint` asks mypy, for which an `ignore` without an error is an error, too."""

from __future__ import annotations

from netinit import Options

Options(dry_run=True, outbound_port=15001, inbound_ports=(80,))
Options(nonexistent=1)  # type: ignore[call-arg]
Options(dry_run="x")  # type: ignore[arg-type]
Options(outbound_port=None)  # type: ignore[arg-type]
