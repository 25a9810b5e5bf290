"""Restore the rules of iptables-nft from before a change, byte for byte as they were read. Loaded only after a failure."""

from __future__ import annotations

from netinit.backends import Change, of_kind
from netinit.backends.compat_messages import AT_END, CompatChange, FamilyChange, KeptRule
from netinit.backends.iptables import ReadingBackend, XtablesState
from netinit.backends.nft_removal import find_parts, remove_empty
from netinit.kernel import detect
from netinit.rules.expressions.compat import write_protocol
from netinit.rules.iptables import ownership
from netinit.rules.iptables.write import DecodedRule
from netinit.rules.model import OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.backends.compat_messages import Placed
    from netinit.backends.encoded_rules import EncodedNft
    from netinit.rules.iptables.compare import FamilyRules


def roll_back(backend: ReadingBackend, change: Change, commit: Callable[[Change], None]) -> None:
    """Restore our rules as they were before the change, with their counters, and delete what it created otherwise.

    Foreign rules stay as they are now. Raises the errors of `commit`.
    """
    before = of_kind(change.before, XtablesState)
    parts = find_parts(detect.nft_chains() or ())
    now = backend.observe()
    if now.generation and now.generation == before.generation:
        return  # nothing has changed
    commit(_return_to(change, before, of_kind(now, XtablesState)))
    remove_empty(parts)


def _return_to(change: Change, before: XtablesState, now: XtablesState) -> CompatChange:
    old = {one.family: (one, held) for one, held in before.compare_rules(change.plan).with_encoded()}
    families = []
    for one, held in now.compare_rules(change.plan).with_encoded():
        earlier, encoded = old[one.family]
        made = FamilyChange(
            family=one.family, target={name: {} for name in one.listing}, live=held.handles() if held else {},
            owned=ownership.keep_foreign_rules(one.owned, one.listing, earlier.listing, earlier.owned),
        )  # fmt: skip
        if encoded:
            made = made.replace(target=made.target | _target_of(earlier, encoded, made))
        families.append(made)
    return CompatChange(
        scripts={}, before=now, plan=change.plan, families=tuple(families), renew=lambda newer: _return_to(change, before, newer)
    )


def _target_of(rules: FamilyRules, encoded: EncodedNft, made: FamilyChange) -> dict[str, dict[str, Placed]]:
    """Return our rules as they were, each before the foreign rule that followed it, if that is still there."""
    target: dict[str, dict[str, Placed]] = {}
    for (table, chain), found in encoded.by_place().items():
        owned = range(len(found)) if chain in OWNED_CHAINS else rules.owned.get((table, chain), ())
        if not (owned or chain in OWNED_CHAINS):
            continue
        texts = rules.listing[table].rules[chain]
        left = set(made.find_foreign(table, chain))
        placed: Placed = []
        for index in owned:
            before = next((handle for handle, _ in found[index + 1 :] if handle in left), AT_END) if left else AT_END
            placed.append((before, _keep(found[index][1], texts[index])))
        target.setdefault(table, {})[chain] = placed
    return target


def _keep(expressions: bytes, text: str) -> KeptRule:
    if not isinstance(text, DecodedRule):
        raise TypeError(f"a rule that was not read from the kernel: {text}")
    return KeptRule(expressions=expressions, compat=write_protocol(text.rule.matches), text=str(text))
