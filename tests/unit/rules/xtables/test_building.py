"""Entries of legacy tables as bytes: where the kernel's structs have each field, and which blobs are no table."""

from __future__ import annotations

from struct import error, pack, pack_into

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6, number_of
from netinit.base.snapshot import LegacyTable
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import unfold_rule
from netinit.rules.structs import ACCEPTING, DROPPING, RETURNING
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    NEXT,
    EntryChain,
    TableEntry,
    encode_rule,
    extension,
    find_chains,
    list_extensions,
    make_entry,
    make_return,
    name_at,
    settle,
    split_table,
    verdict_of,
)
from netinit.rules.xtables.decoded_tables import clear_counters, decode_entry, decode_table
from netinit.rules.xtables.editing import EditedTable
from rule_encodings import join_table

# Offsets and sizes in struct ipt_entry and ip6t_entry (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h)
PLACES = {
    4: {"source": 0, "destination": 4, "source mask": 8, "destination mask": 12, "in": 16, "out": 32, "in mask": 48, "out mask": 64, "protocol": 80, "flags": 82, "inverted": 83, "sizes": 88, "counters": 96, "end": 112},
    6: {"source": 0, "destination": 16, "source mask": 32, "destination mask": 48, "in": 64, "out": 80, "in mask": 96, "out mask": 112, "protocol": 128, "flags": 131, "inverted": 132, "sizes": 140, "counters": 152, "end": 168},
}  # fmt: skip
VERSIONS = sorted(PLACES)
FORM = ENTRY_FORMS[4]


def encode(text, family=IPV4, comment=""):
    rule = parse_rule(text, family)
    (written,) = unfold_rule(rule, family)
    return encode_rule(written.matches, rule.target, family, comment)


def head(version, **fields):
    """The head of an entry, with these bytes at the places of the fields."""
    data = bytearray(PLACES[version]["end"])
    for name, value in fields.items():
        at = PLACES[version][name.replace("_", " ")]
        data[at : at + len(value)] = value
    return bytes(data)


