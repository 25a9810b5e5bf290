"""Foreign base chains held against the packets that a plan captures: which of these each chain takes away, and by which rule.

A foreign chain meets packets at a hook and a priority of its own, before or behind the rules that capture. It is walked with
all captured packets at once; what comes out changed, dropped or unknown is a detour. Each chain is asked alone: a mark that one
sets and another matches counts for any mark, so that nothing escapes notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from netinit.rules.base_chains import PRIORITIES
from netinit.rules.foreign_targets import Several
from netinit.rules.matches import Match
from netinit.rules.matches.context import AddressType, ConnectionState, Limit, TcpFlags, UnknownMatch
from netinit.rules.model import BUILTIN_CHAINS, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW, Rule
from netinit.rules.targets import Accept, Jump, Return, Target
from netinit.simulate.hooks import POSTROUTING
from netinit.simulate.places import BaseChain
from netinit.simulate.ruleset import ACCEPT, LoadedChain, LoadedRule, Ruleset
from netinit.simulate.symbolic.condition import KEPT, Condition, MarkBits
from netinit.simulate.symbolic.journey import enter
from netinit.simulate.symbolic.partition import Part, divide
from netinit.simulate.symbolic.regions import Region, nothing, within
from netinit.simulate.symbolic.space import NEW, OUTBOUND, STATE, UNTRACKED, Space
from netinit.simulate.symbolic.walk import Groups, Path, Walker
from netinit.simulate.trace import CAPTURED, DROPPED, REFUSED

ESCAPES, VANISHES, DOUBTFUL = "escapes", "is dropped", "unknown"
TRACKING = -200  # NF_IP_PRI_CONNTRACK: connections are known to chains behind it
HOOKS = {OUTBOUND: (OUTPUT, POSTROUTING, PREROUTING, INPUT)}
HOOKS_INBOUND = (PREROUTING, INPUT)
Marks = Collection[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Detour:
    """Captured packets that a foreign chain takes away: `rule` is where, as (chain, number), None for the chain's policy."""

    chain: BaseChain
    effect: str
    region: Region
    rule: tuple[str, int] | None
    text: str = ""

    @property
    def where(self) -> str:
        """The rule, or the chain whose policy it is, as sentences name it."""
        return self.chain.describe_rule(*self.rule) if self.rule else f"{self.chain.place}, the policy of chain {self.chain.name}"


def find_detours(space: Space, planned: Ruleset, foreign: Sequence[BaseChain], marks: Marks) -> Iterator[Detour]:
    """What foreign chains take away of the new connections that `planned` captures. TooManyPartsError.

    `marks` are the values, each under its mask, that the plan's rules or the routes look at: other marks change nothing.
    """
    fresh = _new(space)
    captured = [(part, part.region & fresh) for part in divide(space, planned).parts if part.verdict == CAPTURED]
    captured = [(part, region) for part, region in captured if region]
    for chain in foreign:
        if chain.hook in HOOKS.get(space.direction, HOOKS_INBOUND):
            yield from _Held(space, chain, marks).against(captured, planned)


def _new(space: Space) -> Region:
    values = space.dimension(STATE).values
    return within(space, STATE, [(values.index(NEW), values.index(NEW))])


