"""`netinit audit`: the traffic that bypasses the proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from netinit.base.errors import NetinitError, OptionError, ParseError
from netinit.base.output import show_artefact, show_object
from netinit.cli.audit.formats import render_markdown, render_page, render_text
from netinit.cli.audit.report import Audited, examine, fails, list_issues, read_fail_on, to_object
from netinit.cli.console import answer, color_option, count, note, warn
from netinit.cli.findings import FORMATS, JSON, TEXT, format_options, ignore_options, render
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.rule_sources import (
    LIVE,
    RuleChoice,
    RuleSource,
    find_rule_source,
    find_rule_sources,
    is_file,
    name_manifests,
    read_file,
    rule_source_options,
)
from netinit.cli.values import takes
from netinit.inject.deciding import yaml_texts
from netinit.kernel.processes import find_pods
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.questions.audit.assertions import Assertion, parse_assertion

SENTENCE = " is "
MAX_ASSERTIONS = 500  # per run: each is a proof over all packets


def read_assertions(given: Sequence[str]) -> list[Assertion]:
    """Parse all assertions of the sentences and files. Raises one OptionError with all problems."""
    found: list[Assertion] = []
    problems: list[str] = []
    for text in given:
        sentences = [(text, "", 0)] if SENTENCE in text and not is_file(text) else [*_read_sentences(text)]
        for sentence, name, line in sentences:
            try:
                found.append(parse_assertion(sentence, name=name, line=line))
            except OptionError as error:
                problems += error.problems
    if problems:
        raise OptionError(*problems)
    if len(found) > MAX_ASSERTIONS:
        raise OptionError(f"--assert: {len(found)} assertions are more than {MAX_ASSERTIONS} for one run; give them to several")
    return found


def _read_sentences(file: str) -> Iterator[tuple[str, str, int]]:
    """Yield each sentence of a file with its name and line; the format is netinit/data/assertions.schema.json."""
    import yaml

    try:
        text = read_file(file, "--assert")
    except OptionError as error:
        hint = f'; a sentence has the word "is": "outbound tcp{SENTENCE}captured"'
        raise OptionError(*[f"{problem}{hint}" for problem in error.problems]) from None
    try:
        yaml_texts.load(text)  # rejects excessive depth or size before the composer, which alone provides line numbers
        tree = yaml.compose(text, yaml.SafeLoader)
    except (ParseError, yaml.YAMLError) as error:
        raise OptionError(f"--assert: {quote_value(file)} is not YAML: {getattr(error, 'problem', None) or error}") from None
    items = tree
    if isinstance(tree, yaml.MappingNode) and [key.value for key, _ in tree.value] == ["assertions"]:
        items = tree.value[0][1]
    if not isinstance(items, yaml.SequenceNode):
        raise _wrong(file, "is neither a list of assertions nor an object with the one field assertions", tree and tree.start_mark)
    for item in items.value:
        pairs: list[tuple[Any, Any]] = item.value if isinstance(item, yaml.MappingNode) else []
        for key, value in pairs:
            if key.value not in ("assert", "name") or not isinstance(value, yaml.ScalarNode):
                what = f"{quote_value(str(key.value))} is not a field of an assertion; it has assert and name"
                raise _wrong(file, what, key.start_mark)
        fields = {key.value: value for key, value in pairs} if isinstance(item, yaml.MappingNode) else {"assert": item}
        sentence = fields.get("assert")
        if not isinstance(sentence, yaml.ScalarNode):
            raise _wrong(file, "an assertion is a sentence, or an object with the fields assert and name", item.start_mark)
        yield sentence.value, fields["name"].value if "name" in fields else "", sentence.start_mark.line + 1


def _wrong(file: str, what: str, mark: Any) -> OptionError:
    place = f", line {mark.line + 1}" if mark else ""
    return OptionError(f"--assert: {quote_value(file)}{place} {what}")


MARKDOWN, HTML = "markdown", "html"
FOUND = 4


@click.command("audit", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.argument("files", nargs=-1, **takes("[FILE]..."))
@rule_source_options
@click.option("--all-pods", is_flag=True, help="Audit the live rules of every pod of this node.")
@click.option("--assert", "asserted", multiple=True, **takes("FILE|TEXT"), help="Prove or refute what this says; repeatable.")
@click.option("--fail-on", multiple=True, **takes("bypass[:CLASS]"), help="Exit with 4 for a bypass (of a class); repeatable.")
@ignore_options
@click.option("--full", is_flag=True, help="Show all traffic, also what goes through the proxy.")
@format_options("audit", MARKDOWN, HTML)
@color_option
def command(
    options: Options, files: tuple[str, ...], choice: RuleChoice, *, all_pods: bool, asserted: tuple[str, ...],
    fail_on: tuple[str, ...], accepted: dict[str, str], full: bool, form: str,
) -> int:  # fmt: skip
    """Show which traffic of a pod bypasses the proxy, why, and how to close it.

    All packets are covered, not a sample. The most dangerous bypasses come first: those of foreign rules, those that cannot be
    evaluated, those by configuration, and those by design. Nothing is sent and nothing changes. --assert proves or refutes a
    sentence such as 'outbound tcp not by proxy not to pod is captured'.

    Exit codes: 0; 4 if --fail-on names a bypass that exists, or an assertion is not proved.
    """
    choice = replace(choice, pod=(*choice.pod, *files), label=name_manifests(choice.pod, files))
    assertions = read_assertions(asserted)
    failing = read_fail_on(fail_on)
    if full and form in FORMATS:
        raise OptionError(f"--full: --format {form} lists only findings; leave one of them out")
    if all_pods and (choice.pod or choice.live or options.pid or options.netns):
        raise OptionError("--all-pods: names all pods of this node; leave out --pod, --live, --pid and --netns")
    rule_sources = _find_all(options) if all_pods else find_rule_sources(options, choice)
    found = [examine(rule_source, assertions) for rule_source in rule_sources]
    if form in FORMATS:
        issues = [issue for one in found for issue in list_issues(one, accepted)]
        show_artefact(render(form, "audit", issues, [one.source.name for one in found]))
    else:
        _show(found, form, full=full)
    return FOUND if any(fails(one, failing, accepted) for one in found) else 0


def _show(found: list[Audited], form: str, *, full: bool) -> None:
    objects = [to_object(one, full=full) for one in found]
    if form == TEXT:
        for one in found:
            note(one.source.notes)
            warn(one.source.warnings)
        answer(render_text(objects))
    elif form == JSON:
        show_object({"pods": objects})
    elif form == MARKDOWN:
        show_artefact(render_markdown(objects))
    else:
        show_artefact(render_page(objects, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())))


def _find_all(options: Options) -> list[RuleSource]:
    """The live rules of every pod here that has any. Raises NetinitError if there is none."""
    rule_sources: list[RuleSource] = []
    without = 0
    for pid, program in find_pods():
        name = f"pid {pid} ({program})"
        try:
            rule_source = find_rule_source(options.replace(pid=pid), LIVE)
        except NetinitError as error:
            warn([f"{name}: {error}"])
            continue
        if rule_source.rules.has_rules():
            rule_sources.append(replace(rule_source, name=name))
        else:
            without += 1
    if without:
        note([f"{count(without, 'network namespace')} of this node without any rule: not of a mesh"])
    if not rule_sources:
        raise NetinitError(
            "--all-pods: no pod of this node has rules that can be read; run it as root on the node, where its processes are seen"
        )
    return rule_sources
