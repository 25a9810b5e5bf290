"""Errors of routes that the kernel refuses: cause and remedy. Loaded only after a failure."""

from __future__ import annotations

from netinit.base.errors import ApplyError
from netinit.base.net import IPV4
from netinit.options import LAYOUTS, Interception


def explain_other_route(step: str, family: int, table: int) -> ApplyError:
    """Return the error for a table that has another default route, which marked packets would take."""
    is_fixed = any(table == line.table for line in LAYOUTS.values())
    other = "" if is_fixed else f", or choose another with {Interception.flag('tproxy_table').label}"
    version = 4 if family == IPV4.number else 6
    return ApplyError(f"{step}: another default route is in this table (ip -{version} route show table {table}): delete it{other}")
