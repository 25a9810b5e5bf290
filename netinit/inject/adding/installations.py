"""Installations as files: what a rendered chart, an IstioOperator or an operator's resource sets, taken from among its documents.

Templates, values and the mesh's configuration are each given as plain YAML, as the ConfigMap of an installation, or in a file
that holds more. A file is read for what it sets; one that sets nothing of what it is given for is refused by its kind.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from netinit.base.data import read_data
from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject.adding.mesh_messages import fields_of
from netinit.inject.adding.places import Files, SettingsText, TextError, errors_of
from netinit.inject.adding.values import TEXT_VALUES, merge_values
from netinit.inject.deciding.manifests import objects, separate_objects

TEMPLATES, VALUES, MESH = "injector configuration", "values", "mesh"
_HAS_KIND = re.compile(r"^(?:kind|\"kind\") *:|\A\s*\{", re.MULTILINE)
_NOTHING = ("", "---", "null")  # lines that say nothing, where {} says that nothing is set
_HAS_MORE = re.compile(r"^---(?:\s|\Z)", re.MULTILINE)
_CONFIG_MAP, _OPERATOR, _MAISTRA = "ConfigMap", "IstioOperator", "ServiceMeshControlPlane"
_WITH_VALUES = (_OPERATOR, "Istio", "IstioRevision")  # of istioctl, and of the Sail operator
_MOST_NAMED, _MOST_UNKNOWN, _LONGEST_KEY, _NEAR = 5, 20, 100, 0.6
_OWN_PROFILES = ("", "default", "empty", "minimal")  # of which nothing counts for pods
_SPECS: Mapping[str, str] = {
    _OPERATOR: """addonComponents compatibilityVersion components defaultRevision hub installPackagePath meshConfig namespace profile
        resourceSuffix revision tag unvalidatedValues values""",
    "Istio": "createNetworkPolicy namespace profile rawValues updateStrategy values version",
    "IstioRevision": "createNetworkPolicy namespace profile type values version",
}
"""The keys of the resources' spec: of the API of Istio's operator, and of Sail's (sailoperator.io/v1, operator.istio.io/v1alpha1)."""
_PASTED = "give only that document"
_WANTED = {
    TEMPLATES: "a ConfigMap with the key config (istio-sidecar-injector)",
    VALUES: "the values themselves, a ConfigMap with the key values, an IstioOperator or an Istio",
    MESH: "the mesh's configuration itself, a ConfigMap with the key mesh (istio), an IstioOperator or an Istio",
}


class Installation(Record):
    """What was given for templates, values and mesh: a text or a tree, None if it is netinit's own.

    `mesh_beside`: VALUES or TEMPLATES, if the mesh's configuration was in that file.
    `unknown_values`: keys that only a template of one's own may read, with a warning. `warnings`: of what else is without effect.
    """

    templates: str | Tree | None = None
    values: str | Tree | None = None
    mesh: Any = None
    mesh_beside: str = ""
    unknown_values: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def read_installation(
    templates: str | Tree | None, values: str | Tree | None, mesh: Any, files: Files | None = None
) -> Installation:
    """Find what each file sets among its documents. Raises ConfigError for a file that sets nothing of it.

    A mesh that is not given is that beside the values or templates, if there is one. `files`: their names, for messages.
    """
    files = files or Files()
    with errors_of(SettingsText(what=TEMPLATES, text=templates, file=files.templates)):
        of_templates = _take(templates, TEMPLATES, _of_templates)
    with errors_of(SettingsText(what=VALUES, text=values, file=files.values)):
        of_values = _take(values, VALUES, _of_values)
    with errors_of(SettingsText(what=MESH, text=mesh, file=files.mesh)):
        of_mesh = _take(mesh, MESH, _of_mesh) if isinstance(mesh, (str, dict)) else _Found(mesh)
    meshes = {"": of_mesh.taken, VALUES: of_values.mesh, TEMPLATES: of_templates.mesh}
    beside = next((what for what, one in meshes.items() if one is not None), "")
    warnings = dict.fromkeys([text for one in (of_templates, of_values, of_mesh) for text in _warn_of_spec(one.holder or {})])
    return Installation(
        templates=of_templates.taken, values=of_values.taken, mesh=meshes[beside], mesh_beside=beside,
        unknown_values=tuple(_unknown_values(of_values.taken)), warnings=(*warnings, *_unknown_mesh(meshes[beside])),
    )  # fmt: skip


class _Found(NamedTuple):
    """What a file sets, the mesh's configuration beside it, if there is any, and the resource that they are from."""

    taken: Any
    mesh: Any = None
    holder: Tree | None = None


