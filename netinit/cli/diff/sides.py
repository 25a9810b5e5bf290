"""Reads what `netinit diff` compares: option sets, pods in manifests, live rules."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace

import click

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import FAMILIES
from netinit.cli.audit.report import subject_of
from netinit.cli.diff.listings import is_listing, read_listings
from netinit.cli.rule_sources import (
    LIVE,
    RuleChoice,
    RuleSource,
    find_of_manifest,
    find_planned,
    find_rule_source,
    is_file,
    names_rules,
    read_file,
    read_pods,
)
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.rules.layouts import plan
from netinit.simulate.audit.subject import AuditSubject
from netinit.simulate.in_force import find_diversions
from netinit.simulate.ruleset import load_plan

LIVE_SIDE = "live"
THIS_HOST = "both are compared on the devices and routes that the pod has now"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")  # precedes a command, as in a shell; audit prints options without a flag this way
PROGRAMS = ("netinit", "apply", "istio-iptables")
NOTHING = "/dev/null"  # git's name for a missing file
GIT = ("PATH", "OLD-FILE", "OLD-HEX", "OLD-MODE", "NEW-FILE", "NEW-HEX", "NEW-MODE")


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sets of rules with a common name; a side that lacks it is None."""

    name: str
    before: AuditSubject | None
    after: AuditSubject | None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    routing: tuple[str, ...] = ()  # traffic that devices and routes of the live host divert from the proxy


def read_git(words: tuple[str, ...]) -> list[Compared]:
    """The pods of two revisions of a file, from git's arguments to an external diff driver (git(1), GIT_EXTERNAL_DIFF)."""
    if len(words) not in (1, len(GIT), len(GIT) + 2):  # one argument: unmerged; two more: renamed
        raise OptionError(f"--git: git calls it with {' '.join(GIT)}; {len(words)} words were given")
    if len(words) == 1:
        return []
    return read_manifests(words[1], words[4], "")


def read_manifests(old: str, new: str, select: str) -> list[Compared]:
    """Pair the pods of two manifests by name."""
    before, after = (_read_pods(name, select) for name in (old, new))
    if len(before) == len(after) == 1 and before.keys() != after.keys():  # one pod each: compare them despite their names
        (was, one), (now, other) = *before.items(), *after.items()
        return [_pair(f"{was} and {now}", one, other)]
    return [_pair(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]


def _read_pods(file: str, select: str) -> dict[str, RuleSource]:
    if file == NOTHING:
        return {}
    pods = read_pods((file,), select)
    found = {facts.name: facts for facts in pods}
    if len(found) < len(pods):
        twice = next(facts.name for facts in pods if sum(facts.name == one.name for one in pods) > 1)
        raise OptionError(
            f"{quote_value(file)}: {twice} is there twice; diff pairs pods by their names: give each another, or a file"
        )
    return {name: find_of_manifest(facts) for name, facts in found.items()}


def _pair(name: str, before: RuleSource | None, after: RuleSource | None) -> Compared:
    both = [one for one in (before, after) if one]
    old, new = (subject_of(name, one) if one else None for one in (before, after))
    return Compared(name, old, new, *[tuple(text for one in both for text in getattr(one, field)) for field in ("notes", "warnings")])


def read_sides(options: Options, old: str, new: str) -> list[Compared]:
    """Read two sides: options, a file of pods or of rules, or the live rules. Raises OptionError, ParseError."""
    listings = {side: found for side in (old, new) if (found := _read_listings(side))}
    if not listings and all(map(_is_file, (old, new))):
        return read_manifests(old, new, "")
    live = find_rule_source(options, LIVE) if LIVE_SIDE in (old, new) else None
    before, after = (listings.get(side) or _read_side(side, live) for side in (old, new))
    return [restrict_to_common_families(on_live_host(_pair(f"{old} and {new}", before, after), live))]


def _is_file(side: str) -> bool:
    return side == "-" or is_file(side)


def _read_listings(side: str) -> RuleSource | None:
    """The rules in a file or on stdin, or None if it holds none; manifests are read only from named files."""
    if not _is_file(side):
        return None
    text = read_file(side, "diff")
    if is_listing(text):
        return read_listings(text, side)
    if side == "-":
        raise OptionError("-: stdin holds no rules as iptables-save prints them; name a file of pods by its path")
    return None


def restrict_to_common_families(pair: Compared) -> Compared:
    """Restrict both sides to their common families: a listing may cover one only."""
    if pair.before is None or pair.after is None:
        return pair
    both = {family: one for family, one in pair.after.surroundings.items() if family in pair.before.surroundings}
    if not both:
        raise OptionError("diff: one side has rules of IPv4 alone, the other of IPv6; save those of the same family")
    return replace(pair, after=pair.after.on_host(both, free=pair.after.free))


def _read_side(side: str, live: RuleSource | None) -> RuleSource:
    if side == LIVE_SIDE and live:
        return live
    if _is_file(side):
        return find_rule_source(Options(), RuleChoice(pod=(side,)))
    try:
        words = shlex.split(side)
    except ValueError as error:
        raise OptionError(f"{quote_value(side)}: {error}") from None
    given: dict[str, str] = {}
    while words and _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        given[name] = value
    if not words or words[0] not in PROGRAMS:
        what = "is neither a file nor options: name a file, write options as 'apply -b 8080', or say live"
        raise OptionError(f"{quote_value(side)} {what}")
    while words and words[0] in PROGRAMS:
        del words[0]
    context = click.get_current_context(silent=True)
    environ = context.obj if context and context.obj is not None else os.environ
    return find_planned(Options.from_argv(words, {**environ, **given}))


def read_live_pair(options: Options, pod: tuple[str, ...], select: str) -> list[Compared]:
    """The plan (from options, a manifest, or options inferred from the rules) and the live rules."""
    rule_source = find_rule_source(options, RuleChoice(pod=pod, select=select, live=True))
    meant = rule_source.wanted or next(iter(rule_source.options.values()), None)
    if meant is None:
        raise ParseError("no options were given, and the rules do not show any: give them, or the pod with --pod")
    made = plan(meant)
    planned = replace(
        rule_source, rulesets={"plan": {family: load_plan(made, family) for family in FAMILIES if family in rule_source.surroundings}},
        options={"plan": meant}, notes=(THIS_HOST,), warnings=(),
    )  # fmt: skip
    left = "the plan" if names_rules(options) or pod else "the plan of the options that the rules show"
    found = find_diversions(rule_source.snapshot, made, rule_source.ours) if rule_source.snapshot and rule_source.ours else ()
    return [replace(_pair(f"{left} and the live rules", planned, rule_source), routing=found)]


def on_live_host(pair: Compared, live: RuleSource | None) -> Compared:
    """Both sides on the host of the live rules, if there are any."""
    if live is None or pair.before is None or pair.after is None:
        return pair
    host = subject_of("", live)
    before, after = (one.on_host(host.surroundings, free=host.free) for one in (pair.before, pair.after))
    return replace(pair, before=before, after=after)
