"""A judgement is used again for equal values alone; the counters of rules are no part of them."""

from __future__ import annotations

import pytest

from netinit.base.listeners import Listener, Listeners
from netinit.base.net import HostAddress
from netinit.base.records import Record
from netinit.base.snapshot import (
    AddressSet,
    AddressSetElement,
    AttachedProgram,
    Device,
    LegacyTable,
    NftChain,
    NftElement,
    NftObject,
    NftRule,
    NftSet,
    NftTable,
    RoutingRule,
    Snapshot,
    TableRoute,
    TrafficControl,
    Unknown,
)
from netinit.pods.verify import digest_of, judge, without_counters
from netinit.rules.model import Difference

ELEMENT = NftElement(key=b"\x0a\0\0\1")
ROUTE = TableRoute(family=2, table=254, kind=1, destination=(0, 0), hops=(2,))
FULL = Snapshot(
    tables=(NftTable(family=2, name="nat"),), chains=(NftChain(family=2, table="nat", name="OUTPUT"),),
    rules=(NftRule(family=2, table="nat", chain="OUTPUT", handle=1, expressions=b"e"),),
    sets=(NftSet(family=2, table="nat", name="s", flags=0, key_type=7, key_length=4, elements=(ELEMENT,)),),
    objects=(NftObject(family=2, table="nat", name="c", kind="1"),),
    legacy=(LegacyTable(version=4, name="nat", valid_hooks=1, hook_entries=(0,), entries=b""),),
    links=(Device(index=1, name="lo"),), addresses=(HostAddress(family=2, address="127.0.0.1", length=8, index=1),),
    traffic_control=(TrafficControl(what="qdisc", index=1, kind="noqueue"),), routing_rules=(RoutingRule(family=2),), routes=(ROUTE,),
    settings=(("ipv4/ip_forward", "0"),), programs=(AttachedProgram(where="XDP on eth0", number=1),), transforms=0,
    address_sets=((1, "s"),), foreign_sets=(AddressSet(number=1, name="s", elements=(AddressSetElement(address=b"1234"),)),), unknown=(Unknown(place="p", reason="r"),),
    listeners=Listeners(sockets=(Listener(protocol="tcp", family=2, address=b"1234", port=80),)),
)  # fmt: skip


def variants(value):
    """The value with each of its parts changed, one at a time, however deep."""
    if isinstance(value, Record):
        for field in type(value)._fields:
            for one in variants(getattr(value, field)):
                yield value.replace(**{field: one})
    elif isinstance(value, tuple):
        yield (*value, "more")
        for at, part in enumerate(value):
            for one in variants(part):
                yield (*value[:at], one, *value[at + 1 :])
    elif isinstance(value, bool):
        yield not value
    elif value is None:
        yield 0
    else:
        yield value + {int: 1, str: "x", bytes: b"x"}[type(value)]


def test_the_snapshot_of_this_test_has_something_in_every_field():
    assert all(getattr(FULL, field) or field in ("generation", "transforms") for field in Snapshot._fields)


def test_each_changed_part_of_a_snapshot_changes_the_digest():
    changed = [*variants(FULL)]
    assert len(changed) > 100
    assert len({digest_of(one) for one in (FULL, *changed)}) == len(changed) + 1


def test_equal_values_have_one_digest_however_they_are_built():
    one, other = bytes(range(97, 101)).decode(), str(b"abcd", "ascii")
    assert digest_of((one, one)) == digest_of((one, other))


def test_a_judgement_is_made_once_for_equal_values():
    asked = []

    def ask(snapshot, name, known):
        def decide():
            asked.append(name)
            return (Difference(kind="extra", where=name),), ()

        return judge(decide, snapshot, name, known=known)

    first = ask(FULL, "a", None)
    assert ask(FULL.replace(), "a", first) is first
    assert asked == ["a"]
    assert ask(FULL, "b", first).differences[0].where == "b"
    assert ask(FULL.replace(generation=2), "a", first).digest != first.digest
    assert asked == ["a", "b", "a"]


def counter(packets, size):
    """The counter expression as the kernel lists it (linux/netfilter/nf_tables.h)."""
    numbers = b"".join(b"\x0c\0" + kind + value.to_bytes(8, "big") for kind, value in ((b"\1\0", size), (b"\2\0", packets)))
    body = b"\x0c\0\1\0counter\0" + (len(numbers) + 4).to_bytes(2, "little") + b"\2\x80" + numbers
    return (len(body) + 4).to_bytes(2, "little") + b"\1\x80" + body


@pytest.mark.parametrize("behind", [b"", b"\x0c\0\1\0ABCDEFGH"])
def test_counters_of_nf_tables_alone_are_left_out(behind):
    def snapshot(expressions):
        return Snapshot(rules=(NftRule(family=2, table="t", chain="c", handle=1, expressions=expressions + behind),))

    one, other = (without_counters(snapshot(counter(packets, size))) for packets, size in ((0, 0), (3, 180)))
    assert one == other
    assert without_counters(snapshot(counter(3, 180)[:-1] + b"x")) == one
    assert without_counters(snapshot(counter(3, 180).replace(b"counter", b"countex"))) != one


@pytest.mark.parametrize("version", [4, 6])
def test_counters_of_the_older_interface_alone_are_left_out(version):
    header, sizes, counters = {4: (112, 88, 96), 6: (168, 140, 152)}[version]

    def table(at, value):
        entries = bytearray(2 * (header + 40))
        for start in (0, header + 40):
            entries[start + sizes : start + sizes + 4] = header.to_bytes(2, "little") + (header + 40).to_bytes(2, "little")
        entries[at] ^= value
        return LegacyTable(version=version, name="nat", valid_hooks=1, hook_entries=(0,), entries=bytes(entries))

    plain = without_counters(Snapshot(legacy=(table(0, 0),)))
    for at in range(2 * (header + 40)):
        within = at % (header + 40)
        changed = without_counters(Snapshot(legacy=(table(at, 1),)))
        assert (changed == plain) == (counters <= within < counters + 16), at
