"""What an earlier injection added to a pod, by the annotation that it left."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from netinit.base.tree import Tree, mapping, sequence, strings
from netinit.inject.deciding.annotations import STATUS
from netinit.inject.deciding.containers import TEMPLATE_LISTS


def read_status(pod: Tree) -> Mapping[str, Collection[str]] | None:
    """Return the names that an injection added to each list of the spec, by its annotation; None if there is none or a bad one.

    A forged annotation does no harm: only lists of strings are used.
    """
    try:
        tree = json.loads(strings(mapping(pod.get("metadata")).get("annotations")).get(STATUS) or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    return {key: [item for item in sequence(tree.get(key)) if isinstance(item, str)] for key in TEMPLATE_LISTS}
