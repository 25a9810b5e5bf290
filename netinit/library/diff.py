"""`netinit.diff`, and the two sides that it compares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from netinit.base.errors import OptionError
from netinit.library.manifest_files import is_file, read_file
from netinit.library.parameters import Files, Pods, list_files, list_manifests, name_place
from netinit.library.rule_reading import LIVE, Manifest, PodChoice, RuleChoice, find_rule_source, plan_here, read_dumps
from netinit.library.safe_files import STDIN
from netinit.options import Options
from netinit.options.command_line import names_rules, write_command
from netinit.questions.comparison import (
    Compared,
    DiffReport,
    compare_all,
    compare_with_plan,
    on_common_host,
    pair_pods,
    plan_by_name,
    read_written_options,
)
from netinit.questions.pasted_comparison import compare_with_options
from netinit.questions.pasted_rules import name_form, read_rules
from netinit.questions.rule_sources import RuleSource

LIVE_SIDE = "live"
NOTHING = "/dev/null"  # git's name for a missing file
BOTH = 2
Side = Options | str | os.PathLike[str]
"""Options, or a file of pods or of rules, options as a command line (`apply -b 8080`), or `live`."""


def diff(
    before: Side | None = None, after: Side | None = None, *, pod: Pods = (), select: str = "", pid: int | None = None,
    netns: str | None = None, live: bool = False, rules: Files = (), full: bool = False,
) -> DiffReport:  # fmt: skip
    """Say which packets two sets of rules treat differently; all packets are compared, not a sample.

    Two sides are compared with each other. Options alone, a `pod`, or nothing, are compared with the live rules of `pid`,
    `netns` or (`live`) this process's network namespace; `pod` with two manifests compares their pods. `full`: its text shows
    every kind of packet. `rules`: files of dumps, compared with the options, the `pod`, or what they show.
    Raises OptionError, ParseError, NamespaceError, BackendUnavailableError, TooManyPartsError.
    """
    manifests = list_manifests(pod)
    if rules:
        if after is not None or not isinstance(before, Options | None):
            raise OptionError("rules: are compared with options or a pod; leave the two sides out")
        place = name_place(before, pid, netns)
        return compare_all(read_dump_pair(place, PodChoice(manifests, select), list_files(rules), live=live), full=full)
    if after is not None:
        if before is None or manifests or select:
            raise OptionError("diff: give two things to compare, before and after, or pod, or pid; not several of them")
        if LIVE_SIDE not in {before, after} and (live or pid is not None or netns is not None):
            raise OptionError("pid, netns, live: neither side is 'live'; leave the namespace out, or name the side")
        if any(isinstance(one, Options) and (one.pid or one.netns) for one in (before, after)):
            raise OptionError("pid, netns: a side is rules; give the namespace whose rules are live as pid or netns of the call")
        options = name_place(None, pid, netns)
        old, new = (one if isinstance(one, Options) else os.fspath(one) for one in (before, after))
        return compare_all(read_sides(options, old, new, {}, PodChoice()), full=full)
    if before is not None and not isinstance(before, Options):
        raise OptionError("diff: after is missing; to compare a manifest with live rules, give it as pod")
    options = name_place(before, pid, netns)
    inside = live or bool(options.pid or options.netns)
    if len(manifests) == BOTH and not inside:
        return compare_all(pair_manifests(manifests[0], manifests[1], PodChoice(select=select)), full=full)
    if not inside or len(manifests) >= BOTH:
        raise OptionError("diff: nothing to compare: give before and after, or pod with two manifests, or pid")
    return compare_all(read_live_pair(options, PodChoice(manifests, select)), full=full)


def pair_manifests(old: Manifest, new: Manifest, choice: PodChoice) -> list[Compared]:
    """The pods of two manifests, paired by name; `choice`: which, and how they are read. Raises OptionError, ParseError."""
    before, after = (_plan_pods(one, choice) for one in (old, new))
    return pair_pods(before, after)


def _plan_pods(manifest: Manifest, choice: PodChoice) -> dict[str, RuleSource]:
    if manifest == NOTHING:
        return {}
    return plan_by_name(replace(choice, pod=(manifest,)).read(), manifest if isinstance(manifest, str) else "pod")


def read_sides(
    options: Options, old: Options | str, new: Options | str, environ: Mapping[str, str], choice: PodChoice
) -> list[Compared]:
    """Read two sides: options, a file of pods or of rules, or the live rules of the namespace that `options` name.

    `environ`: variables for options that are written as a command line. `choice`: how pods are read. Raises OptionError, ParseError.
    """
    listings = {side: found for side in (old, new) if isinstance(side, str) and (found := _read_listings(side))}
    if not listings and isinstance(old, str) and isinstance(new, str) and _names_file(old) and _names_file(new):
        return pair_manifests(old, new, replace(choice, label=""))
    live = find_rule_source(options, LIVE) if LIVE_SIDE in (old, new) else None
    before, after = (
        (isinstance(side, str) and listings.get(side)) or _read_side(side, live, environ, choice) for side in (old, new)
    )
    names = [write_command(one) if isinstance(one, Options) else one for one in (old, new)]
    return [on_common_host(" and ".join(names), before, after, live)]


def _names_file(side: str) -> bool:
    return side == STDIN or is_file(side)


def _read_listings(side: str) -> RuleSource | None:
    """The rules in a file or on stdin, or None for a manifest, which is read only from a named file. Raises ParseError."""
    if not _names_file(side):
        return None
    text = read_file(side, "diff")
    if side == STDIN or name_form(text):
        return read_rules([(side, text)])
    return None


def _read_side(side: Options | str, live: RuleSource | None, environ: Mapping[str, str], choice: PodChoice) -> RuleSource:
    if side == LIVE_SIDE and live:
        return live
    if isinstance(side, Options):
        return plan_here(side)
    if _names_file(side):
        return find_rule_source(Options(), RuleChoice(replace(choice, pod=(side,), label="")))
    return plan_here(read_written_options(side, environ))


def read_dump_pair(options: Options, pods: PodChoice, rules: tuple[str, ...], *, live: bool = False) -> list[Compared]:
    """The plan (from options, a manifest, or options inferred from the rules) and rules of dumps. Raises OptionError, ParseError."""
    return [compare_with_options(read_dumps(rules, options, pods, live=live))]


def read_live_pair(options: Options, pods: PodChoice) -> list[Compared]:
    """The plan (from options, a manifest, or options inferred from the rules) and the live rules."""
    rule_source = find_rule_source(options, RuleChoice(pods, live=True))
    return [compare_with_plan(rule_source, known=names_rules(options) or bool(pods.pod))]
