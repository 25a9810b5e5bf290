"""`netinit check-inject` and `netinit inject --explain`: whether each object is injected, by which webhook, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import click

from netinit.base.errors import OptionError, ParseError
from netinit.base.output import show_artefact
from netinit.base.sanitize import Lines, escape, lines, shorten, split_message
from netinit.base.tables import format_table
from netinit.base.tree import Tree, mapping, strings
from netinit.cli.console import answer_either, color_option
from netinit.cli.flags import FlagCommand
from netinit.cli.inject import inputs as inject_inputs
from netinit.cli.inject.flags import CheckFlags
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.injection_report import Verdict, judge
from netinit.inject.deciding.manifests import Selection, Workload, objects, workloads
from netinit.inject.deciding.other_makers import describe_other_maker
from netinit.inject.deciding.pod_options import find_annotation
from netinit.inject.deciding.usual_webhooks import current_webhooks, early_webhook
from netinit.inject.deciding.webhooks import DEFAULT_REVISION, REVISION_LABEL, Webhook, parse_injectors
from netinit.library.manifest_files import in_file
from netinit.options import Options, offline
from netinit.options.kinds import quote_value
from netinit.questions.configuration_check import find_template_problems, try_canaries, warnings_of
from netinit.questions.lint import NO_EFFECT, lint

INJECTED, REFUSED, LEFT_OUT = 0, 1, 3  # exit codes


@click.command("check-inject", cls=FlagCommand, settings=CheckFlags)
@color_option
def command(options: CheckFlags) -> int:
    """Show for each object whether the cluster's webhook will inject it, and why.

    Checks the webhooks' selectors, the host network, namespace, label, annotation, and the injector's selectors and policy, and
    shows what would change the result and what the pod's rules will do. For `netinit inject` itself, use its --explain.

    Exit codes: 0 every object is injected or already was, 1 one is refused, cannot be read, or it is not known what it gets, 2 wrong
    options, 3 one is left out.
    """
    return check(options)


def check(flags: CheckFlags, *, manually: bool = False) -> int:
    """Print what the webhooks would do, or `manually` what `netinit inject` would; return the exit code."""
    config = inject_inputs.read_config_with_warnings(flags)
    trees = list(inject_inputs.read_trees(flags))
    given = {} if manually else _parse_labels(flags.labels) if flags.labels is not None else None
    cluster = inject_inputs.Cluster(flags) if flags.uses_cluster and (manually or given is None) else None
    revisions = [flags.revision] if flags.revision else _list_revisions(trees, given or {})
    webhooks = None if manually else _webhooks(revisions, config, trees, cluster)
    settings = inject_inputs.settings_of(flags)
    namespaces = inject_inputs.Namespaces(_items(trees, "Namespace"), cluster, is_optional=manually)

    def judge_one(workload: Workload) -> Verdict:
        where = namespaces.get(workload.namespace or flags.namespace or "default", given)
        annotations = strings(mapping(workload.template["metadata"]).get("annotations"))
        return judge(workload, config, webhooks, namespace=where, settings=settings, lint=partial(_lint, annotations))

    verdicts = []
    kinds = flags.template_kinds
    selection = Selection(flags.select)
    for name, tree in trees:
        try:
            verdicts += [judge_one(workload) for workload in workloads(tree, kinds) if selection.takes(workload)]
        except ParseError as error:
            raise ParseError(in_file(name, error)) from error
    selection.check("the input")
    others = [one for _, tree in trees for one in objects(tree) if not any(True for _ in workloads(one, kinds))]
    inject_inputs.warn([f"note: {text}" for text in map(describe_other_maker, others) if text])
    found = {"objects": [dataclasses.asdict(one) for one in verdicts]}
    answer_either(found, _table(verdicts, webhooks=not manually), as_json=flags.as_json)
    if any(one.error or one.doubt for one in verdicts):
        return REFUSED
    return LEFT_OUT if any(not (one.injected or one.already) for one in verdicts) else INJECTED


def _lint(annotations: Mapping[str, str], options: Options) -> Iterator[str]:
    """Yield what lint finds, without what nobody asked for: the template's own values, and name servers of this machine."""
    others = [flag for flag in Options.flags if (flag.annotation or flag.istio_annotations) and not find_annotation(flag, annotations)]
    names = {"--redirect-dns", *[f"--{flag.long}" for flag in others]}
    found = lint(options.settle(offline()))  # whether the pod will have IPv6 is unknown
    return (str(one) for one in found if one.kind != NO_EFFECT or one.option not in names)


def _items(trees: list[tuple[str, Any]], kind: str) -> list[Tree]:
    return [one for _, tree in trees for one in map(mapping, objects(tree)) if one.get("kind") == kind]


def _parse_labels(text: str) -> dict[str, str]:
    labels = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise OptionError(f"--namespace-labels: {quote_value(item)} is not a label; write key=value, separated by commas")
        labels[key] = value
    return labels


