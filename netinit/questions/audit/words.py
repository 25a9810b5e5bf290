"""Formats sets of packets as text and as machine-readable values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from netinit.base.net import FULL_MASK, Family, Interval, format_intervals, join_ranges
from netinit.simulate.symbolic.boxes import Sides
from netinit.simulate.symbolic.match_sets import local, martians
from netinit.simulate.symbolic.regions import Region, everything, marked, unite, within
from netinit.simulate.symbolic.space import (
    ANY_OTHER,
    BEGINNINGS,
    INBOUND,
    REUSES,
    CtState,
    Dim,
    Dimension,
    Space,
    conntrack_state,
    intervals_of,
)

MAX_NAMED = 4  # values of one dimension listed before "and N more"
_MARKS = (Dim.MARK, Dim.CONNECTION_MARK)
Formatter = Callable[[Region, tuple[Interval, ...], Region], str]
"""Describes packets by their values in a dimension, and all packets that have one of these."""


def describe(region: Region) -> str:
    """Describe a set by its values in each dimension, and say if it is only a part of their product."""
    text, is_exact = describe_values(region)
    return mark_subset(text, is_exact=is_exact)


def mark_subset(text: str, *, is_exact: bool) -> str:
    """The description of a set, which says if the set is only a part of what it denotes."""
    return text if is_exact else f"{text} (subset)"


def describe_values(region: Region) -> tuple[str, bool]:
    """Describe a set by its values in each dimension; the flag says whether this denotes exactly the set."""
    space = region.space
    hull, by_kernel = everything(space), False
    if space.direction != INBOUND:
        sent = within(space, Dim.SENDER, [(1, 1)])
        by_kernel = not region & sent
        hull = hull - sent if by_kernel else sent  # packets without a user's socket come from the kernel: named where they are alone
        region &= hull
    words = []
    known = {one.name for one in space.dimensions}
    for name, phrase in _PHRASES.items():
        if name in known:
            values, whole = _reach(space, region, name)
            if isinstance(phrase, tuple):
                words.append(_phrase(values, space.dimension(name).last, phrase, _format_number))
            else:
                words.append(phrase(region, values, whole))
            hull &= whole
    words += ["by the kernel itself"] * by_kernel
    return " ".join(word for word in words if word).replace(" ,", ",").removeprefix(", "), not hull - region - martians(space)


def merge_families(described: Iterable[tuple[str, Family]], families: int) -> tuple[str, ...]:
    """The distinct descriptions; their families are named unless all share it (`families` in number)."""
    found: dict[str, dict[str, None]] = {}
    for text, family in described:
        found.setdefault(text, {})[family.name] = None
    return tuple(text if len(names) == families else f"{', '.join(names)}: {text}" for text, names in found.items())


def _protocol(region: Region, values: tuple[Interval, ...], _: Region) -> str:
    labels = [label.upper() if label in ("tcp", "udp") else label for label in region.space.dimension(Dim.PROTOCOL).labels]
    here, others = _split(values, labels)
    if not others:
        return ""
    return f"non-{others[0]}" if len(others) == 1 and len(here) > 1 else _few(here, others)


def _way(region: Region, values: tuple[Interval, ...], _: Region) -> str:
    """Describe the direction (outbound, inbound, within the pod) and the interfaces."""
    space = region.space
    here, others = _split(values, space.dimension(Dim.INTERFACE).labels)
    inside = space.direction != INBOUND and not region - local(space, Dim.DESTINATION)
    where = "inbound" if space.direction == INBOUND else "within the pod" if inside else "outbound"
    return where if not others or inside else f"{where} through {_few(here, others)}"


def _few(here: list[str], others: list[str]) -> str:
    """Join the names, or "all but" the others if those are fewer and finite."""
    return _list(here) if len(here) <= len(others) or ANY_OTHER in others else f"all but {_list(others)}"


def _destination(region: Region, values: tuple[Interval, ...], whole: Region) -> str:
    space = region.space
    own, outbound = local(space, Dim.DESTINATION), space.direction != INBOUND
    group_addresses = within(space, Dim.DESTINATION, intervals_of(space.around.group_addresses))
    if not outbound and region & own and region & group_addresses:
        own |= group_addresses
    if region & own:
        text = _format_addresses(space, values) if own - whole or region - own else ""
        return f"to {text}" if text else ""
    # The pod's own addresses are not listed among the exclusions from most addresses.
    text = _format_addresses(space, _reach(space, region | own, Dim.DESTINATION)[0] if _is_most(space, values) else values)
    if outbound:
        return f"to {text}" if text else ""
    return f"for other hosts, {text}" if text else "for other hosts"


def _is_most(space: Space, values: tuple[Interval, ...]) -> bool:
    return 2 * sum(high - low + 1 for low, high in values) > 1 << space.family.bits


def _source(region: Region, values: tuple[Interval, ...], _: Region) -> str:
    # Impossible addresses only serve to shorten "addresses other than …"; next to a few real ones they are omitted.
    shown = values if _is_most(region.space, values) else tuple(join_ranges(sorted(region.reach(Dim.SOURCE))))
    text = _format_addresses(region.space, shown)
    return f"from {text}" if text else ""


def _state(region: Region, values: tuple[Interval, ...], _: Region) -> str:
    here, others = _split(values, region.space.dimension(Dim.STATE).labels)
    if not others or (CtState.NEW in here and set(here) <= set(BEGINNINGS)):  # the others are a rare case of new connections
        return ""
    if set(here) <= set(REUSES):
        return "on an old conntrack entry"
    states = list(dict.fromkeys([conntrack_state(one) for one in here if one not in REUSES]))
    return f"in the state {_list(states, ' or ')}"


def _mark(name: str, region: Region, _: tuple[Interval, ...], whole: Region) -> str:
    others = everything(region.space) - whole
    for found, how in ((whole, "with"), (others, "without")):
        bits = found.reach(name)
        if len(bits) == 1:
            value, mask = bits[0]
            text = str(value) if mask == FULL_MASK else f"{value:#x}/{mask:#x}"
            return f"{how} the {name} {text}" if mask else ""
    return f"with certain {name}s" if others else ""


def _socket(_: Region, values: tuple[Interval, ...], __: Region) -> str:
    here, others = _split(values, ("without a socket of its own", "for an open socket"))
    return here[0] if others else ""


def _reach(space: Space, region: Region, name: str) -> tuple[tuple[Interval, ...], Region]:
    """The coordinates that occur in a dimension, and the packets that have them."""
    found = list(region.reach(name))
    if name in _MARKS:
        return tuple(found), unite([marked(space, name, *bits) for bits in found])
    if space.direction == INBOUND and name in (Dim.DESTINATION, Dim.SOURCE):
        found += intervals_of([space.family.loopback_network])  # impossible addresses are not mentioned
    return tuple(join_ranges(sorted(found))), within(space, name, found)


def _split(values: tuple[Interval, ...], labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split labels into those that occur and those that do not."""
    here = [label for at, label in enumerate(labels) if any(low <= at <= high for low, high in values)]
    return here, [label for label in labels if label not in here]


