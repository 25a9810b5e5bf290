"""Combine what iptables has as one: comparisons of a range, actions of a target, elements of an interval set."""

from __future__ import annotations

from netinit.base.snapshot import ELEMENT_CATCHALL, ELEMENT_INTERVAL_END, SET_INTERVAL, NftElement, NftSet
from netinit.rules.decoding.registers import RegisterTest
from netinit.rules.foreign_targets import Observe, Several
from netinit.rules.targets import Target


def join(targets: list[Target]) -> Target:
    """Return one target for all actions."""
    if not targets:
        return Observe(text="")
    targets = targets[0].take(targets[1:])
    return targets[0] if len(targets) == 1 else Several(targets=tuple(targets))


def intersect(last: RegisterTest, now: RegisterTest) -> RegisterTest | None:
    """Return the intersection of two ranges for one operand; None if they are anything else."""
    if last.operand != now.operand or last.negated or now.negated or len(last.ranges) != 1 or len(now.ranges) != 1:
        return None
    (low, high), (first, end) = last.ranges[0], now.ranges[0]
    if len(low) != len(first):
        return None
    return now.replace(ranges=((max(low, first), min(high, end)),)) if max(low, first) <= min(high, end) else None


def ranges(held: NftSet) -> list[tuple[bytes, bytes]] | None:
    """Return a set's elements as ranges; None if they are not understood."""
    found = with_ends(held)
    if found is None or any(element.flags & ELEMENT_CATCHALL for element, _ in found):
        return None
    return [ends for _, ends in found]


def with_ends(held: NftSet) -> list[tuple[NftElement, tuple[bytes, bytes]]] | None:
    """Return a set's elements with their ranges. In an interval set the end is an element: the first key after it."""
    if not held.flags & SET_INTERVAL:
        return [(element, (element.key, element.key)) for element in sorted(held.elements, key=_by_key)]
    if any(element.key_end for element in held.elements):
        return [(element, (element.key, element.key_end or element.key)) for element in held.elements]
    found: list[tuple[NftElement, tuple[bytes, bytes]]] = []
    ordered = sorted(held.elements, key=_by_key)
    for at, element in enumerate(ordered):
        if element.flags & ELEMENT_INTERVAL_END:
            continue
        behind = ordered[at + 1].key if at + 1 < len(ordered) else b""
        size = len(element.key)
        if behind and len(behind) != size:
            return None
        last = int.from_bytes(behind, "big") - 1 if behind else (1 << 8 * size) - 1
        if last < int.from_bytes(element.key, "big"):
            return None
        found.append((element, (element.key, last.to_bytes(size, "big"))))
    return found


def _by_key(element: NftElement) -> tuple[bytes, bool]:
    return element.key, not element.flags & ELEMENT_INTERVAL_END
