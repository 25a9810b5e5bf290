"""How the rules of an earlier release of Istio differ from today's, as a value. Pure."""

from __future__ import annotations

from netinit.base.records import Record


class ReleaseComparison(Record):
    """Rules as these releases of Istio make them, beside Istio's of today for `options`, which are as they are printed.

    `differences`: packets that today's rules treat differently, described. `doubt`: why it is not proved that these are all.
    """

    releases: str
    options: str
    differences: tuple[str, ...] = ()
    doubt: str = ""
