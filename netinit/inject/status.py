"""The status annotation: the names that an injection added, so that the next one can remove them.

Current injectors store names and revision; classic ones store names and the template's SHA-256. The annotation may be
forged: only lists of strings are used.
"""

from __future__ import annotations

import json

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, strings
from netinit.inject import field_order
from netinit.inject.annotations import STATUS
from netinit.inject.containers import names, without

_LISTS = ("initContainers", "containers", "volumes", "imagePullSecrets")


class Status(Record):
    """The names that an injection added, in template order."""

    init_containers: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Status | None:
        """Parse the annotation's value; None if absent or invalid."""
        if text is None:
            return None
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(tree, dict):
            return None
        found = {key: tuple(item for item in sequence(tree.get(key)) if isinstance(item, str)) for key in _LISTS}
        return cls(
            init_containers=found["initContainers"],
            containers=found["containers"],
            volumes=found["volumes"],
            image_pull_secrets=found["imagePullSecrets"],
        )

    @classmethod
    def of_pod(cls, pod: Tree) -> Status | None:
        """Return the pod's status; None if it was never injected."""
        return cls.parse(strings(mapping(pod.get("metadata")).get("annotations")).get(STATUS))

    @classmethod
    def of_template(cls, spec: Tree) -> Status:
        """Return the status for the output of a template."""
        return cls(
            init_containers=tuple(names(spec.get("initContainers"))),
            containers=tuple(names(spec.get("containers"))),
            volumes=tuple(names(spec.get("volumes"))),
            image_pull_secrets=tuple(names(spec.get("imagePullSecrets"))),
        )

    def lists(self) -> dict[str, list[str]]:
        """The names by the spec's fields."""
        values = (self.init_containers, self.containers, self.volumes, self.image_pull_secrets)
        return {key: list(value) for key, value in zip(_LISTS, values, strict=True)}

    def _json(self) -> Tree:
        return {key: value or None for key, value in self.lists().items()}

    def current_text(self, revision: str) -> str:
        """Format the annotation of a current injector; the revision `default` means none."""
        return field_order.encode({**self._json(), "revision": revision or "default"})

    def classic_text(self, version: str) -> str:
        """Format the annotation of a classic injector; `version`: the raw template's SHA-256 in hexadecimal."""
        return field_order.encode({"version": version, **self._json()})

    def strip(self, spec: Tree, *fields: str) -> None:
        """Remove the named items from these fields of the spec (default: all), and lists that become empty."""
        for key, gone in self.lists().items():
            if key in spec and gone and (not fields or key in fields):
                spec[key] = without(spec[key], gone)
                if not spec[key] and key != "containers":
                    del spec[key]


WITHOUT_STATUS = Status(
    init_containers=("istio-init", "enable-core-dump"),
    containers=("istio-proxy",),
    volumes=("istio-certs", "istio-envoy"),
)
"""What classic injectors remove from a pod without a usable status: their names in the releases before it."""