def _take(source: str | Tree | None, what: str, find: Callable[[Tree], Any]) -> _Found:
    """Return what a file sets; a plain file as it is."""
    documents = _read_documents(source, what)
    if documents is None:
        return _Found(source)
    if len(documents) == 1 and "kind" not in documents[0]:
        own = documents[0].get("meshConfig")  # of values, which may be given for both
        return _Found(own if what == MESH and isinstance(own, dict) else documents[0], own if what == VALUES else None)
    if any(one.get("kind") == _MAISTRA for one in documents):
        raise ConfigError(
            f"{what}: a {_MAISTRA} has settings of its own form; give the ConfigMaps istio-sidecar-injector-NAME and istio-NAME"
            " that its operator makes of it"
        )
    found = [(one, its) for one in documents if (its := find(one)) is not None]
    if not found and what == TEMPLATES and len(documents) == 1 and documents[0].get("kind") == _CONFIG_MAP:
        return _Found(documents[0])  # its reader says which keys it has
    if not found:
        raise ConfigError(f"{what}: {_count_kinds(documents)}: give {_WANTED[what]}")
    if len(found) > 1:
        raise ConfigError(f"{what}: {_name_all([one for one, _ in found])} each have it; {_PASTED}")
    chosen, taken = found[0]
    meshes = [] if what == MESH else [its for one in _those_beside(chosen, documents) if (its := _of_mesh(one)) is not None]
    return _Found(taken, meshes[0] if len(meshes) == 1 else None, chosen)


def refuse_empty(text: str, label: str) -> str:
    """Return a file's text. Raises ConfigError, which names the option, for one without any document."""
    if all(line.partition("#")[0].strip() in _NOTHING for line in text.splitlines()):
        raise ConfigError(f"{label}: the file is empty, and sets nothing; leave the option out")
    return text


def _read_documents(source: str | Tree | None, what: str) -> list[Tree] | None:
    """Return the documents of a text with kinds or several documents; None for any other."""
    if source is None or isinstance(source, dict):
        return [source] if source else None
    is_plain = not (_HAS_KIND.search(source) or _HAS_MORE.search(source.removeprefix("---")))
    if is_plain and (what == TEMPLATES or "meshConfig" not in source):
        return None
    trees: list[Any] = []
    with suppress(ValueError, RecursionError):
        trees = [json.loads(source)] if source.lstrip().startswith("{") else []
    try:
        trees = trees or goyaml.load_all(separate_objects(source))
    except YamlError as error:
        raise TextError(what, source, error) from error
    documents = [one for one in trees if one is not None]
    if not all(isinstance(one, dict) for one in documents):
        return None  # the reader says what is wrong
    found = [item for one in documents for item in objects(one)]
    return [mapping(one) for one in found] or None


def _of_templates(tree: Tree) -> Any:
    return tree if _is_config_map(tree, "config") else None


def _of_values(tree: Tree) -> Any:
    """Return the values that a resource sets; they may be empty where it sets the mesh's configuration alone."""
    if _is_config_map(tree, "values"):
        return strings(tree.get("data"))["values"]
    if tree.get("kind") not in _WITH_VALUES:
        return None
    spec = mapping(tree.get("spec"))
    found = _values_beside(tree.get("kind") == _OPERATOR, spec)
    for key in ("rawValues", "values", "unvalidatedValues"):  # each over those before it
        found = merge_values(found, mapping(spec.get(key)))
    return found or ({} if _of_mesh(tree) is not None else None)


def _values_beside(is_operator: bool, spec: Tree) -> Tree:
    """Return the values that the operators make of other keys of the spec."""
    names = {"namespace": "istioNamespace", **({"hub": "hub", "tag": "tag"} if is_operator else {})}
    found: Tree = {"global": short} if (short := {name: spec[key] for key, name in names.items() if spec.get(key)}) else {}
    if is_operator and spec.get("revision"):
        found["revision"] = spec["revision"]
    cni = mapping(mapping(spec.get("components")).get("cni"))
    if is_operator and isinstance(cni.get("enabled"), bool):  # releases have it under both names
        found |= {"istio_cni": {"enabled": cni["enabled"]}, "pilot": {"cni": {"enabled": cni["enabled"]}}}
    return found


def _of_mesh(tree: Tree) -> Any:
    if _is_config_map(tree, "mesh"):
        return strings(tree.get("data"))["mesh"]
    if tree.get("kind") not in _WITH_VALUES:
        return mapping(tree.get("meshConfig")) or None if "kind" not in tree else None
    spec = mapping(tree.get("spec"))
    of_values, own = mapping(mapping(spec.get("values")).get("meshConfig")), mapping(spec.get("meshConfig"))
    return merge_values(own, of_values) or None


def _is_config_map(tree: Tree, key: str) -> bool:
    return tree.get("kind") == _CONFIG_MAP and key in mapping(tree.get("data"))


