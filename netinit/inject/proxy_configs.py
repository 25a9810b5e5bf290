"""Merge ProxyConfig resources (networking.istio.io/v1beta1) into a pod's ProxyConfig.

Precedence, lowest first: the mesh's defaultConfig, the root namespace's resource, the pod's namespace's, the annotation
`proxy.istio.io/config`, the resource whose selector matches (Istio 1.31, pilot/pkg/model/proxy_config.go). Of several,
the oldest applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.golang import goyaml
from netinit.inject.meshconfig import MeshConfig, ProxyConfig, read_proxy_config
from netinit.inject.webhooks import REVISION_LABEL

API_GROUP, KIND = "networking.istio.io", "ProxyConfig"
_FIELDS = {"concurrency": "concurrency", "environmentVariables": "proxyMetadata", "image": "image"}  # and the proxy's


class ProxyConfigResource(Record):
    """A resource: the ProxyConfig fields that it sets, and its selector.

    `selector`: None applies to the whole namespace; one without labels to no pod.
    """

    name: str
    namespace: str
    created: str
    revision: str | None
    selector: Mapping[str, str] | None
    fields: Tree

    @classmethod
    def parse(cls, tree: Tree) -> ProxyConfigResource:
        """Parse a manifest. Raises ConfigError for what the API server would reject."""
        metadata, spec = mapping(tree.get("metadata")), mapping(tree.get("spec"))
        name, namespace = string(metadata.get("name")), string(metadata.get("namespace"))
        label = f"ProxyConfig {namespace}/{name}"
        if unknown := sorted(spec.keys() - _FIELDS.keys() - {"selector"}):
            raise ConfigError(f"{label}: spec.{unknown[0]} is no field of it; it has selector, {', '.join(_FIELDS)}")
        try:
            fields = read_proxy_config({_FIELDS[key]: value for key, value in spec.items() if key in _FIELDS and value is not None})
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        return cls(
            name=name, namespace=namespace, created=string(metadata.get("creationTimestamp")),
            revision=strings(metadata.get("labels")).get(REVISION_LABEL), selector=_read_selector(label, spec.get("selector")),
            fields=fields,
        )  # fmt: skip

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches these labels."""
        return bool(self.selector) and all(labels.get(key) == value for key, value in mapping(self.selector).items())


def _read_selector(label: str, selector: Any) -> Mapping[str, str] | None:
    if selector is None:
        return None
    wanted = selector.get("matchLabels", {}) if isinstance(selector, dict) else None
    if not isinstance(wanted, dict) or not all(isinstance(one, str) for one in wanted.values()):
        raise ConfigError(f"{label}: spec.selector: {shown(selector)} must be matchLabels with a text for each label")
    return wanted


class ProxyConfigs(Record):
    """A cluster's resources by namespace, oldest first."""

    by_namespace: Mapping[str, tuple[ProxyConfigResource, ...]] = {}

    @classmethod
    def of(cls, resources: Iterable[ProxyConfigResource], revision: str = "") -> ProxyConfigs:
        """Return the resources for a revision, which is their label istio.io/rev or any without it; "": all."""
        found: dict[str, list[ProxyConfigResource]] = {}
        for one in sorted(resources, key=lambda one: (one.created, one.name)):
            if not revision or one.revision in {None, revision}:
                found.setdefault(one.namespace, []).append(one)
        return cls(by_namespace={namespace: tuple(listed) for namespace, listed in found.items()})

    def overlay(
        self, proxy: ProxyConfig, mesh: MeshConfig, namespace: str, labels: Mapping[str, str], annotation: str | None
    ) -> ProxyConfig:
        """Return a pod's ProxyConfig: the mesh's (`proxy`) with all that applies; `annotation`: the valid YAML of the pod's own."""
        root = string(mesh.fields.get("rootNamespace"))
        own = self.by_namespace.get(namespace, ())
        of_root = self.by_namespace.get(root, ()) if root else ()
        for listed in (of_root, own if namespace != root else ()):
            of_namespace = next((one for one in listed if one.selector is None), None)
            proxy = proxy.overlaid(of_namespace.fields) if of_namespace else proxy
        proxy = proxy if annotation is None else proxy.overlaid(mapping(goyaml.load(annotation)))
        selected = next((one for one in own if one.matches(labels)), None)
        return proxy.overlaid(selected.fields) if selected else proxy
