"""Check rendered fields against the types of the Kubernetes API, so that an error is reported here instead of by the server.

Only pod fields that templates write are known; others are not checked. A line of the table is `field:type`: string,
bool, int32, int64, port (a number or a name), another table, `[]` before a type for a list, `map` for a map of strings.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

from netinit.base.tree import shown

__all__ = ["misfits"]

_HANDLERS = "exec:Exec httpGet:HttpGet tcpSocket:TcpSocket"
_TABLES = {
    "Pod": "metadata:Metadata spec:Spec",
    "Metadata": "name:string generateName:string namespace:string labels:map annotations:map",
    "Spec": """containers:[]Container initContainers:[]Container volumes:[]Volume imagePullSecrets:[]Named
        securityContext:PodSecurity hostNetwork:bool hostPID:bool hostIPC:bool hostUsers:bool
        shareProcessNamespace:bool automountServiceAccountToken:bool serviceAccountName:string restartPolicy:string
        terminationGracePeriodSeconds:int64 dnsPolicy:string dnsConfig:DnsConfig nodeSelector:map
        priorityClassName:string hostname:string subdomain:string schedulerName:string""",
    "DnsConfig": "nameservers:[]string searches:[]string",
    "Named": "name:string",
    "PodSecurity": "runAsUser:int64 runAsGroup:int64 fsGroup:int64 runAsNonRoot:bool",
    "Container": """name:string image:string command:[]string args:[]string workingDir:string ports:[]Port
        env:[]Variable volumeMounts:[]Mount livenessProbe:Probe readinessProbe:Probe startupProbe:Probe
        lifecycle:Lifecycle restartPolicy:string imagePullPolicy:string terminationMessagePath:string
        terminationMessagePolicy:string securityContext:Security stdin:bool stdinOnce:bool tty:bool""",
    "Port": "name:string hostPort:int32 containerPort:int32 protocol:string hostIP:string",
    "Variable": "name:string value:string",
    "Mount": "name:string readOnly:bool mountPath:string subPath:string mountPropagation:string subPathExpr:string",
    "Probe": f"""initialDelaySeconds:int32 timeoutSeconds:int32 periodSeconds:int32 successThreshold:int32
        failureThreshold:int32 terminationGracePeriodSeconds:int64 grpc:Grpc {_HANDLERS}""",
    "Lifecycle": "preStop:Handler postStart:Handler",
    "Handler": _HANDLERS,
    "Exec": "command:[]string",
    "HttpGet": "path:string port:port host:string scheme:string httpHeaders:[]Header",
    "Header": "name:string value:string",
    "TcpSocket": "port:port host:string",
    "Grpc": "port:int32 service:string",
    "Security": """privileged:bool allowPrivilegeEscalation:bool readOnlyRootFilesystem:bool runAsNonRoot:bool
        runAsUser:int64 runAsGroup:int64 capabilities:Capabilities""",
    "Capabilities": "add:[]string drop:[]string",
    "Volume": """name:string emptyDir:EmptyDir hostPath:HostPath secret:SecretVolume configMap:NamedVolume csi:Csi
        persistentVolumeClaim:Claim""",
    "EmptyDir": "medium:string",
    "HostPath": "path:string type:string",
    "SecretVolume": "secretName:string optional:bool defaultMode:int32 items:[]Item",
    "NamedVolume": "name:string optional:bool defaultMode:int32 items:[]Item",
    "Item": "key:string path:string mode:int32",
    "Csi": "driver:string readOnly:bool fsType:string volumeAttributes:map",
    "Claim": "claimName:string readOnly:bool",
}
_RANGES = {"int32": 2**31, "int64": 2**63, "port": 2**31}
_Path: TypeAlias = "tuple[()] | tuple[_Path, str | int]"
"""The key or position of a value, behind the path of what holds it: most values are valid and need no text of it."""


@functools.cache
def _table(name: str) -> Mapping[str, str]:
    return {field: kind for field, _, kind in (entry.partition(":") for entry in _TABLES[name].split())}


def misfits(tree: Any) -> list[str]:
    """Return a sentence for each value of a partial pod with the wrong type; null is always valid."""
    found: list[str] = []
    _check(tree, "Pod", (), found)
    return found


def _check(tree: Any, kind: str, path: _Path, found: list[str]) -> None:
    if tree is None or (kind == "string" and tree.__class__ is str):  # what most values are
        return
    if kind.startswith("[]"):
        if not isinstance(tree, list):
            found.append(f"{_format(path)} is {shown(tree)} and must be a list")
            return
        for position, item in enumerate(tree):
            _check(item, kind[2:], (path, position), found)
    elif kind == "map" or kind in _TABLES:
        if not isinstance(tree, dict):
            found.append(f"{_format(path) or 'the whole'} is {shown(tree)} and must be a mapping")
            return
        known = dict.fromkeys(tree, "string") if kind == "map" else _table(kind)
        for key, item in tree.items():
            if key in known and not (item.__class__ is str and known[key] == "string"):
                _check(item, known[key], (path, key), found)
    elif wanted := _expected(tree, kind):
        found.append(f"{_format(path)} is {shown(tree)} and must be {wanted}")


def _format(path: _Path) -> str:
    """Return the path of a value: its keys and positions."""
    if not path:
        return ""
    before, last = _format(path[0]), path[1]
    return f"{before}[{last}]" if isinstance(last, int) else f"{before}.{last}" if before else str(last)


def _expected(value: Any, kind: str) -> str:
    """Return what a value of this type must be, if this one is not; otherwise empty."""
    if kind == "string":
        return "" if isinstance(value, str) else "a text: put it in quotes"
    if kind == "bool":
        return "" if isinstance(value, bool) else "true or false"
    if kind == "port" and isinstance(value, str):
        return ""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    limit = _RANGES[kind]
    if isinstance(number, int) and not isinstance(number, bool) and -limit <= number < limit:
        return ""
    return f"a whole number from {-limit} to {limit - 1}"
