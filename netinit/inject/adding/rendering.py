"""Render a template into a partial pod: build the data, render, and parse the YAML safely.

`guard` prevents a pod's values from leaving their scalars; this module names the annotation or label in its errors. It
rejects Go's output for missing or unsuitable values (`<nil>`, `<no value>`, `%!s(<nil>)`): to Go this is no error, so it
would become an image name or a list of ports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.records import Record
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import TemplateError, YamlError
from netinit.golang.template import Rendering, Struct
from netinit.golang.template.values import Int64
from netinit.inject.adding import guard
from netinit.inject.adding.config import InjectionConfig, with_integers
from netinit.inject.adding.kubernetes_types import ObjectStruct, misfits
from netinit.inject.adding.meshconfig import ProxyConfig
from netinit.inject.adding.quantities import round_up
from netinit.inject.adding.settings import DEFAULT_ID, Settings
from netinit.inject.deciding.annotations import CHECKS, PROXY_IMAGE_TYPE, UNCAPTURED_INIT
from netinit.inject.deciding.containers import LISTS, named
from netinit.inject.deciding.manifests import PodOwner
from netinit.options.declare import ANNOTATIONS

_CPU_ANNOTATIONS = ("sidecar.istio.io/proxyCPULimit", "sidecar.istio.io/proxyCPU")
_USUAL_CONCURRENCY = 2


class Subject(Record):
    """What is known besides the pod. `ids`: the proxy's uid and gid, if the platform assigns them."""

    owner: PodOwner
    proxy: ProxyConfig
    settings: Settings = Settings()
    ids: tuple[int, int] | None = None


def render(name: str, config: InjectionConfig, pod: Tree, data: Struct) -> Tree:
    """Render the template with the pod's data and return the tree.

    Raises InjectionError if the template fails, does not render a mapping, or a value of the pod leaves its scalar.
    """
    rendering = _rendering(name, config, pod, data)
    try:
        tree = guard.read(rendering)
    except guard.BreakOut as problem:
        raise InjectionError(_describe_break_out(name, problem, rendering, pod)) from None
    except YamlError as error:
        raise InjectionError(f"template {name!r}: the rendered text is not valid YAML: {error}") from error
    if "e+" in rendering.text:  # rare
        tree = with_integers(tree)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InjectionError(f"template {name!r}: it must render a mapping, not a {type(tree).__name__}")
    if "<n" in rendering.text or "%!" in rendering.text:  # rare
        _refuse_unset(name, tree, config, pod, data)
    if not config.classic and (wrong := misfits(tree)):
        raise InjectionError("\n".join(f"template {name!r}: {_without_secrets(line, pod)}" for line in wrong))
    return tree


def _rendering(name: str, config: InjectionConfig, pod: Tree, data: Struct) -> Rendering:
    try:
        return config.templates[name].render_marked(data)
    except TemplateError as error:
        detail = _without_secrets(str(error), pod)[:_MAX_ERROR]
        failures = () if error.position is None else ((name, error.position, error.is_certain),)
        raise InjectionError(f"template {name!r}: {detail}", failures=failures) from None
    except UnicodeError:
        raise InjectionError(f"template {name!r}: the pod has text that is not Unicode") from None


