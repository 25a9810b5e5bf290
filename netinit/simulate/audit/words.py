"""Sets of packets in words, and as values for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from netinit.base.net import FULL_MASK, IPV4, Interval, Network, format_intervals
from netinit.simulate.symbolic.match_sets import local
from netinit.simulate.symbolic.regions import Region, Sides, everything, marked, nothing, unite, within
from netinit.simulate.symbolic.space import (
    ANY_OTHER,
    BEGINNINGS,
    CONNECTION_MARK,
    DESTINATION,
    DESTINATION_PORT,
    GID,
    INBOUND,
    INTERFACE,
    MARK,
    NEW,
    PROTOCOL,
    REUSES,
    SENDER,
    SOCKET,
    SOURCE,
    SOURCE_PORT,
    STATE,
    UID,
    Dimension,
    Space,
    conntrack_state,
    intervals_of,
    join,
)

MOST_NAMED = 4  # values of a kind that a sentence names
_MARKS = (MARK, CONNECTION_MARK)


def describe(region: Region) -> str:
    """The set in words: in each dimension what occurs. Where it is a part of all that, the words say so."""
    text, whole = _describe(region)
    return text if whole else f"{text} (a part of it)"


def is_all(region: Region) -> bool:
    """Whether the words say exactly which packets the set has."""
    return _describe(region)[1]


def _describe(region: Region) -> tuple[str, bool]:
    space = region.space
    hull = everything(space)
    if space.direction != INBOUND:
        sent = within(space, SENDER, [(1, 1)])
        if region & sent:
            hull, region = sent, region & sent  # packets without a socket are the kernel's own: nobody asks who sends them
    words = []
    for name, spell in _PHRASES.items():
        if space.has(name):
            text, whole = spell(space, region)
            words.append(text)
            hull &= whole
    return " ".join(word for word in words if word), not hull - region - martians(space)


def loopback_of(space: Space) -> Network:
    """The addresses that the kernel takes from lo alone."""
    return Network.parse("127.0.0.0/8" if space.family is IPV4 else space.family.loopback)


def martians(space: Space) -> Region:
    """What comes in for, or from, a loopback address: the kernel takes it from no interface but lo."""
    if space.direction != INBOUND:
        return nothing(space)
    network = loopback_of(space)
    addresses = [(network.first, network.last)]
    return within(space, DESTINATION, addresses) | within(space, SOURCE, addresses)


def _protocol(space: Space, region: Region) -> tuple[str, Region]:
    values, whole = _reach(space, region, PROTOCOL)
    labels = [label.upper() if label in ("tcp", "udp") else label for label in space.dimension(PROTOCOL).labels]
    here, others = _split(values, labels)
    return _few(here, others) if others else "everything", whole


def _way(space: Space, region: Region) -> tuple[str, Region]:
    """Out, in, or within the pod, and through which interfaces."""
    values, whole = _reach(space, region, INTERFACE)
    here, others = _split(values, list(space.dimension(INTERFACE).labels))
    inside = space.direction != INBOUND and not region - local(space, DESTINATION)
    where = "in" if space.direction == INBOUND else "within the pod" if inside else "out"
    if not others or inside:
        return where, whole
    return f"{where} through {_few(here, others)}", whole


def _few(here: list[str], others: list[str]) -> str:
    """The names, or those that are not among them, where these can be listed and are fewer."""
    return _list(here) if len(here) <= len(others) or ANY_OTHER in others else f"all but {_list(others)}"


def _destination(space: Space, region: Region) -> tuple[str, Region]:
    own, outbound = local(space, DESTINATION), space.direction != INBOUND
    heard = within(space, DESTINATION, intervals_of(space.around.heard))
    if not outbound and region & own and region & heard:
        own |= heard
    values, whole = _reach(space, region, DESTINATION)
    if not region & own:
        beside = _reach(space, region | own, DESTINATION)[0]  # what is left out of most addresses; the pod's own are another line
        text = _format_addresses(space, beside if _is_most(space, values) else values)
        if outbound:
            return f"to {text}" if text else "", whole
        return f"for other hosts, {text}" if text else "for other hosts", whole
    if not own - whole and not region - own:
        return "", whole
    text = _format_addresses(space, values)
    return f"to {text}" if text else "", whole


def _is_most(space: Space, values: tuple[Interval, ...]) -> bool:
    return 2 * sum(high - low + 1 for low, high in values) > 1 << space.family.bits


def _source(space: Space, region: Region) -> tuple[str, Region]:
    values, whole = _reach(space, region, SOURCE)
    # Addresses that cannot occur are not named beside few that do: they are there to make "any but" shorter.
    text = _format_addresses(space, values if _is_most(space, values) else tuple(join(region.reach(SOURCE))))
    return f"from {text}" if text else "", whole


def _ports(name: str, word: str) -> Callable[[Space, Region], tuple[str, Region]]:
    def spell(space: Space, region: Region) -> tuple[str, Region]:
        values, whole = _reach(space, region, name)
        return _phrase(values, space.dimension(name).last, word, _format_number), whole

    return spell


def _state(space: Space, region: Region) -> tuple[str, Region]:
    values, whole = _reach(space, region, STATE)
    here, others = _split(values, list(space.dimension(STATE).labels))
    if not others or (NEW in here and set(here) <= set(BEGINNINGS)):  # those on an old entry are a rare case of new ones
        return "", whole
    if set(here) <= set(REUSES):
        return "on an old conntrack entry", whole
    states = list(dict.fromkeys([conntrack_state(one) for one in here if one not in REUSES]))
    return f"in the state {_list(states, ' or ')}", whole


def _mark(name: str) -> Callable[[Space, Region], tuple[str, Region]]:
    def spell(space: Space, region: Region) -> tuple[str, Region]:
        whole = unite([marked(space, name, *bits) for bits in region.reach(name)])
        whose = "mark" if name == MARK else "connection mark"
        for found, how in ((whole, "with"), (everything(space) - whole, "without")):
            bits = found.reach(name)
            if len(bits) == 1:
                value, mask = bits[0]
                text = str(value) if mask == FULL_MASK else f"{value:#x}/{mask:#x}"
                return f"{how} the {whose} {text}" if mask else "", whole
        return f"with certain {whose}s" if everything(space) - whole else "", whole

    return spell


def _socket(space: Space, region: Region) -> tuple[str, Region]:
    values, whole = _reach(space, region, SOCKET)
    here, others = _split(values, ["without a socket of its own", "for an open socket"])
    return here[0] if others else "", whole


def _reach(space: Space, region: Region, name: str) -> tuple[tuple[Interval, ...], Region]:
    """The coordinates that occur, and the packets that have one of them."""
    found = list(region.reach(name))
    if space.direction == INBOUND and name in (DESTINATION, SOURCE):
        network = loopback_of(space)  # nobody asks about addresses that cannot occur
        found.append((network.first, network.last))
    values = tuple(join(found))
    return values, within(space, name, list(values))


def _split(values: tuple[Interval, ...], labels: list[str]) -> tuple[list[str], list[str]]:
    """The labels that occur, and those that do not."""
    here = [label for at, label in enumerate(labels) if any(low <= at <= high for low, high in values)]
    return here, [label for label in labels if label not in here]


def _format_addresses(space: Space, values: tuple[Interval, ...]) -> str:
    return _phrase(values, (1 << space.family.bits) - 1, "", lambda interval: format_intervals([interval], space.family)[0])


def _format_number(interval: Interval) -> str:
    return str(interval[0]) if interval[0] == interval[1] else f"{interval[0]}-{interval[1]}"


def _phrase(values: tuple[Interval, ...], last: int, word: str, spell: Callable[[Interval], str]) -> str:
    """The values, or what is not among them where that is shorter; nothing where all are."""
    gaps = tuple(_gaps(values, last))
    if not gaps:
        return ""
    most = 2 * sum(high - low + 1 for low, high in values) > last
    listed = _list([spell(interval) for interval in (gaps if most else values)])
    return " ".join(part for part in (word, "any but" if most else "", listed) if part)


def _gaps(values: tuple[Interval, ...], last: int) -> Iterator[Interval]:
    at = 0
    for low, high in values:
        if low > at:
            yield at, low - 1
        at = high + 1
    if at <= last:
        yield at, last


def _list(words: list[str], last: str = ", ") -> str:
    """The words, or the first of them and how many more there are."""
    if len(words) > MOST_NAMED + 1:
        return f"{', '.join(words[:MOST_NAMED])} and {len(words) - MOST_NAMED} more"
    return last.join(words)


_PHRASES: dict[str, Callable[[Space, Region], tuple[str, Region]]] = {
    PROTOCOL: _protocol, INTERFACE: _way, DESTINATION: _destination, DESTINATION_PORT: _ports(DESTINATION_PORT, "on port"),
    SOURCE: _source, SOURCE_PORT: _ports(SOURCE_PORT, "from source port"), UID: _ports(UID, "by uid"), GID: _ports(GID, "by gid"),
    STATE: _state, MARK: _mark(MARK), CONNECTION_MARK: _mark(CONNECTION_MARK), SOCKET: _socket,
}  # fmt: skip


def format_box(space: Space, sides: Sides) -> dict[str, list[str]]:
    """A box for programs: each dimension that is not everything, with its values."""
    return {name: [*_format_side(space, space.dimension(name), side)] for name, side in sides.items()}


def _format_side(space: Space, dimension: Dimension, side: tuple[Interval, ...]) -> Iterator[str]:
    if dimension.name in _MARKS:
        yield from [f"{value:#x}/{mask:#x}" for value, mask in side]
    elif dimension.name in (DESTINATION, SOURCE):
        yield from format_intervals(side, space.family)
    elif dimension.labels:
        yield from [label for at, label in enumerate(dimension.labels) if any(low <= at <= high for low, high in side)]
    else:
        yield from [_format_number(interval) for interval in side]
