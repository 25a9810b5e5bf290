"""All I/O of the commands inject and check-inject: manifests, configuration, cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from netinit.base.errors import ClusterError, ConfigError, InjectionError, NetinitError, OptionError, ParseError
from netinit.base.output import show_artefact, show_lines, shows_on_a_terminal
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, string, strings
from netinit.cli.inject.flags import CheckFlags
from netinit.inject.adding.config import InjectionConfig, load_config
from netinit.inject.adding.installations import refuse_empty
from netinit.inject.adding.meshconfig import API_GROUP, KIND, ProxyConfigResource, ProxyConfigs
from netinit.inject.adding.places import Files
from netinit.inject.adding.settings import RANGES, Kubelets, Namespace, Settings
from netinit.inject.adding.values import TextSetting
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifests import objects, split
from netinit.library import safe_files
from netinit.library.manifest_files import in_file, read_manifests, read_text
from netinit.library.safe_files import STDIN, Spool
from netinit.options import AUTO
from netinit.options.kinds import quote_value

_NOT_FOUND = 404


def settings_of(flags: CheckFlags) -> Settings:
    """The injector's settings from flags, files and the cluster. Raises ConfigError."""
    return Settings(
        revision=flags.revision,
        native_sidecars=Kubelets.of(Cluster(flags).nodes()) if flags.native_sidecars == AUTO else flags.native_sidecars is True,
        compliance_policy=flags.compliance_policy,
        proxy_configs=ProxyConfigs.of(_read_proxy_configs(flags), flags.revision),
        refuse_shared_user=flags.refuse_shared_user,
    )


def _read_proxy_configs(flags: CheckFlags) -> list[ProxyConfigResource]:
    """ProxyConfig resources from files, or else from the cluster if the configuration comes from one."""
    if not flags.proxy_config_files:
        reads = flags.uses_cluster and not (flags.config_file and flags.mesh_file)
        return [ProxyConfigResource.parse(tree) for tree in (Cluster(flags).proxy_configs() if reads else ())]
    found = []
    for name, text in read_manifests(flags.proxy_config_files, "--proxyConfigFile", recursive=False):
        try:
            trees = [tree for tree in map(mapping, yaml_texts.load_all(text)) if tree.get("kind") == KIND]
            trees = [tree for tree in trees if string(tree.get("apiVersion")).startswith(f"{API_GROUP}/")]
            for tree in trees:
                metadata = mapping(tree.get("metadata"))
                named = {**metadata, "namespace": metadata.get("namespace") or flags.namespace or "default"}
                found.append(ProxyConfigResource.parse({**tree, "metadata": named}))
        except NetinitError as error:
            raise ConfigError(in_file(name, error)) from error
        if not trees:
            raise ConfigError(f"--proxyConfigFile: {shorten(name)} has no ProxyConfig of {API_GROUP}")
    return found


class Namespaces:
    """The namespaces of objects: those in the input, or else those of the cluster, if one is asked.

    Injection itself needs only OpenShift's user ids of them: with `is_optional` a namespace that cannot be read is a warning.
    """

    def __init__(self, given: Iterable[Tree], cluster: Cluster | None, *, is_optional: bool = False) -> None:
        self._is_optional = is_optional
        self._known = {string(metadata.get("name")): metadata for metadata in (mapping(one.get("metadata")) for one in given)}
        self._cluster = cluster

    @classmethod
    def of_texts(cls, texts: Iterable[str], cluster: Cluster | None) -> Namespaces:
        """Find those with OpenShift's user ids among the documents of manifests; text that is no YAML is left to its reader."""
        found: list[Tree] = []
        for document in (one for text in texts if _has_ids(text) for one in split(text)):
            if _has_ids(document.text):
                with contextlib.suppress(ParseError):
                    found += [one for one in map(mapping, objects(document.parse()[0])) if one.get("kind") == "Namespace"]
        return cls(found, cluster, is_optional=True)

    def get(self, name: str, labels: Mapping[str, str] | None = None) -> Namespace:
        """Return a namespace; `labels`: those that count. Raises ConfigError if the cluster does not show it."""
        if name and name not in self._known and self._cluster is not None:
            try:
                self._known[name] = self._cluster.namespace(name)
            except ConfigError as error:
                if not self._is_optional:
                    raise
                self._known[name] = {}
                warn([f"warning: {error}; if it has user ids of OpenShift, the proxy does not get them"])
        metadata = self._known.get(name)
        own = labels if labels is not None or metadata is None else strings(metadata.get("labels"))
        return Namespace(name=name, labels=own, annotations=strings(mapping(metadata).get("annotations")))


def _has_ids(text: str) -> bool:
    return any(key in text for key in RANGES)


def read_trees(flags: CheckFlags) -> Iterator[tuple[str, Any]]:
    """Yield file name and tree of each document of the manifests. Raises ParseError."""
    for name, text in read_manifests(flags.filenames, recursive=flags.recursive):
        for document in split(text):
            try:
                yield name, document.parse()[0]
            except NetinitError as error:
                raise ParseError(in_file(name, error)) from error