def template_data(config: InjectionConfig, pod: Tree, subject: Subject) -> Struct:
    """Return what the templates see of the pod, its owner, its ProxyConfig and the injector's configuration."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations = strings(metadata.get("annotations"))
    # templates turn all annotations of our domain into flags
    unknown = [name for name in annotations if name.startswith(ANNOTATIONS) and (name not in CHECKS or name == UNCAPTURED_INIT)]
    known = {name: text for name, text in annotations.items() if name not in unknown}
    image_type = annotations.get(PROXY_IMAGE_TYPE)
    uid, gid = subject.ids or (DEFAULT_ID, DEFAULT_ID)
    owner = subject.owner
    deployment = {"Namespace": owner.namespace, "Name": owner.name}
    is_usual = subject.proxy is config.mesh.proxy
    proxy, mesh = config.mesh_structs if is_usual else config.mesh.structs(subject.proxy, plain=config.plain_proxy)
    return Struct(
        "inject.SidecarTemplateData",
        {
            "TypeMeta": ObjectStruct("v1.TypeMeta", {"kind": owner.kind, "apiVersion": owner.api_version}),
            "DeploymentMeta": ObjectStruct("types.NamespacedName", deployment),
            "ObjectMeta": ObjectStruct("v1.ObjectMeta", {**metadata, "annotations": known} if unknown else metadata),
            "Spec": ObjectStruct("v1.PodSpec", spec),
            "ProxyConfig": proxy,
            "MeshConfig": mesh,
            "Values": config.values,
            "Revision": subject.settings.revision,
            "NativeSidecars": subject.settings.uses_native_sidecar(spec),
            "ProxyImage": image_of(config.values, "proxy", subject.proxy.image_type or None if image_type is None else image_type),
            "ProxyInitImage": image_of(config.values, "proxy_init", image_type),
            "ProxyUID": Int64(uid),
            "ProxyGID": Int64(gid),
            "InboundTrafficPolicyMode": config.mesh.inbound_policy,
            "CompliancePolicy": subject.settings.compliance_policy,
            "EstimatedConcurrency": estimate_concurrency(subject.proxy, annotations, config.values),
        },
    )


def estimate_concurrency(proxy: ProxyConfig, annotations: Mapping[str, str], values: Tree) -> int:
    """Return the number of proxy threads for the templates of Istio 1.11 to 1.17.

    It is the ProxyConfig's, by default 2. If it is 0: the CPU quantity, rounded up, of the annotation, else of the
    limit or the request in the values, else 2.
    """
    configured = proxy.fields.get("concurrency")
    if configured is None or configured > 0:
        return int(configured or _USUAL_CONCURRENCY)
    resources = mapping(mapping(mapping(values.get("global")).get("proxy")).get("resources"))
    annotated = next((annotations[name] for name in _CPU_ANNOTATIONS if name in annotations), None)
    asked = [annotated] if annotated is not None else [mapping(resources.get(part)).get("cpu") for part in ("limits", "requests")]
    return next((number for text in asked if text is not None and (number := round_up(text)) is not None), _USUAL_CONCURRENCY)


def image_of(values: Tree, part: str, image_type: str | None) -> str:
    """Return an image: the values' hub, name and tag, and its type (None: the values'), joined as in Istio."""
    settings = mapping(values.get("global"))
    name = string(mapping(settings.get(part)).get("image")) or "proxyv2"
    tag = string(settings.get("tag"))
    kind = string(settings.get("variant")) if image_type is None else image_type
    if kind:
        for known in ("debug", "distroless"):
            tag = tag.removesuffix(f"-{known}")
        if kind != "default":
            tag = f"{tag}-{kind}"
    hub = string(settings.get("hub"))
    image = f"{hub}/{name}" if hub else name
    return f"{image}:{tag}" if tag else image


# --- errors ------------------------------------------------------------------------------------------------------

_MAX_CULPRITS = 8
"""Maximum number of outputs that an error describes."""
_MAX_ERROR = 600
"""Characters of a template's error."""
_HIDDEN = "(hidden)"
_SECRETS = ("env", "args", "command")
_HARMLESS = frozenset(("name", "value"))
_MIN_SECRET = 4
"""Characters of a text that can be distinguished from others."""
_PLAIN = r"[A-Za-z0-9_./-]*"
_PARSED = 1 << 16
_NAMED = 1 << 30


def _describe_break_out(name: str, problem: guard.BreakOut, rendering: Rendering, pod: Tree) -> str:
    marks = [rendering.marks[number] for number in problem.numbers]
    culprits = list(dict.fromkeys((text, str(action)) for place, action in marks if (text := rendering.parts[place])))
    doubtful = [culprit for culprit in culprits if not re.fullmatch(guard.WORD, culprit[0].strip())]
    lines = []
    for text, action in (doubtful or culprits)[:_MAX_CULPRITS]:
        source, value = _source_of(text, action, pod)
        detail = f": {shown(value)}" if value else ""
        lines.append(
            f"template {name!r}: the value of {source} breaks out of its place in the rendered YAML "
            f"({problem}){detail}; remove quotes, line breaks and other YAML syntax from it"
        )
    return "\n".join(dict.fromkeys(lines))


