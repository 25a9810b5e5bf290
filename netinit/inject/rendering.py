"""Templates become partial pods: the data put together, rendered, and read back as YAML under guard.

A template prints annotations, labels and names into YAML text. A value with quotes or line breaks could end the
scalar that it was meant to be and add fields of its own: a pod could then ask for privileges through its proxy. `guard`
lets no value change more than its scalar; here its refusals get the names of annotations and labels.
"""

from __future__ import annotations

from netinit.base.errors import InjectionError, ParseError, TemplateError
from netinit.base.records import Record
from netinit.golang.template import Rendering, Struct
from netinit.golang.tree import Tree, mapping, strings
from netinit.inject import guard, images
from netinit.inject.annotations import PROXY_IMAGE_TYPE
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
    try:
        tree = guard.read(_rendering(name, config, pod, subject))
    except guard.BreakOut as problem:
        raise InjectionError(_word_break_out(name, problem, pod)) from None
    except ParseError as error:
        raise InjectionError(f"template {name!r}: the rendered text is not valid YAML: {error}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InjectionError(f"template {name!r}: it must render a mapping, not a {type(tree).__name__}")
    return tree


def render_text(name: str, config: InjectionConfig, pod: Tree, subject: Subject) -> str:
    """The text that the template of that name gives for the pod. Raises InjectionError."""
    return _rendering(name, config, pod, subject).text


def _rendering(name: str, config: InjectionConfig, pod: Tree, subject: Subject) -> Rendering:
    try:
        return config.templates[name].render_marked(_data(config, pod, subject))
    except TemplateError as error:
        told = shortened(_without_secrets(str(error), pod), _LONGEST_ERROR)
        raise InjectionError(f"template {name!r}: {told}") from None
    except UnicodeError as error:
        raise InjectionError(f"template {name!r}: the pod has text that is no Unicode: {error.reason}") from None


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


# --- errors ------------------------------------------------------------------------------------------------------

_SHOWN = 120
"""Characters of a value that an error shows."""
_LONGEST_ERROR = 600
"""Characters of a template's error: Go's words name the template, the place, the action and a value."""
_HIDDEN = "(hidden)"
_SECRETS = ("env", "args", "command")
_SHORTEST_SECRET = 4


def _word_break_out(name: str, problem: guard.BreakOut, pod: Tree) -> str:
    """A line for every culprit: the annotation or label that its text comes from, else the action that printed it."""
    lines = []
    for culprit in problem.culprits:
        source, value = _source_of(culprit, pod)
        shown = f": {shortened(value)!r}" if value else ""
        lines.append(
            f"template {name!r}: the value of {source} breaks out of its place in the rendered YAML "
            f"({problem}){shown}; remove quotes, line breaks and other YAML syntax from it"
        )
    return "\n".join(dict.fromkeys(lines))


def _source_of(culprit: guard.Foreign, pod: Tree) -> tuple[str, str]:
    """What a text comes from, and its value where that may be shown."""
    action, metadata = str(culprit.action), mapping(pod.get("metadata"))
    sources = [
        (f"{kind[:-1]} {key!r}", key, value)
        for kind in ("annotations", "labels")
        for key, value in strings(metadata.get(kind)).items()
    ]
    for source, key, value in sources:
        if value and value in culprit.text and key in action:
            return source, value
    for source, key, value in sources:
        if len(value) >= _SHORTEST_SECRET and value in culprit.text or f'"{key}"' in action or f"`{key}`" in action:
            return source, value
    return action, ""


def shortened(text: str, longest: int = _SHOWN) -> str:
    """The text, cut where it is longer than an error should show."""
    return text if len(text) <= longest else text[:longest] + "…"


def _without_secrets(text: str, pod: Tree) -> str:
    """The text without anything that stands in the environment or the command line of a container."""
    spec = mapping(pod.get("spec"))
    found: list[str] = []
    todo = [item.get(part) for key in LISTS for item in named(spec.get(key)) for part in _SECRETS]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo += [item for key, item in value.items() if key != "name"]
        elif isinstance(value, list):
            todo += value
        elif isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            found.append(value)
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    return text
