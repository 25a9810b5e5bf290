"""The options that a CNI plugin makes of a pod's annotations and its proxy's environment, as each option's declaration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.inject.annotations import CHECKS, go_bool
from netinit.options import AMBIENT, Options, kinds
from netinit.options.interception import DEFAULT_PROXY_UID
from netinit.options.kinds import Flag

__all__ = ["REDIRECTION", "VARIABLES", "complain", "find_annotation", "make_ambient_options", "make_cni_options"]

REDIRECTION = "ambient.istio.io/redirection"
"""The annotation with which a mesh's ambient agent marks the pods that it programmed: `enabled`."""
_AMBIENT_DNS, _AMBIENT_BYPASS = "ambient.istio.io/dns-capture", "ambient.istio.io/bypass-inbound-capture"

_ANNOTATIONS = tuple(name for flag in Options.flags for name in (*flag.istio_annotations, flag.annotation) if name)
VARIABLES = tuple({flag.pod_variable: None for flag in Options.flags if flag.pod_variable})  # of the proxy's container


def find_annotation(flag: Flag, annotations: Mapping[str, str]) -> str:
    """The annotation of a pod that sets a flag; empty where it has none."""
    return next((name for name in (flag.annotation, *flag.istio_annotations) if name in annotations), "")


def complain(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """The annotations whose value is not accepted, each with the reason."""
    found = [(name, CHECKS[name](annotations[name])) for name in _ANNOTATIONS if name in annotations]
    return [(name, said) for name, said in found if said]


def make_cni_options(
    annotations: Mapping[str, str], environment: Mapping[str, str], base: Options, *, uid: int | None, gid: int | None
) -> Options:
    """The options of a pod: `base` has what the node says of every pod, uid and gid are the proxy's. OptionError."""
    read = {flag.field: _value_of(flag, annotations, environment) for flag in Options.flags}
    found: dict[str, Any] = {field: value for field, value in read.items() if value is not None}
    return base.replace(**found, proxy_uids=(uid or DEFAULT_PROXY_UID,), proxy_gids=(gid or DEFAULT_PROXY_UID,))


def make_ambient_options(annotations: Mapping[str, str], *, dns: bool = True) -> Options:
    """The options of a pod that a mesh's ambient agent programs; `dns` is what the mesh says of pods that do not."""
    asked = go_bool(annotations.get(_AMBIENT_DNS, ""))
    rerouted = Options.flag("virtual_interfaces")
    return Options(
        layout=AMBIENT,
        redirect_dns=dns if asked is None else asked,
        ingress=go_bool(annotations.get(_AMBIENT_BYPASS, "")) is True,
        virtual_interfaces=rerouted.kind.read(annotations.get(find_annotation(rerouted, annotations), "")),
    )


def _value_of(flag: Flag, annotations: Mapping[str, str], environment: Mapping[str, str]) -> str | bool | None:
    """The value of a flag, None where the pod says nothing of it."""
    text = flag.without_annotation
    if name := find_annotation(flag, annotations):
        text = annotations[name].strip()
    elif variable := environment.get(flag.pod_variable):
        return go_bool(variable) is True if flag.kind is kinds.SWITCH else variable
    elif not text:
        return None
    if flag.kind in (kinds.PORTS, kinds.PORTS_OR_ALL):  # port 0 stands in annotations, and captures nothing
        listed = [*text.split(","), *map(str, flag.always_on_node)]
        text = ",".join([item.strip() for item in listed if item.strip().lstrip("0")])
    return text
