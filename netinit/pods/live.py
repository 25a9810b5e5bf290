"""Read a namespace's live rules, and everything else that affects packets, for the simulator; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from netinit import backends
from netinit.backends import notice_size, set_contents
from netinit.backends.machine import HERE
from netinit.base.errors import BackendUnavailableError, ParseError
from netinit.base.net import FULL_MASK, Family
from netinit.base.snapshot import INET, Snapshot
from netinit.kernel import detect
from netinit.kernel.capabilities import advise
from netinit.kernel.listeners import read_listeners
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live import host, reverse_path, unfollowed
from netinit.live.host import surroundings_of
from netinit.live.snapshot_rules import SOURCES, KernelRules, load_snapshot
from netinit.options import (
    AUTO,
    BACKENDS,
    FIRST_WITH,
    LEGACY_TABLES,
    NF_TABLES,
    TABLES_OF_OUR_OWN,
    Interception,
    Options,
    SettledOptions,
    offline,
    read_record,
)
from netinit.pods.host import read_or_refuse
from netinit.questions.pod_rules import LiveRules, PodRules, chains_of
from netinit.rules.expressions.rule_reader import read_comment
from netinit.rules.expressions.table_differences import compare_tables
from netinit.rules.infer_options import InferredOptions, from_iptables, from_nft
from netinit.rules.infer_options.address_sets import as_listed, find_threshold
from netinit.rules.infer_options.layout_readers import Chains, Routing
from netinit.rules.iptables.sets import USES, Contents, resolve, use_sets
from netinit.rules.layouts import plan as plan_for
from netinit.rules.live_listing import decode_tables, name_sets
from netinit.rules.model import NAT, NFT_PREFIXES, Plan
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.simulate.ruleset import Ruleset, resolve_sets

RECORDING = tuple([prefix + NAT for prefix in NFT_PREFIXES])  # the table whose comment records the options
MANY_WAYS = (
    "policy rules, or several ways to one destination, decide by more than the destination where packets leave: every interface"
    " counts as possible"
)


def read_live(options: Options, *, given: bool = False) -> LiveRules:
    """Read the namespace that the options name (default: this process's).

    `given`: the rules should have been created by these options, else by those that are recorded. Raises NamespaceError,
    BackendUnavailableError, ParseError.
    """
    return HERE.inside(options, lambda resolved, warning: _read_here(resolved, warning, given=given))


def read_with_listeners(options: Options) -> Snapshot:
    """Read the snapshot of the namespace that the options name, and who listens in it. Raises NamespaceError, OSError."""
    return HERE.inside(options, lambda *_: _read_snapshot())


def _read_snapshot() -> Snapshot:
    return read_snapshot().replace(listeners=read_listeners())


def infer_run(options: Options) -> tuple[Options, str, InferredOptions, Snapshot | None] | None:
    """Return the options that would make the live rules, their backend, what they show, and the snapshot; None without rules.

    Recorded options come first: the rules may differ from them. Options that make no rules (namespace, backend) are those
    given. Raises the errors of `read_live`.
    """
    of_rules = {flag.field for flag in Interception.flags}
    run = {flag.field: getattr(options, flag.field) for flag in Options.flags if flag.field not in of_rules}
    live = read_live(options)
    for backend, inferred in live.inferred.items():
        if known := inferred.recorded or inferred.options:
            run["ipset_threshold"] = live.ipset_threshold
            return known.given.replace(**run), backend, inferred, live.rules.snapshot
    return None


def _find_threshold(found: Mapping[str, InferredOptions], contents: Contents, given: int) -> int:
    """Return the length of lists above which they are address sets, as they are now; that which was given if it fits."""
    backend, options = next(((name, one.options) for name, one in found.items() if one.options), ("", None))
    variant = BACKENDS[backend].variant if backend else ""
    if not (options and variant):
        return given
    lists = {option: value for option in USES if not isinstance(value := getattr(options, option), str)}
    return find_threshold(lists, backends.owner_of_sets(variant), contents, given)


def _read_here(options: Options, warning: str, *, given: bool) -> LiveRules:
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        raise BackendUnavailableError(f"the rules cannot be read: NET_ADMIN is missing: {advise('NET_ADMIN', reading=True)}")
    places, settled = settle_beside(options)
    families = settled.kernel_families
    wanted = plan_for(settled) if given else None
    warnings = [*([warning] if warning else []), *(settled.warnings if given else ()), *(wanted.warnings if wanted else ())]
    snapshot = read_or_refuse(_read_snapshot)
    contents = set_contents.read_contents()
    found = {name: _infer(snapshot, name, families, contents) for name in places}
    plans = [plan for name in places for plan in _with_sets(_plans(wanted, found[name]), BACKENDS[name].variant, contents)]
    live = _load(snapshot, plans)
    unread = _find_unread(snapshot)
    faults = {family: host.find_loopback_fault(snapshot, (family,))[0] for family in families}
    rulesets: dict[str, dict[Family, Ruleset]] = {name: {} for name in places or (FIRST_WITH[NF_TABLES],)}
    for name, family in product(rulesets, families):
        own = live.rulesets.get(SOURCES[name], {}).get(family) or Ruleset(family)
        table = next((rule.table for rule in host.rules_to_lo(snapshot, family)), 0)
        warnings += notice_size(sum([len(chain.rules) for chain in own.chains]), family)
        own = replace(resolve_sets(own, contents), routing_table=table, foreign=live.foreign[family])
        rulesets[name][family] = replace(own, unread=(*unread, *[f"a loopback device that {one}" for one in (faults[family],) if one]))
    if all(one.is_foreign for loaded in rulesets.values() for one in loaded.values()):  # so that hidden ones may capture
        hidden = unfollowed.list_hidden(snapshot)
        unread += hidden
        rulesets = {
            name: {family: replace(one, unread=(*one.unread, *hidden)) for family, one in loaded.items()}
            for name, loaded in rulesets.items()
        }
    empty = not places and not any(live.foreign.values())
    warnings += ["there are no rules at all in this namespace"] if empty else []
    around = {family: surroundings_of(snapshot, family) for family in families}
    simple = all(host.is_simple(snapshot, family) for family in families)
    warnings += [f"{place} cannot be read, and may decide otherwise" for place in unread]
    dead = [one for one in dict.fromkeys(faults.values()) if one]
    warnings += [f"the loopback device {one}: redirected packets do not reach the proxy" for one in dead]
    warnings += [*unfollowed.warn_of_hidden(snapshot), *reverse_path.warn_of_refused(snapshot)]
    warnings += [] if simple else [MANY_WAYS]
    made = {name: inferred.options for name, inferred in found.items() if inferred.options}
    target = settled if given else next((one.recorded for one in found.values() if one.recorded), None)
    older = next((one for one in found.values() if one.older), None)
    rules = PodRules(rulesets, around, made, target, routes_known=simple, snapshot=snapshot, older=older)
    threshold = _find_threshold(found, contents, options.ipset_threshold)
    return LiveRules(rules, found, tuple(warnings), threshold)


def _infer(snapshot: Snapshot, name: str, families: tuple[Family, ...], contents: Contents) -> InferredOptions:
    """Return the options that the rules of a backend show. Raises ParseError."""
    marked = [one for one in snapshot.routing_rules if host.matches_a_mark_alone(one) and one.mask == FULL_MASK]
    routing = {one.mark: one.table for one in marked}
    if not BACKENDS[name].variant:
        native = _load(snapshot).rulesets[SOURCES[name]]
        return _read_or_infer(snapshot, chains_of({family: native[family] for family in families}), routing)
    rules: dict[Family, Chains] = {}
    sets = dict(snapshot.address_sets)
    for family in families:
        try:
            tables = decode_tables(snapshot, family, legacy=BACKENDS[name].tables == LEGACY_TABLES)
        except ValueError as error:
            raise ParseError(str(error)) from None
        rules[family] = as_listed({
            (table, chain.name): [resolve(name_sets(rule, sets), contents) for live in chain.rules for rule in live.rules]
            for table, chains in tables.items() for chain in chains
        })  # fmt: skip
    return from_iptables(rules, routing)


def _read_or_infer(snapshot: Snapshot, chains: Mapping[Family, Chains], routing: Routing) -> InferredOptions:
    """Return the options of our nft tables: those recorded if they would make exactly these tables, else those that the rules show."""
    comments = [read_comment(one.userdata) for one in snapshot.tables if one.family == INET and one.name in RECORDING]
    found = next((options for options in map(read_record, comments) if options), None)
    fields = {flag.field: getattr(found, flag.field) for flag in Interception.flags} if found else {}
    recorded = Options(**fields).settle(offline()) if found else None
    if recorded and not compare_tables(plan_for(recorded), snapshot):
        return InferredOptions(recorded, recorded=recorded)
    return replace(from_nft(chains, routing), recorded=recorded)


def settle_beside(options: Options) -> tuple[tuple[str, ...], SettledOptions]:
    """Return the backends whose tables may hold rules, and the options settled for the one with ours."""
    places, settled = backends.populated(options), HERE.settle(options)
    native = FIRST_WITH[TABLES_OF_OUR_OWN]
    return places, settled.for_backend(native) if options.wanted_backend == AUTO and native in places else settled


def _plans(wanted: Plan | None, found: InferredOptions) -> list[Plan]:
    return [*([wanted] if wanted else []), *([found.make_plan(found.options)] if found.options else [])]


def _with_sets(plans: list[Plan], variant: str, contents: Contents) -> list[Plan]:
    owner = backends.owner_of_sets(variant)
    sizes = [len(elements) for known, elements in contents.items() if known.startswith(f"{owner}-")]
    return [use_sets(plan, owner, min(sizes) - 1)[0] for plan in plans] + plans if sizes else plans


def _load(snapshot: Snapshot, plans: Sequence[Plan] = ()) -> KernelRules:
    live = load_snapshot(snapshot, plans)
    if live.unreadable:
        raise ParseError("; ".join(live.unreadable))
    return live


def _find_unread(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what affects packets but is not simulated."""
    found = [what if where == "kernel" else f"{where}: {what}" for where, what, _ in unfollowed.find_unfollowed(snapshot)]
    others = [one for one in snapshot.links if one.index != host.LOOPBACK_INDEX and one.name == LOOPBACK_DEVICE]
    found += ["a device called lo that is not the loopback"] * bool(others)
    return tuple(dict.fromkeys(found))
