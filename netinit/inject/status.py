"""The status annotation: the names that an injection added, so that the next one can remove them.

A forged annotation does no harm: only lists of strings are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, strings
from netinit.inject.annotations import STATUS
from netinit.inject.containers import CORE_DUMP, INIT, PROXY, names, without
from netinit.inject.kubernetes_types import encode_json

TEMPLATE_LISTS = ("initContainers", "containers", "volumes", "imagePullSecrets")
"""The lists of a pod's spec that templates add to, in the annotation's order."""


class Status(Record):
    """The names that an injection added to each list of the spec, in template order."""

    added: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, text: str | None) -> Status | None:
        """Parse the annotation's value; None if absent or invalid."""
        try:
            tree = json.loads(text or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(tree, dict):
            return None
        return cls(
            added={key: tuple(item for item in sequence(tree.get(key)) if isinstance(item, str)) for key in TEMPLATE_LISTS}
        )

    @classmethod
    def of_pod(cls, pod: Tree) -> Status | None:
        """Return the pod's status; None if it was never injected."""
        return cls.parse(strings(mapping(pod.get("metadata")).get("annotations")).get(STATUS))

    @classmethod
    def of_template(cls, spec: Tree) -> Status:
        """Return the status for the output of a template."""
        return cls(added={key: tuple(names(spec.get(key))) for key in TEMPLATE_LISTS})

    def _json(self) -> Tree:
        return {key: list(value) or None for key, value in self.added.items()}

    def current_text(self, revision: str) -> str:
        """Format the annotation of a current injector; the revision `default` means none."""
        return encode_json({**self._json(), "revision": revision or "default"})

    def classic_text(self, version: str) -> str:
        """Format the annotation of a classic injector; `version`: the template's SHA-256 in hexadecimal."""
        return encode_json({"version": version, **self._json()})

    def strip(self, spec: Tree, *fields: str) -> None:
        """Remove the names from these fields of the spec (default: all), and lists that become empty."""
        for key, gone in self.added.items():
            if key in spec and gone and (not fields or key in fields):
                spec[key] = without(spec[key], gone)
                if not spec[key] and key != "containers":
                    del spec[key]


WITHOUT_STATUS = Status(
    added={
        "initContainers": (INIT, CORE_DUMP),
        "containers": (PROXY,),
        "volumes": ("istio-certs", "istio-envoy"),
    }
)
"""What classic injectors remove from a pod without a usable status."""
