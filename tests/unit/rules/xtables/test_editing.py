"""Edits of legacy tables as blobs: what is foreign stays byte for byte, every offset leads where it led, and each edit has its inverse."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.snapshot import LegacyTable
from netinit.rules.structs import ACCEPTING, RETURNING
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    NEXT,
    EntryChain,
    TableEntry,
    extension,
    find_chains,
    make_entry,
    settle,
    split_table,
)
from netinit.rules.xtables.editing import ADDED, EditedTable, TableEdit
from rule_encodings import join_table

BUILTIN = {"INPUT": 1, "FORWARD": 2, "OUTPUT": 3}  # of filter, with their hooks
HOOKS = 0b1110
FOREIGN = ("AAA", "Docker", "ISTIO", "zz")
OURS = ("ISTIO_INBOUND", "ISTIO_OUTPUT", "ISTIO_REDIRECT")


def entry(version, verdict=0, chain="", size=0, tag=0):
    """A rule with a match of so many bytes and an interface named by its tag."""
    form = ENTRY_FORMS[version]
    match = extension("comment", 0, bytes(8 * size)) if size else b""
    head = pack("=I", tag).ljust(form.packet, b"\0")
    return TableEntry(data=make_entry(form, head, match, extension("", 0, pack("=ii", verdict, 0))), chain=chain)


@st.composite
def rules(draw, version, chains, most=5):
    found = []
    for _ in range(draw(st.integers(0, most))):
        chain = draw(st.sampled_from(("", "", NEXT, *chains)))
        verdict = 0 if chain else draw(st.sampled_from((ACCEPTING, RETURNING)))
        found.append(entry(version, verdict, chain, draw(st.integers(0, 4)), draw(st.integers(0, 3))))
    return tuple(found)


@st.composite
def tables(draw):
    """A table in which foreign chains, and perhaps some of ours, jump to each other; each entry has counters of its own."""
    version = draw(st.sampled_from((4, 6)))
    ours = draw(st.lists(st.sampled_from(OURS), unique=True))
    named = sorted([*draw(st.lists(st.sampled_from(FOREIGN), unique=True)), *ours])
    foreign = [name for name in named if name not in OURS]
    chains = [
        EntryChain(name=name, hook=hook, entries=(*draw(rules(version, named if hook >= 0 or name in OURS else foreign)), entry(version, end)))
        for name, hook, end in (*[(name, hook, ACCEPTING) for name, hook in BUILTIN.items()], *[(name, -1, RETURNING) for name in named])
    ]
    table = LegacyTable(version=version, name="filter", valid_hooks=HOOKS, hook_entries=(0,) * 5, entries=b"")
    return number_counters(join_table(table, chains))


def number_counters(table):
    """The table with the number of each entry as its packets, and bytes where a kernel keeps notes of its own."""
    form, data = ENTRY_FORMS[table.version], bytearray(table.entries)
    at = number = 0
    while at < len(data):
        data[at + form.counters : at + form.counters + 16] = pack("=2Q", number, 100 * number)
        data[at + form.packet : at + form.packet + 4] = pack("=I", number)
        at, number = at + unpack_from("=H", data, at + form.packet + 6)[0], number + 1
    return table.replace(entries=bytes(data))


@st.composite
def edits(draw, table):
    """An edit of our chains and of rules in built-in ones; what jumps to a chain that goes away is deleted."""
    chains = {chain.name: chain.entries[:-1] for chain in split_table(table)}
    wanted = draw(st.lists(st.sampled_from(OURS), unique=True))
    removed = tuple(name for name in chains if name in OURS and name not in wanted)
    made = {name: draw(rules(table.version, wanted)) for name in wanted}
    deleted = {
        name: [(index, one) for index, one in enumerate(chains[name]) if one.chain in removed or draw(st.integers(0, 3)) == 0] for name in BUILTIN
    }
    added = {}
    for name in BUILTIN:
        new = draw(rules(table.version, wanted, 3))
        inserted = draw(st.integers(0, len(new)))
        added[name] = [(at if at <= inserted else 0, one) for at, one in enumerate(new, 1)]
    return TableEdit(table="filter", chains=made, deleted=deleted, added=added, removed=removed)


def open_table(table):
    return EditedTable(table.version, table.valid_hooks, table.hook_entries, table.entries)


def counters_of(table):
    """What IPT_SO_SET_REPLACE returns of the old entries."""
    form, found, at = ENTRY_FORMS[table.version], [], 0
    while at < len(table.entries):
        found.append(table.entries[at + form.counters : at + form.counters + 16])
        at += unpack_from("=H", table.entries, at + form.packet + 6)[0]
    return b"".join(found)


def change(table, edit):
    """The table as the kernel holds it after an edit, counters included, and the inverse."""
    opened = open_table(table)
    inverse = opened.edit(edit)
    new = opened.write()
    changed = table.replace(hook_entries=new.offsets[:5], entries=new.entries)
    counters, data = new.count(counters_of(table)), bytearray(new.entries)
    form, at = ENTRY_FORMS[table.version], 0
    for number in range(len(new.sources)):
        data[at + form.counters : at + form.counters + 16] = counters[16 * number :][:16]
        at += unpack_from("=H", data, at + form.packet + 6)[0]
    assert at == len(data)
    return changed.replace(entries=bytes(data)), inverse, new


@given(tables())
def test_a_table_without_a_change_is_written_as_it_was(table):
    opened = open_table(table)
    new = opened.write()
    assert (new.entries, new.offsets[1:4]) == (table.entries, table.hook_entries[1:4])
    assert new.sources == tuple(range(opened.size))


@given(st.data())
def test_an_edit_changes_what_it_names_and_its_inverse_gives_the_same_bytes_again(data):
    table = data.draw(tables())
    edit = data.draw(edits(table))
    changed, inverse, new = change(table, edit)
    before, after = ({chain.name: chain.entries for chain in split_table(one)} for one in (table, changed))
    assert set(after) == set(before) - set(edit.removed) | set(edit.chains)
    for name in FOREIGN:
        assert after.get(name) == before.get(name)
    for name, wanted in edit.chains.items():
        assert after[name] == (*wanted, entry(table.version, RETURNING))
    for name in BUILTIN:
        kept = [one for index, one in enumerate(before[name][:-1]) if (index, one) not in edit.deleted[name]]
        heads = [one for at, one in edit.added[name] if at]
        assert list(after[name][:-1]) == [*heads, *kept, *[one for at, one in edit.added[name] if not at]]
        assert before[name][-1] == after[name][-1]
    ends = [new.offsets[5 + hook] for hook in BUILTIN.values()]
    assert all(unpack_from("=i", changed.entries, end + ENTRY_FORMS[table.version].header + 32)[0] == ACCEPTING for end in ends)
    assert change(changed, inverse)[0].entries == ends_made_anew(table, edit)


def ends_made_anew(table, edit):
    """The table, but for what ends our chains, which an edit makes anew: without counters and notes."""
    form, data = ENTRY_FORMS[table.version], bytearray(table.entries)
    for name, hook, start, places in find_chains(table.version, table.valid_hooks, table.hook_entries, table.entries)[0]:
        if hook < 0 and (name in edit.chains or name in edit.removed):
            for at in (places[-1], *([start] if name in edit.removed else [])):
                data[at + form.counters : at + form.counters + 16] = bytes(16)
                data[at + form.packet : at + form.packet + 4] = bytes(4)
    return bytes(data)


@given(st.data())
def test_counters_stay_with_their_entries(data):
    table = data.draw(tables())
    changed, _, new = change(table, data.draw(edits(table)))
    form = ENTRY_FORMS[table.version]
    at = 0
    for source in new.sources:
        packets, note = (unpack_from("=Q", changed.entries, at + form.counters)[0], unpack_from("=I", changed.entries, at + form.packet)[0])
        assert (packets, note) == ((0, 0) if source == ADDED else (source, source))
        at += unpack_from("=H", changed.entries, at + form.packet + 6)[0]


@given(tables(), st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_damaged_table_is_refused_or_read_but_never_more(table, randomness, times):
    data = bytearray(table.entries)
    for _ in range(times):
        data[randomness.randrange(len(data))] = randomness.choice((0, 1, 255, randomness.randrange(256)))
    cut = bytes(data[: randomness.choice((len(data), randomness.randrange(len(data) + 1)))])
    try:
        opened = open_table(table.replace(entries=cut))
        new = opened.write()
    except ValueError:
        return
    assert len(new.entries) == len(cut)


def small(*chains, hooks=HOOKS):
    made = [EntryChain(name=name, hook=hook, entries=(entry(4, ACCEPTING),)) for name, hook in BUILTIN.items() if hooks >> hook & 1]
    table = LegacyTable(version=4, name="filter", valid_hooks=hooks, hook_entries=(0,) * 5, entries=b"")
    return join_table(table, [*made, *[EntryChain(name=name, hook=-1, entries=(*some, entry(4, RETURNING))) for name, some in chains]])


NOTHING = TableEdit(table="filter", chains={}, deleted={}, added={}, removed=())


@pytest.mark.parametrize(
    ("table", "edit", "why"),
    [
        (small(("A", ()), ("A", ())), NOTHING, "two chains are named 'A'"),
        (small(("OUTPUT", ())), NOTHING, "two chains are named 'OUTPUT'"),
        (small().replace(hook_entries=(0, 0, 0, 0, 0)), NOTHING, "its hooks share an entry, or are not in their order"),
        (small(), NOTHING.replace(deleted={"OUTPUT": [(2, entry(4, ACCEPTING))]}), "rule 3 of OUTPUT has changed meanwhile"),
        (small(), NOTHING.replace(added={"PREROUTING": [(1, entry(4, ACCEPTING))]}), "it has no chain PREROUTING"),
        (small(("A", (entry(4, 0, "ISTIO_OUTPUT"),)), ("ISTIO_OUTPUT", ())), NOTHING.replace(removed=("ISTIO_OUTPUT",)), "rule 1 of A jumps to ISTIO_OUTPUT"),
        (small(), NOTHING.replace(chains={"ISTIO_OUTPUT": [entry(4, 0, "A")]}), "a rule jumps to A, which is not there"),
    ],
)
def test_what_cannot_be_edited_says_why(table, edit, why):
    with pytest.raises(ValueError, match=why):
        change(table, edit)


@pytest.mark.parametrize(("index", "number"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, 3), (5, 3), (9, 3)])
def test_of_equal_rules_the_one_next_to_where_ours_was_is_deleted(index, number):
    rule, other = entry(4, ACCEPTING, size=1), entry(4, RETURNING)
    edited = open_table(small())
    edited.edit(NOTHING.replace(added={"OUTPUT": [(0, one) for one in (rule, other, rule, other, other)]}))
    assert edited.edit(NOTHING.replace(deleted={"OUTPUT": [(index, rule)]})).added == {"OUTPUT": ((number, rule),)}


def test_new_chains_stand_where_iptables_sorts_them():
    edited = open_table(small(("A", ()), ("J", ()), ("a", ())))
    edited.edit(NOTHING.replace(chains=dict.fromkeys(("ISTIO_OUTPUT", "ISTIO_INBOUND"), ())))
    new = edited.write()
    names = [chain.name for chain in split_table(small().replace(hook_entries=new.offsets[:5], entries=new.entries))]
    assert names[3:] == ["A", "ISTIO_INBOUND", "ISTIO_OUTPUT", "J", "a"]


# --- what an edit returns, and what cannot be opened -------------------------------------------------------------------


def reopen(edited):
    """The table as it is opened for the next edit."""
    new = edited.write()
    return open_table(small().replace(hook_entries=new.offsets[:5], entries=new.entries))


def settled(edit):
    """The edit with entries as a plan has them: without offsets of jumps."""

    def bare(one):
        return one.replace(data=settle(one.data, ENTRY_FORMS[4], one.chain))

    chains = {name: tuple(map(bare, rules)) for name, rules in edit.chains.items()}
    deleted, added = ({name: tuple([(at, bare(one)) for at, one in rules]) for name, rules in placed.items()} for placed in (edit.deleted, edit.added))
    return edit.replace(chains=chains, deleted=deleted, added=added)


def test_an_edit_returns_the_edit_that_undoes_it_with_indexes_for_positions():
    to_a = entry(4, 0, "A")
    jump, other, new = entry(4, 0, "ISTIO_OUTPUT"), entry(4, RETURNING, tag=1), entry(4, 0, "ISTIO_INBOUND", tag=2)
    edited = open_table(small(("ISTIO_OUTPUT", (other, to_a)), ("A", (other,))))
    assert (edited.rules, edited.size) == (3, 3 + 2 * 2 + 3 + 1), "rules, names and ends of chains, and the end of the table"
    first = edited.edit(NOTHING.replace(added={"OUTPUT": [(1, jump), (2, other), (0, jump)]}))
    assert first == NOTHING.replace(deleted={"OUTPUT": ((0, jump), (1, other), (2, jump))})
    assert edited.rules == 6
    edited = reopen(edited)
    change = TableEdit(
        table="nat", chains={"ISTIO_INBOUND": [other], "A": [other, other]}, deleted={"OUTPUT": [(0, jump), (2, jump)], "INPUT": []}, added={"OUTPUT": [(1, new), (0, other)], "FORWARD": ()}, removed=("ISTIO_OUTPUT",),
    )  # fmt: skip
    back = edited.edit(change)
    assert settled(back) == TableEdit(
        table="nat", chains={"A": (other,), "ISTIO_OUTPUT": (other, to_a)}, deleted={"OUTPUT": ((0, new), (2, other)), "FORWARD": ()},
        added={"OUTPUT": ((1, jump), (3, jump)), "INPUT": ()}, removed=("ISTIO_INBOUND",),
    )  # fmt: skip
    again = settled(reopen(edited).edit(back))
    assert again.chains == {"A": (other, other), "ISTIO_INBOUND": (other,)}
    assert (again.removed, again.deleted, again.added) == (("ISTIO_OUTPUT",), {"OUTPUT": ((0, jump), (2, jump)), "INPUT": ()}, {"OUTPUT": ((1, new), (3, other)), "FORWARD": ()})


def test_an_edit_of_nothing_undoes_nothing_and_may_name_chains_that_are_not_there():
    edited = open_table(small())
    assert edited.edit(NOTHING.replace(deleted={"PREROUTING": []}, added={"PREROUTING": ()})) == NOTHING.replace(deleted={"PREROUTING": ()}, added={"PREROUTING": ()})
    assert edited.rules == 0
    with pytest.raises(ValueError, match=r"^rule 1 of PREROUTING has changed meanwhile$"):
        edited.edit(NOTHING.replace(deleted={"PREROUTING": [(0, entry(4, ACCEPTING))]}))


@pytest.mark.parametrize("wanted", [entry(4, ACCEPTING, size=1), entry(4, RETURNING, size=2), entry(4, ACCEPTING, tag=1, size=2), entry(4, 0, "A", size=2), entry(4, 0, NEXT, size=2)])
def test_a_rule_that_differs_in_anything_is_not_the_one_to_delete(wanted):
    edited = open_table(small(("A", ())))
    edited.edit(NOTHING.replace(added={"OUTPUT": [(0, entry(4, ACCEPTING, size=2))]}))
    with pytest.raises(ValueError, match=r"^rule 1 of OUTPUT has changed meanwhile$"):
        edited.edit(NOTHING.replace(deleted={"OUTPUT": [(0, wanted)]}))
    edited.edit(NOTHING.replace(deleted={"OUTPUT": [(0, entry(4, ACCEPTING, size=2))]}))
    assert edited.rules == 0


def test_each_of_equal_rules_is_deleted_once():
    one = entry(4, ACCEPTING, size=1)
    edited = open_table(small())
    edited.edit(NOTHING.replace(added={"OUTPUT": [(0, one)] * 2}))
    with pytest.raises(ValueError, match=r"^rule 6 of OUTPUT has changed meanwhile$"):
        edited.edit(NOTHING.replace(deleted={"OUTPUT": [(0, one), (0, one), (5, one)]}))


def test_a_rule_of_a_chain_that_is_deleted_may_jump_to_the_chain_itself():
    edited = open_table(small(("ISTIO_OUTPUT", (entry(4, RETURNING), entry(4, 0, "ISTIO_OUTPUT")))))
    edited.edit(NOTHING.replace(removed=("ISTIO_OUTPUT",)))
    jumping = open_table(small(("A", (entry(4, RETURNING), entry(4, 0, "ISTIO_OUTPUT"))), ("ISTIO_OUTPUT", ())))
    with pytest.raises(ValueError, match=r"^rule 2 of A jumps to ISTIO_OUTPUT$"):
        jumping.edit(NOTHING.replace(removed=("ISTIO_OUTPUT",)))


def nameless(table):
    """The table without the end of its last chain, so that a name is followed by the table's end."""
    (*_, (_, _, _, places)), _ = find_chains(4, table.valid_hooks, table.hook_entries, table.entries)
    assert len(places) == 1
    return table.replace(entries=table.entries[: places[0]] + table.entries[places[0] + len(entry(4, RETURNING).data) :])


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (small().replace(entries=small().entries[:-1]), "its entries are not understood: IndexError("), (small().replace(entries=b""), "its entries are not understood: error("),
        (nameless(small(("A", ()))), "its entries are not understood: IndexError(\"the chain 'A' has no end\")"), (small(("A", ()), ("A", ())), "its entries are not understood: IndexError(\"two chains are named 'A'\")"),
        (small().replace(valid_hooks=0b1111), "its hooks share an entry, or are not in their order"),
        (small().replace(hook_entries=(0, 152, 0, 304, 0)), "its hooks share an entry, or are not in their order"),
    ],
)  # fmt: skip
def test_a_table_that_iptables_does_not_make_is_not_opened(table, why):
    with pytest.raises(ValueError) as refusal:
        open_table(table)
    assert str(refusal.value).startswith(why)


