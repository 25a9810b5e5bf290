"""Check what injected pods need: the control plane's CA in their namespace, and pullable images. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.webhooks import Webhook

CA_CONFIG_MAP = "istio-ca-root-cert"
"""The ConfigMap with the CA certificate, written by istiod and mounted by sidecars."""

_WITH_IMAGES = (  # kind, name label, and the chart's value for the image
    ("Deployment", "netinit-webhook", "image.repository"),
    ("DaemonSet", "netinit-node", "node.image.repository"),
)
FindingParts = tuple[str, str, str, str]
"""A finding's kind, object, message and remedy."""


def find_missing(by_kind: Mapping[str, list[Tree]], hooks: Sequence[Webhook], *, whole: bool) -> Iterator[FindingParts]:
    """Yield what is missing. `whole`: the objects are a complete cluster, so others do not exist."""
    if whole and "ConfigMap" in by_kind:
        yield from _find_namespaces_without_ca(by_kind, hooks)
    for kind, name, value in _WITH_IMAGES:
        for tree in by_kind.get(kind, []):
            metadata = mapping(tree.get("metadata"))
            if strings(metadata.get("labels")).get("app.kubernetes.io/name") == name:
                containers = sequence(mapping(mapping(mapping(tree.get("spec")).get("template")).get("spec")).get("containers"))
                images = [string(mapping(one).get("image")) for one in containers]
                yield from _check_images(f"{kind} {metadata.get('namespace')}/{metadata.get('name')}", images, value)
    for tree in by_kind.get("ConfigMap", []):
        metadata, text = mapping(tree.get("metadata")), strings(tree.get("data")).get("values", "")
        if strings(metadata.get("labels")).get("app.kubernetes.io/name") == "netinit-webhook":
            label = f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
            yield from _check_images(label, [_read_init_image(text)], "initImage.repository")


def join_some(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _find_namespaces_without_ca(by_kind: Mapping[str, list[Tree]], hooks: Sequence[Webhook]) -> Iterator[FindingParts]:
    namespaces_with_ca = {
        mapping(tree.get("metadata")).get("namespace")
        for tree in by_kind["ConfigMap"]
        if mapping(tree.get("metadata")).get("name") == CA_CONFIG_MAP
    }
    missing = []
    for tree in by_kind.get("Namespace", []):
        metadata = mapping(tree.get("metadata"))
        labels = strings(metadata.get("labels"))
        if metadata.get("name") not in namespaces_with_ca and any(hook.matches(labels, {}) for hook in hooks):
            missing.append(string(metadata.get("name")))
    if missing:
        yield (
            "no-authority",
            f"namespace {join_some(missing, 5)}",
            f"there is no ConfigMap {CA_CONFIG_MAP}, which the sidecar mounts: injected pods do not start",
            f"install a control plane: istiod writes it. Or: kubectl -n {missing[0]} create configmap {CA_CONFIG_MAP} --from-file=",
        )


def _check_images(label: str, images: Sequence[str], value: str) -> Iterator[FindingParts]:
    for image in images:
        host = image.partition("/")[0] if "/" in image else ""
        if image and host != "localhost" and not {".", ":"} & {*host}:  # how runtimes recognize a registry
            yield (
                "short-image",
                label,
                f"its image {image} names no registry: containerd asks docker.io for it, CRI-O its own list of registries",
                f"set {value} to REGISTRY/{image.partition('@')[0].partition(':')[0]}",
            )


def _read_init_image(text: str) -> str:
    try:
        values = mapping(json.loads(text))
    except (ValueError, RecursionError):
        return ""
    return string(mapping(mapping(values.get("global")).get("proxy_init")).get("image"))
