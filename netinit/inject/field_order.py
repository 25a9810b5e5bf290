"""JSON as Go writes Kubernetes' types: the fields of structs in the order in which the types declare them.

Annotations and environment variables that injectors write hold such JSON, and tools compare it as text.
"""

from __future__ import annotations

from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree
from netinit.golang import gojson
from netinit.golang.template import FunctionError
from netinit.inject.quantity import canonical

__all__ = ["CONTAINER_FIELDS", "encode", "ordered_container", "ordered_handler"]

CONTAINER_FIELDS = (
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "ports",
    "envFrom",
    "env",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "volumeMounts",
    "volumeDevices",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
)
_NESTED: dict[str, tuple[str, ...]] = {
    "securityContext": (
        "capabilities",
        "privileged",
        "seLinuxOptions",
        "windowsOptions",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "procMount",
        "seccompProfile",
        "appArmorProfile",
    ),
    "ports": ("name", "hostPort", "containerPort", "protocol", "hostIP"),
    "env": ("name", "value", "valueFrom"),
    "volumeMounts": (
        "name",
        "readOnly",
        "recursiveReadOnly",
        "mountPath",
        "subPath",
        "mountPropagation",
        "subPathExpr",
    ),
    "httpGet": ("path", "port", "host", "scheme", "httpHeaders"),
    "httpHeaders": ("name", "value"),
    "tcpSocket": ("port", "host"),
    "grpc": ("port", "service"),
}
_PROBE = (
    "exec",
    "httpGet",
    "tcpSocket",
    "grpc",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
)
_NESTED |= dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _PROBE)
_REQUIRED: dict[str, Tree] = {"httpGet": {"port": 0}, "tcpSocket": {"port": 0}, "grpc": {"port": 0, "service": None}}
"""Fields that Go writes although they are empty."""
_NESTED["lifecycle"] = ("postStart", "preStop", "stopSignal")


def encode(value: Any) -> str:
    """The value as Go's JSON, its keys in the order that they have. Raises InjectionError for what JSON cannot hold."""
    try:
        return gojson.encode(value)
    except FunctionError as problem:
        raise InjectionError(f"the pod holds a value that JSON cannot: {problem}; write another one") from None


def _ordered(value: Any, name: str) -> Any:
    """The value with known struct fields in Go's order and unknown ones, like map keys, sorted behind them."""
    if isinstance(value, list):
        return [_ordered(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    if name in {"limits", "requests"}:
        return {key: canonical(value[key]) for key in sorted(value)}
    required = _REQUIRED.get(name, {})
    value = {**required, **{key: item for key, item in value.items() if item is not None}}
    known = _NESTED.get(name, ())
    keys = [key for key in known if key in value] + sorted(key for key in value if key not in known)
    kept = [key for key in keys if value[key] != "" or key not in known or name == "httpHeaders"]
    return {key: _ordered(value[key], key) for key in kept}


def ordered_container(container: Tree) -> Tree:
    """A container in the order of its Go struct; `resources`, which Go never omits, is always there."""
    filled = {"resources": {}, **container}
    keys = [key for key in CONTAINER_FIELDS if key in filled]
    keys += sorted(key for key in filled if key not in CONTAINER_FIELDS)
    empty: tuple[Any, ...] = (None, "", [], False)
    return {key: _ordered(filled[key], key) for key in keys if filled[key] not in empty}


def ordered_handler(handler: Tree) -> Tree:
    """A probe's action (httpGet, tcpSocket or grpc) in the order of its Go struct, empty fields left out."""
    return {
        kind: {key: item for key, item in _ordered(action, kind).items() if item not in ("", None, []) or key == "port"}
        for kind, action in handler.items()
    }
