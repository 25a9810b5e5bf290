"""The injector's configuration, classic or current: parsed once, used for every pod.

Classic (1.0, 1.1): a policy and one template in `[[ ]]` that renders lists of containers. Releases 1.3 to 1.8 have this
format with `{{ }}` and values. Current: named templates in `{{ }}` that render a partial pod, default templates,
aliases and values. A default template that cannot be parsed is an error; any other causes a warning, and pods that
request it are rejected.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from netinit.base.data import read_data
from netinit.base.errors import ConfigError, InjectionError, OptionError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import TemplateError, YamlError
from netinit.golang.template import Template
from netinit.golang.template.origins import Trusted
from netinit.golang.template.values import Struct
from netinit.inject.adding import places
from netinit.inject.adding.installations import MESH, TEMPLATES, VALUES, Installation, read_installation
from netinit.inject.adding.istio_functions import CLASSIC_FUNCTIONS, FUNCTIONS
from netinit.inject.adding.meshconfig import MeshConfig
from netinit.inject.adding.places import Files, SettingError, SettingsText, TextError, errors_of
from netinit.inject.adding.schema import LazyMapping
from netinit.inject.adding.values import merge_values, misfit_texts, set_values
from netinit.inject.adding.values_checks import bad_key, find_unfit_values
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.webhooks import Selector

_VALUES = r"\.Values"
_KEY = r"""(?<=["'`])[a-z0-9.-]+/[A-Za-z0-9._-]+(?=["'`])"""
_CLASSIC_DELIMITERS = ("[[", "]]")
_DELIMITERS = ("{{", "}}")
_SIDECAR = "sidecar"
_FOREIGN_IN_MESH = frozenset(("DefaultConfig", "GetDefaultConfig"))  # depend on a pod's annotation
_TRUSTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("Values", "Revision", "NativeSidecars", "ProxyUID", "ProxyGID"), frozenset()),
    **dict.fromkeys(("InboundTrafficPolicyMode", "CompliancePolicy"), frozenset()),
    "MeshConfig": _FOREIGN_IN_MESH,
}
"""The fields of a template's data that the operator controls."""
_FROM_ANNOTATIONS = ("MeshConfig", "ProxyConfig", "ProxyImage", "ProxyInitImage", "EstimatedConcurrency")
_OF_THE_MESH: Mapping[str, frozenset[str]] = {**_TRUSTED, **dict.fromkeys(_FROM_ANNOTATIONS, frozenset())}
"""Fields that are the same for pods without annotations."""
_CONSTANTS = ("Values", "MeshConfig", "ProxyConfig", "NativeSidecars")
"""Fields that are the same object for most pods."""
_WRITTEN_BY_CHART = ("defaultTemplates", "alwaysInjectSelector", "neverInjectSelector", "injectedAnnotations")
"""Values of Istio's chart, below sidecarInjectorWebhook, that are keys of the configuration."""
_EXACT = 1e21  # Go's JSON writes larger numbers with an exponent
_CONCURRENCY_OF_1_7 = ".ProxyConfig.Concurrency.GetValue"  # a plain number in earlier releases


