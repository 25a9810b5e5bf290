"""Write the change from listed rules to a target as input for iptables-restore --noflush, one commit per table.

A commit replaces our chains and jumps at once, so there is no moment without rules. Foreign rules are never named.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.rules.iptables.table_order import REFUSING, order_tables
from netinit.rules.iptables.write import DecodedRule, ListedTable, Listing, Placed, Written, add_rules
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.rules.iptables.compare import FamilyRules
    from netinit.rules.iptables.ownership import Owned

Target = dict[str, dict[str, Placed]]  # table -> chain -> rules


def target_from_plan(written: Written) -> Target:
    """Return the plan's rules as a target: inserted ones at the top of built-in chains, others at the end."""
    return {name: {chain: planned.placed for chain, planned in chains.items()} for name, chains in written.items()}


def target_from_listing(rules: FamilyRules) -> tuple[Target, tuple[str, ...]]:
    """Return our listed rules as a target to roll back to, and the places of rules that cannot be written."""
    from netinit.rules.iptables.parse import part_comment

    target: Target = {}
    lost: list[str] = []
    for name in rules.listing:
        chains: dict[str, Placed] = {}
        for chain, texts in rules.live_chains(name).items():
            places = rules.owned.get((name, chain))
            chains[chain] = []
            missed = 0
            for index, text in zip(places or range(len(texts)), texts, strict=True):
                written = text if text.isprintable() else part_comment(text)[0]
                if written.isprintable() and text_is_complete(text):
                    chains[chain].append((index + 1 - missed if places else 0, written))
                else:
                    missed += 1
                    lost.append(f"{name} {chain} rule {index + 1}")
        if chains:
            target[name] = chains
    return target, tuple(lost)


def write_transition(
    target: Target, listing: Listing, owned: Owned, *, skip: Sequence[str] = (), by_number: bool = False
) -> str:
    """Return the input that changes our rules to the target; tables in `skip` match already.

    `by_number`: delete by position, because the kernel may hold other rules than listed. A table that stops capturing comes
    last, so that one table captures at any time; rules that reject what nat did not redirect are deleted first.
    """
    names, refuses = order_tables(target, {name: table.rules for name, table in listing.items()}, skip)
    lines: list[str] = []
    if refuses:
        lines, listing, owned = _stop_refusing(listing, owned, by_number=by_number)
    for name in names:
        lines += _write_table(name, target.get(name, {}), listing.get(name), owned, by_number=by_number)
    return "".join([line + "\n" for line in lines])


def _stop_refusing(listing: Listing, owned: Owned, *, by_number: bool) -> tuple[list[str], Listing, Owned]:
    """Return a commit that deletes the jumps to rejecting rules, and the listing and our rules after it."""
    table, refuses = listing[FILTER], tuple([f"-j {chain}" for chain in REFUSING])
    rules, left, lines = dict(table.rules), dict(owned), []
    for chain in BUILTIN_CHAINS:
        jumps = [index for index in owned.get((FILTER, chain), ()) if table.rules[chain][index].endswith(refuses)]
        if jumps:
            lines += _write_deletions(chain, table.rules[chain], jumps, by_number=by_number)
            kept = [index for index in range(len(table.rules[chain])) if index not in jumps]
            rules[chain] = [table.rules[chain][index] for index in kept]
            left[FILTER, chain] = [number for number, index in enumerate(kept) if index in owned[FILTER, chain]]
    changed = {**listing, FILTER: table.replace(rules=rules)}
    return [f"*{FILTER}", *lines, "COMMIT"] if lines else [], changed, left


def _write_table(
    name: str, target: dict[str, Placed], table: ListedTable | None, owned: Owned, *, by_number: bool
) -> list[str]:
    listed = [chain for chain in table.rules if chain in OWNED_CHAINS] if table else []
    wanted = [chain for chain in target if chain not in BUILTIN_CHAINS]
    lines = [f":{chain} - [0:0]" for chain in dict.fromkeys([*wanted, *listed])]
    for chain in BUILTIN_CHAINS:
        indexes = owned.get((name, chain))
        if table and indexes:
            lines += _write_deletions(chain, table.rules[chain], indexes, by_number=by_number)
    for chain, placed in target.items():
        lines += add_rules(chain, placed)
    lines += [f"-X {chain}" for chain in listed if chain not in target]
    return [f"*{name}", *lines, "COMMIT"] if lines else []


def _write_deletions(chain: str, texts: Sequence[str], indexes: Sequence[int], *, by_number: bool) -> list[str]:
    """Delete by text; by number, from the end, if an equal foreign rule precedes or the text is not one line."""
    numbered = [
        index
        for index in indexes
        if by_number
        or not (texts[index].isprintable() and text_is_complete(texts[index]))
        or any(texts[i] == texts[index] for i in range(index) if i not in indexes)
    ]
    by_text = [index for index in indexes if index not in numbered]
    return [f"-D {chain} {index + 1}" for index in reversed(numbered)] + [
        f"-D {chain} {texts[index]}" for index in by_text
    ]


def text_is_complete(text: str) -> bool:
    """Whether a live rule's text has its whole meaning, so that it can be written back; True for other texts."""
    if not isinstance(text, DecodedRule):
        return True
    from netinit.rules.iptables.parse import normalise, normalise_rule

    try:
        return normalise(str(text), text.rule.families[0]) == normalise_rule(text.rule)
    except ParseError:
        return False
