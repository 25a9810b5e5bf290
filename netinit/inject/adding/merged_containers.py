"""Order, override and remove the containers that an injection adds to a pod, and record which ones it added."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, clone, explain_json_error, mapping, sequence, string
from netinit.inject.adding.kubernetes_types import encode_json, ordered
from netinit.inject.adding.merge import merge
from netinit.inject.deciding.annotations import OVERRIDES
from netinit.inject.deciding.containers import (
    CORE_DUMP,
    INIT,
    LISTS,
    PROXY,
    TEMPLATE_LISTS,
    VALIDATION,
    all_containers,
    find,
    named,
    names,
)

AUTO_IMAGE = "auto"


def without(items: Any, gone: Collection[str]) -> list[Any]:
    """Return the list without the items with these names."""
    return [item for item in sequence(items) if not (isinstance(item, dict) and item.get("name") in gone)]


_NATIVE_ORDER = {INIT: -4, VALIDATION: -3, PROXY: -2, CORE_DUMP: -1}
_INIT_ORDER = {VALIDATION: -1, INIT: 1, CORE_DUMP: 2}
"""The order of init containers, with and without a native sidecar; the user's own are at 0."""


def reorder(spec: Tree, *, proxy_first: bool) -> None:
    """Sort the containers of the spec in their start order.

    The proxy is the last container, so that kubectl exec selects the application, or the first if the application waits
    for it. A native sidecar directly follows istio-init, so that the user's init containers have a network; without
    one, istio-init is last. istio-validation is first.
    """
    if "containers" in spec:
        spec["containers"] = _sorted(spec["containers"], {PROXY: -1 if proxy_first else 1})
    if "initContainers" in spec:
        native = find(spec["initContainers"], PROXY) is not None
        spec["initContainers"] = _sorted(spec["initContainers"], _NATIVE_ORDER if native else _INIT_ORDER)


def _sorted(items: Any, ranks: Mapping[str, int]) -> list[Any]:
    return sorted(sequence(items), key=lambda item: ranks.get(string(item.get("name")), 0) if isinstance(item, dict) else 0)


def normalize(spec: Tree) -> None:
    """Convert numbers in arguments and variables to strings, as the API server requires; null becomes ""."""
    for container in all_containers(spec):
        for key in ("args", "command"):
            if {*map(type, sequence(container.get(key)))} - {str}:
                container[key] = [item if isinstance(item, (dict, list)) else string(item) for item in container[key]]
        if any(map(_lacks_text, sequence(container.get("env")))):
            container["env"] = [
                {**one, "value": string(one["value"])} if _lacks_text(one) else one for one in container["env"]
            ]


def _lacks_text(variable: Any) -> bool:
    """Whether a variable has a number, a boolean or null for its value."""
    return isinstance(variable, dict) and not isinstance(variable.get("value", ""), (str, dict, list))


class Overrides:
    """The user's containers with the name of a template's container, as saved in the annotation.

    Raises InjectionError if it is invalid.
    """

    def __init__(self, annotations: Mapping[str, str]) -> None:
        try:
            saved = json.loads(annotations.get(OVERRIDES, "null"))
        except (ValueError, RecursionError) as error:
            raise InjectionError(f"invalid value for annotation {OVERRIDES!r}: no JSON: {explain_json_error(error)}") from None
        if not isinstance(saved, dict | None):
            raise InjectionError(f"invalid value for annotation {OVERRIDES!r}: it must be a JSON object")
        self.saved = {key: named(mapping(saved).get(key)) for key in LISTS}

    def text(self) -> str:
        """The annotation's value."""
        return encode_json({key: items for key, items in self.saved.items() if items})

    def reinsert(self, spec: Tree) -> None:
        """Add the saved containers that the spec lacks."""
        for key in LISTS:
            present = names(spec.get(key))
            missing = [clone(item) for item in self.saved[key] if item.get("name") not in present]
            if missing:
                spec[key] = [*sequence(spec.get(key)), *missing]

    def apply(self, spec: Tree, original: Tree, template: Tree, before: Mapping[str, Collection[str]] | None) -> bool:
        """Merge the user's containers over the template's of the same name; return whether there are any to save.

        Saved containers have priority over those of `original`. `before`: names that an earlier injection added, by
        list; None without one. The image `auto` is the template's.
        """
        injected = before or {}
        listed = {name for names_of_list in injected.values() for name in names_of_list}
        found: dict[str, list[Tree]] = {key: [] for key in LISTS}
        fresh = False
        for key in LISTS:
            for name in names(template.get(key)):
                match = find(self.saved[key], name)
                if match is None and name not in injected.get(key, ()):
                    match = find(original.get(key), name)
                    fresh = fresh or (match is not None and name not in listed)
                if match is None:
                    continue
                overlay = ordered("v1.Container", match)
                if overlay.get("image") == AUTO_IMAGE:
                    del overlay["image"]
                found[key].append(overlay)
                spec.update(merge({key: sequence(spec.get(key))}, {key: [overlay]}))
            if before is not None:
                found[key] += [item for item in self.saved[key] if find(found[key], string(item.get("name"))) is None]
        self.saved = found
        return fresh or (before is None and any(found.values()))


def move_to_init(spec: Tree) -> None:
    """Move a user's istio-proxy container to the init containers, as a native sidecar requires."""
    proxy = find(spec.get("containers"), PROXY)
    if proxy is None or find(spec.get("initContainers"), PROXY) is not None:
        return
    spec["containers"] = without(spec["containers"], [PROXY])
    spec["initContainers"] = [*sequence(spec.get("initContainers")), proxy]


def write_status(added: Tree, *, revision: str = "", version: str = "") -> str:
    """Return the status annotation for the spec that a template added.

    `revision`: the injector's; "" means `default`. `version`: for the classic form, the template's SHA-256 in hexadecimal.
    """
    lists = {key: names(added.get(key)) or None for key in TEMPLATE_LISTS}
    return encode_json({"version": version, **lists} if version else {**lists, "revision": revision or "default"})


def remove_added(spec: Tree, added: Mapping[str, Collection[str]]) -> None:
    """Remove from each list of the spec the items with these names, and lists that become empty."""
    for key, gone in added.items():
        if key in spec and gone:
            spec[key] = without(spec[key], gone)
            if not spec[key] and key != "containers":
                del spec[key]


WITHOUT_STATUS: Mapping[str, Collection[str]] = {
    "initContainers": (INIT, CORE_DUMP), "containers": (PROXY,), "volumes": ("istio-certs", "istio-envoy"),
}  # fmt: skip
"""What classic injectors remove from a pod without a usable status."""