class InjectionConfig(Record):
    """A configuration with parsed templates; immutable and thread-safe."""

    classic: bool
    policy: str
    templates: Mapping[str, Template]
    sources: Mapping[str, str]
    default_templates: tuple[str, ...] = (_SIDECAR,)
    aliases: Mapping[str, tuple[str, ...]] = {}
    never_inject_selectors: tuple[Selector, ...] = ()
    always_inject_selectors: tuple[Selector, ...] = ()
    injected_annotations: Mapping[str, str] = {}
    values: Tree
    mesh: MeshConfig = MeshConfig.load()
    warnings: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    brackets: bool = False
    plain_proxy: bool = False  # for a template from before 1.7: ProxyConfig has plain numbers instead of pointers
    texts: Mapping[str, SettingsText] = {}
    """What it was read from, by TEMPLATES, VALUES and MESH, to locate in files what turns out to be wrong later."""

    @property
    def renders_pods(self) -> bool:
        """Whether templates render partial pods; classic ones render lists of containers."""
        return not self.classic

    @property
    def is_own(self) -> bool:
        """Whether the templates are netinit's own, because no other injector's configuration was given."""
        return TEMPLATES in self.texts and self.texts[TEMPLATES].text is None

    @functools.cached_property
    def mesh_structs(self) -> tuple[Struct, Struct]:
        """The mesh's ProxyConfig and MeshConfig as template data."""
        return self.mesh.structs(self.mesh.proxy, plain=self.plain_proxy)

    @functools.cached_property
    def known_annotations(self) -> frozenset[str]:
        """The annotations read by injection, by the proxy's agent, or by these templates."""
        return frozenset(known_keys()).union(*[re.findall(_KEY, text) for text in self.sources.values()])

    def traced(self, name: str) -> Template:
        """Return a template that records which action printed each part of the output."""
        delimiters = _CLASSIC_DELIMITERS if self.brackets else _DELIMITERS
        return _template(name, self.sources[name], delimiters, trusted={})

    def with_template(self, name: str, text: str) -> InjectionConfig:
        """Return the configuration with another text of a template. Raises ConfigError if it cannot be parsed."""
        delimiters = _CLASSIC_DELIMITERS if self.brackets else _DELIMITERS
        others = {one: self.templates[one] for one in self.sources if one not in self.broken}
        return self.replace(
            templates={**others, name: _template(name, text, delimiters)}, sources={**self.sources, name: text}
        )

    def depends_on_pod(self, error: InjectionError) -> bool:
        """Whether templates fail because of what the pod has or lacks, as far as their text shows: others may be injected."""
        return bool(error.failures) and all(
            self.templates[name].depends_on_data(position, _OF_THE_MESH, is_certain=is_certain or self._reads_values(name, position))
            for name, position, is_certain in error.failures
        )

    def _reads_values(self, name: str, position: int) -> bool:
        """Whether a template reads a chart's value at this position, whatever else its action reads.

        Go counts a chain of fields from behind its first name, or behind a variable.
        """
        text = self.sources[name]
        return any(re.match(rf"{_VALUES}\b", text[max(start, 0) :]) for start in (position - len(".Values"), position))

    def is_of_own_templates(self, error: InjectionError) -> bool:
        """Whether only netinit's own templates fail, which need nothing that a pod may lack: values or mesh are wrong."""
        own = _own_templates()
        return bool(error.failures) and all(self.sources[name] == own.get(name) for name, _, _ in error.failures)

    @property
    def version(self) -> str:
        """The SHA-256 of the classic template in hexadecimal, as in classic status annotations."""
        import hashlib  # slow to import (OpenSSL), and only needed by the classic format

        return hashlib.sha256(self.sources[_SIDECAR].encode("utf-8", "surrogatepass")).hexdigest()


