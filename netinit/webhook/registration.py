"""Find our webhooks in webhook configurations, and patch their caBundle. Pure."""

from __future__ import annotations

import base64

from netinit.base.tree import Tree, mapping, sequence, string


def is_ours(webhook: Tree, *, service: str, namespace: str, name: str = "") -> bool:
    """Whether a webhook has this `name` or, if that is empty, calls our Service."""
    if name:
        return webhook.get("name") == name
    target = mapping(mapping(webhook.get("clientConfig")).get("service"))
    return target.get("name") == service and target.get("namespace") == namespace


def bundle_patch(configuration: Tree, bundle: str, *, service: str, namespace: str, name: str = "") -> list[Tree]:
    """Return the JSON patch that sets our webhooks' caBundle (PEM); empty if it is set.

    It tests the resourceVersion, since JSON patches address webhooks by index.
    """
    encoded = base64.b64encode(bundle.encode()).decode("ascii")
    operations: list[Tree] = []
    for index, webhook in enumerate(sequence(configuration.get("webhooks"))):
        webhook = mapping(webhook)  # noqa: PLW2901 - empty if it is not a mapping
        if not is_ours(webhook, service=service, namespace=namespace, name=name):
            continue
        if string(mapping(webhook.get("clientConfig")).get("caBundle")) != encoded:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            operations.append({"op": "add", "path": path, "value": encoded})  # add also replaces
    if not operations:
        return []
    version = mapping(configuration.get("metadata")).get("resourceVersion")
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]
