"""Templates become partial pods: the data put together, rendered, read back as YAML and checked for break-outs.

A template prints annotations, labels and names into YAML text. A value with quotes or line breaks could end the
scalar that it was meant to be and add fields of its own: a pod could then ask for privileges through its proxy. So
when a value that the template reads has a character that means something to YAML, the template is rendered a second
time with harmless letters in its place. Both texts must have the same structure; else the injection is refused.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from netinit.base.errors import InjectionError, ParseError, TemplateError
from netinit.base.records import Record
from netinit.golang import goyaml
from netinit.golang.template import Struct
from netinit.golang.tree import Tree, clone, mapping, strings
from netinit.inject import images
from netinit.inject.annotations import CHECKS, JSON_VALUED, PROXY_CONFIG, PROXY_IMAGE_TYPE
from netinit.inject.config import InjectionConfig
from netinit.inject.containers import LISTS, named
from netinit.inject.context import mesh_struct, metadata_struct, owner_structs, proxy_struct, spec_struct
from netinit.inject.meshconfig import ProxyConfig
from netinit.inject.owner import Owner

__all__ = ["Subject", "render", "render_text"]

DEFAULT_ID = 1337


class Subject(Record):
    """What is known of a pod beside itself: its workload, its ProxyConfig and the injector's settings.

    `ids` are the uid and gid of the proxy where the platform chooses them.
    """

    owner: Owner
    proxy: ProxyConfig
    settings_revision: str = ""
    native_sidecars: bool = True
    compliance_policy: str = ""
    ids: tuple[int, int] | None = None


def render(name: str, config: InjectionConfig, pod: Tree, subject: Subject) -> Tree:
    """What the template of that name gives for the pod, as a tree.

    Raises InjectionError when the template fails, its output is no YAML mapping, or a value of the pod breaks out of
    its place.
    """
    text = render_text(name, config, pod, subject)
    doubtful = _doubtful(config.sources[name], pod, subject)
    try:
        tree = goyaml.load(text)
        if doubtful:
            shape = goyaml.shape(text)
            defused = functools.partial(_defused_shape, name, config, pod, subject)
            _refuse_break_out(name, doubtful, lambda doubts: defused(doubts) == shape)
    except ParseError as error:
        blame = f"; {doubtful[0].place} may have broken it: {doubtful[0].value[:60]!r}" if doubtful else ""
        raise InjectionError(f"template {name!r}: the rendered text is not valid YAML: {error}{blame}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InjectionError(f"template {name!r}: it must render a mapping, not {json.dumps(tree)[:40]}")
    return tree


def render_text(name: str, config: InjectionConfig, pod: Tree, subject: Subject) -> str:
    """The text that the template of that name gives for the pod. Raises InjectionError."""
    try:
        return config.templates[name].render(_data(config, pod, subject))
    except TemplateError as error:
        raise InjectionError(f"template {name!r}: {error}") from error
    except UnicodeError as error:
        raise InjectionError(f"template {name!r}: the pod has text that is no Unicode: {error}") from error


def _data(config: InjectionConfig, pod: Tree, subject: Subject) -> Struct:
    """The root of the template's data."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations = strings(metadata.get("annotations"))
    image_type = annotations.get(PROXY_IMAGE_TYPE, "")
    uid, gid = subject.ids or (DEFAULT_ID, DEFAULT_ID)
    deployment, kind = owner_structs(subject.owner)
    proxy = proxy_struct(subject.proxy, classic=config.brackets)
    return Struct(
        "inject.SidecarTemplateData",
        {
            "TypeMeta": kind,
            "DeploymentMeta": deployment,
            "ObjectMeta": metadata_struct(metadata),
            "Spec": spec_struct(spec),
            "ProxyConfig": proxy,
            "MeshConfig": mesh_struct(config.mesh, proxy),
            "Values": config.values,
            "Revision": subject.settings_revision,
            "NativeSidecars": subject.native_sidecars,
            "ProxyImage": images.proxy_image(config.values, image_type, subject.proxy.image_type),
            "ProxyInitImage": images.init_image(config.values, image_type),
            "ProxyUID": uid,
            "ProxyGID": gid,
            "InboundTrafficPolicyMode": config.mesh.inbound_policy,
            "CompliancePolicy": subject.compliance_policy,
        },
    )


# --- break-outs --------------------------------------------------------------------------------------------------

_UNSAFE = re.compile(r"^[^A-Za-z0-9_./$(]|[^A-Za-z0-9_./@%+=$()~: -]|:(?=\s|$)|\s$")
_WHOLE_MAP = re.compile(r"\.(?:Annotations|Labels)\s*[^\s`\"\].A-Za-z]|range[^}\]]*\.(?:Annotations|Labels)")
_TELEMETRY = "resource.opentelemetry.io/"
_NAMES = ("name", "image")
_PORT_NAMES = ("name", "protocol", "hostIP")


class _Doubt(Record):
    """A value that means something to YAML: where it stands, and how to put harmless letters in its place."""

    place: str
    value: str
    defuse: Callable[[Tree, Subject], Subject]


def harmless(text: str) -> str:
    """The text with letters in the place of everything that YAML could take for syntax."""
    return _UNSAFE.sub("x", text)


def _harmless_json(text: str) -> str:
    try:
        return json.dumps(_harmless_tree(json.loads(text)))
    except (ValueError, RecursionError):
        return harmless(text)


