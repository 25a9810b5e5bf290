"""`netinit doctor`: whether pods will work here, and if not, what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from netinit.base.net import FAMILIES
from netinit.base.sanitize import Lines, lines, split_message
from netinit.base.tables import format_table
from netinit.cli.console import answer_either, color_option, note
from netinit.cli.flags import ANY_BACKEND, ANY_NAMESPACE, FlagCommand, json_option
from netinit.cli.rule_options import pod_options
from netinit.cli.values import takes
from netinit.library.rule_reading import PodChoice
from netinit.library.verify import read_pod
from netinit.options import Options
from netinit.options.command_line import read_value
from netinit.options.kinds import read_gid, read_uid
from netinit.pods.doctor.examination import Examination, examine
from netinit.pods.doctor.findings import ERROR, WARNING
from netinit.questions.option_names import name_options, translate
from netinit.questions.rule_sources import complete_servers
from netinit.rules.promises import KEPT

GOOD, BAD = 0, 1
SIGNS = {ERROR: "✘", WARNING: "!"}
RESULTS = {True: "✔", False: "✘", None: "?"}


@click.command("doctor", cls=FlagCommand, shows=(*ANY_NAMESPACE, *ANY_BACKEND, "ipset_threshold"))
@pod_options("Judge by the options of this pod, and its users (YAML or JSON).")
@click.option("--uid", "uids", multiple=True, **takes("USER"), help="A user that the application runs as (default: those of --pod).")
@click.option("--gid", "gids", multiple=True, **takes("GROUP"), help="A group that the application runs as (likewise).")
@color_option
@json_option("doctor")
def command(options: Options, pods: PodChoice, uids: tuple[str, ...], gids: tuple[str, ...], as_json: bool) -> int:
    """Find out whether pods with these options, or the pod of --pod, will work here, and what is missing.

    Tries each feature that the rules need with each backend, in network namespaces of its own, which are then removed. Without
    SYS_ADMIN it tries nothing and only looks. Run it on a node before a rollout, or where an init container failed.

    Exit codes: 0 pods will work, 1 they will not, or it is not known for lack of privileges or time.
    """
    users = tuple(read_value(text, read_uid, "--uid") for text in uids)
    groups = tuple(read_value(text, read_gid, "--gid") for text in gids)
    found = _examine_pod(options, pods, users, groups) if pods.names_any else examine(options, users, groups)
    answer_either(to_object(found), render_text(found), as_json=as_json)
    return GOOD if found.good else BAD


def _examine_pod(options: Options, pods: PodChoice, uids: tuple[int, ...], gids: tuple[int, ...]) -> Examination:
    """Examine with the options of a pod, and name what its author wrote instead of flags."""
    facts = read_pod(options, pods)
    note([f"{facts.name}: {'; '.join(facts.notes)}"] if facts.notes else [])
    uids = uids or tuple([one.uid for one in facts.users if one.uid is not None])
    gids = gids or tuple([one.gid for one in facts.users if one.gid is not None])
    own = complete_servers(facts, options).options  # none of its notes: where no servers are given, those of resolv.conf are read
    found = examine(own, tuple(dict.fromkeys(uids)), tuple(dict.fromkeys(gids)))
    names = name_options(facts)
    named = [replace(one, message=translate(one.message, names), remedy=translate(one.remedy, names)) for one in found.findings]
    return replace(found, findings=tuple(named))


def render_text(found: Examination) -> Lines:
    """Format the feature table, the findings with remedies, and the conclusion."""
    printed = [*_render_table(found), *_render_promises(found)] if found.feature_checks else [f"not tried: {found.obstacle}"]
    for finding in found.findings:
        first, *more = split_message(finding.message)
        printed += [f"{SIGNS.get(finding.severity, '-')} {finding.subject}: {first}", *[f"    {line}" for line in more]]
        if finding.remedy:
            printed.append(f"    remedy: {finding.remedy}")
    if found.good:
        how = "OK" if found.feature_checks else "probably OK, without trying it"
        printed.append(f"{how}: pods on this node will use {found.backend}")
    elif not found.seen:
        printed.append(f"not known whether pods will work: {found.obstacle}")
    elif found.unknown and not any(finding.severity == ERROR for finding in found.findings):
        printed.append(f"not known whether pods will work: {found.unknown}")
    else:
        printed.append(f"pods will not work{f', though {found.backend} programs rules' if found.backend else ''}")
    return lines(printed)


def _render_table(found: Examination) -> list[str]:
    """A row per feature, a column per backend with a symbol per family; * marks what these options need."""
    families = [family.name for family in FAMILIES if any(family.name in checked.outcomes for checked in found.feature_checks)]
    names = dict.fromkeys(name for checked in found.feature_checks for outcomes in checked.outcomes.values() for name in outcomes)
    needed = {name for wanted in found.needed.values() for name in wanted}
    rows = [["", *[checked.backend for checked in found.feature_checks]]]
    for name in names:
        row = [f"{name}{' *' if name in needed else ''}"]
        for one in found.feature_checks:
            outcomes = [one.outcomes.get(family, {}).get(name) for family in families]
            signs = ["-" if outcome is None else RESULTS[one.judge(outcome)] for outcome in outcomes]
            row.append(RESULTS[one.judge(one.failure)] if one.failure else "/".join(signs))
        rows.append(row)
    doubt = "; ? not known" if any(one.unknown for one in found.feature_checks) else ""
    return [*format_table(rows), f"({'/'.join(families)}; * these options need it{doubt})"]


def _render_promises(found: Examination) -> list[str]:
    """A row per promise of the rules beyond Istio's, a column per backend: kept, or what the kernel lacks."""
    names = [name for name in KEPT if any(name in kept for one in found.feature_checks for kept in one.promises.values())]
    if not names:
        return []
    rows = [["beyond Istio's rules", *[one.backend for one in found.feature_checks]]]
    for name in names:
        cells = []
        for one in found.feature_checks:
            lacking = {family: kept[name] for family, kept in one.promises.items() if name in kept}
            alike = len(set(lacking.values())) == 1
            texts = [f"{'' if alike else f'{family}: '}{f'no {need}' if need else RESULTS[True]}" for family, need in lacking.items()]
            cells.append("; ".join(dict.fromkeys(texts)) or "-")
        rows.append([KEPT[name], *cells])
    return format_table(rows)


def to_object(found: Examination) -> dict[str, Any]:
    """The answer in the form of netinit/data/doctor.schema.json."""
    return {
        "ok": found.good, "backend": found.backend or None, "obstacle": found.obstacle or None, "unknown": found.unknown or None,
        "needed": {family: sorted(names) for family, names in found.needed.items()},
        "feature_checks": {
            checked.backend: {
                "works": checked.works(found.needed), "failure": checked.failure or None,
                "features": {
                    family: {name: {"works": checked.judge(cause), "cause": cause or None} for name, cause in outcomes.items()}
                    for family, outcomes in checked.outcomes.items()
                },
                "promises": {
                    family: {name: {"kept": not lacking, "lacking": lacking or None} for name, lacking in promises.items()}
                    for family, promises in checked.promises.items()
                },
            }
            for checked in found.feature_checks
        },
        "findings": [{key: getattr(one, key) for key in ("severity", "subject", "message", "remedy")} for one in found.findings],
    }  # fmt: skip