TEN, MASK = number_of("10.0.0.0").to_bytes(4, "big"), b"\xff\0\0\0"
SIX, SIX_MASK = number_of("fd00::").to_bytes(16, "big"), b"\xff" + bytes(15)
HEADS = [
    ("-s 10.0.0.0/8", 4, {"source": TEN, "source_mask": MASK}), ("! -s 10.0.0.0/8", 4, {"source": TEN, "source_mask": MASK, "inverted": b"\x08"}),
    ("-d 10.0.0.0/8", 4, {"destination": TEN, "destination_mask": MASK}), ("! -d 10.0.0.0/8", 4, {"destination": TEN, "destination_mask": MASK, "inverted": b"\x10"}),
    ("-d 10.0.0.0", 4, {"destination": TEN, "destination_mask": b"\xff" * 4}), ("-s fd00::/8", 6, {"source": SIX, "source_mask": SIX_MASK}),
    ("! -d fd00::/8", 6, {"destination": SIX, "destination_mask": SIX_MASK, "inverted": b"\x10"}), ("-d fd00::", 6, {"destination": SIX, "destination_mask": b"\xff" * 16}),
    *[one for version in VERSIONS for one in (
        ("-i eth0", version, {"in": b"eth0", "in_mask": b"\xff" * 5}), ("! -i eth0", version, {"in": b"eth0", "in_mask": b"\xff" * 5, "inverted": b"\x01"}),
        ("-o eth+", version, {"out": b"eth+", "out_mask": b"\xff" * 3}), ("! -o eth0", version, {"out": b"eth0", "out_mask": b"\xff" * 5, "inverted": b"\x02"}),
        ("-i abcdefghijklmno -o a", version, {"in": b"abcdefghijklmno", "in_mask": b"\xff" * 16, "out": b"a", "out_mask": b"\xff" * 2}),
        ("-i \udcff", version, {"in": b"\xff", "in_mask": b"\xff" * 2}),
    )],
    ("-p tcp", 4, {"protocol": b"\6\0"}), ("! -p udp", 4, {"protocol": b"\x11\0", "inverted": b"\x40"}), ("-p tcp", 6, {"protocol": b"\6\0", "flags": b"\1"}), ("! -p 250", 6, {"protocol": b"\xfa\0", "flags": b"\1", "inverted": b"\x40"}),
    ("! -s 10.0.0.0/8 ! -i a ! -p tcp", 4, {"source": TEN, "source_mask": MASK, "in": b"a", "in_mask": b"\xff" * 2, "protocol": b"\6\0", "inverted": b"\x49"}), ("", 4, {}), ("", 6, {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "version", "fields"), HEADS)
def test_what_iptables_itself_asks_stands_in_the_head_where_the_kernel_has_it(text, version, fields):
    family = IPV4 if version == 4 else IPV6
    size = PLACES[version]["end"]
    expected = bytearray(head(version, **fields))
    pack_into("=2H", expected, PLACES[version]["sizes"], size, size + 40)
    entry = encode(f"{text} -j ACCEPT", family)
    assert entry.data == bytes(expected) + pack("=H29sB", 40, b"", 0) + pack("=ii", ACCEPTING, 0)
    assert (entry.chain, entry.packets) == ("", 0)
    assert verdict_of(entry, ENTRY_FORMS[version]) == ACCEPTING


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize(
    ("text", "verdict", "chain", "flag"),
    [
        ("-j ACCEPT", -2, "", {4: 0, 6: 0}), ("-j DROP", -1, "", {4: 0, 6: 0}), ("-j RETURN", -5, "", {4: 0, 6: 0}), ("-j ISTIO_OUTPUT", 0, "ISTIO_OUTPUT", {4: 0, 6: 0}), ("-g THEIRS", 0, "THEIRS", {4: 2, 6: 4}),
        ("", 0, NEXT, {4: 0, 6: 0}),
    ],
)  # fmt: skip
def test_a_verdict_is_a_number_and_a_jump_its_chain_with_a_flag_for_goto(family, text, verdict, chain, flag):
    entry = encode(text, family)
    assert (verdict_of(entry, ENTRY_FORMS[family.version]), entry.chain) == (verdict, chain)
    assert entry.data[PLACES[family.version]["flags"]] == flag[family.version]
    assert [name for name, _, _ in list_extensions(entry, ENTRY_FORMS[family.version])] == [""]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_extensions_follow_in_order_with_their_structs_the_comment_behind_them_and_the_target_last(family):
    entry = encode("-p tcp -m mark --mark 5 -m tcp --sport 1 --dport 2 -j MARK --set-mark 7", family, "why")
    form, size = ENTRY_FORMS[family.version], PLACES[family.version]["end"]
    found = list(list_extensions(entry, form))
    assert [(name, revision, len(info)) for name, revision, info in found] == [("mark", 1, 16), ("tcp", 0, 16), ("comment", 0, 256), ("MARK", 2, 8)]
    assert found[2][2] == b"why".ljust(256, b"\0")
    assert found[3][2] == pack("=2I", 7, 0xFFFFFFFF)
    sizes = [32 + len(info) for _, _, info in found]
    assert entry.data[PLACES[family.version]["sizes"] :][:4] == pack("=2H", size + sum(sizes[:3]), len(entry.data)) == pack("=2H", size + sum(sizes[:3]), size + sum(sizes))
    assert entry.data[size : size + 2] == pack("=H", 48)
    assert "comment" not in [name for name, _, _ in list_extensions(encode("-p tcp -m mark --mark 5 -j ACCEPT", family), form)]


@pytest.mark.parametrize(
    "text",
    [
        "-s 10.0.0.0/8 -j ACCEPT", "! -s 10.0.0.0/8 ! -d 192.0.2.1/32 ! -i eth0 ! -o eth+ ! -p tcp -j DROP", "-i abcdefghijklmno -o a+ -j RETURN", "-p udp -g THEIRS", "-p sctp", "",
        "-p tcp -m tcp --sport 1:5 ! --dport 2 -m owner ! --uid-owner 5 -j REDIRECT --to-ports 15001", "-p udp -m multiport --dports 1,5:7 -j X", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ],
)  # fmt: skip
def test_what_is_encoded_is_decoded_as_it_was(text):
    rule, entry = parse_rule(text, IPV4), encode(text, comment="so")
    found = decode_entry(entry, FORM)
    assert (found.matches, found.target, found.comment, found.families) == (rule.matches, rule.target, "so", (IPV4,))
    assert encode_rule(unfold_rule(found, IPV4)[0].matches, found.target, IPV4, "so") == entry


@pytest.mark.parametrize("text", ["-m set --match-set x src -j ACCEPT", "-m x -j ACCEPT", "-j X --y", "-j REDIRECT --to-ports 1-9"])
def test_what_is_not_understood_has_no_entry(text):
    with pytest.raises(ValueError, match=r"not understood|no match"):
        encode(text)


# --- whole tables -----------------------------------------------------------------------------------------------------


def entry(verdict=ACCEPTING, chain="", tag=0, form=FORM):
    return TableEntry(data=make_entry(form, bytes([tag]).ljust(form.packet, b"\0"), b"", extension("", 0, pack("=ii", verdict, 0))), chain=chain)


def table(*chains, version=4, hooks=0b01000):
    return join_table(LegacyTable(name="mine", version=version, valid_hooks=hooks, hook_entries=(0,) * 5, entries=b""), chains)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_is_split_into_its_chains_with_their_hooks_and_ends(version):
    form = ENTRY_FORMS[version]
    chains = (
        EntryChain(name="PREROUTING", hook=0, entries=(entry(0, "A", 1, form), entry(ACCEPTING, form=form))), EntryChain(name="OUTPUT", hook=3, entries=(entry(0, NEXT, 2, form), entry(0, "\udcffB", 3, form), entry(DROPPING, form=form))),
        EntryChain(name="A", hook=-1, entries=(entry(RETURNING, form=form),)), EntryChain(name="\udcffB", hook=-1, entries=(entry(0, "A", 4, form), entry(RETURNING, form=form))),
    )  # fmt: skip
    held = table(*chains, version=version, hooks=0b01001)
    assert split_table(held) == chains
    numbered = bytearray(held.entries)
    pack_into("=Q", numbered, PLACES[version]["counters"], 1 << 40)
    assert split_table(held.replace(entries=bytes(numbered)))[0].entries[0].packets == 1 << 40
    assert make_return(form) == entry(RETURNING, form=form).data
    found, starts = find_chains(version, held.valid_hooks, held.hook_entries, held.entries)
    assert [(name, hook, len(places)) for name, hook, _, places in found] == [("PREROUTING", 0, 2), ("OUTPUT", 3, 3), ("A", -1, 1), ("\udcffB", -1, 2)]
    assert starts == {found[2][3][0]: "A", found[3][3][0]: "\udcffB"}
    assert [start for _, _, start, _ in found[:2]] == [0, held.hook_entries[3]]


def test_a_hook_that_the_table_does_not_have_begins_no_chain():
    held = table(EntryChain(name="OUTPUT", hook=3, entries=(entry(tag=1), entry())))
    assert [chain.name for chain in split_table(held.replace(hook_entries=(152, 152, 152, 0, 152)))] == ["OUTPUT"]
    assert [chain.name for chain in split_table(held.replace(hook_entries=(152, 152, 152, 0, 152), valid_hooks=0b11000))] == ["OUTPUT", "POSTROUTING"]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((111, 152), "an entry of 152 bytes at 0"), ((112, 143), "an entry of 143 bytes at 0"), ((113, 144), "an entry of 144 bytes at 0"), ((0, 152), "an entry of 152 bytes at 0"),
        ((112, 1000), "an entry of 1000 bytes at 0"), ((112, 0), "an entry of 0 bytes at 0"), ((112, 470), None),
    ],
)  # fmt: skip
def test_an_entry_that_is_shorter_than_its_parts_or_longer_than_the_table_is_none(sizes, told):
    held = table(EntryChain(name="OUTPUT", hook=3, entries=(entry(tag=1), entry())))
    changed = bytearray(held.entries)
    pack_into("=2H", changed, 88, *sizes)
    with pytest.raises((IndexError, error)) as refusal:
        find_chains(4, held.valid_hooks, held.hook_entries, bytes(changed))
    assert told is None or str(refusal.value) == told
    with pytest.raises(ValueError, match=f"^legacy table mine: its entries are not understood: .*{told or ''}"):
        split_table(held.replace(entries=bytes(changed)))


