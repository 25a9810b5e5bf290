"""Rules as people have them: dumps of iptables and nft, as text, with what a terminal or an issue tracker puts around them. Pure.

A file that is not known to hold rules is asked with `name_form`, which is empty for manifests. `read_rules` makes of one or several
texts what every question is asked of.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import FAMILIES, IPV4, IPV6, Family, parse_address
from netinit.base.sanitize import MAX_RULE_LENGTH, shorten, split_message
from netinit.base.snapshot import INET, NftTable, Snapshot
from netinit.base.tables import count
from netinit.base.tree import string
from netinit.live.snapshot_rules import SOURCES, list_purposes, load_snapshot
from netinit.live.unfollowed import find_unfollowed
from netinit.options import (
    AUTO,
    BACKENDS,
    FIRST_WITH,
    NF_TABLES,
    TABLES_OF_OUR_OWN,
    Interception,
    Options,
    SettledOptions,
    offline,
)
from netinit.options.command_line import read_value
from netinit.questions.pod_rules import LiveRules, PodRules, chains_of
from netinit.questions.rule_sources import RULES, ReadServers, RuleSource, describe_live
from netinit.rules.foreign_targets import UnknownTarget
from netinit.rules.infer_options import InferredOptions, from_iptables, from_nft
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.parse.pasted import (
    FORM,
    PastedListings,
    as_typed,
    clean,
    has_open_quotes,
    has_rules,
    is_listed_by_l,
    read_pasted,
)
from netinit.rules.iptables.write import Listing
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import BUILTIN_CHAINS, NAT, OWNED_CHAINS, Plan
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.nft.listing_text import BEGINS, NOT_IN_FORCE, leave_tables_out, read_listing
from netinit.rules.targets import Capture, Jump
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, load_plan, map_chains, with_plan
from netinit.simulate.stand_ins import EXAMPLE_POD, stand_in

SOURCE = "iptables"  # of the rules of listings of iptables, whichever variant they are of
SAVE, LISTED, COMMANDS = "the output of iptables-save", "the output of iptables -S", "commands of iptables"
NFT, NFT_JSON, BY_L = "the output of nft list", "the output of nft -j list", "the output of iptables -L"
_OBJECTS = re.compile(r'\{\s*"nft\w+"\s*:\s*\[')
_MANIFEST = re.compile(r'^\s*(?:-\s+)?"?(?:apiVersion|kind)"?\s*:', re.MULTILINE)
_NFT_INPUT = re.compile(r"^\s*(?:nft\s+)?(?:add|create)\s+(?:table|chain|rule)\s+(?:ip6?|inet)\s", re.MULTILINE)
_XML = re.compile(r"<iptables-rules\b")
BUILTIN = frozenset(BUILTIN_CHAINS)
_EMPTY = "no rules in it"
CORRECTED = "it is read with a keyboard's blanks, quotes and dashes instead of those that a word processor or a wiki made of them"
MAX_CHARACTERS = 12 << 20  # of all texts: twice the bound of one file


def name_form(text: str) -> str:
    """How rules are written in a text that was not said to have any, such as `SAVE`; empty for manifests and anything else."""
    if len(_MANIFEST.findall(text[: 1 << 20])) > 1:
        return ""
    return _name_form(text) or _name_form(as_typed(text))


def _name_form(text: str) -> str:
    if _OBJECTS.search(text):
        return NFT_JSON
    lines = clean(text)
    if BEGINS.search("\n".join(lines)):
        return NFT
    if has_rules(lines):
        return SAVE if any(line.startswith("*") for line in lines) else COMMANDS if _has_commands(lines) else LISTED
    return BY_L if is_listed_by_l(text) else ""


def _has_commands(lines: Sequence[str]) -> bool:
    return any(re.search(r"ip6?tables\b.*\s-[AIN]\s", line) for line in lines)


@dataclass(frozen=True, slots=True)
class Dump:
    """The rules of one or several texts, by backend and family, before anything is assumed of their host."""

    name: str
    rulesets: Mapping[str, Mapping[Family, Ruleset]]
    families: tuple[Family, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hides_some: bool = False  # parts of rules of iptables, whose options it then does not show
    snapshots: tuple[Snapshot, ...] = ()  # of listings of nft
    listed: Mapping[Family, Ruleset] = field(default_factory=dict)  # by iptables beside them

    @property
    def is_of_a_mesh(self) -> bool:
        """Whether some of its rules are netinit's or Istio's; otherwise all are foreign."""
        return any(
            chain.name in OWNED_CHAINS and chain.rules
            for found in self.rulesets.values() for ruleset in found.values() for chain in ruleset.chains
        )  # fmt: skip


def read_rules(
    texts: Sequence[tuple[str, str]], options: Options | None = None, pod_ip: Sequence[str] = (), read_servers: ReadServers = tuple
) -> RuleSource:
    """The rules of texts with their names, on an assumed host.

    `options`: those that the rules should have been made with, or, where no rule is of a mesh, that are planned beside them; None: as
    the rules show. Raises ParseError, OptionError.
    """
    dump = read_dump(texts)
    addresses = tuple([read_value(address, parse_address, "--pod-ip") for address in pod_ip]) or _example_addresses(dump)
    if options and not dump.is_of_a_mesh:
        return _put_beside(dump, options.settle(offline(addresses, read_servers)), addresses)
    inferred = _infer(dump)
    shown = next((one.options for one in inferred.values() if one.options), None)
    if options and shown and options.ipv6 == AUTO:  # depends on the addresses of the pod, which a dump does not show
        options = options.replace(ipv6=shown.ipv6)
    settled = options.settle(offline(addresses, read_servers)) if options else None
    return _as_found(dump, settled, inferred, addresses)


def read_dump(texts: Sequence[tuple[str, str]]) -> Dump:
    """Read the texts. Raises ParseError, which says what a text is and how to save it if it cannot be read."""
    if sum(len(text) for _, text in texts) > MAX_CHARACTERS:
        raise ParseError(f"{RULES}: the files are longer than {MAX_CHARACTERS >> 20} MiB together; give the tables that matter alone")
    listings: dict[Family, Listing] = {}
    of_nft: list[tuple[str, Sequence[object]]] = []
    notes: list[str] = []
    warnings: list[str] = []
    for name, text in texts:
        shown = "stdin" if name == "-" else shorten(name)
        try:
            if len(texts) > 1 and not text.strip():  # there are no rules of IPv6, for example
                notes.append(f"{shown}: it is empty")
                continue
            found, corrected = _read_text(text)
            notes += [f"{shown}: {CORRECTED}"] if corrected else []
            of_nft += [(shown, found.objects)] if found.objects else []
            if found.pasted:
                _merge(listings, found.pasted.listings)
                notes += [f"{shown}: {one}" for one in found.pasted.notes]
                warnings += [f"{shown}: {one}" for one in found.pasted.warnings]
        except ParseError as error:
            raise _of_text(shown, error) from None
    named = " and ".join([name for name, _ in texts])
    if not listings and not of_nft:
        raise ParseError(f"{named}: {_EMPTY}; {FORM}, or `nft list ruleset`")
    loaded = {family: _close(load_listing(listing, family)) for family, listing in listings.items()}
    if loaded and not any(chain.policy for ruleset in loaded.values() for chain in ruleset.chains):
        raise ParseError(f"{named}: none of its chains is a built-in one, from which packets reach the others; {FORM}")
    if not of_nft:
        families = tuple([family for family in FAMILIES if family in loaded])
        return Dump(named, {SOURCE: {family: loaded[family] for family in families}}, families, tuple(notes), tuple(warnings))
    snapshots, hidden = [], 0
    for shown, objects in of_nft:
        try:
            snapshot, left_out = read_objects(_without_repeated(objects, listings))
        except ParseError as error:
            raise _of_text(shown, error) from None
        snapshots.append(snapshot)
        hidden += left_out
        warnings += [f"{shown}: {count(left_out, 'extension')} of iptables: {NOT_SHOWN}"] if left_out else []
    dump = _dump_of_nft(named, snapshots, loaded)
    warnings += dump.warnings
    return replace(
        dump, notes=tuple(notes), warnings=tuple(warnings), hides_some=hidden > 0, snapshots=tuple(snapshots), listed=loaded
    )


def _of_text(shown: str, error: ParseError) -> ParseError:
    return ParseError("\n".join([f"{shown}: {line}" for line in split_message(str(error))]))


@dataclass(frozen=True, slots=True)
class _ReadText:
    """What a text lists: tables of iptables, objects of nft, or both."""

    pasted: PastedListings | None = None
    objects: Sequence[object] = ()


def _read_text(text: str) -> tuple[_ReadText, bool]:
    """The rules of a text, and whether it was read with the blanks, quotes and dashes of a keyboard, since it cannot be read as it is.

    Whatever iptables and nft print can be read as it is, so that no name or comment in a dump becomes a part of a rule.
    """
    try:
        return _read_as_it_is(text), False
    except ParseError:
        typed = as_typed(text)
        if typed == text:
            raise
        with suppress(ParseError):
            return _read_as_it_is(typed), True
        raise


def _read_as_it_is(text: str) -> _ReadText:
    if _choose_form(text) not in (NFT, NFT_JSON):
        return _ReadText(read_pasted(text))
    objects, around = _read_nft(text)
    lines = clean(around)
    if not has_rules(lines):
        return _ReadText(objects=objects)
    if has_open_quotes(lines):  # a table of nft in a comment is none
        raise ParseError("a comment of iptables with a line break stands beside tables of nft; give each in a file of its own")
    return _ReadText(read_pasted(around), objects)


def _choose_form(text: str) -> str:
    """How the rules of a text are written. Raises ParseError for forms that do not hold all of them."""
    form = _name_form(text)
    if form == BY_L:
        raise ParseError(f"it is what `iptables -L` prints, which leaves interfaces, users and other matches out; {FORM}")
    if not form and _XML.search(text):
        raise ParseError(f"it is what iptables-xml prints; {FORM}")
    if not form and _NFT_INPUT.search(text):
        raise ParseError(NOT_IN_FORCE)
    if not form:
        raise ParseError(f"{_EMPTY if text.strip() else 'it is empty'}; {FORM}, or `nft list ruleset`")
    return form


def _merge(listings: dict[Family, Listing], found: Mapping[Family, Listing]) -> None:
    for family, tables in found.items():
        own = listings.setdefault(family, {})
        if twice := sorted(own.keys() & tables.keys()):
            raise ParseError(f"the table {twice[0]} of {family.name} is in another file too; give each table once")
        own |= tables


def _close(ruleset: Ruleset) -> Ruleset:
    """The rules, with targets unknown that name no chain of the table: extensions that netinit does not know, or what is left out."""

    def close(table: str, chain: LoadedChain) -> LoadedChain:
        known = ruleset.tables[table]
        return replace(chain, rules=tuple([_close_rule(one, known) for one in chain.rules]))

    return replace(ruleset, tables=map_chains(ruleset.tables, close))


def _close_rule(one: LoadedRule, known: Mapping[str, LoadedChain]) -> LoadedRule:
    target = one.rule.target
    if not isinstance(target, Jump) or target.chain in known:
        return one
    return replace(one, rule=one.rule.replace(target=UnknownTarget(text=target.chain)))


# ---- nft -------------------------------------------------------------------------------------------------------------------


def _read_nft(text: str) -> tuple[Sequence[object], str]:
    """The objects of a text, and what stands around them."""
    if begins := _OBJECTS.search(text):
        try:
            found, end = json.JSONDecoder().raw_decode(text, begins.start())
        except (ValueError, RecursionError) as error:
            what = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is cut off, or no JSON: {error}"
            raise ParseError(f"{what}; give all that `nft -j list ruleset` prints") from None
        return next(iter(found.values())), f"{text[: begins.start()]}\n{text[end:]}"
    cleaned = "\n".join(clean(text))
    return read_listing(cleaned), leave_tables_out(cleaned)


def _without_repeated(objects: Sequence[object], listings: Mapping[Family, Listing]) -> Sequence[object]:
    """The objects without the tables of iptables-nft that a listing of iptables shows, too. Raises ParseError if it shows others."""
    repeated = set()
    for family, listing in listings.items():
        for table, listed in listing.items():
            place = (family.nft, table)
            chains, rules = ([body for body in _bodies(objects, kind) if _place_of(body) == place] for kind in ("chain", "rule"))
            numbers = Counter([string(body.get("chain")) for body in rules])
            names = {string(body.get("name")) for body in chains}
            own = names - BUILTIN == listed.rules.keys() - BUILTIN
            if own and all(numbers[name] == len(found) for name, found in listed.rules.items()):
                repeated.add(place)
            elif names:
                where = f"the table {table} of {family.name}"
                raise ParseError(f"{where} is in listings of iptables and of nft, and not alike; give one state of it")
    return [one for one in objects if not isinstance(one, Mapping) or not {_place_of(body) for body in one.values()} & repeated]


def _bodies(objects: Sequence[object], kind: str) -> list[Mapping[str, Any]]:
    return [one[kind] for one in objects if isinstance(one, Mapping) and isinstance(one.get(kind), Mapping)]


def _place_of(body: object) -> tuple[str, str]:
    """The family of an object's table, and its name; empty where they are none, which the reader of objects refuses."""
    found = body if isinstance(body, Mapping) else {}
    return string(found.get("family")), string(found.get("table", found.get("name")))


