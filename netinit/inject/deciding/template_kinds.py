"""Which objects create pods, and where in them the pod's template is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping

EACH = "[]"
"""The step of a path to each item of a list."""
Path = tuple[str | int, ...]


class TemplateKind(Record):
    """A kind of objects with a pod template, which has metadata and spec. `groups`: API groups; none means any.

    `path`: of the template. `metadata`: of what holds the metadata that manual injection changes, if that is not the template.
    """

    kind: str
    groups: frozenset[str]
    path: tuple[str, ...]
    metadata: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> TemplateKind:
        """Read `KIND=PATH` or `KIND.GROUP=PATH`. Raises ValueError, whose text follows the value."""
        found = re.fullmatch(_DECLARED, text)
        if found is None:
            raise ValueError(_FORM)
        steps = [step for key in found["path"].split(".") for step in ((key[:-2], EACH) if key.endswith(EACH) else (key,))]
        return cls(kind=found["kind"], groups=frozenset(filter(None, [found["group"]])), path=tuple(steps))

    def templates(self, tree: Tree) -> list[Path]:
        """Return the paths of an object's templates; that of a single one is there also if the object has none."""
        return [*_expand(tree, self.path)]


_STEP = r"[A-Za-z0-9_-]+(?:\[\])?"
_DECLARED = rf"(?P<kind>[A-Z][A-Za-z0-9]{{0,62}})(?:\.(?P<group>[a-z0-9.-]{{1,253}}))?=(?P<path>{_STEP}(?:\.{_STEP}){{0,19}})"
_FORM = "is not KIND=PATH or KIND.GROUP=PATH; write Rollout.argoproj.io=spec.template, or Job.batch.volcano.sh=spec.tasks[].template"


def _expand(tree: Any, path: tuple[str, ...], behind: Path = ()) -> Iterator[Path]:
    for number, step in enumerate(path):
        if step == EACH:
            for position, item in enumerate(tree if isinstance(tree, list) else ()):
                yield from _expand(item, path[number + 1 :], (*behind, position))
            return
        tree, behind = mapping(tree).get(step), (*behind, step)
    yield behind


def _kinds(kinds: str, groups: tuple[str, ...], path: str = "spec.template", metadata: str | None = None) -> Iterator[TemplateKind]:
    for kind in kinds.split():
        holder = None if metadata is None else tuple(metadata.split("."))
        yield TemplateKind(kind=kind, groups=frozenset(groups), path=tuple(filter(None, path.split("."))), metadata=holder)


SHIPPED: tuple[TemplateKind, ...] = (
    *_kinds("Deployment DaemonSet ReplicaSet", ("apps", "extensions")),
    *_kinds("StatefulSet", ("apps",)),
    *_kinds("ReplicationController", ("",)),
    *_kinds("Job", ("batch",)),
    *_kinds("CronJob", ("batch",), "spec.jobTemplate.spec.template", "spec.jobTemplate"),  # as in Istio
    *_kinds("Pod", ("",), ""),
    *_kinds("PodTemplate", ("",), "template"),
    *_kinds("DeploymentConfig", ("", "apps.openshift.io")),
    *_kinds("Rollout", ("argoproj.io",)),
    *_kinds("Service Configuration", ("serving.knative.dev",)),
)


def find_kinds(kind: Any, group: str, declared: Iterable[TemplateKind]) -> list[TemplateKind]:
    """Return the templates that objects of this kind and API group may have: those declared, or else those known."""
    for kinds in (declared, SHIPPED):
        if found := [one for one in kinds if one.kind == kind and (not one.groups or group in one.groups)]:
            return found
    return []