def load_config(
    source: str | Tree | None = None,
    *,
    values: str | Tree | None = None,
    mesh: str | Tree | MeshConfig | None = None,
    settings: tuple[str, ...] = (),
    lazily: bool = False,
    files: Files | None = None,
) -> InjectionConfig:
    """Parse a configuration, from its text or from a ConfigMap (text or tree); None: the package's own.

    `values` and `mesh` (JSON or YAML text, or a tree) replace those of the ConfigMap; over the package's own values, they
    are merged as by Helm, and null removes a key. `settings`: Helm's --set, applied last. `lazily`: parse templates on first use,
    without warnings, for few pods. `files`: the names of the three, for messages. Raises ConfigError and, for `settings`, OptionError.

    A non-default template that cannot be parsed is listed in `broken` and `warnings`; pods that request it get the
    ConfigError.
    """
    files = files or Files()
    installation = read_installation(source, values, None if isinstance(mesh, MeshConfig) else mesh, files)
    of_templates = SettingsText(what=TEMPLATES, text=source, file=files.templates, places=places.TEMPLATES)
    of_values = SettingsText(what=VALUES, text=values, file=files.values, places=places.VALUES)
    of_mesh = SettingsText(what=MESH, text=mesh, file=files.mesh, places=places.MESH)
    with errors_of(of_templates):
        tree, own_values = _unpacked(_parsed(_own_or(installation.templates, "injection.yaml"), TEMPLATES))
    if own_values is not None and installation.values is None:
        of_values = of_values.replace(text=source, file=files.templates)
    with errors_of(of_values):
        loaded = _load_values(own_values if installation.values is None else installation.values)
        before = merge_values(default_values(), loaded) if source is None else loaded
        loaded = _with_settings(before, settings, is_classic="templates" not in tree)
    tree, warnings = _as_installed(tree, loaded) if source is None else tree, list[str]()
    with errors_of(of_values if source is None else of_templates):  # netinit's own are changed by values alone
        fields = {**_read_templates(tree, warnings, lazily=lazily), **_read_decisions(tree, warnings)}
    with errors_of(of_values):
        _refuse_unfit(before, loaded, fields["sources"])
    warnings += _warn_of_keys(installation, fields["sources"])
    beside = {VALUES: of_values, TEMPLATES: of_templates}.get(installation.mesh_beside, of_mesh)
    of_mesh = beside.replace(what=MESH, places=places.MESH)
    with errors_of(of_mesh):
        loaded_mesh = _load_mesh(mesh if isinstance(mesh, MeshConfig) else installation.mesh, fields)
    texts = {one.what: one for one in (of_templates, of_values, of_mesh)}
    return InjectionConfig(**fields, values=loaded, mesh=loaded_mesh, warnings=tuple(warnings), texts=texts)


def _load_mesh(mesh: str | Tree | MeshConfig | None, fields: Mapping[str, Any]) -> MeshConfig:
    """Return the mesh's configuration; `fields`: of the templates, which tell the release."""
    if isinstance(mesh, MeshConfig):
        return mesh
    return MeshConfig.load(mesh, classic=fields.get("brackets", False), is_early=fields["classic"])


@functools.cache
def _own_templates() -> Mapping[str, str]:
    return strings(_parsed(read_data("injection.yaml"), TEMPLATES).get("templates"))


def _own_or(given: str | Tree | None, ours: str) -> str | Tree:
    return read_data(ours) if given is None else given


def _as_installed(tree: Tree, values: Tree) -> Tree:
    """Return netinit's configuration with what Istio's chart writes into an injector's configuration for these values.

    (manifests/charts/istio-control/istio-discovery/templates/istiod-injector-configmap.yaml)
    """
    webhook = mapping(values.get("sidecarInjectorWebhook"))
    policy = mapping(mapping(values.get("global")).get("proxy")).get("autoInject")
    given = {key: webhook[key] for key in _WRITTEN_BY_CHART if webhook.get(key)}
    templates = {**mapping(tree.get("templates")), **mapping(webhook.get("templates"))}
    return {**tree, **given, "templates": templates, **({"policy": policy} if policy else {})}


def _read_templates(tree: Tree, warnings: list[str], *, lazily: bool) -> dict[str, Any]:
    """Return the fields of a configuration that its templates fill."""
    if isinstance(tree.get("templates"), dict):
        return _current(tree, warnings, lazily=lazily)
    if isinstance(tree.get("template"), str):
        return _classic(tree)
    raise ConfigError(f"injector configuration: it has neither 'templates' (current) nor 'template' (classic), but {_listed(tree)}")