def read_config(flags: CheckFlags, *, lazily: bool = False) -> InjectionConfig:
    """The configuration from files, or else from a requested cluster, or else our own. `lazily`: see load_config."""
    given = {"--injectConfigFile": flags.config_file, "--meshConfigFile": flags.mesh_file, "--valuesFile": flags.values_file}
    source, mesh, values = (refuse_empty(read_text(name), label) if name else None for label, name in given.items())
    files = Files(templates=flags.config_file, values=flags.values_file, mesh=flags.mesh_file)
    if flags.uses_cluster and (source is None or mesh is None):
        cluster = Cluster(flags)
        suffix = f"-{flags.revision}" if flags.revision not in {"", "default"} else ""
        if source is None:
            name = flags.config_map or f"istio-sidecar-injector{suffix}"
            data = cluster.config_map(flags.istio_namespace, name)
            files = files.replace(templates=f"ConfigMap {flags.istio_namespace}/{name}")
            source = _entry(data, "config", flags.istio_namespace)
            if values is None:
                values, files = data.get("values"), files.replace(values=files.templates)
        if mesh is None:
            name = flags.mesh_map or f"istio{suffix}"
            mesh = _entry(cluster.config_map(flags.istio_namespace, name), "mesh", flags.istio_namespace)
            files = files.replace(mesh=f"ConfigMap {flags.istio_namespace}/{name}")
    settings = _settings(flags, own=source is None)
    config = load_config(source, values=values, mesh=mesh, settings=settings, lazily=lazily, files=files)
    if flags.image and config.brackets:
        raise OptionError(
            f"--image: {quote_value(flags.image)} cannot be set in a template of Istio 1.0 or 1.1, which has its image written out"
        )
    return config


def _settings(flags: CheckFlags, *, own: bool) -> tuple[str, ...]:
    """The values to set, --image last. `own`: the templates are netinit's."""
    settings = (*flags.settings, *map(TextSetting, flags.text_settings))
    if not flags.image:
        return settings
    if not own and "/" not in flags.image:
        raise OptionError(
            f"--image: {quote_value(flags.image)} has no registry, and Istio's templates take such an image from Istio's own; "
            "write REGISTRY/PATH:TAG"
        )
    return (*settings, f"global.proxy_init.image={flags.image}")


def read_config_with_warnings(flags: CheckFlags, *, lazily: bool = False) -> InjectionConfig:
    """The configuration, whose warnings are printed."""
    config = read_config(flags, lazily=lazily)
    warn([f"warning: {line}" for line in config.warnings])
    return config


def describe_image(flags: CheckFlags, config: InjectionConfig) -> list[str]:
    """Notes about the init container's image: the default of our own templates is in no registry."""
    if flags.config_file or flags.uses_cluster:
        return []
    image = string(mapping(mapping(config.values.get("global")).get("proxy_init")).get("image"))
    if "/" in image:
        return []
    return [f"note: the init container's image is {quote_value(image)}, which only nodes have that built it; name yours with --image"]


def _entry(data: dict[str, str], key: str, namespace: str) -> str:
    if key not in data:
        known = ", ".join(sorted(data)) or "nothing"
        raise ConfigError(f"a ConfigMap in {namespace} has no key {key!r}; it has {known}")
    return data[key]


def write_result(name: str, spool: Spool) -> None:
    """Write the spooled text to stdout, or atomically to a file."""
    if name == STDIN:
        for piece in spool.pieces():
            show_artefact(piece)
        return
    try:
        safe_files.replace(name, spool.pieces())
    except OSError as error:
        raise InjectionError(f"-o: {name}: cannot be written: {error.strerror}") from error


def warn(texts: Sequence[str]) -> None:
    """Print warnings to stderr; click is imported only to wrap them on a terminal."""
    if shows_on_a_terminal():
        from netinit.cli.console import say

        say(texts)
    else:
        show_lines(texts)


class Cluster:
    """The cluster that kubectl would use: by context and kubeconfig, or in-cluster."""

    def __init__(self, flags: CheckFlags) -> None:
        try:
            from netinit.kube import resources
            from netinit.kube.reading import open_cluster

            self._ask = open_cluster(kubeconfig=flags.kubeconfig, context=flags.context)
        except ImportError as error:
            raise ConfigError(
                "--context, --kubeconfig and the ConfigMap names need a package that is not installed: "
                "pip install 'netinit[kubernetes]'; or give the files with --injectConfigFile and --meshConfigFile"
            ) from error
        self._api: Any = resources

    def _read(self, what: str, ask: Callable[[Any], Any], *, optional: bool = False) -> Any:
        try:
            return self._ask(ask)
        except ClusterError as error:
            if optional and error.status == _NOT_FOUND:
                return [], ""
            if error.status:
                raise ConfigError(f"the cluster does not give {what}: {error.status} {error.reason}") from error
            raise ConfigError(f"the cluster cannot be asked for {what}: {error}") from error

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Data of a ConfigMap. Raises ConfigError."""
        read = self._read(f"the ConfigMap {namespace}/{name}", lambda client: client.get(self._api.CONFIG_MAPS, name, namespace))
        return strings(mapping(read).get("data"))

    def namespace(self, name: str) -> Tree:
        """The metadata of a namespace. Raises ConfigError."""
        found = self._read(f"the namespace {name}", lambda client: client.get(self._api.NAMESPACES, name, ""))
        return mapping(mapping(found).get("metadata"))

    def nodes(self) -> list[Tree]:
        """All nodes. Raises ConfigError."""
        return self._list("the nodes", self._api.NODES)

    def proxy_configs(self) -> list[Tree]:
        """The ProxyConfig resources; empty if the cluster does not define them. Raises ConfigError."""
        return self._list("the ProxyConfig resources", self._api.PROXY_CONFIGS, optional=True)

    def _list(self, what: str, resource: Any, *, optional: bool = False) -> list[Tree]:
        found: list[Tree] = self._read(what, lambda client: client.list(resource), optional=optional)[0]
        return found

    def webhook_configurations(self) -> list[Tree]:
        """MutatingWebhookConfigurations of sidecar injectors, as in manifests. Raises ConfigError."""
        found = self._list("the webhooks", self._api.WEBHOOK_CONFIGURATIONS)
        return [item for item in found if "sidecar-injector" in str(item.get("webhooks"))]
