"""Remember what was decided about a pod, and decide anew only where something has changed.

A judgement follows from values that were read, without the counters of rules, and from nothing else: it is made from
exactly the values whose digest it carries. The digest covers every field of every record, so that a new field counts
without being listed here. Handles and generations decide nothing, but change with the rules alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from hashlib import blake2b
from io import BytesIO

from netinit.base.records import Record
from netinit.base.snapshot import Snapshot
from netinit.rules.model import Difference
from netinit.rules.rule_builder import settle
from netinit.rules.xtables.tables import clear_counters

Found = tuple[tuple[Difference, ...], tuple[str, ...]]  # differences and warnings


class Judgement(Record):
    """Differences from the plan and warnings, and the digest of all that they follow from."""

    digest: str
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]


def judge(decide: Callable[[], Found], *values: object, known: Judgement | None) -> Judgement:
    """Return `known` if it is about exactly these values, else what `decide` finds from them alone, whose errors are raised."""
    digest = digest_of(values)
    if known is not None and known.digest == digest:
        return known
    differences, warnings = decide()
    return Judgement(digest=digest, differences=differences, warnings=warnings)


def digest_of(value: object) -> str:
    """Return the digest of a value of records and plain data.

    Pickle writes every field of every record, whatever the record prints; it is never read back. `fast` leaves out
    references to equal objects, which say how a value was built and not what it is.
    """
    written = BytesIO()
    pickler = pickle.Pickler(written)
    pickler.fast = True
    pickler.dump(value)
    return blake2b(written.getbuffer(), digest_size=32).hexdigest()


def without_counters(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the counters of all rules at zero."""
    return snapshot.replace(
        rules=tuple([one.replace(expressions=settle(one.expressions)) for one in snapshot.rules]),
        legacy=tuple([clear_counters(one) for one in snapshot.legacy]),
    )