def _with_settings(loaded: Tree, settings: tuple[str, ...], *, is_classic: bool) -> Tree:
    """Return the values with Helm's --set over them. Raises SettingError for values of types that no chart takes."""
    if not is_classic and (wrong := misfit_texts(loaded)):
        raise SettingError(VALUES, wrong)
    return mapping(with_floats(set_values(loaded, settings))) if settings else loaded


def _refuse_unfit(before: Tree, loaded: Tree, sources: Mapping[str, str]) -> None:
    """Raise SettingError for values with which no pod could run, OptionError for settings of `--set`; `before`: without these."""
    texts = "".join(sources.values())
    unfit = list(find_unfit_values(loaded, texts))
    of_files = unfit if loaded is before else [one for one in find_unfit_values(before, texts) if one in unfit]
    if of_files:
        raise SettingError(VALUES, of_files)
    if unfit:
        raise OptionError(*[f"--set: {path}: {problem}" for path, problem in unfit])


def _read_decisions(tree: Tree, warnings: list[str]) -> dict[str, Any]:
    """Return the fields of a configuration that say which pods are injected, and what all of these get."""
    return {
        "policy": _read_policy(tree, warnings),
        "never_inject_selectors": _selectors(tree, "neverInjectSelector", warnings),
        "always_inject_selectors": _selectors(tree, "alwaysInjectSelector", warnings),
        "injected_annotations": _read_annotations(tree),
    }


def _read_policy(tree: Tree, warnings: list[str]) -> str:
    policy = string(tree.get("policy"))
    if policy not in {"enabled", "disabled"}:
        warnings.append(f"policy {policy!r} is neither enabled nor disabled: a webhook with it injects nothing")
    return policy


def _warn_of_keys(installation: Installation, sources: Mapping[str, str]) -> list[str]:
    """Return warnings of keys without effect: values that these templates name have one."""
    texts = "".join(sources.values())
    unknown = [text for key, text in installation.unknown_values if not key or not re.search(rf"\.{re.escape(key)}\b", texts)]
    return [*unknown, *installation.warnings]


def _unpacked(tree: Tree) -> tuple[Tree, str | None]:
    """Return a configuration, and the values of the ConfigMap that it is in."""
    if tree.get("kind") != "ConfigMap":
        return tree, None
    name, data = string(mapping(tree.get("metadata")).get("name")) or "without a name", strings(tree.get("data"))
    if "config" not in data:
        raise ConfigError(f"ConfigMap {name}: data has no key 'config'; it has {_listed(data)}")
    return _parsed(data["config"], f"ConfigMap {name}, key config"), data.get("values")


def default_values() -> Tree:
    """The package's own values."""
    return _load_values(read_data("injection-values.yaml"))


def _load_values(source: str | Tree | None) -> Tree:
    """Parse values as Go decodes JSON: all numbers are floats. Raises ConfigError."""
    if source is None or source == "":
        return {}
    return mapping(with_floats(_parsed(source, "values")))


def _parsed(source: str | Tree, what: str) -> Tree:
    if not isinstance(source, str):
        return source
    tree = None
    with contextlib.suppress(ValueError, RecursionError):
        tree = json.loads(source) if source.lstrip().startswith("{") else None
    try:
        tree = goyaml.load(source) if tree is None else tree
    except YamlError as error:
        raise TextError(what, source, error) from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{what}: must be a mapping, not {json.dumps(tree)[:40]}")
    return tree