@pytest.mark.parametrize("version", [4, 6])
def test_a_written_table_says_where_each_hook_begins_and_where_its_policy_stands(version):
    form, size = ENTRY_FORMS[version], len(entry(version, ACCEPTING).data)
    rule = entry(version, RETURNING, size=1)
    made = [EntryChain(name=name, hook=hook, entries=(*[rule] * hook, entry(version, ACCEPTING))) for name, hook in BUILTIN.items()]
    table = join_table(LegacyTable(version=version, name="filter", valid_hooks=HOOKS, hook_entries=(0,) * 5, entries=b""), made)
    new = open_table(table).write()
    long = len(rule.data)
    assert new.offsets == (0, 0, long + size, 3 * long + 2 * size, 0, 0, long, 3 * long + size, 6 * long + 2 * size, 0)
    assert (new.form, new.sources, new.entries) == (form, tuple(range(10)), table.entries)


# --- whole tables, byte for byte --------------------------------------------------------------------------------------

OF_NAT = {"PREROUTING": 0, "INPUT": 1, "OUTPUT": 3, "POSTROUTING": 4}


def nat(version, chains, **rules):
    """The table nat, whose first hook is number 0, with rules in built-in chains, and other chains."""
    made = [EntryChain(name=name, hook=hook, entries=(*rules.get(name, ()), entry(version, ACCEPTING))) for name, hook in OF_NAT.items()]
    table = LegacyTable(version=version, name="nat", valid_hooks=0b11011, hook_entries=(0,) * 5, entries=b"")
    return join_table(table, [*made, *[EntryChain(name=name, hook=-1, entries=(*some, entry(version, RETURNING))) for name, some in chains.items()]])


