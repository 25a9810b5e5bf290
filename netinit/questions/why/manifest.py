"""The step "manifest": annotations that nothing reads, values that cannot be read, rights that lack."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.metadata_findings import annotation_findings, request_findings
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.inject.deciding.warnings import (
    ARGUMENTS,
    HOST_NETWORK,
    INVALID_VALUE,
    MARK_SETTER,
    NO_NETWORK,
    NOT_PROGRAMMED,
    RULE_CHANGER,
    pod_findings,
)
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, count_unexamined, failed, passed

NAME = "manifest"
_OF_OTHER_STEPS = (NOT_PROGRAMMED, PROXY_OWNER, NO_NETWORK, HOST_NETWORK)
_NO_CAUSE = (RULE_CHANGER, MARK_SETTER)  # rights that a container has; nothing fails because of them


def examine_manifest(pod: PodInQuestion) -> Iterator[Step]:
    """Say what is wrong with the manifest itself."""
    of_metadata = [*annotation_findings(pod.annotations, frozenset(known_keys()), pod.workload), *request_findings(pod.workload)]
    found = [*of_metadata, *pod_findings(pod.runs)]
    wrong = [one for one in found if one.kind not in (*_OF_OTHER_STEPS, *_NO_CAUSE) and not one.is_note]
    for one in wrong[:MAX_LISTED]:
        text, _, remedy = one.text.rpartition("; ")
        yield failed(NAME, one.kind, text or remedy, pod.title, remedy=remedy if text else "")
    yield from count_unexamined(NAME, wrong, "findings", pod.title)
    if pod.problem and not any(one.kind == ARGUMENTS for one in wrong):
        yield failed(NAME, INVALID_VALUE, pod.problem.partition("\n")[0], pod.title)
    elif not wrong:
        yield passed(NAME, "its annotations and arguments can be read", pod.title)