def _dump_of_nft(
    name: str, snapshots: Sequence[Snapshot], listed: Mapping[Family, Ruleset], plans: Sequence[Plan] = ()
) -> Dump:
    """The rules of listings of nft, with purposes where `plans` have them, and those of iptables, `listed`, beside them."""
    snapshot = snapshots[0]
    for other in snapshots[1:]:
        places = {(one.family, one.name) for one in snapshot.tables}
        if twice := next((one for one in other.tables if (one.family, one.name) in places), None):
            raise ParseError(f"{name}: the table {shorten(str(twice))} is in two files; give each table once")
        names = ("tables", "chains", "rules", "sets")
        snapshot = snapshot.replace(**{one: getattr(snapshot, one) + getattr(other, one) for one in names})
    kernel = load_snapshot(snapshot, plans)
    _refuse_gaps(name, kernel.rulesets)
    unread = tuple(dict.fromkeys([f"{where}: {what}" for where, what, _ in find_unfollowed(snapshot)]))
    families = tuple([one for one in FAMILIES if one in listed or any(_concerns(table, one) for table in snapshot.tables)]) or FAMILIES
    rulesets: dict[str, dict[Family, Ruleset]] = {}
    for kind, found in kernel.rulesets.items():
        place, tables = kind, {one: found[one].tables for one in families}
        if listed and kind == FIRST_WITH[NF_TABLES]:  # what iptables lists, and tables of iptables-nft that it does not
            place, tables = SOURCE, {one: tables[one] | (listed[one].tables if one in listed else {}) for one in families}
        if any(tables.values()):
            rulesets[place] = {one: Ruleset(one, tables[one], foreign=kernel.foreign[one], unread=unread) for one in families}
    if not rulesets:
        rulesets[FIRST_WITH[NF_TABLES]] = {one: Ruleset(one, foreign=kernel.foreign[one], unread=unread) for one in families}
    warnings = [f"{one}, and may decide otherwise" for one in (*unread, *kernel.unreadable)]
    return Dump(name, rulesets, families, warnings=tuple(warnings))


