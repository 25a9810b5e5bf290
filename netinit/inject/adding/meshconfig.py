"""MeshConfig and ProxyConfig: the user's YAML over Istio's defaults, and ProxyConfig resources over the mesh's.

Unknown fields are kept and ignored. A pod's ProxyConfig replaces whole fields, except proxyMetadata, as documented by
Istio. Precedence, lowest first: the mesh's defaultConfig, the root namespace's resource (networking.istio.io/v1beta1), the
pod's namespace's, the annotation `proxy.istio.io/config`, the resource whose selector matches (Istio 1.31,
pilot/pkg/model/proxy_config.go). Of several resources, the oldest applies.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from netinit.base.data import read_data
from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.golang.template.values import Int32
from netinit.inject.adding.mesh_checks import find_mesh_problems, find_port_conflicts, find_proxy_problems
from netinit.inject.adding.mesh_messages import Message, read_message
from netinit.inject.adding.places import SettingError, TextError, split_problem
from netinit.inject.deciding.webhooks import REVISION_LABEL

_DEFAULT_CONFIG = ("defaultConfig", "default_config")  # Istio reads only the first
_CLUSTER_NAMES = ("serviceCluster", "tracingServiceName")
_KEPT_HEADERS = ("forwardedClientCert", "requestId", "attemptCount", "server", "envoyDebugHeaders")
"""Headers of the mesh that a pod's proxyHeaders keep unless they name them."""


@functools.cache
def _read_defaults(era: str) -> tuple[Tree, Tree]:
    """Return the MeshConfig and the ProxyConfig that Istio's releases of an era, classic or current, begin with."""
    data = json.loads(read_data("mesh-defaults.json"))
    mesh, proxy = ({**data["both"][part], **data[era][part]} for part in ("mesh", "proxy"))
    return mesh, proxy


def _read_valid(message: str, tree: Tree) -> tuple[Tree, list[tuple[str, str]]]:
    """Return the fields of a message that can be read, and what is wrong with the others."""
    try:
        return read_message(message, tree, whole=False), []
    except ConfigError:
        fields: Tree = {}
        problems = []
        for name, value in tree.items():
            try:
                fields |= read_message(message, {name: value}, whole=False)
            except ConfigError as error:
                problems.append(split_problem(error))
        return fields, problems


def read_proxy_config(tree: Any) -> Tree:
    """Return the fields of a ProxyConfig, normalized. Raises SettingError for what Istio rejects."""
    if not isinstance(tree, dict):
        raise SettingError("", [("ProxyConfig", f"{shown(tree)} must be a mapping")])
    fields, problems = _read_valid("ProxyConfig", tree)
    problems += find_proxy_problems(fields)
    if problems:
        raise SettingError("", problems)
    return fields


class ProxyConfig(Record):
    """A pod's effective ProxyConfig; `defaults`: those of its Istio release."""

    fields: Tree
    defaults: Mapping[str, Any]

    def overlaid(self, tree: Any) -> ProxyConfig:
        """Return this configuration with another's fields over it. Raises SettingError."""
        try:
            given = read_proxy_config(tree)
        except SettingError as error:
            raise SettingError("ProxyConfig", error.problems) from None
        fields = dict(self.fields)
        for name, value in given.items():
            merged = value
            if name == "proxyMetadata":
                merged = dict(sorted({**mapping(fields.get(name)), **value}.items()))
            elif name == "proxyHeaders":
                before = {key: item for key, item in mapping(fields.get(name)).items() if key in _KEPT_HEADERS}
                merged = read_message("ProxyConfig_ProxyHeaders", {**before, **value})
            elif name in _CLUSTER_NAMES:  # a oneof
                for other in _CLUSTER_NAMES:
                    fields.pop(other, None)
            fields[name] = merged
        return ProxyConfig(fields=fields, defaults=self.defaults)

    def changed(self) -> Tree:
        """Return the fields that differ from the defaults, in protobuf's order."""
        whole = read_message("ProxyConfig", self.fields)
        return {name: value for name, value in whole.items() if value != self.defaults.get(name)}

    @property
    def status_port(self) -> int:
        """The port where the agent serves probes and metrics."""
        return int(self.fields.get("statusPort") or 0)

    @property
    def image_type(self) -> str:
        """The type of the proxy's image (`debug`, `distroless`, `default`); "" if not set."""
        return string(mapping(self.fields.get("image")).get("imageType"))


class MeshConfig(Record):
    """The effective MeshConfig, and the default ProxyConfig."""

    fields: Tree
    proxy: ProxyConfig

    @classmethod
    def load(cls, source: str | Tree | None = None, *, classic: bool = False, is_early: bool = False) -> MeshConfig:
        """Parse a MeshConfig: YAML (the key `mesh` of the ConfigMap `istio`), or a tree; None: the defaults. Raises ConfigError.

        `classic`: with the defaults of Istio 1.0 and 1.1. `is_early`: of a release before 1.9, whose charts set no trust domain.
        """
        try:
            tree = goyaml.load(source) if isinstance(source, str) else source
        except YamlError as error:
            raise TextError("mesh", string(source), error) from error
        if tree is not None and not isinstance(tree, dict):
            raise ConfigError("mesh: the configuration must be a mapping such as `defaultConfig: {…}`")
        tree = mapping(tree)
        if tree.get("kind") == "ConfigMap":
            return cls.load(string(mapping(tree.get("data")).get("mesh")), classic=classic, is_early=is_early)
        of_mesh, defaults = _read_defaults("classic" if classic else "current")
        given, problems = _read_valid("MeshConfig", {name: value for name, value in tree.items() if name not in _DEFAULT_CONFIG})
        fields = {**of_mesh, **given}
        problems += find_mesh_problems(fields, is_early=is_early)
        fields["trustDomainAliases"] = sorted(set(fields.get("trustDomainAliases") or ()))
        proxy = ProxyConfig(fields=dict(defaults), defaults=defaults)
        name, own = _DEFAULT_CONFIG[0], tree.get(_DEFAULT_CONFIG[0])
        try:
            proxy = proxy if own is None else proxy.overlaid(own)
        except SettingError as error:
            problems += [(f"{name}.{path}" if isinstance(own, dict) else name, problem) for path, problem in error.problems]
        of_pods = {**fields, "proxyInboundListenPort": None} if is_early else fields
        problems += find_port_conflicts(of_pods, proxy.fields, {*given, *[f"{name}.{key}" for key in mapping(own)]})
        if problems:
            raise SettingError("mesh", problems)
        return cls(fields=fields, proxy=proxy)

    def structs(self, config: ProxyConfig, *, plain: bool = False) -> tuple[Message, Message]:
        """Return a ProxyConfig and this MeshConfig as template data.

        `plain`: concurrency and cluster are plain fields, as before Istio 1.7.
        """
        concurrency, cluster = Int32(config.fields.get("concurrency") or 0), string(config.fields.get("serviceCluster"))
        given = {"Concurrency": concurrency, "ServiceCluster": cluster} if plain else {}
        proxy = Message("ProxyConfig", config.fields, given)
        proxy.changed = config.changed()
        return proxy, Message("MeshConfig", self.fields, {"DefaultConfig": proxy})

    @property
    def inbound_policy(self) -> str:
        """`passthrough` or `localhost`: where the proxy delivers inbound connections."""
        mode = string(mapping(self.fields.get("inboundTrafficPolicy")).get("mode"))
        return "localhost" if mode == "LOCALHOST" else "passthrough"


# --- ProxyConfig resources ---

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
            raise ConfigError(f"{label}: spec.{unknown[0]} is not one of its fields; it has selector, {', '.join(_FIELDS)}")
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
