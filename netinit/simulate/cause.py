"""Finds the rule that decided a packet's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from netinit.rules.foreign_targets import DestinationNat
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import InInterface, Owner, Port
from netinit.rules.model import ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT, MANGLE, NAT, OUTPUT, PREROUTING
from netinit.rules.targets import Accept, Jump, Redirect, Return, Tproxy
from netinit.simulate.loaded_rules import RuleHit
from netinit.simulate.trace import TraceStep

AnyHit = TypeVar("AnyHit", bound=RuleHit | TraceStep)


def cause_of(hits: Sequence[AnyHit], *, captured: bool, transparent: bool, translated: bool) -> AnyHit | None:
    """The rule that redirected, diverted or excluded a packet; None if no rule did."""
    if captured:
        kind = Tproxy if transparent else Redirect
        places = [index for index, hit in enumerate(hits) if isinstance(hit.met.target, kind)]
        return _leading_to(hits, places[-1]) if places else None
    if translated:
        return next((hit for hit in reversed(hits) if isinstance(hit.met.target, DestinationNat | Redirect)), None)
    excluding = [hit for hit in hits if _excludes(hit) and isinstance(hit.met.target, Return | Accept)]
    return excluding[-1] if excluding else None


def _excludes(hit: RuleHit | TraceStep) -> bool:
    """Whether a rule's position is used for exclusions from capture or from rejection."""
    captures = hit.hook in (OUTPUT, PREROUTING) and hit.table in (NAT, MANGLE)
    return captures or hit.chain in (ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT)


def _leading_to(hits: Sequence[AnyHit], place: int) -> AnyHit:
    """The rule itself, or the jump to its chain if the rule matches everything that comes there."""
    hit = hits[place]
    if any(isinstance(match, Port | Owner | Mark | InInterface) for match in hit.met.matches):
        return hit
    for before in reversed(hits[:place]):
        target = before.met.target
        if isinstance(target, Jump) and target.chain == hit.chain and before.table == hit.table:
            return before
    return hit