def _refuse_gaps(name: str, rulesets: Mapping[str, Mapping[Family, Ruleset]]) -> None:
    """Refuse a part of a listing: rules that jump to a chain of their table which is not there. Raises ParseError."""
    tables = [chains for found in rulesets.values() for ruleset in found.values() for chains in ruleset.tables.values()]
    called = [(chains, loaded.rule.target) for chains in tables for chain in chains.values() for loaded in chain.rules]
    missing = next((one.chain for chains, one in called if isinstance(one, Jump) and one.chain not in chains), "")
    if missing:
        raise ParseError(f"{name}: the rules jump to the chain {shorten(missing)}, which is not there; give all of `nft list ruleset`")


def _concerns(table: NftTable, family: Family) -> bool:
    return table.family in (INET, family.number)


# ---- the host, and the options --------------------------------------------------------------------------------------------


def _example_addresses(dump: Dump) -> tuple[str, ...]:
    """Addresses of an assumed pod; IPv6 is the first where rules of a mesh are, so that --ipv6 auto includes it."""
    has_ours = any(
        chain.name in OWNED_CHAINS for found in dump.rulesets.values() for chain in (found[IPV6].chains if IPV6 in found else ())
    )
    order = (IPV6, IPV4) if has_ours else FAMILIES
    return tuple([EXAMPLE_POD[one.version] for one in order if one in dump.families])


