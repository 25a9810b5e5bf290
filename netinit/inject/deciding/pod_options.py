"""The options of a pod without an init container: of its annotations and its proxy, as a CNI plugin reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.inject.deciding.annotations import CHECKS, go_bool, read_switch
from netinit.inject.deciding.webhooks import DATAPLANE_LABEL
from netinit.options import Options, kinds
from netinit.options.interception import AMBIENT, DEFAULT_PROXY_UID
from netinit.options.kinds import Flag

REDIRECTION = "ambient.istio.io/redirection"
"""The annotation that an ambient agent sets to `enabled` on pods that it has programmed."""
REROUTED = "virtual_interfaces"  # the option of rules that a pod's annotation sets in an ambient mesh, beside these of its agent
BY_AGENT = {"redirect_dns": "ambient.istio.io/dns-capture", "ingress": "ambient.istio.io/bypass-inbound-capture"}

ANNOTATIONS = tuple(name for flag in Options.flags for name in (*flag.istio_annotations, flag.annotation) if name)
"""The annotations whose values are options of rules."""
PREFIXES = tuple({f"{name.partition('/')[0]}/": None for name in (*ANNOTATIONS, REDIRECTION)})  # of annotations that are read
VARIABLES = tuple({flag.pod_variable: None for flag in Options.flags if flag.pod_variable})  # variables of the proxy's container


def find_annotation(flag: Flag, annotations: Mapping[str, str]) -> str:
    """Return the name of the flag's annotation that the pod has; "" without one."""
    return next((name for name in (flag.annotation, *flag.istio_annotations) if name in annotations), "")


def joins_ambient(labels: Mapping[str, str]) -> bool:
    """Whether the pod's own label takes it into an ambient mesh, unless it has a sidecar."""
    return labels.get(DATAPLANE_LABEL) == AMBIENT


def find_invalid_annotations(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the annotations with invalid values, each with the reason."""
    found = [(name, CHECKS[name](annotations[name])) for name in ANNOTATIONS if name in annotations]
    return [(name, problem) for name, problem in found if problem]


def make_cni_options(
    annotations: Mapping[str, str], environment: Mapping[str, str], base: Options, *, uid: int | None, gid: int | None
) -> Options:
    """Return a pod's options. Raises OptionError.

    `base`: the node's defaults for all pods. `uid`, `gid`: those of the proxy.
    """
    read = {flag.field: _value_of(flag, annotations, environment) for flag in Options.flags}
    found: dict[str, Any] = {field: value for field, value in read.items() if value is not None}
    return base.replace(**found, proxy_uids=(uid or DEFAULT_PROXY_UID,), proxy_gids=(gid or DEFAULT_PROXY_UID,))


def make_ambient_options(annotations: Mapping[str, str], *, dns: bool = True) -> Options:
    """Return the options of a pod that an ambient agent programmed; `dns`: the mesh's default for DNS capture."""
    rerouted = Options.flag(REROUTED)
    return Options(
        layout=AMBIENT,
        redirect_dns=read_switch(annotations, BY_AGENT["redirect_dns"], default=dns),
        ingress=read_switch(annotations, BY_AGENT["ingress"], default=False),
        virtual_interfaces=rerouted.kind.read(annotations.get(find_annotation(rerouted, annotations), "")),
    )


def _value_of(flag: Flag, annotations: Mapping[str, str], environment: Mapping[str, str]) -> str | bool | None:
    text = flag.without_annotation
    if name := find_annotation(flag, annotations):
        text = annotations[name].strip()
    elif variable := environment.get(flag.pod_variable):
        return go_bool(variable) is True if flag.kind is kinds.SWITCH else variable
    elif not text:
        return None
    if flag.kind in (kinds.PORTS, kinds.PORTS_OR_ALL):  # annotations may contain port 0, which captures nothing
        listed = [*text.split(","), *map(str, flag.always_on_node)]
        text = ",".join([item.strip() for item in listed if item.strip().lstrip("0")])
    return text