@pytest.mark.parametrize("end", [entry(ACCEPTING), entry(DROPPING), entry(RETURNING, tag=1), None])
def test_a_chain_that_ends_otherwise_than_iptables_ends_it_is_refused(end):
    mine = EntryChain(name="MINE", hook=-1, entries=(entry(RETURNING), *([end] if end else [])))
    held = table(EntryChain(name="OUTPUT", hook=3, entries=(entry(),)), mine if end else mine.replace(entries=()))
    with pytest.raises(ValueError, match=r"^legacy table mine: the chain 'MINE' does not end with a return, as iptables ends it$"):
        split_table(held)


@pytest.mark.parametrize(("verdict", "is_read"), [(152, True), (304, False), (0, False), (1, False), (1 << 20, False), (-7, True), (480, True)])
def test_a_jump_leads_to_the_first_entry_of_a_chain_or_to_the_next(verdict, is_read):
    held = table(EntryChain(name="OUTPUT", hook=3, entries=(entry(tag=1), entry(tag=2))), EntryChain(name="A", hook=-1, entries=(entry(RETURNING),)))
    changed = bytearray(held.entries)
    pack_into("=i", changed, 144, verdict)
    held = held.replace(entries=bytes(changed))
    if not is_read:
        with pytest.raises(ValueError, match=f"not understood: .*a jump to {verdict}, where no chain begins"):
            split_table(held)
        return
    first = split_table(held)[0].entries[0]
    assert first.chain == {152: NEXT, -7: "", 480: "A"}[verdict]
    assert verdict_of(first, FORM) == min(verdict, 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chain", ["", "A"])
def test_what_the_kernel_or_the_place_decides_is_zero_and_nothing_else_changes(version, chain):
    form, places = ENTRY_FORMS[version], PLACES[version]
    full = bytearray(b"\xee" * (places["end"] + 48))
    pack_into("=2H", full, places["sizes"], places["end"] + 8, len(full))
    settled = settle(bytes(full), form, chain)
    zeros = {*range(form.packet, form.packet + 4), *range(places["sizes"] + 4, places["end"])} | (set(range(places["end"] + 40, places["end"] + 44)) if chain else set())
    assert {at for at, (old, new) in enumerate(zip(full, settled, strict=True)) if old != new} == zeros
    assert all(not settled[at] for at in zeros)


def test_the_name_of_an_extension_ends_at_its_first_zero_or_with_its_field():
    assert name_at(b"xx" + extension("tcp", 3, b"info"), 2) == "tcp"
    assert name_at(extension("a" * 29, 255, b""), 0) == "a" * 29
    assert name_at(pack("=H29sB", 32, b"\xff\0rest", 1), 0) == "\udcff"


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_are_equal_by_their_bytes_and_the_chain_that_they_jump_to(version):
    one = entry(form=ENTRY_FORMS[version])
    assert one == one.replace(packets=5)
    assert one != one.replace(chain="A")
    assert one != one.replace(data=one.data[:-1] + b"\1")


@pytest.mark.parametrize("problem", ["size", "end"])
def test_a_match_that_does_not_fit_says_where_it_is(problem):
    whole = make_entry(FORM, bytes(FORM.packet), extension("mark", 1, bytes(16)), extension("", 0, pack("=ii", RETURNING, 0)))
    size = 31 if problem == "size" else 49
    changed = bytearray(whole)
    pack_into("=H", changed, 112, size)
    with pytest.raises(IndexError, match=f"^a match of {size} bytes at 112$"):
        list(list_extensions(TableEntry(data=bytes(changed)), FORM))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize(
    ("text", "name"),
    [("-p tcp -j REDIRECT --to-ports 15001", "REDIRECT"), ("-p tcp -j TPROXY --on-port 1 --tproxy-mark 2", "TPROXY"), ("-j REJECT", "REJECT"), ("-j MARK --set-mark 1", "MARK"), ("-j CT --notrack", "CT")],
)
def test_an_entry_whose_target_is_an_extension_jumps_to_no_chain_and_is_read_as_it_was_written(family, text, name):
    one, form = encode(text, family), ENTRY_FORMS[family.version]
    assert one.chain == ""
    assert [found for found, _, _ in list_extensions(one, form)] == [name]
    assert decode_entry(one, form).target == parse_rule(text, family).target


def test_the_order_of_matches_makes_no_difference_to_the_head():
    rule = parse_rule("-s 10.0.0.0/8 -i a -p tcp -m mark --mark 1 -j RETURN", IPV4)
    assert encode_rule(rule.matches[::-1], rule.target, IPV4) == encode_rule(rule.matches, rule.target, IPV4)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_entry_may_be_as_long_as_its_sizes_can_say(version):
    form = ENTRY_FORMS[version]
    long = [extension("x", 1, b"\5" * size) for size in (33_000, 31_000)]
    rules = [
        TableEntry(data=make_entry(form, bytes(form.packet), b"".join(long), extension("", 0, pack("=ii", 0, 0))), chain="A"),
        TableEntry(data=make_entry(form, bytes(form.packet), b"", extension("y", 2, b"\7" * 40_000))),
    ]  # fmt: skip
    assert [one[:2] for one in list_extensions(rules[0], form)] == [("x", 1), ("x", 1), ("", 0)]
    assert [len(info) for _, _, info in (*list_extensions(rules[0], form), *list_extensions(rules[1], form))] == [33_000, 31_000, 8, 40_000]
    chains = (EntryChain(name="OUTPUT", hook=3, entries=(*rules, entry(form=form))), EntryChain(name="A", hook=-1, entries=(entry(RETURNING, form=form),)))
    held = table(*chains, version=version)
    assert split_table(held) == chains
    assert verdict_of(split_table(held)[0].entries[0], form) == 0
    counted = bytearray(held.entries)
    for chain in find_chains(version, held.valid_hooks, held.hook_entries, held.entries)[0]:
        for at in chain[3]:
            pack_into("=Q", counted, at + PLACES[version]["counters"], 1)
    counted_table = held.replace(entries=bytes(counted))
    assert decode_table(counted_table)[0].rules[1].packets == 1
    assert decode_table(clear_counters(counted_table)) == decode_table(held)
    opened = EditedTable(version, held.valid_hooks, held.hook_entries, held.entries)
    assert (opened.write().entries, opened.write().offsets[:5]) == (held.entries, held.hook_entries)
    assert opened.write().count(bytes(16 * opened.size)) == bytes(16 * opened.size)