class _Held:
    """One foreign chain."""

    def __init__(self, space: Space, chain: BaseChain, marks: Marks) -> None:
        self._space = space
        self._chain = chain
        self._marks = marks
        self._table = NAT if chain.kind == "nat" else RAW if chain.priority < TRACKING else MANGLE
        self._ruleset = Ruleset(space.family, {self._table: _as_table(chain)})

    def against(self, captured: Sequence[tuple[Part, Region]], planned: Ruleset) -> Iterator[Detour]:
        """The detours of captured packets, one for each rule and effect."""
        found: dict[tuple[str, tuple[str, int] | None], Detour] = {}
        for (condition, _), region in self._entering(captured, planned).items():
            walker = Walker(self._space, self._ruleset)
            through = walker.ask(self._table, self._chain.hook, {(condition, ()): region})
            outcomes = [(self._effect_of(condition, now), path, left) for (now, path), left in through.items()]
            outcomes += [
                (VANISHES if one.outcome.fate in (DROPPED, REFUSED) else DOUBTFUL, one.path if one.outcome.by_rule else (), one.region)
                for one in walker.ended
            ]
            for effect, path, left in outcomes:
                if effect and left:
                    rule, text = self._culprit(path)
                    known = found.get((effect, rule))
                    joined = left if known is None else known.region | left
                    found[effect, rule] = Detour(self._chain, effect, joined, rule, text)
        yield from found.values()

    def _entering(self, captured: Sequence[tuple[Part, Region]], planned: Ruleset) -> Groups:
        """The captured packets as the chain meets them, before or behind the rules that capture."""
        groups: Groups = {}
        early = nothing(self._space)
        for part, region in captured:
            ended = part.outcome.condition
            captures_at = PRIORITIES[MANGLE if ended.transparent else NAT]
            if self._is_first_hook and self._chain.priority <= captures_at:
                early |= region
            elif self._table != NAT:  # of a connection whose destination is decided no chain of NAT is asked
                _join(groups, self._behind(ended), region)
        for (condition, _), region in enter(self._space, planned, early).items() if early else ():
            tracked = self._chain.priority > TRACKING
            _join(groups, replace(condition, hook=self._chain.hook, tracked=tracked, connection=tracked), region)
        return groups

    @property
    def _is_first_hook(self) -> bool:
        return self._chain.hook == (OUTPUT if self._space.direction == OUTBOUND else PREROUTING)

    def _behind(self, ended: Condition) -> Condition:
        """A captured packet at the chain's hook: its destination is the proxy's port."""
        leaving = self._chain.hook in (OUTPUT, POSTROUTING)
        looped = self._space.direction == OUTBOUND and not leaving
        return replace(
            ended, hook=self._chain.hook, sender=leaving and self._space.direction == OUTBOUND,
            in_interface="" if leaving else "lo" if looped else ended.in_interface,
            out_interface=("lo" if self._space.direction == OUTBOUND else ended.out_interface) if leaving else "",
        )  # fmt: skip

    def _effect_of(self, before: Condition, now: Condition) -> str:
        """What it means for the capture that a chain has changed a packet; empty where it means nothing."""
        if (before.destination, before.destination_port) != (now.destination, now.destination_port):
            return ESCAPES
        if now.state is not KEPT and now.state == UNTRACKED:
            return ESCAPES
        if (before.redirect_port, before.transparent) != (now.redirect_port, now.transparent):
            return ESCAPES
        changed = now.mark != before.mark and self._matters(now.mark)
        changed |= before.transparent and now.mark != before.mark  # the mark brings it to the proxy's socket
        changed |= now.connection_mark != before.connection_mark and self._matters(now.connection_mark)
        return DOUBTFUL if changed else ""

    def _matters(self, mark: MarkBits) -> bool:
        """Whether a changed mark may be one that is looked at."""
        return any((value ^ mark.flip) & mask & ~mark.keep == 0 and mask & ~mark.keep for value, mask in self._marks)

    def _culprit(self, path: Path) -> tuple[tuple[str, int] | None, str]:
        """The rule that did it: the last on the path that does more than to lead on."""
        for passage in reversed(path):
            if not isinstance(passage.met.target, Jump) or passage is path[-1]:
                chain = self._chain.name if passage.chain == self._chain.hook else _unmasked(passage.chain)
                return (chain, passage.rules[0].number), passage.rules[0].text
        return None, ""


def _join(groups: Groups, condition: Condition, region: Region) -> None:
    known = groups.get((condition, ()))
    groups[condition, ()] = region if known is None else known | region


def _as_table(chain: BaseChain) -> dict[str, LoadedChain]:
    """The chains of a table under names that the walk takes for none of the kernel's; the base chain under its hook's."""
    own = chain.chains[chain.name]
    found = {
        _masked(name): LoadedChain(_masked(name), _renamed(one))
        for name, one in chain.chains.items()
        if name != chain.name
    }
    found[chain.hook] = LoadedChain(chain.hook, _renamed(own), own.policy or ACCEPT)
    return found


def _renamed(chain: LoadedChain) -> tuple[LoadedRule, ...]:
    """The rules; those that perhaps let packets go unharmed are left out, since the rules behind them do at most more."""
    return tuple(replace(one, rule=_rename(one.rule)) for one in chain.rules if not _perhaps_lets_go(one.rule))


def _perhaps_lets_go(rule: Rule) -> bool:
    return isinstance(rule.target, Accept | Return) and any(map(_is_doubtful, rule.matches))


def _is_doubtful(match: Match) -> bool:
    """Whether nobody knows of some new connection whether the match holds."""
    if isinstance(match, AddressType):
        return match.types != ("LOCAL",)
    if isinstance(match, ConnectionState):
        return bool({"SNAT", "DNAT"} & set(match.states))
    return isinstance(match, UnknownMatch | Limit | TcpFlags)


def _rename(rule: Rule) -> Rule:
    return rule.replace(target=_rename_target(rule.target))


def _rename_target(target: Target) -> Target:
    if isinstance(target, Jump):
        return target.replace(chain=_masked(target.chain))
    if isinstance(target, Several):
        return target.replace(targets=tuple([_rename_target(one) for one in target.targets]))
    return target


_MASK = "'"


def _masked(name: str) -> str:
    return f"{name}{_MASK}" if name.removesuffix(_MASK) in BUILTIN_CHAINS else name


def _unmasked(name: str) -> str:
    return name.removesuffix(_MASK)
