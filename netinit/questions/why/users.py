"""The step "user": containers that run as the proxy's user or group, whose traffic counts as the proxy's."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.sanitize import quote
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, count_unexamined, failed, passed

NAME = "user"


def examine_users(pod: PodInQuestion) -> Iterator[Step]:
    """Say which containers run as the proxy."""
    if pod.facts is None or pod.in_mesh is False:
        return
    for name, owner in pod.facts.shared_owners[:MAX_LISTED]:
        field = "runAsUser" if owner.startswith("uid") else "runAsGroup"
        text = f"runs as {owner}, the proxy's: its traffic is not captured and goes out in plain text; another user's is captured"
        yield failed(NAME, PROXY_OWNER, text, f"container {quote(name)}", remedy=f"choose another {field} for the container")
    yield from count_unexamined(NAME, pod.facts.shared_owners, "containers that run as the proxy", pod.title)
    if not pod.facts.shared_owners:
        yield passed(NAME, "no container runs as the proxy's user or group, as far as the manifest says", pod.title)
