"""Find the rules of a plan that the kernel does not take, by asking it. Loaded only after it refused a plan."""

from __future__ import annotations

from collections.abc import Callable

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.kernel import extensions
from netinit.kernel.extensions import MATCH, TARGET
from netinit.rules.iptables.write import unfold_rule
from netinit.rules.model import Plan, Rule
from netinit.rules.xtables.building import ENTRY_FORMS, encode_rule, list_extensions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.promises import Unsupported

TABLE = 2  # a kind of Need, beside MATCH and TARGET


class Need(Record):
    """A feature of the kernel that a rule needs: an extension (MATCH, TARGET) of at most a revision, or a table (TABLE)."""

    kind: int
    name: str
    revision: int = 0


def needs_of(rule: Rule, table: str, family: Family) -> tuple[Need, ...]:
    """Return what a rule of iptables needs: its table, and the extensions whose structs its matches and target have."""
    found = [Need(kind=TABLE, name=table)]
    for one in unfold_rule(rule, family):
        listed = list(list_extensions(encode_rule(one.matches, rule.target, family), ENTRY_FORMS[family.version]))
        for number, (name, revision, _) in enumerate(listed, 1):
            if name:
                found.append(Need(kind=TARGET if number == len(listed) else MATCH, name=name, revision=revision))
    return tuple(dict.fromkeys(found))


def find_unsupported(plan: Plan, families: tuple[Family, ...], has: Callable[[Family, Need], bool]) -> Unsupported:
    """Return the rules that need what the kernel has not, by family, with the names of it. Raises OSError if it does not say."""
    answers: dict[tuple[Family, Need], bool] = {}
    found: dict[Family, dict[Rule, str]] = {}
    for family in families:
        for table, _, rule in plan.walk():
            if family not in rule.families:
                continue
            lacking = []
            for need in needs_of(rule, table, family):
                if (family, need) not in answers:
                    answers[family, need] = has(family, need)
                if not answers[family, need]:
                    lacking.append(f"table {need.name}" if need.kind == TABLE else need.name)
            if lacking:
                found.setdefault(family, {})[rule] = ", ".join(lacking)
    return found


def has_for_nft(family: Family, need: Need) -> bool:
    """Whether iptables-nft can use it; nf_tables has every table."""
    return need.kind == TABLE or any(extensions.has_nft_extension(family, need.kind, need.name, one) for one in _revisions(need))


def has_exactly(family: Family, need: Need) -> bool:
    """Whether legacy iptables has it, with this very revision."""
    if need.kind == TABLE:
        return extensions.has_legacy_table(family, need.name)
    return extensions.has_legacy_extension(family, need.kind, need.name, need.revision)


def _revisions(need: Need) -> range:
    return range(need.revision, -1, -1)