def _source_of(text: str, action: str, pod: Tree) -> tuple[str, str]:
    """Return the source of a text, and its value if that may be shown.

    It is the annotation or label that the action names, else the one with the longest common text, else the action.
    """
    metadata = mapping(pod.get("metadata"))
    best, source = 0, (action, "")
    for kind in ("annotations", "labels"):
        for key, value in strings(metadata.get(kind)).items():
            named_there = f'"{key}"' in action or f"`{key}`" in action
            likeness = _likeness(value, text) + (_NAMED if named_there else 0)
            if likeness > best:
                best, source = likeness, (f"{kind[:-1]} {key!r}", value)
    return source


def _likeness(value: str, text: str) -> int:
    """Return the length of the longest text of the value (also as YAML or JSON) in the rendered text."""
    found = [value]
    try:
        found += texts_in(json.loads(value) if value[:1] in {"{", "["} else goyaml.load(value[:_PARSED]))
    except (YamlError, ValueError, RecursionError):
        return len(value) if value in text else 0
    whole = text.strip()
    return max(
        (len(part) for part in found if part == whole or (part in text and not re.fullmatch(_PLAIN, part))), default=0
    )


def _without_secrets(text: str, pod: Tree) -> str:
    """Hide everything from a container's environment or command line."""
    spec = mapping(pod.get("spec"))
    lists = [item.get(part) for key in LISTS for item in named(spec.get(key)) for part in _SECRETS]
    found = {part for part in texts_in(lists) if len(part) >= _MIN_SECRET and part not in _HARMLESS}
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    return text


_UNSET = r"<nil>|<no value>|%![a-zA-Z]?\([^()]*\)?"
_REMEDY = "a value is missing or unfit: give it with --set KEY=VALUE or --valuesFile, or correct the template"
_ACTION = 200  # characters of an action that an error shows


def _refuse_unset(name: str, tree: Any, config: InjectionConfig, pod: Tree, data: Struct) -> None:
    """Raise InjectionError with a line for each field that contains such output and not from the pod."""
    found = [(path, text, words) for path, text in _fields(tree, "") if (words := re.findall(_UNSET, text))]
    if not found:
        return
    own = "\n".join(texts_in(pod))
    rendering, source = config.traced(name).render_marked(data), config.sources[name]
    printed = [
        (action, len(words)) for place, action in rendering.marks if (words := re.findall(_UNSET, rendering.parts[place]))
    ]
    actions = iter([action for action, times in printed for _ in range(times)])  # in the order of the fields
    problems, failures = [], []
    for path, text, words in found:
        culprits = [next(actions, None) for _ in words]
        if all(word in own for word in words):
            continue
        where = "".join(f"line {source.count(chr(10), 0, one.pos) + 1}, {shorten(str(one), _ACTION)}: " for one in culprits[:1] if one)
        problems.append(f"template {name!r}: {where}{path} is {shown(text)}; {_REMEDY}")
        failures += [(name, one.pos, False) for one in culprits if one]
    if problems:
        known = len(failures) >= len(problems)
        raise InjectionError(_without_secrets("\n".join(dict.fromkeys(problems)), pod), failures=tuple(failures) if known else ())


def _fields(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every text with the path of its field, and every key with the path of its map."""
    if isinstance(tree, str):
        yield path or "the whole", tree
    elif isinstance(tree, dict):
        for key, item in tree.items():
            here = f"{path}.{key}" if path else str(key)
            yield f"a key of {path or 'the whole'}", str(key)
            yield from _fields(item, here)
    elif isinstance(tree, list):
        for position, item in enumerate(tree):
            yield from _fields(item, f"{path}[{position}]")


def texts_in(tree: Any) -> Iterator[str]:
    """Yield every key and text of the tree."""
    yield from (text for _, text in _fields(tree, ""))
