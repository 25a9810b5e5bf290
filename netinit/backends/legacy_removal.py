"""Delete our rules of legacy tables without decoding foreign ones.

Our chains are known by name, and so are the rules that jump to them. Other rules in built-in chains are ours if they have the
bytes of the plan's. What is left there is foreign if no layout has such a target in this table; otherwise all rules are
decoded, since other options may have made it.
"""

from __future__ import annotations

from _struct import unpack_from

from netinit.backends import Change
from netinit.backends.legacy_edits import find_edits, make_change
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import BUILTIN_CHAINS, FILTER, MANGLE, NAT, OWNED_CHAINS
from netinit.rules.structs import RETURNING
from netinit.rules.xtables.building import ENTRY_FORMS, encode_plan, name_at, verdict_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netinit.backends import State
    from netinit.backends.encoded_rules import EncodedLegacy
    from netinit.rules.iptables.ownership import Owned
    from netinit.rules.iptables.write import WrittenChain
    from netinit.rules.model import Plan
    from netinit.rules.xtables.building import EntryForm, TableEntry

# Targets of rules that a layout has in built-in chains, but for jumps to our chains: one of each run of such rules
OWN_TARGETS = {MANGLE: ("RETURN", "MARK", "CONNMARK"), NAT: ("RETURN",), FILTER: ("REJECT",)}


def find_removal(state: State, live: Sequence[EncodedLegacy], plan: Plan, decode: Callable[[], Change]) -> Change:
    """Return the deletion of every rule of ours; `decode` finds it by decoding all rules.

    Raises ApplyError if foreign rules jump to our chains.
    """
    edits = {}
    for one in live:
        owned = _find_owned(one, plan, comments=state.comments)
        if owned is None:
            return decode()
        edits[one.family] = find_edits((), one.rules, owned)
    return make_change(lambda _: edits, state, plan)


def _find_owned(live: EncodedLegacy, plan: Plan, *, comments: bool) -> Owned | None:
    """Return where our rules are in the built-in chains; None if only decoding tells, or names a foreign jump to our chains."""
    form = ENTRY_FORMS[live.family.version]
    with_ours = {table for table, chain in live.rules if chain in OWNED_CHAINS}
    written = write_plan(plan, live.family, comments=comments)
    planned = encode_plan(written, live.family)
    owned: Owned = {}
    for (table, chain), entries in live.rules.items():
        if chain in OWNED_CHAINS:
            continue
        found = [index for index, one in enumerate(entries) if one.chain in OWNED_CHAINS]
        if chain not in BUILTIN_CHAINS:
            if found:
                return None
            continue
        if table in with_ours and chain in written.get(table, {}):
            found += _find_planned(entries, planned.get((table, chain), ()), written[table][chain], found)
        if any(_may_be_ours(one, table, form) for index, one in enumerate(entries) if index not in found):
            return None
        if found:
            owned[table, chain] = sorted(found)
    return owned


def _find_planned(
    entries: Sequence[TableEntry], planned: Sequence[TableEntry], written: WrittenChain, found: Sequence[int]
) -> list[int]:
    """Return the rules that the plan has: the first ones that it inserts, the last that it appends."""
    more: list[int] = []
    for number, wanted in enumerate(planned):
        places = [index for index, one in enumerate(entries) if one == wanted and index not in more]
        if places and not any(place in found for place in places):
            more.append(places[0] if number < written.inserted else places[-1])
    return more


def _may_be_ours(entry: TableEntry, table: str, form: EntryForm) -> bool:
    if entry.chain:
        return False
    name = name_at(entry.data, unpack_from("=H", entry.data, form.packet + 4)[0])
    if not name and verdict_of(entry, form) == RETURNING:
        name = "RETURN"
    return name in OWN_TARGETS.get(table, ())
