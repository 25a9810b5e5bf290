"""Networks as intervals of addresses: overlapping and adjacent ones merged, so that a set of them is exact.

nft refuses a set whose elements overlap, and a search tree is the shallower the fewer elements it has.
"""

from __future__ import annotations

from _socket import inet_ntop

from netinit.base.net import Family, Network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Interval = tuple[int, int]  # lowest and highest address, both included


def merge(networks: Iterable[Network], family: Family) -> list[Interval]:
    """The addresses of the networks, all of one family, as ascending intervals that do not touch each other."""
    host_bits = [(1 << family.bits - length) - 1 for length in range(family.bits + 1)]
    merged: list[Interval] = []
    low = high = -2
    for first, last in sorted([(network[1], network[1] | host_bits[network[2]]) for network in networks]):
        if first <= high + 1 and low >= 0:
            high = max(high, last)
            continue
        if low >= 0:
            merged.append((low, high))
        low, high = first, last
    if low >= 0:
        merged.append((low, high))
    return merged


def spell(intervals: Iterable[Interval], family: Family) -> list[str]:
    """The intervals as nft lists them: an address, a network where it is exactly the interval, else two addresses."""
    number, size = family.number, family.bits // 8
    texts = []
    for low, high in intervals:
        text = inet_ntop(number, low.to_bytes(size, "big"))
        count = high - low + 1
        if count == 1:
            texts.append(text)
        elif count & count - 1 or low & count - 1:
            texts.append(f"{text}-{inet_ntop(number, high.to_bytes(size, 'big'))}")
        else:
            texts.append(f"{text}/{family.bits + 1 - count.bit_length()}")
    return texts
