"""Rules of iptables as the kernel itself holds them, beside a plan: nothing is listed where they are as planned.

A second run that has nothing to do is what most restarts of an init container are. It reads the rules by netlink or getsockopt(2),
decodes them and compares what they say, in order; that also sees what listings do not print. Only where a rule differs, or a foreign
one is beside them, the program that lists is started.
"""

from __future__ import annotations

from netinit.backends import Change, Comparison, State, filled
from netinit.backends.known_chains import of_iptables
from netinit.base.net import IPV4, Family
from netinit.base.snapshot import NftRule
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import IPV4_TABLES, IPV6_TABLES, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE
from netinit.kernel.snapshot.legacy_tables import read_table
from netinit.rules.expressions.reading import References, decode_rule
from netinit.rules.iptables.write import KNOWN_TABLES, Written, render_listing, write_plan, write_rule
from netinit.rules.model import OWNED_CHAINS
from netinit.rules.xtables.tables import decode_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.kernel.netlink import NftChain
    from netinit.kernel.plain_namespace import KnownChain, Place
    from netinit.rules.model import Difference, Plan, Rule

    Chains = dict[tuple[str, str], list[Rule]]  # table, chain -> its rules, in order

MOST_RULES = 1_000  # of both families: a program lists them more quickly
NFTA_RULE_USERDATA = 7
RETURNS = ("ACCEPT", "")  # policies that decide nothing, of built-in chains and of others
_NOTHING = References(sets={}, devices={})


def read_nft(families: tuple[Family, ...], chains: tuple[NftChain, ...]) -> dict[Family, Chains] | None:
    """The rules of iptables-nft; None where none are ours, or where a program had better list them. OSError."""
    numbers = {family: IPV4_TABLES if family is IPV4 else IPV6_TABLES for family in families}
    known = [chain for chain in chains if chain.family in numbers.values() and chain.table in KNOWN_TABLES]
    if not all(chain.accepts for chain in known) or sum([chain.uses for chain in known]) > MOST_RULES:
        return None
    if not any(chain.name in OWNED_CHAINS for chain in known):
        return None
    found: dict[Family, Chains] = {}
    for family, number in numbers.items():
        found[family] = {(chain.table, chain.name): [] for chain in known if chain.family == number}
        for body in netlink.list_nft_rules(number) if found[family] else ():
            attributes = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
            rule = NftRule(
                family=number, table=netlink.read_name(attributes[NFTA_RULE_TABLE]), handle=0,
                chain=netlink.read_name(attributes[NFTA_RULE_CHAIN]), expressions=attributes.get(NFTA_RULE_EXPRESSIONS, b""),
                userdata=attributes.get(NFTA_RULE_USERDATA, b""),
            )  # fmt: skip
            if (rule.table, rule.chain) in found[family]:
                found[family][rule.table, rule.chain] += decode_rule(rule, _NOTHING).rules
    return found


def read_legacy(families: tuple[Family, ...]) -> dict[Family, Chains] | None:
    """The rules of the older interface; None where none are ours, or where a program had better list them. OSError."""
    found: dict[Family, Chains] = {}
    for family in families:
        names = detect.legacy_tables(family)
        if names is None:
            return None
        found[family] = {}
        for name in names:
            for chain in decode_table(read_table(family, name)):
                if chain.policy not in RETURNS:
                    return None
                found[family][name, chain.name] = [one.rule for one in chain.rules]
    rules = sum([len(one) for chains in found.values() for one in chains.values()])
    ours = any(chain in OWNED_CHAINS for chains in found.values() for _, chain in chains)
    return found if ours and rules <= MOST_RULES else None


class HeldState(State):
    """Rules of ours, by family as the kernel holds them. `list_all` has a program list them; its state answers what they do not."""

    chains: dict[Family, Chains]
    list_all: Callable[[], State]
    comments: bool

    def compare(self, plan: Plan) -> Comparison:
        written = {family: write_plan(plan, family, comments=self.comments) for family in self.chains}
        if all(self._is_as_planned(family, written[family]) for family in self.chains):
            return HeldComparison(plan, self, written)
        return self.list_all().compare(plan)

    def describe(self) -> dict[str, str]:
        return self.list_all().describe()

    def _is_as_planned(self, family: Family, written: Written) -> bool:
        held = self.chains[family]
        wanted = {(table, name): chain.texts for table, chains in written.items() for name, chain in chains.items()}
        if {place for place, rules in held.items() if rules} != {place for place, texts in wanted.items() if texts}:
            return False
        return all(self._spell(held[place], family) == texts for place, texts in wanted.items() if texts)

    def _spell(self, rules: list[Rule], family: Family) -> list[str]:
        return [text for rule in rules for text in write_rule(rule, family, comments=self.comments)]


class HeldComparison(Comparison):
    """Rules that are as planned, each of them."""

    state: HeldState
    differences: tuple[Difference, ...] = ()
    is_whole = True

    def __init__(self, plan: Plan, state: HeldState, written: dict[Family, Written]) -> None:
        self.plan = plan
        self.state = state
        self.written = written

    def known_chains(self) -> dict[Place, KnownChain]:
        return of_iptables(self.written) if self.state.of_nf_tables else {}

    def ours(self) -> dict[str, tuple[str, ...]]:
        return self._listed().ours()

    def shadows(self) -> tuple[Difference, ...]:
        """None: a foreign rule would be a difference."""
        return ()

    def resumable(self) -> bool:
        return True

    def change(self, *, force: bool = False) -> Change:
        return self._listed().change(force=force)

    def removal(self) -> Change:
        return self._listed().removal()

    def committed(self) -> dict[str, str]:
        return filled({family.name: render_listing(written) for family, written in self.written.items()})

    def _listed(self) -> Comparison:
        return self.state.list_all().compare(self.plan)