def _harmless_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return {harmless(key): _harmless_tree(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_harmless_tree(item) for item in value]
    return harmless(value) if isinstance(value, str) else value


@functools.lru_cache(maxsize=256)
def _reads_everything(source: str) -> bool:
    return _WHOLE_MAP.search(source) is not None


def _doubtful(source: str, pod: Tree, subject: Subject) -> list[_Doubt]:
    """The pod's doubtful values that the template may print."""
    found = [*_doubtful_metadata(source, pod), *_doubtful_names(pod), *_doubtful_subject(subject)]
    if any(word in source for word in (".Env", ".Args", ".Command")):
        found += _doubtful_commands(pod)
    return found


def _doubtful_metadata(source: str, pod: Tree) -> Iterator[_Doubt]:
    metadata = mapping(pod.get("metadata"))
    everything = _reads_everything(source)
    for kind in ("annotations", "labels"):
        for key, value in strings(metadata.get(kind)).items():
            if kind == "annotations" and key in CHECKS and key != PROXY_CONFIG:
                continue
            read = everything or key in source or key.startswith(_TELEMETRY)
            if read and _UNSAFE.search(value):
                change = _harmless_json if key in JSON_VALUED else harmless
                defuse = _in_tree(("metadata", kind), key, change)
                yield _Doubt(place=f"{kind[:-1]} {key!r}", value=value, defuse=defuse)
    yield from _doubtful_strings(metadata, ("metadata",), ("name", "namespace", "generateName"))


def _doubtful_names(pod: Tree) -> Iterator[_Doubt]:
    spec = mapping(pod.get("spec"))
    yield from _doubtful_strings(spec, ("spec",), ("serviceAccountName",))
    for key in (*LISTS, "volumes", "imagePullSecrets"):
        for position, item in enumerate(named(spec.get(key))):
            yield from _doubtful_strings(item, ("spec", key, position), _NAMES)
            for place, port in enumerate(named(item.get("ports"))):
                yield from _doubtful_strings(port, ("spec", key, position, "ports", place), _PORT_NAMES)


def _doubtful_strings(item: Tree, path: tuple[str | int, ...], keys: tuple[str, ...]) -> Iterator[_Doubt]:
    for key in keys:
        value = item.get(key)
        if isinstance(value, str) and _UNSAFE.search(value):
            place = ".".join(map(str, (*path, key)))
            yield _Doubt(place=place, value=value, defuse=_in_tree(path, key, harmless))


def _doubtful_commands(pod: Tree) -> Iterator[_Doubt]:
    """Environments and commands, of which only templates of the user's own making print anything."""
    spec = mapping(pod.get("spec"))
    for key in LISTS:
        for position, item in enumerate(named(spec.get(key))):
            for part in ("env", "args", "command"):
                text = json.dumps(item.get(part), default=str)
                if part in item and _UNSAFE.search(text):
                    place = f"spec.{key}.{position}.{part}"
                    defuse = _in_tree(("spec", key, position), part, _harmless_tree)
                    yield _Doubt(place=place, value=text, defuse=defuse)


def _doubtful_subject(subject: Subject) -> Iterator[_Doubt]:
    owner = subject.owner
    for key in ("name", "namespace", "kind", "api_version"):
        value = getattr(owner, key)
        if _UNSAFE.search(value):
            yield _Doubt(place=f"the workload's {key}", value=value, defuse=_in_owner(key))
    fields = subject.proxy.fields
    if _harmless_tree(fields) != fields:
        place = f"annotation {PROXY_CONFIG!r} (or the mesh's defaultConfig)"
        yield _Doubt(place=place, value=str(fields), defuse=_proxy)


def _in_tree(path: tuple[str | int, ...], key: str, change: Callable[[Any], Any]) -> Callable[[Tree, Subject], Subject]:
    def defuse(pod: Tree, subject: Subject) -> Subject:
        target: Any = pod
        for step in path:
            target = named(target)[step] if isinstance(step, int) else target[step]
        target[key] = change(target[key])
        return subject

    return defuse


def _in_owner(key: str) -> Callable[[Tree, Subject], Subject]:
    def defuse(_pod: Tree, subject: Subject) -> Subject:
        value = harmless(getattr(subject.owner, key))
        return subject.replace(owner=subject.owner.replace(**{key: value}))

    return defuse


def _proxy(_pod: Tree, subject: Subject) -> Subject:
    proxy = subject.proxy
    keep = {key: value for key, value in proxy.fields.items() if not isinstance(value, (dict, str))}
    enums = {key: proxy.fields[key] for key in ("interceptionMode", "controlPlaneAuthPolicy") if key in proxy.fields}
    changed = {**_harmless_tree(proxy.fields), **keep, **enums}
    return subject.replace(proxy=ProxyConfig(fields=changed, defaults=proxy.defaults))


def _defused_shape(
    name: str, config: InjectionConfig, pod: Tree, subject: Subject, doubts: list[_Doubt]
) -> tuple[str, ...] | None:
    """The structure of the text with harmless values in these places; None where it is no YAML then."""
    changed = clone(pod)
    for doubt in doubts:
        subject = doubt.defuse(changed, subject)
    try:
        return goyaml.shape(render_text(name, config, changed, subject))
    except (ParseError, InjectionError):
        return None


def _refuse_break_out(name: str, doubtful: list[_Doubt], keeps_shape: Callable[[list[_Doubt]], bool]) -> None:
    """Raise InjectionError unless the text keeps its structure with harmless values."""
    if keeps_shape(doubtful):
        return
    guilty = [doubt for doubt in doubtful if not keeps_shape([doubt])] or doubtful
    lines = [
        f"template {name!r}: the value of {doubt.place} breaks out of its place in the rendered YAML: "
        f"{doubt.value[:120]!r}; remove quotes, line breaks and other YAML syntax from it"
        for doubt in guilty
    ]
    raise InjectionError("\n".join(lines))