def _format_addresses(space: Space, values: tuple[Interval, ...]) -> str:
    last, words = (1 << space.family.bits) - 1, ("", "addresses other than")
    return _phrase(values, last, words, lambda interval: format_intervals([interval], space.family)[0])


def _format_number(interval: Interval) -> str:
    return str(interval[0]) if interval[0] == interval[1] else f"{interval[0]}-{interval[1]}"


def _phrase(values: tuple[Interval, ...], last: int, words: tuple[str, str], format_values: Callable[[Interval], str]) -> str:
    """List the values, or those that do not occur if they are fewer, each behind its words; empty if all occur."""
    ends = [-1, *[end for interval in values for end in interval], last + 1]
    gaps = [(low + 1, high - 1) for low, high in zip(ends[::2], ends[1::2], strict=True) if low + 1 < high]
    if not gaps:
        return ""
    most = 2 * sum(high - low + 1 for low, high in values) > last
    listed = _list([format_values(interval) for interval in (gaps if most else values)])
    return f"{words[most]} {listed}".lstrip()


def _list(words: list[str], last: str = ", ") -> str:
    """Join the words, truncated with a count of the rest."""
    if len(words) > MAX_NAMED + 1:
        return f"{', '.join(words[:MAX_NAMED])} and {len(words) - MAX_NAMED} more"
    return last.join(words)


_PHRASES: dict[str, Formatter | tuple[str, str]] = {  # or the words before values, and before those left out
    Dim.PROTOCOL: _protocol, Dim.INTERFACE: _way, Dim.DESTINATION: _destination,
    Dim.DESTINATION_PORT: ("on port", "on a port other than"), Dim.SOURCE: _source,
    Dim.SOURCE_PORT: ("from source port", "from a source port other than"), Dim.STATE: _state,
    **{name: partial(_mark, name) for name in _MARKS}, Dim.SOCKET: _socket,
    Dim.UID: (", uid", ", uid other than"), Dim.GID: (", gid", ", gid other than"),
}  # fmt: skip


def format_box(space: Space, sides: Sides) -> dict[str, list[str]]:
    """Format a box for programs: each restricted dimension with its values."""
    return {name: _format_side(space, space.dimension(name), side) for name, side in sides.items()}


def _format_side(space: Space, dimension: Dimension, side: tuple[Interval, ...]) -> list[str]:
    if dimension.name in _MARKS:
        return [f"{value:#x}/{mask:#x}" for value, mask in side]
    if dimension.name in (Dim.DESTINATION, Dim.SOURCE):
        return format_intervals(side, space.family)
    return _split(side, dimension.labels)[0] if dimension.labels else [*map(_format_number, side)]


def unite_by_space(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The union of the sets of each space."""
    by_space: dict[int, list[Region]] = {}
    for region in regions:
        by_space.setdefault(id(region.space), []).append(region)
    return tuple(unite(found) for found in by_space.values())