def _list_revisions(trees: list[tuple[str, Any]], given: Mapping[str, str]) -> list[str]:
    """The default revision, and those that labels ask for, of namespaces, which are `given`, and of pods."""
    labels = [given, *[strings(mapping(one.get("metadata")).get("labels")) for one in _items(trees, "Namespace")]]
    for _, tree in trees:
        with suppress(ParseError):  # said with the verdicts
            labels += [strings(mapping(one.template["metadata"]).get("labels")) for one in workloads(tree)]
    return [*dict.fromkeys([DEFAULT_REVISION, *[one[REVISION_LABEL] for one in labels if one.get(REVISION_LABEL)]])]


def _webhooks(
    revisions: Sequence[str], config: InjectionConfig, trees: list[tuple[str, Any]], cluster: Any
) -> tuple[Webhook, ...]:  # fmt: skip
    """Webhooks from the input, or else the cluster, or else those that the configuration's release installs."""
    found = _injectors(_items(trees, "MutatingWebhookConfiguration"))
    if not found and cluster is not None:
        return _injectors(cluster.webhook_configurations())
    if found:
        return found
    by_default = mapping(config.values.get("sidecarInjectorWebhook")).get("enableNamespacesByDefault") is True
    if config.classic:
        return early_webhook(by_default=by_default)
    return tuple([webhook for one in revisions for webhook in current_webhooks(one, by_default=by_default)])


def _injectors(configurations: Sequence[Tree]) -> tuple[Webhook, ...]:
    """Those webhooks that inject sidecars: neighbours, such as Linkerd's and Vault's, decide nothing here."""
    return tuple([webhook for item in configurations for _, webhook in parse_injectors(item)])


def _table(verdicts: list[Verdict], *, webhooks: bool) -> Lines:
    table = [("OBJECT", "WEBHOOK", "REVISION", "INJECTED", "REASON"), *map(_row, verdicts)]
    printed = format_table([row if webhooks else (row[0], *row[3:]) for row in table])
    if not verdicts:
        printed = ["no workload: there is nothing that could be injected"]
    for verdict in verdicts:
        printed += ["", _title(verdict), *_details(verdict)]
    return lines(printed)


def _row(verdict: Verdict) -> tuple[str, str, str, str, str]:
    reason = verdict.error.partition("\n")[0] or verdict.doubt or verdict.reason
    mark = "already" if verdict.already else "✔" if verdict.injected else "✘"
    if verdict.error or verdict.doubt:
        mark = "refused" if verdict.error else "?"
    return escape(_title(verdict)), escape(verdict.webhook or "-"), escape(verdict.revision or "-"), mark, reason


def _title(verdict: Verdict) -> str:
    return shorten(f"{verdict.kind} {verdict.namespace}/{verdict.name}")


def _details(verdict: Verdict) -> list[str]:
    marks = {"passed": "·", "decided": "→", "not reached": " "}
    printed = [f"  {marks[link.outcome]} {link.step}: {link.reason or link.outcome}" for link in verdict.chain]
    for title, items in (
        ("warning", verdict.warnings), ("refused", split_message(verdict.error) if verdict.error else ()),
        ("not known", [verdict.doubt] if verdict.doubt else ()),
        ("to change it", verdict.remedies), ("interception", verdict.interception), ("note", verdict.findings),
    ):  # fmt: skip
        printed += [f"  {title}: {item}" for item in items]
    return printed


def check_config(flags: CheckFlags) -> int:
    """Print the problems and return 1 if pods would be rejected. Raises ConfigError if nothing would be injected."""
    config = inject_inputs.read_config(flags)
    settings = inject_inputs.settings_of(flags)
    tried = try_canaries(config, settings)
    problems = list(find_template_problems(config, settings))
    known = {problem.message for problem in problems}
    others = [line for line in config.warnings if not any(line.startswith(message) for message in known)]
    inject_inputs.warn([f"warning: {line}" for line in others])
    for problem in problems:
        ending = "; pods that ask for it are refused" if problem.stops_pods else ""
        label = "error" if problem.stops_pods else "warning"
        inject_inputs.warn([f"{label}: {line}" for line in split_message(problem.message + ending)])
    inject_inputs.warn([f"warning: {line}" for text in warnings_of(tried) for line in split_message(text)])
    broken = sum(problem.stops_pods for problem in problems)
    injected = [one.canary for one in tried if not one.problem]
    defaults = ", ".join(map(shorten, config.default_templates))
    told = f"{len(injected)} of {len(tried)} canary pods were injected with the default: {defaults}"
    marked = [f"  {'✘' if one.problem else '✔'} {one.canary}" for one in tried]
    show_artefact(lines([f"{len(config.sources)} templates, {broken} broken; {told}", *marked]))
    return 0 if injected and not broken else 1