@pytest.mark.parametrize("version", [4, 6])
def test_an_edit_makes_the_table_that_iptables_would_have_made(version):
    first, second, jump = entry(version, RETURNING, tag=1), entry(version, 0, "A", size=3), entry(version, 0, "ISTIO_OUTPUT")
    old = nat(version, {"A": (first,), "ISTIO_LOG": (), "J": (), "\udcffZ": (first,)}, PREROUTING=[second, first], POSTROUTING=[first])
    new = nat(version, {"A": (first,), "ISTIO_INBOUND": (), "ISTIO_OUTPUT": (first, entry(version, 0, NEXT)), "J": (), "\udcffB": (first,), "\udcffZ": (first,)}, PREROUTING=[jump, first], OUTPUT=[jump], POSTROUTING=[first, jump])
    edited = open_table(old)
    back = edited.edit(
        NOTHING.replace(
            chains={"ISTIO_OUTPUT": (first, entry(version, 0, NEXT)), "ISTIO_INBOUND": (), "\udcffB": (first,)}, deleted={"PREROUTING": [(0, second)]}, added={"PREROUTING": [(1, jump)], "OUTPUT": [(0, jump)], "POSTROUTING": [(0, jump)]}, removed=("ISTIO_LOG",),
        )
    )  # fmt: skip
    made = edited.write()
    assert made.entries == new.entries
    assert (made.offsets[:2], made.offsets[3:5]) == (new.hook_entries[:2], new.hook_entries[3:])
    assert made.sources[:3] == (ADDED, 1, 2), "the rule that was deleted was number 0"
    again = EditedTable(version, new.valid_hooks, new.hook_entries, made.entries)
    again.edit(back)
    assert again.write().entries == old.entries


@pytest.mark.parametrize("version", [4, 6])
def test_counters_are_those_that_the_kernel_had_when_the_table_was_replaced_and_those_that_an_entry_brings_along(version):
    form = ENTRY_FORMS[version]
    brought = bytearray(entry(version, RETURNING, tag=7).data)
    brought[form.counters : form.counters + 16] = pack("=2Q", 1000, 2000)
    edited = open_table(nat(version, {}, PREROUTING=[entry(version, RETURNING, tag=1), entry(version, RETURNING, tag=2, size=2)]))
    edited.edit(NOTHING.replace(deleted={"PREROUTING": [(1, entry(version, RETURNING, tag=2, size=2))]}, added={"PREROUTING": [(0, TableEntry(data=bytes(brought)))]}))
    held = b"".join([pack("=2Q", number, number * 5) for number in range(10, 10 + edited.size)])
    assert unpack_from(f"={2 * 7}Q", edited.write().count(held)) == (10, 50, 1000, 2000, 12, 60, 13, 65, 14, 70, 15, 75, 16, 80)
