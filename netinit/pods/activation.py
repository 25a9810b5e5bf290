"""Activate dormant tables, in which committed rules have no effect."""

from __future__ import annotations

import posix

from netinit.backends.machine import Machine
from netinit.base.errors import ApplyError
from netinit.base.snapshot import FAMILY_NAMES
from netinit.pods.transaction import Transaction


def activate(run: Transaction, machine: Machine, family: int, table: str) -> tuple[str, ...]:
    """Clear a table's dormant flag as a step of the transaction; return a warning. Raises ApplyError."""
    name = f"nft table {FAMILY_NAMES.get(family, str(family))} {table}"

    def change(dormant: bool) -> None:
        try:
            machine.set_dormant(family, table, dormant=dormant)
        except OSError as error:
            raise ApplyError(f"{name} is dormant, and cannot be activated: {posix.strerror(error.errno or 0)}") from None

    run.do(name, lambda: change(False), lambda _: change(True))  # noqa: FBT003
    return (f"{name} was dormant: the kernel asked none of its rules; it is active now",)
