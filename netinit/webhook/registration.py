"""The caBundle of webhook configurations: which of their webhooks are ours, and what is to be changed. Pure."""

from __future__ import annotations

import base64

from netinit.base.tree import Tree, mapping, sequence, string

__all__ = ["bundle_patch", "is_ours"]


def is_ours(webhook: Tree, *, service: str, namespace: str, name: str = "") -> bool:
    """Whether a webhook leads to our Service; where a name is given, whether it is the one of that name."""
    if name:
        return webhook.get("name") == name
    leads_to = mapping(mapping(webhook.get("clientConfig")).get("service"))
    return leads_to.get("name") == service and leads_to.get("namespace") == namespace


def bundle_patch(configuration: Tree, bundle: str, *, service: str, namespace: str, name: str = "") -> list[Tree]:
    """The JSON patch that gives our webhooks of a configuration this caBundle (PEM); empty where they have it.

    It holds for this very version of the configuration, so that a place in its list means what it meant here.
    """
    wanted = base64.b64encode(bundle.encode()).decode("ascii")
    operations: list[Tree] = []
    for place, webhook in enumerate(sequence(configuration.get("webhooks"))):
        webhook = mapping(webhook)  # noqa: PLW2901 - the same, if it is one
        if not is_ours(webhook, service=service, namespace=namespace, name=name):
            continue
        if string(mapping(webhook.get("clientConfig")).get("caBundle")) != wanted:
            path = f"/webhooks/{place}/clientConfig/caBundle"
            operations.append({"op": "add", "path": path, "value": wanted})  # add replaces, too
    if not operations:
        return []
    version = mapping(configuration.get("metadata")).get("resourceVersion")
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]