def _assume(dump: Dump, addresses: Sequence[str]) -> tuple[str, ...]:
    named = " and ".join(addresses)
    families = " and ".join([one.name for one in dump.families])
    has = [f"rules of {families} alone"] if len(dump.families) < len(FAMILIES) else []
    listed = dump.rulesets.get(SOURCE, {})
    has += ["no table nat"] if listed and not any(one.tables.get(NAT) for one in listed.values()) else []
    has_these = f"; it has {', and '.join(has)}" if has else ""
    routes = "the routes that the plan adds, no forwarding, no other device than eth0 and lo"
    return (f"a dump does not show the host: assumed are a pod with {named or 'no address'} on eth0, {routes}{has_these}",)


def _infer(dump: Dump) -> dict[str, InferredOptions]:
    """The options that the rules of each backend show. A dump lacks the route for TPROXY's mark: the usual one is assumed."""
    routing = dict.fromkeys([one.mark for one in _list_transparent(dump)], Interception.flag("tproxy_table").default)
    native = SOURCES[FIRST_WITH[TABLES_OF_OUR_OWN]]
    found = {}
    for place, rulesets in dump.rulesets.items():
        if dump.hides_some and place != native:
            continue
        infer = from_nft if place == native else from_iptables
        found[place] = infer(chains_of(dict(rulesets)), routing)
    return {place: one for place, one in found.items() if one.options or one.unread}


