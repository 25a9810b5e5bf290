"""Inject a stream of manifests, as in manual injection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from netinit.base.errors import ConfigError, InjectionError, ParseError
from netinit.base.sanitize import split_message
from netinit.base.tree import Tree, clone, same
from netinit.golang import goyaml
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.pod import inject_pod
from netinit.inject.adding.settings import Namespace, Settings
from netinit.inject.deciding.decision import Decision, DecisionStep, decide_manually
from netinit.inject.deciding.manifests import Document, Selection, Workload, split, workloads
from netinit.inject.deciding.metadata_findings import unread_by_hand
from netinit.inject.deciding.template_kinds import TemplateKind
from netinit.inject.deciding.warnings import ERROR, pod_findings

Advise = Callable[[Tree, Tree, InjectionConfig, Workload], Iterable[object]]
"""Returns warnings, whose str() is the text, for the author of a pod, which is given before and after its injection."""


def inject_into(
    write: Callable[[str], object],
    text: str,
    config: InjectionConfig,
    *,
    advise: Advise,
    settings: Settings | None = None,
    namespace: str = "",
    find_namespace: Callable[[str], Namespace] = lambda name: Namespace(name=name),
    selection: Selection | None = None,
    kinds: tuple[TemplateKind, ...] = (),
    progress: Callable[[int, int], None] | None = None,
    file: str = "",
) -> tuple[tuple[str, ...], int]:
    """Inject each eligible workload and write the stream; return the notices and the number of changed workloads.

    `advise`: see `netinit.questions.injection_advice`. `namespace`: the default for objects without one. `find_namespace`: looks
    a namespace up by name. Workloads that `selection` does not select are written unchanged. `kinds`: of objects with pod templates
    beside those that netinit knows. `file`: its name for errors.
    Raises InjectionError at the end, with a line for each problem; discard the output then.
    """
    documents = split(text)
    run = _Run(
        config, advise=advise, settings=settings or Settings(), namespace=namespace, selection=selection or Selection(),
        find_namespace=find_namespace, kinds=kinds,
    )  # fmt: skip
    problems: list[str] = []
    changed = 0
    for number, document in enumerate(documents, 1):
        try:
            body, count = run.document(document)
        except _DocumentError as error:
            problems += [_name_problem(one, file, number) for one in error.problems]
            continue
        write(document.separator)
        if document.separator and count and not document.separator.endswith("\n"):
            write("\n")
        write(body)
        changed += count
        if progress:
            progress(number, len(documents))
    if problems:
        raise InjectionError("\n".join(problems))
    return tuple(run.notices), changed


class _DocumentError(Exception):
    def __init__(self, problems: Iterable[str | ParseError]) -> None:
        self.problems = problems


def _name_problem(problem: str | ParseError, file: str, number: int) -> str:
    """Return the problem with the file and, instead of the document's number, its line and column if they are known."""
    if file and isinstance(problem, ParseError) and problem.line:
        return problem.in_file(file)
    return f"{file}: document {number}: {problem}" if file else f"document {number}: {problem}"


class _Run:
    def __init__(
        self, config: InjectionConfig, *, advise: Advise, settings: Settings, namespace: str, selection: Selection,
        find_namespace: Callable[[str], Namespace], kinds: tuple[TemplateKind, ...],
    ) -> None:  # fmt: skip
        self.config, self.advise, self.settings, self.namespace, self.selection = config, advise, settings, namespace, selection
        self.find_namespace, self.kinds = find_namespace, kinds
        self.notices: list[str] = []

    def document(self, document: Document) -> tuple[str, int]:
        """Return the document's text after injection, and the number of changed workloads. Raises _DocumentError."""
        problems: list[str | ParseError] = []
        changed: list[tuple[Workload, Tree]] = []
        try:
            tree, duplicates = document.parse()
            found = list(workloads(tree, self.kinds))
        except ParseError as error:
            raise _DocumentError([error] if error.line else split_message(str(error))) from None
        for workload in found:
            if not self.selection.takes(workload):
                continue
            try:
                pod = self.injected(workload)
            except (InjectionError, ConfigError) as error:  # ConfigError: a lazily parsed template is invalid
                problems += [f"{workload.title}: {line}" for line in split_message(str(error))]
                continue
            if pod is not None:
                changed.append((workload, pod))
        if changed and duplicates:
            remedy = "; remove one, as only the last would be kept"
            problems += [ParseError(one.problem + remedy, one.line, one.column) for one in duplicates]
        if problems:
            raise _DocumentError(problems)
        if not changed:
            return document.text, 0
        before = clone(tree)
        for workload, pod in changed:
            workload.set_pod(pod)
        return _written(document.text, before, tree), len(changed)

    def injected(self, workload: Workload) -> Tree | None:
        """Return the injected pod; None if it is skipped or already complete."""
        if workload.bare:
            self.notices.append(f"===> Skipping injection because {workload.title} has no pod spec")
            return None
        where = workload.namespace or self.namespace
        pod = workload.pod()
        decision = decide_manually(pod, where, self.config)
        self.notices += [f"{workload.title}: {warning}" for warning in decision.warnings]
        self.notices += [f"warning: {workload.title}: {one}" for one in unread_by_hand(workload, self.config.known_annotations)]
        if not decision.inject:
            self.notices.append(f"===> Skipping injection because {workload.title} {_cause(decision)}")
            if decision.step is DecisionStep.HOST_NETWORK:
                errors = [finding for finding in pod_findings(pod) if finding.severity == ERROR]
                self.notices += [f"warning: {workload.title}: {finding}" for finding in errors]
            return None
        namespace = self.find_namespace(where)
        result = inject_pod(pod, self.config, namespace=namespace, settings=self.settings, owner=workload.owner)
        self.notices += [f"warning: {workload.title}: {warning}" for warning in self.advise(pod, result, self.config, workload)]
        return None if same(pod, result) else result


def _cause(decision: Decision) -> str:
    """Return why a workload is skipped, with Istio's message if it has one."""
    if decision.step is DecisionStep.HOST_NETWORK:
        return "has host networking enabled"
    if decision.step is DecisionStep.NAMESPACE:
        return f"is in a system namespace: {decision.reason}"
    return "has sidecar injection disabled"


def _written(text: str, before: Any, after: Any) -> str:
    if text.lstrip().startswith("{"):
        return json.dumps(after, indent=2) + "\n"  # ASCII only: JSON permits some control characters unescaped
    return goyaml.rewrite(text, before, after)
