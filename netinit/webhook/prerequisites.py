"""What pods of a mesh need beside a webhook: the control plane's certificate in their namespace, and images that exist. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.webhooks import Webhook

__all__ = ["CA_CONFIG_MAP", "find_missing"]

CA_CONFIG_MAP = "istio-ca-root-cert"
"""The ConfigMap with the control plane's certificate, which istiod writes into every namespace and the sidecar mounts."""

_WITH_IMAGES = (  # a kind of our objects, its name as a label, and the chart's value for its image
    ("Deployment", "netinit-webhook", "image.repository"),
    ("DaemonSet", "netinit-node", "node.image.repository"),
)
Said = tuple[str, str, str, str]
"""Of a finding: its kind, what it is about, what is so and what helps."""


def find_missing(by_kind: Mapping[str, list[Tree]], hooks: Sequence[Webhook], *, whole: bool) -> Iterator[Said]:
    """What is missing. `whole`: the objects are all there are, so that what is missing is missing."""
    if whole and "ConfigMap" in by_kind:
        yield from _find_namespaces_without_authority(by_kind, hooks)
    for kind, name, value in _WITH_IMAGES:
        for tree in by_kind.get(kind, []):
            metadata = mapping(tree.get("metadata"))
            if strings(metadata.get("labels")).get("app.kubernetes.io/name") == name:
                containers = sequence(mapping(mapping(mapping(tree.get("spec")).get("template")).get("spec")).get("containers"))
                images = [string(mapping(one).get("image")) for one in containers]
                yield from _about_images(f"{kind} {metadata.get('namespace')}/{metadata.get('name')}", images, value)
    for tree in by_kind.get("ConfigMap", []):
        metadata, text = mapping(tree.get("metadata")), strings(tree.get("data")).get("values", "")
        if strings(metadata.get("labels")).get("app.kubernetes.io/name") == "netinit-webhook":
            called = f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
            yield from _about_images(called, [_read_init_image(text)], "initImage.repository")


def _find_namespaces_without_authority(by_kind: Mapping[str, list[Tree]], hooks: Sequence[Webhook]) -> Iterator[Said]:
    there = {
        mapping(tree.get("metadata")).get("namespace")
        for tree in by_kind["ConfigMap"]
        if mapping(tree.get("metadata")).get("name") == CA_CONFIG_MAP
    }
    missing = []
    for tree in by_kind.get("Namespace", []):
        metadata = mapping(tree.get("metadata"))
        labels = strings(metadata.get("labels"))
        if metadata.get("name") not in there and any(hook.matches(labels, {}) for hook in hooks):
            missing.append(string(metadata.get("name")))
    if missing:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")  # noqa: PLR2004
        yield (
            "no-authority",
            f"namespace {named}",
            f"there is no ConfigMap {CA_CONFIG_MAP}, which the sidecar mounts: injected pods do not start",
            f"install a control plane: istiod writes it. Or: kubectl -n {missing[0]} create configmap {CA_CONFIG_MAP} --from-file=",
        )


def _about_images(called: str, images: Sequence[str], value: str) -> Iterator[Said]:
    for image in images:
        host = image.partition("/")[0] if "/" in image else ""
        if image and host != "localhost" and not {".", ":"} & {*host}:  # as runtimes tell a registry from a folder
            yield (
                "short-image",
                called,
                f"its image {image} names no registry: containerd asks docker.io for it, CRI-O its own list of registries",
                f"set {value} to REGISTRY/{image.partition('@')[0].partition(':')[0]}",
            )


def _read_init_image(text: str) -> str:
    try:
        values = mapping(json.loads(text))
    except (ValueError, RecursionError):
        return ""
    return string(mapping(mapping(values.get("global")).get("proxy_init")).get("image"))
