"""Entries of legacy tables as rules: interfaces by the bytes of their names that count, extensions by their sizes, and counters."""

from __future__ import annotations

from struct import error, pack_into, unpack_from

import pytest

from netinit.base.net import FAMILIES
from netinit.base.snapshot import LegacyTable
from netinit.rules.structs import ACCEPTING, RETURNING
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    EXTENSION_HEADER,
    EntryChain,
    TableEntry,
    extension,
    list_extensions,
    make_entry,
)
from netinit.rules.xtables.decoded_tables import clear_counters, decode_entry, decode_table
from rule_encodings import join_table

VERSIONS = [family.version for family in FAMILIES]
UNKNOWN = "-i under a mask that iptables does not write"


def entry(version, *matches, name=b"", mask=b"", verdict=ACCEPTING):
    form = ENTRY_FORMS[version]
    head = bytearray(form.packet)
    at = 2 * form.family.bits // 8 * 2  # struct ipt_ip: addresses and their masks stand before the interfaces, and theirs behind both
    head[at : at + len(name)] = name
    head[at + 32 : at + 32 + len(mask)] = mask
    return TableEntry(data=make_entry(form, bytes(head), b"".join(matches), extension("", 0, verdict.to_bytes(4, "little", signed=True) + bytes(4))))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "mask", "text"),
    [
        (b"eth0\0", b"\xff" * 5, "-i eth0"), (b"eth0", b"\xff" * 5, "-i eth0"), (b"eth", b"\xff" * 3, "-i eth+"), (b"eth+", b"\xff" * 3, "-i eth+"), (b"", b"", ""),
        (b"e\0h\0", b"\xff" * 4, UNKNOWN), (b"e\0h", b"\xff" * 3, UNKNOWN), (b"eth0\0", b"\xff\x0f\xff", UNKNOWN), (b"eth0", b"\xff" * 3, UNKNOWN), (b"eth0\0", b"\0\xff", UNKNOWN),
    ],
)  # fmt: skip
def test_an_interface_is_the_bytes_of_its_name_that_count_and_else_unknown(version, name, mask, text):
    rule = decode_entry(entry(version, name=name, mask=mask), ENTRY_FORMS[version])
    assert [match.xt() for match in rule.matches] == [text] * bool(text)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("protocol", "inverted", "text"), [(6, 0, "-p tcp"), (17, 64, "! -p udp"), (250, 0, "-p 250"), (0, 0, ""), (0, 64, "! -p all")])
def test_a_protocol_is_a_number_of_which_zero_stands_for_all(version, protocol, inverted, text):
    form, one = ENTRY_FORMS[version], entry(version)
    *values, _, flags, _ = unpack_from(form.head, one.data)
    changed = bytearray(one.data)
    pack_into(form.head, changed, 0, *values, protocol, flags, inverted)
    assert [match.xt() for match in decode_entry(TableEntry(data=bytes(changed)), form).matches] == [text] * bool(text)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("size", "is_read"), [(0, False), (EXTENSION_HEADER - 1, False), (EXTENSION_HEADER, False), (EXTENSION_HEADER + 8, True), (EXTENSION_HEADER + 16, False)])
def test_a_match_is_at_least_a_header_and_ends_before_the_target(version, size, is_read):
    form, one = ENTRY_FORMS[version], entry(version, extension("comment", 3, b"12345678"))
    changed = bytearray(one.data)
    pack_into("=H", changed, form.header, size)
    if is_read:
        name, revision, info = next(list_extensions(TableEntry(data=bytes(changed)), form))
        assert (name, revision, info) == ("comment", 3, b"12345678")
        return
    with pytest.raises((IndexError, error)):
        list(list_extensions(TableEntry(data=bytes(changed)), form))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rule_has_its_comment_whichever_of_its_matches_that_is(version):
    comment, mark = extension("comment", 0, b"why not".ljust(256, b"\0")), extension("mark", 1, bytes(16))
    for matches, text in (((comment, mark), "why not"), ((mark, comment), "why not"), ((mark,), "")):
        assert decode_entry(entry(version, *matches), ENTRY_FORMS[version]).comment == text


@pytest.mark.parametrize("version", VERSIONS)
def test_counters_are_cleared_in_every_entry_and_nothing_else_is(version):
    chains = [
        EntryChain(name="INPUT", hook=1, entries=(entry(version, extension("comment", 0, b"x" * 8)), entry(version), entry(version))),
        EntryChain(name="A", hook=-1, entries=(entry(version, name=b"eth0\0", mask=b"\xff" * 5), entry(version, verdict=RETURNING))),
    ]
    table = join_table(LegacyTable(name="filter", version=version, valid_hooks=2, hook_entries=(0,) * 5, entries=b""), chains)
    form, entries, at, places = ENTRY_FORMS[version], bytearray(table.entries), 0, []
    while at < len(entries):
        places.append(at + form.counters)
        entries[places[-1] : places[-1] + 16] = bytes(range(1, 17))
        at += unpack_from("=H", entries, at + form.packet + 6)[0]
    counted = table.replace(entries=bytes(entries))
    assert len(places) == 7, "the end of each chain, the name of A, and the end of the table are entries too"
    assert decode_table(counted)[0].rules[0].packets > 0
    assert clear_counters(counted) == clear_counters(table) == table
