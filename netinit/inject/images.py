"""The images printed by current templates: hub, name, tag and type joined as in Istio."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, string

_TYPES = ("debug", "distroless")
_DEFAULT = "default"


def proxy_image(values: Tree, annotated_type: str | None, configured_type: str) -> str:
    """Return the proxy's image; its type is the annotation's (even if empty), else the ProxyConfig's, else the values'."""
    return _image(values, "proxy", annotated_type if annotated_type is not None else configured_type or None)


def init_image(values: Tree, annotated_type: str | None) -> str:
    """Return the init container's image; the ProxyConfig does not affect it."""
    return _image(values, "proxy_init", annotated_type)


def _image(values: Tree, part: str, image_type: str | None) -> str:
    settings = mapping(values.get("global"))
    name = string(mapping(settings.get(part)).get("image")) or "proxyv2"
    tag = string(settings.get("tag"))
    kind = string(settings.get("variant")) if image_type is None else image_type
    if kind:
        for known in _TYPES:
            tag = tag.removesuffix(f"-{known}")
        if kind != _DEFAULT:
            tag = f"{tag}-{kind}"
    hub = string(settings.get("hub"))
    image = f"{hub}/{name}" if hub else name
    return f"{image}:{tag}" if tag else image