def _as_found(
    dump: Dump, settled: SettledOptions | None, inferred: dict[str, InferredOptions], addresses: Sequence[str]
) -> RuleSource:
    """The rules with their purposes, as far as options are known that would make them."""
    made = {place: one.options for place, one in inferred.items() if one.options}
    plans = [plan_for(settled)] if settled else []
    plans += [one.make_plan(one.options) for one in inferred.values() if one.options]
    surroundings = {family: stand_in(family, addresses) for family in dump.families}
    known = _dump_of_nft(dump.name, dump.snapshots, dump.listed, plans) if dump.snapshots else dump
    rulesets = {
        place: {family: _complete(one, plans) for family, one in found.items()} for place, found in known.rulesets.items()
    }
    older = next((one for one in inferred.values() if one.older), None)
    rules = PodRules(rulesets, surroundings, made, settled, older=older)
    warnings = dump.warnings + (() if plans or not _list_transparent(dump) else (NO_ROUTE,))
    named = LiveRules(rules, inferred, warnings)
    described = describe_live(dump.name, named, "the options given" if settled else "", None)
    return replace(described, notes=(*_assume(dump, addresses), *dump.notes, *described.notes))


NOT_SHOWN = "nft does not show what they say; give what `iptables-save` prints"
NO_ROUTE = "packets that TPROXY takes count as forwarded: a listing lacks the route for their mark"


def _list_transparent(dump: Dump) -> list[Any]:
    """The targets that hand packets to a transparent socket, each with its mark."""
    chains = [chain for found in dump.rulesets.values() for ruleset in found.values() for chain in ruleset.chains]
    targets = [loaded.rule.target for chain in chains for loaded in chain.rules]
    return [one for one in targets if isinstance(one, Capture) and one.transparent]


