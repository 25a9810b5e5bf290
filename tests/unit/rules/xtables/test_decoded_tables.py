"""Entries of legacy tables as rules: interfaces by the bytes of their names that count, extensions by their sizes, and counters."""

from __future__ import annotations

from struct import error, pack_into, unpack_from

import pytest

from netinit.base.net import FAMILIES
from netinit.base.snapshot import LegacyTable
from netinit.rules.foreign_targets import Observe, UnknownTarget
from netinit.rules.structs import ACCEPTING, RETURNING
from netinit.rules.targets import Accept, Drop, Jump, Return
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    EXTENSION_HEADER,
    NEXT,
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
        (b"axX\0", b"\xff" * 4, "-i axX"), (b"axX", b"\xff" * 3, "-i axX+"), (b"X", b"X\0X", UNKNOWN), (b"a\0X", b"\xff" * 2, UNKNOWN), (b"a\0+", b"\xff" * 2, "-i a"),
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


# --- the head, verdicts, and whole tables ------------------------------------------------------------------------------

ZEROS = {4: bytes(4), 6: bytes(16)}


def headed(version, **fields):
    """An entry with these values in its head, by their places in struct ipt_ip or ip6t_ip (see HEAD in netinit.rules.xtables.building)."""
    form, one = ENTRY_FORMS[version], entry(version)
    *values, protocol, flags, inverted = unpack_from(form.head, one.data)
    for name, place in (("source", 0), ("destination", 1), ("source_mask", 2), ("destination_mask", 3), ("name_in", 4), ("name_out", 5), ("mask_in", 6), ("mask_out", 7)):
        values[place] = fields.get(name, values[place])
    changed = bytearray(one.data)
    pack_into(form.head, changed, 0, *values, fields.get("protocol", protocol), fields.get("flags", flags), fields.get("inverted", inverted))
    return TableEntry(data=bytes(changed))


def texts(version, **fields):
    return [match.xt() for match in decode_entry(headed(version, **fields), ENTRY_FORMS[version]).matches]


FULL = {4: b"\xff" * 4, 6: b"\xff" * 16}
ADDRESS = {4: bytes((10, 1, 2, 3)), 6: bytes((0xFD, *range(1, 16)))}
TEXT = {4: "10.1.2.3/32", 6: "fd01:203:405:607:809:a0b:c0d:e0f/128"}
SHORT = {4: "10.0.0.0/8", 6: "fd00::/8"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("side", "option", "bit"), [("source", "-s", 8), ("destination", "-d", 16)])
def test_an_address_is_a_network_under_its_mask(version, side, option, bit):
    mask = f"{side}_mask"
    short = b"\xff".ljust(len(FULL[version]), b"\0")
    odd = b"\xff\0\xff".ljust(len(FULL[version]), b"\0")
    assert texts(version, **{side: ADDRESS[version], mask: FULL[version]}) == [f"{option} {TEXT[version]}"]
    assert texts(version, **{side: ADDRESS[version], mask: FULL[version]}, inverted=bit) == [f"! {option} {TEXT[version]}"]
    assert texts(version, **{side: ADDRESS[version], mask: short}) == [f"{option} {SHORT[version]}"], "bits behind the mask do not count"
    assert texts(version, **{side: ADDRESS[version], mask: ZEROS[version]}) == []
    assert texts(version, inverted=bit) == [f"! {option} {'0.0.0.0/0' if version == 4 else '::/0'}"]
    assert texts(version, **{side: ADDRESS[version], mask: odd}) == [f"{option} under a mask that is not a prefix"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("side", "option", "bit"), [("in", "-i", 1), ("out", "-o", 2)])
def test_an_interface_is_negated_by_its_bit_and_without_a_mask_no_match(version, side, option, bit):
    given = {f"name_{side}": b"eth0", f"mask_{side}": b"\xff" * 5}
    assert texts(version, **given) == [f"{option} eth0"]
    assert texts(version, **given, inverted=bit) == [f"! {option} eth0"]
    assert texts(version, **{f"name_{side}": b"eth0"}) == []
    assert texts(version, **{f"name_{side}": b"eth0"}, inverted=bit) == [f"! {option} +"]
    assert texts(version, **{f"name_{side}": b"\xffx", f"mask_{side}": b"\xff" * 3}) == [f"{option} \udcffx"]
    assert texts(version, **{f"name_{side}": b"eth0", f"mask_{side}": b"\xff"}) == [f"{option} under a mask that iptables does not write"]
    assert texts(version, **{f"name_{side}": b"e", f"mask_{side}": b"\xff"}) == [f"{option} e+"]
    assert texts(version, **{f"name_{side}": b"abcdefghijklmno\0", f"mask_{side}": b"\xff" * 16}) == [f"{option} abcdefghijklmno"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flag_or_an_inversion_that_iptables_does_not_write_is_unknown(version):
    known = {4: (2,), 6: (1, 4)}[version]  # -g; IP6T_F_PROTO, -g
    assert {1 << bit for bit in range(8) if not texts(version, flags=1 << bit)} == set(known)
    assert all(texts(version, flags=1 << bit) == ["-f"] for bit in range(8) if 1 << bit not in known)
    assert [bit for bit in (1, 2, 4, 8, 16, 32, 64, 128) if texts(version, inverted=bit) == ["-f"]] == [4, 32, 128]
    assert texts(version, protocol=6, inverted=4) == ["-f", "-p tcp"]


@pytest.mark.parametrize("version", VERSIONS)
def test_extensions_are_read_with_the_protocol_that_is_asked_and_not_with_one_that_is_excluded(version):
    form = ENTRY_FORMS[version]
    ports = extension("multiport", 1, bytes((1, 1)) + (80).to_bytes(2, "little") + bytes(44))
    whole = entry(version, ports)
    *values, _, flags, _ = unpack_from(form.head, whole.data)
    found = {}
    for protocol, inverted in ((6, 0), (17, 0), (6, 64), (0, 0)):
        changed = bytearray(whole.data)
        pack_into(form.head, changed, 0, *values, protocol, flags, inverted)
        found[protocol, inverted] = [match.xt() for match in decode_entry(TableEntry(data=bytes(changed)), form).matches]
    assert (found[6, 0], found[17, 0]) == (["-m tcp --dport 80"], ["-m udp --dport 80"])
    assert [one[:-1] for one in (found[6, 64], found[0, 0])] == [["! -p tcp"], []]
    assert found[6, 64][-1] == found[0, 0][-1] == "-m multiport"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("verdict", "target"), [(ACCEPTING, Accept()), (-1, Drop()), (RETURNING, Return()), (-4, UnknownTarget(text="verdict -4")), (-7, UnknownTarget(text="verdict -7"))])