def with_floats(value: Any) -> Any:
    """Convert numbers to floats, as Helm does; whole numbers print without a fraction."""
    if isinstance(value, dict):
        return {key: with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def with_integers(value: Any) -> Any:
    """Convert whole floats to integers, as Go does on the way through JSON: a template prints a large number as 1.5432123e+07."""
    if isinstance(value, dict):
        return {key: with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value


def _listed(keys: Mapping[str, Any]) -> str:
    return ", ".join(sorted(keys)) or "nothing"


def _read_annotations(tree: Tree) -> Mapping[str, str]:
    key = "injectedAnnotations"
    given = tree.get(key)
    if not isinstance(given, dict | None):
        raise SettingError(TEMPLATES, [(key, f"{shown(given)} must be a mapping of texts")])
    if wrong := [(name, value) for name, value in mapping(given).items() if isinstance(value, (dict, list))]:
        raise SettingError(TEMPLATES, [(f"{key}.{name}", f"{shown(value)} must be a text") for name, value in wrong])
    found = strings(given)
    if bad := [(f"{key}.{name}", problem) for name in found if (problem := bad_key(name))]:
        raise SettingError(TEMPLATES, bad)
    return found


def _selectors(tree: Tree, key: str, warnings: list[str]) -> tuple[Selector, ...]:
    """Return the valid selectors of a list; as in Istio, an invalid one only causes a warning."""
    items = tree.get(key) or []
    if not isinstance(items, list):
        raise SettingError(TEMPLATES, [(key, f"{shown(items)} must be a list of selectors")])
    found = []
    for position, item in enumerate(items):
        try:
            found.append(Selector.parse(item))
        except ConfigError as error:
            warnings.append(f"{key}[{position}] is left out: {error}")
    return tuple(found)


def _template(name: str, text: str, delimiters: tuple[str, str], trusted: Trusted = _TRUSTED) -> Template:
    functions = CLASSIC_FUNCTIONS if delimiters == _CLASSIC_DELIMITERS else FUNCTIONS
    try:
        return Template(
            name, text, functions=functions, delimiters=delimiters, trusted=trusted, constants=_CONSTANTS
        )
    except TemplateError as error:
        raise ConfigError(f"template {name!r} cannot be parsed: {error}") from error


def _classic(tree: Tree) -> dict[str, Any]:
    """Return the fields of the classic format."""
    text = tree["template"]
    brackets = "[[" in text and "{{" not in text
    delimiters = _CLASSIC_DELIMITERS if brackets else _DELIMITERS
    return {
        "classic": True,
        "brackets": brackets,
        "plain_proxy": _CONCURRENCY_OF_1_7 not in text,
        "templates": {_SIDECAR: _template(_SIDECAR, text, delimiters)},
        "sources": {_SIDECAR: text},
    }


def _current(tree: Tree, warnings: list[str], *, lazily: bool) -> dict[str, Any]:
    """Return the fields of the current format."""
    sources: dict[str, str] = {}
    for name, text in tree["templates"].items():
        if not isinstance(text, str):
            raise SettingError(TEMPLATES, [(f"templates.{name}", f"{shown(text)} must be a text")])
        sources[name] = text
    defaults = tree.get("defaultTemplates") or [_SIDECAR]
    aliases = tree.get("aliases") or {}
    if not isinstance(defaults, list) or not all(isinstance(name, str) for name in defaults):
        raise SettingError(TEMPLATES, [("defaultTemplates", f"{shown(defaults)} must be a list of names")])
    if not isinstance(aliases, dict) or not all(isinstance(names, list) for names in aliases.values()):
        raise SettingError(TEMPLATES, [("aliases", "must map a name to a list of template names")])
    renamed = {alias: tuple(map(string, names)) for alias, names in aliases.items()}
    broken: dict[str, str] = {}

    def parse(name: str) -> Template:
        if name in broken:  # not again for each pod that asks for it
            raise ConfigError(broken[name])
        return _template(name, sources[name], _DELIMITERS)

    templates = LazyMapping(sources, parse)
    used = {real for name in defaults for real in renamed.get(name, (name,))}
    for name in sources:
        try:
            if name in used or not lazily:
                templates[name]
        except ConfigError as error:
            if name in used:
                raise
            broken[name] = str(error)
            warnings.append(f"{error}; pods that ask for it are refused")
    return {
        "classic": False,
        "templates": templates,
        "sources": sources,
        "default_templates": tuple(defaults),
        "aliases": renamed,
        "broken": tuple(broken),
    }