def _complete(ruleset: Ruleset, plans: Sequence[Plan]) -> Ruleset:
    """The rules with purposes of plans, and the policy routes that the first plan adds."""
    purposes = list_purposes(plans, ruleset.family)

    def explain(table: str, chain: LoadedChain) -> LoadedChain:
        rules = []
        for one in chain.rules:
            purpose, origin = purposes.get((table, chain.name, normalise_rule(one.rule)), (one.purpose, one.origin))
            rules.append(replace(one, purpose=purpose, origin=origin, comment=one.comment if one.comment != purpose else ""))
        return replace(chain, rules=tuple(rules))

    routed = next((load_plan(one, ruleset.family) for one in plans), Ruleset(ruleset.family))
    tables = map_chains(ruleset.tables, explain)
    return replace(
        ruleset, tables=tables, local_marks=routed.local_marks, routing_table=routed.routing_table, addresses=routed.addresses
    )


# ---- a plan beside foreign rules --------------------------------------------------------------------------------------------


def _put_beside(dump: Dump, settled: SettledOptions, addresses: Sequence[str]) -> RuleSource:
    """The plan of the options in a namespace that has the foreign rules already, as `apply` places it."""
    made = plan_for(settled)
    place = _place_of_plan(dump, settled)
    foreign = dump.rulesets.get(place, {})
    base = {family: foreign.get(family) or Ruleset(family) for family in dump.families}
    hooked = {family: next(found[family] for found in dump.rulesets.values()) for family in dump.families}
    merged = {
        family: replace(with_plan(one, made), foreign=hooked[family].foreign, unread=hooked[family].unread)
        for family, one in base.items()
    }
    rulesets = {place: merged} | {name: found for name, found in dump.rulesets.items() if name != place}
    around = {family: stand_in(family, addresses) for family in dump.families}
    rules = PodRules(rulesets, around, {place: settled}, settled)
    beside = f"no rule of it is netinit's or Istio's: the plan of the options is put beside them, as `netinit apply` does ({place})"
    name = f"the options beside {dump.name}"
    return RuleSource(name, rules, (*_assume(dump, addresses), *dump.notes, beside), dump.warnings + settled.warnings + made.warnings)


def _place_of_plan(dump: Dump, settled: SettledOptions) -> str:
    """The backend that the plan is written with: the one asked for, or that of the foreign rules."""
    wanted = settled.given.wanted_backend
    if wanted in BACKENDS and BACKENDS[wanted].tables == TABLES_OF_OUR_OWN:
        return SOURCES[wanted]
    return next((name for name in dump.rulesets if name in (SOURCE, FIRST_WITH[NF_TABLES])), FIRST_WITH[NF_TABLES])


def put_plan_first(source: RuleSource) -> RuleSource | None:
    """Rules beside a plan as they are where the foreign rules are appended later; None where there is no plan beside."""
    place, rules = source.rules.place, source.rules
    made = rules.made_by
    if made is None or not source.name.startswith("the options beside "):
        return None
    planned = plan_for(made)
    swapped = {family: _with_plan_first(one, load_plan(planned, family)) for family, one in rules.rulesets[place].items()}
    return replace(source, rules=replace(rules, rulesets={**rules.rulesets, place: swapped}))


def _with_plan_first(ruleset: Ruleset, planned: Ruleset) -> Ruleset:
    tables = {name: dict(chains) for name, chains in ruleset.tables.items()}
    for name, chains in planned.tables.items():
        for chain, own in chains.items():
            if own.policy and (there := tables[name].get(chain)):
                keys = {normalise_rule(one.rule) for one in own.rules}
                foreign = [one for one in there.rules if normalise_rule(one.rule) not in keys]
                rules = tuple([replace(one, number=number) for number, one in enumerate([*own.rules, *foreign], 1)])
                tables[name][chain] = replace(there, rules=rules)
    return replace(ruleset, tables=tables)


def refuse_as_rules(name: str, text: str, label: str) -> None:
    """Refuse a text of rules where manifests are expected, by what it is. Raises OptionError."""
    if form := name_form(text):
        advice = f"cannot be read: {FORM}" if form == BY_L else f"give it as {RULES} {shorten(name, MAX_RULE_LENGTH)}"
        raise OptionError(f"{f'{label}: ' if label else ''}{'stdin' if name == '-' else shorten(name)} holds rules ({form}); {advice}")