def test_a_verdict_is_a_target_and_another_number_is_unknown(version, verdict, target):
    assert decode_entry(entry(version, verdict=verdict), ENTRY_FORMS[version]).target == target


@pytest.mark.parametrize("version", VERSIONS)
def test_a_jump_a_goto_and_a_rule_without_a_target_are_told_apart(version):
    form = ENTRY_FORMS[version]
    goto = {4: 2, 6: 4}[version]
    plain, flagged = headed(version), headed(version, flags=goto)
    assert decode_entry(plain.replace(chain="A"), form).target == Jump(chain="A")
    assert decode_entry(flagged.replace(chain="A"), form).target == Jump(chain="A", goto=True)
    assert decode_entry(plain.replace(chain=NEXT), form).target == Observe(text="")
    if version == 6:
        assert decode_entry(headed(6, flags=1).replace(chain="A"), form).target == Jump(chain="A")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_is_decoded_with_its_rules_counters_and_policies(version):
    form = ENTRY_FORMS[version]
    rule = entry(version, extension("comment", 0, b"why".ljust(256, b"\0")), name=b"a\0", mask=b"\xff\xff")
    chains = [
        EntryChain(name="INPUT", hook=1, entries=(rule, entry(version))), EntryChain(name="FORWARD", hook=2, entries=(entry(version, verdict=-1),)),
        EntryChain(name="OUTPUT", hook=3, entries=(entry(version, verdict=-4),)), EntryChain(name="A", hook=-1, entries=(rule, rule, entry(version, verdict=RETURNING))),
    ]  # fmt: skip
    table = join_table(LegacyTable(name="filter", version=version, valid_hooks=0b1110, hook_entries=(0,) * 5, entries=b""), chains)
    data = bytearray(table.entries)
    pack_into("=Q", data, form.counters, 77)
    found = decode_table(table.replace(entries=bytes(data)))
    assert [(one.name, one.policy, len(one.rules)) for one in found] == [("INPUT", "ACCEPT", 1), ("FORWARD", "DROP", 0), ("OUTPUT", "-4", 0), ("A", "", 2)]
    assert [one.packets for chain in found for one in chain.rules] == [77, 0, 0]
    (decoded,) = found[0].rules[0].rules
    assert (decoded.comment, [match.xt() for match in decoded.matches], decoded.target, decoded.families) == ("why", ["-i a"], Accept(), (form.family,))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_of_which_a_rule_cannot_be_decoded_is_refused_with_its_name(version):
    form = ENTRY_FORMS[version]
    chains = [EntryChain(name="INPUT", hook=1, entries=(entry(version, extension("comment", 0, bytes(256))), entry(version)))]
    table = join_table(LegacyTable(name="filter", version=version, valid_hooks=2, hook_entries=(0,) * 5, entries=b""), chains)
    data = bytearray(table.entries)
    pack_into("=H", data, form.header, 31)
    with pytest.raises(ValueError, match=rf"^legacy table filter: its entries are not understood: IndexError\('a match of 31 bytes at {form.header}'\)$"):
        decode_table(table.replace(entries=bytes(data)))


@pytest.mark.parametrize("version", VERSIONS)
def test_counters_of_a_table_that_is_cut_or_malformed_are_cleared_as_far_as_it_goes(version):
    form = ENTRY_FORMS[version]
    one, cleared = bytearray(entry(version).data), entry(version).data
    one[form.counters : form.counters + 16] = b"\7" * 16
    table = LegacyTable(name="filter", version=version, valid_hooks=2, hook_entries=(0,) * 5, entries=b"")
    short = bytearray(one)
    pack_into("=H", short, form.packet + 6, form.header - 1)
    cut = bytes(one[: form.header - 1])
    for entries, left in (
        (b"", b""), (cut, cut), (bytes(one[: form.header]), cleared[: form.header]), (bytes(one + one) + cut, cleared * 2 + cut),
        (bytes(short + one), bytes(short[: form.counters]) + bytes(16) + bytes(short[form.counters + 16 :] + one)),
    ):  # fmt: skip
        assert clear_counters(table.replace(entries=entries)).entries == left