def _those_beside(chosen: Tree, documents: list[Tree]) -> list[Tree]:
    """Return the documents that belong to the same revision: for istio-sidecar-injector-REVISION, istio-REVISION."""
    name = _name(chosen)
    if chosen.get("kind") != _CONFIG_MAP:
        return [chosen]
    revision = name.removeprefix("istio-sidecar-injector")
    return [one for one in documents if one.get("kind") == _CONFIG_MAP and _name(one) == f"istio{revision}"]


def _name(tree: Tree) -> str:
    return string(mapping(tree.get("metadata")).get("name"))


def _count_kinds(documents: list[Tree]) -> str:
    """Say what is there instead: `it is a Deployment`, or the kinds of many documents."""
    kinds = list(dict.fromkeys([string(one.get("kind")) or "a document without kind" for one in documents]))
    if len(documents) == 1:
        return f"it is of kind {quote(kinds[0])}, which sets none"
    more = f" and {len(kinds) - _MOST_NAMED} more" if len(kinds) > _MOST_NAMED else ""
    return f"none of its {len(documents)} documents has it ({', '.join(map(quote, kinds[:_MOST_NAMED]))}{more})"


def _name_all(documents: list[Tree]) -> str:
    is_clear = len({_name(one) for one in documents}) == len(documents)
    places = ["" if is_clear else string(mapping(one.get("metadata")).get("namespace")) for one in documents]
    names = [quote("/".join(filter(None, (place, _name(one))))) for place, one in zip(places, documents, strict=True)]
    return " and ".join([f"{string(one.get('kind'))} {name}" for one, name in zip(documents, names, strict=True)][:_MOST_NAMED])


# ---- keys that nothing reads -----------------------------------------------------------------------------------------------


def _warn_of_spec(tree: Tree) -> Iterator[str]:
    """Yield what of an operator's resource is not read: its profile, and keys that it does not have."""
    kind = string(tree.get("kind"))
    known = _SPECS.get(kind, "").split()
    spec = mapping(tree.get("spec")) if known else {}
    for key in [key for key in spec if key not in known][:_MOST_UNKNOWN]:
        yield f"{kind}: {quote(f'spec.{key}')} is not a field of it, and has no effect{_hint(key, known)}"
    if (profile := string(spec.get("profile"))) not in _OWN_PROFILES:
        yield (
            f"{kind}: spec.profile {quote(profile)} sets more than is in the file, which is not known here; give the ConfigMaps of the"
            " installation, such as `istioctl manifest generate -f FILE` prints them"
        )


def _unknown_values(values: str | Tree | None) -> Iterator[tuple[str, str]]:
    """Yield each key of the values that no release of Istio's charts has, with a warning."""
    found = list(_find_unknown(values if isinstance(values, dict) else _tree_of(values), ()))
    yield from found[:_MOST_UNKNOWN]
    if len(found) > _MOST_UNKNOWN:
        yield "", f"values: {len(found) - _MOST_UNKNOWN} more keys are not values of Istio's charts, and have no effect on pods"


def _tree_of(text: str | None) -> Tree:
    with suppress(YamlError):
        return mapping(goyaml.load(text)) if text else {}
    return {}


def _hint(key: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # rarely needed

    near = get_close_matches(key[:_LONGEST_KEY], sorted(known), 1, _NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def _find_unknown(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    known = _known_values().get(path, frozenset())
    for key in tree if known else ():
        if key in known:
            yield from _find_unknown(mapping(tree[key]), (*path, key))
            continue
        is_chart = not path and not mapping(tree[key]).keys().isdisjoint(_known_values()[()])
        hint = "; it holds values of a chart inside a chart: give what is below it" if is_chart else _hint(key, known)
        yield key, f"values: {quote('.'.join((*path, key)))} is not a value of Istio's charts, and has no effect on pods{hint}"


@functools.cache
def _known_values() -> Mapping[tuple[str, ...], frozenset[str]]:
    """Return the keys of values that a release of Istio's charts has for the control plane or the injector, by their map."""
    found = {tuple(filter(None, path.split("."))): keys for path, keys in json.loads(read_data("chart-values.json")).items()}
    return {path: frozenset((*keys, *TEXT_VALUES.get(path, ()))) for path, keys in found.items()}


def _unknown_mesh(mesh: Any) -> Iterator[str]:
    tree = mesh if isinstance(mesh, dict) else _tree_of(mesh) if isinstance(mesh, str) else {}
    for place, fields, name in (("", tree, "MeshConfig"), ("defaultConfig.", mapping(tree.get("defaultConfig")), "ProxyConfig")):
        names = fields_of(name).values()
        known = {name for field in names for name in (field.json_name, field.source_name) if name != "default_config"}
        for key in [key for key in fields if key not in known][:_MOST_UNKNOWN]:
            yield f"mesh: {quote(place + key)} is not a field of {name}, and has no effect{_hint(key, known)}"
