"""Inject in the classic format (Istio 1.0, 1.1): append the template's lists to the pod's.

It corrects what the API server of 2018 ignored or accepted: `restartPolicy: Always` on containers, which would make
istio-init a sidecar today, and numbers as arguments.
"""

from __future__ import annotations

from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.annotations import STATUS
from netinit.inject.config import InjectionConfig
from netinit.inject.containers import find_proxy, named
from netinit.inject.probes import rewrite, wants_rewrite
from netinit.inject.rendering import Subject, render
from netinit.inject.status import LISTS, WITHOUT_STATUS, Status

_STATUS_PORT_FLAG = "--statusPort"


def inject_classic(pod: Tree, config: InjectionConfig, subject: Subject) -> Tree:
    """Modify and return the pod, with the lists of the rendered template appended.

    What an earlier injection added is removed first, by the status annotation, else by the usual names.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    before = Status.of_pod(pod)
    (before or WITHOUT_STATUS).strip(spec)
    annotations = strings(metadata.get("annotations"))
    annotations.pop(STATUS, None)
    metadata["annotations"] = annotations
    rendered = render("sidecar", config, pod, subject)
    added: Tree = {}
    for key in LISTS:
        items = _items(rendered, key)
        present = [item.get("name") for item in named(spec.get(key))]
        added[key] = [item for item in items if item.get("name") not in present]
        if added[key]:
            spec[key] = [*sequence(spec.get(key)), *added[key]]
    if isinstance(rendered.get("dnsConfig"), dict):
        spec["dnsConfig"] = rendered["dnsConfig"]
    annotations.update(strings(rendered.get("podRedirectAnnot")))
    if wants_rewrite(annotations, default=rendered.get("rewriteAppHTTPProbe") is True):
        rewrite(spec, annotations, _status_port(spec, subject), injected_before=before is not None)
    annotations[STATUS] = Status.of_template(added).classic_text(config.version)
    annotations.update(config.injected_annotations)
    return pod


def _items(rendered: Tree, key: str) -> list[Tree]:
    """Return a list of the template, without fields that have another meaning today."""
    items = rendered.get(key)
    if items is not None and not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
        raise InjectionError(f"template 'sidecar': {key} must be a list of mappings")
    result = []
    for item in sequence(items):
        if key in {"initContainers", "containers"}:
            item = {name: value for name, value in item.items() if name != "restartPolicy"}  # noqa: PLW2901 - a copy
            if isinstance(item.get("securityContext"), dict):
                context = item["securityContext"]
                item["securityContext"] = {name: value for name, value in context.items() if name != "restartPolicy"}
        result.append(item)
    return result


def _status_port(spec: Tree, subject: Subject) -> int:
    arguments: list[Any] = sequence(mapping(find_proxy(spec)).get("args"))
    for position, argument in enumerate(arguments[:-1]):
        text = string(arguments[position + 1])
        if argument == _STATUS_PORT_FLAG and text.isascii() and text.isdigit():
            return int(text)
    return subject.proxy.status_port
