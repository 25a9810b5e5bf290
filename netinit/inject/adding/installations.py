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
from typing import Any

from netinit.base.data import read_data
from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject.adding.mesh_messages import fields_of
from netinit.inject.adding.values import merge_values

TEMPLATES, VALUES, MESH = "injector configuration", "values", "mesh"
_HAS_KIND = re.compile(r"^(?:kind|\"kind\") *:|\A\s*\{", re.MULTILINE)
_HAS_MORE = re.compile(r"^---(?:\s|\Z)", re.MULTILINE)
_CONFIG_MAP, _OPERATOR, _MAISTRA, _LIST = "ConfigMap", "IstioOperator", "ServiceMeshControlPlane", "List"
_WITH_VALUES = (_OPERATOR, "Istio", "IstioRevision")  # of istioctl, and of the Sail operator
_MOST_NAMED, _NEAR, _FAR = 5, 0.8, 0.6
_WHOLE = (("global", "proxy"), ("global", "proxy_init"))  # maps of values whose keys are all known
_PASTED = "give only that document"
_WANTED = {
    TEMPLATES: "a ConfigMap with the key config (istio-sidecar-injector)",
    VALUES: "the values themselves, a ConfigMap with the key values, an IstioOperator or an Istio",
    MESH: "the mesh's configuration itself, a ConfigMap with the key mesh (istio), an IstioOperator or an Istio",
}


class Installation(Record):
    """What was given for templates, values and mesh: a text or a tree, None if it is netinit's own.

    `unknown_values`: keys that only a template of one's own may read, with a warning. `unknown_fields`: warnings of the mesh's.
    """

    templates: str | Tree | None = None
    values: str | Tree | None = None
    mesh: Any = None
    unknown_values: tuple[tuple[str, str], ...] = ()
    unknown_fields: tuple[str, ...] = ()


def read_installation(templates: str | Tree | None, values: str | Tree | None, mesh: Any) -> Installation:
    """Find what each file sets among its documents. Raises ConfigError for a file that sets nothing of it.

    A mesh that is not given is that beside the values or templates, if there is one.
    """
    found_templates, beside = _take(templates, TEMPLATES, _of_templates)
    found_values, with_values = _take(values, VALUES, _of_values)
    found_mesh = _take(mesh, MESH, _of_mesh)[0] if isinstance(mesh, (str, dict)) else mesh
    if found_mesh is None:
        found_mesh = with_values if with_values is not None else beside
    return Installation(
        templates=found_templates, values=found_values, mesh=found_mesh, unknown_values=tuple(_unknown_values(found_values)),
        unknown_fields=tuple(_unknown_mesh(found_mesh)),
    )  # fmt: skip


def _take(source: str | Tree | None, what: str, find: Callable[[Tree], Any]) -> tuple[str | Tree | None, Any]:
    """Return what a file sets, and the mesh's configuration beside it, if there is any; a plain file as it is."""
    documents = _read_documents(source, what)
    if documents is None:
        return source, None
    if len(documents) == 1 and "kind" not in documents[0]:
        own = documents[0].get("meshConfig")  # of values, which may be given for both
        return (own if what == MESH and isinstance(own, dict) else documents[0]), own if what == VALUES else None
    if any(one.get("kind") == _MAISTRA for one in documents):
        raise ConfigError(
            f"{what}: a {_MAISTRA} has settings of its own form; give the ConfigMaps istio-sidecar-injector-NAME and istio-NAME"
            " that its operator makes of it"
        )
    found = [(one, its) for one in documents if (its := find(one)) is not None]
    if not found and what == TEMPLATES and len(documents) == 1 and documents[0].get("kind") == _CONFIG_MAP:
        return documents[0], None  # its reader says which keys it has
    if not found:
        raise ConfigError(f"{what}: {_count_kinds(documents)}: give {_WANTED[what]}")
    if len(found) > 1:
        raise ConfigError(f"{what}: {_name_all([one for one, _ in found])} each have it; {_PASTED}")
    chosen, taken = found[0]
    meshes = [] if what == MESH else [its for one in _those_beside(chosen, documents) if (its := _of_mesh(one)) is not None]
    return taken, meshes[0] if len(meshes) == 1 else None


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
        trees = trees or goyaml.load_all(source)
    except YamlError as error:
        raise ConfigError(f"{what}: {error}") from error
    documents = [one for one in trees if one is not None]
    if not all(isinstance(one, dict) for one in documents):
        return None  # the reader says what is wrong
    found = [item for one in documents for item in (one.get("items") or () if one.get("kind") == _LIST else (one,))]
    return [mapping(one) for one in found] or None


def _of_templates(tree: Tree) -> Any:
    return tree if _is_config_map(tree, "config") else None


def _of_values(tree: Tree) -> Any:
    if _is_config_map(tree, "values"):
        return strings(tree.get("data"))["values"]
    if tree.get("kind") not in _WITH_VALUES:
        return None
    spec = mapping(tree.get("spec"))
    short = {key: spec[key] for key in ("hub", "tag", "revision") if tree.get("kind") == _OPERATOR and spec.get(key)}
    revision = short.pop("revision", None)
    over: Tree = {"global": short} if short else {}
    over |= {"revision": revision} if revision else {}
    return merge_values(over, mapping(spec.get("values")))


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
    return " and ".join([f"{string(one.get('kind'))} {quote(_name(one))}" for one in documents[:_MOST_NAMED]])


# ---- keys that nothing reads -----------------------------------------------------------------------------------------------


def _unknown_values(values: str | Tree | None) -> Iterator[tuple[str, str]]:
    """Yield each key of the values that is probably misspelt, or unknown where all are known, with a warning."""
    yield from _find_unknown(values if isinstance(values, dict) else _tree_of(values), ())


def _tree_of(text: str | None) -> Tree:
    with suppress(YamlError):
        return mapping(goyaml.load(text)) if text else {}
    return {}


def _nearest(key: str, known: Iterable[str], least: float) -> str:
    from difflib import get_close_matches  # rarely needed

    return next(iter(get_close_matches(key, sorted(known), 1, least)), "")


def _find_unknown(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    known = _known_values().get(path, frozenset())
    for key in tree if known else ():
        if key in known:
            yield from _find_unknown(mapping(tree[key]), (*path, key))
        elif (near := _nearest(key, known, _NEAR)) or path in _WHOLE:
            hint = f"; did you mean {near}?" if near else ""
            yield key, f"values: {quote('.'.join((*path, key)))} is not a value of Istio's charts, and has no effect on pods{hint}"


@functools.cache
def _known_values() -> Mapping[tuple[str, ...], frozenset[str]]:
    """Return the keys of values that a release of Istio's charts has for the control plane or the injector, by their map."""
    return {tuple(filter(None, path.split("."))): frozenset(keys) for path, keys in json.loads(read_data("chart-values.json")).items()}


def _unknown_mesh(mesh: Any) -> Iterator[str]:
    tree = mesh if isinstance(mesh, dict) else _tree_of(mesh) if isinstance(mesh, str) else {}
    for place, fields, name in (("", tree, "MeshConfig"), ("defaultConfig.", mapping(tree.get("defaultConfig")), "ProxyConfig")):
        names = fields_of(name).values()
        known = {field.json_name for field in names} | {field.source_name for field in names if place}
        for key in [key for key in fields if key not in known]:
            near = _nearest(key, known, _FAR)
            hint = f"; did you mean {near}?" if near else ""
            yield f"mesh: {quote(place + key)} is not a field of {name}, and has no effect{hint}"
