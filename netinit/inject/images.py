"""The image references that current templates print: hub, name, tag and type put together as Istio does."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, string

__all__ = ["init_image", "proxy_image"]

_TYPES = ("debug", "distroless")
_DEFAULT = "default"


def proxy_image(values: Tree, annotated_type: str, configured_type: str) -> str:
    """The proxy's image; its type is the annotation's, else the ProxyConfig's, else that of the values."""
    return _image(values, "proxy", annotated_type or configured_type)


def init_image(values: Tree, annotated_type: str) -> str:
    """The init container's image; the ProxyConfig has no say in it."""
    return _image(values, "proxy_init", annotated_type)


def _image(values: Tree, part: str, image_type: str) -> str:
    settings = mapping(values.get("global"))
    name = string(mapping(settings.get(part)).get("image")) or "proxyv2"
    tag = string(settings.get("tag"))
    kind = image_type or string(settings.get("variant"))
    if kind:
        for known in _TYPES:
            tag = tag.removesuffix(f"-{known}")
        if kind != _DEFAULT:
            tag = f"{tag}-{kind}"
    hub = string(settings.get("hub"))
    image = f"{hub}/{name}" if hub else name
    return f"{image}:{tag}" if tag else image
