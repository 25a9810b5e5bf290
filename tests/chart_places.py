"""Where the chart takes values, by its schema, and whole sets of values for tests of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chart_values import read_schema

SCHEMA = read_schema()
BEYOND = {  # the values that switch something on, so that whatever else is given is rendered somewhere
    "node": {"enabled": True, "hostNetwork": False}, "test": {"namespace": "shop"}, "autoscaling": {"enabled": True}, "dashboard": {"enabled": True},
    "networkPolicy": {"monitoringFrom": [{"podSelector": {}}]}, "clientCASecret": "clients", "admissionPolicies": {"enabled": True}, "tags": ["prod"], "revision": "canary",
    "monitoring": {"podAnnotations": True, "podMonitor": {"enabled": True}, "rules": {"enabled": True}},
    "certificate": {"mode": "certManager", "issuer": {"name": "mesh"}},
}  # fmt: skip
OPERATORS = {  # what charts of operators commonly offer
    "commonLabels": {"team": "mesh"}, "fullnameOverride": "mesh-init", "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"tier": "control"}, "podAnnotations": {"a/b": "c"}, "deploymentAnnotations": {"d": "e"}, "serviceAnnotations": {"f": "g"},
    "serviceAccountAnnotations": {"h": "i"}, "nodeSelector": {"pool": "system"}, "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}},
    "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}], "priorityClassName": "high",
    "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 3, "terminationGracePeriodSeconds": 60, "podSecurityContext": {"fsGroup": 7},
    "securityContext": {"privileged": False}, "extraArgs": ["--maxReviews=64"], "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://192.0.2.1:1"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "image": {"digest": f"sha256:{'0' * 64}"}, "initImage": {"tag": "v7", "digest": f"sha256:{'1' * 64}"},
    "node": {
        "image": {"tag": "v8", "digest": f"sha256:{'2' * 64}"}, "podLabels": {"tier": "node"}, "podAnnotations": {"a/b": "d"},
        "daemonSetAnnotations": {"j": "k"}, "serviceAccountAnnotations": {"l": "m"}, "nodeSelector": {"pool": "apps"},
        "affinity": {"podAntiAffinity": {}}, "tolerations": [{"key": "apps", "operator": "Exists"}], "priorityClassName": "",
        "updateStrategy": {"type": "OnDelete"}, "terminationGracePeriodSeconds": 45, "podSecurityContext": {"fsGroup": 8},
        "securityContext": {"seLinuxOptions": {"type": "spc_t"}}, "extraArgs": ["--jobs=2"], "extraEnv": [{"name": "HTTPS_PROXY", "value": "x"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
}  # fmt: skip


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or what it refers to."""
    return SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def list_places(schema: dict[str, Any] = SCHEMA, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each value and group that the schema names; with items of lists (0) and values of maps ("k")."""
    schema = resolve(schema)
    if path:
        yield path
    for key, one in schema.get("properties", {}).items():
        yield from list_places(one, (*path, key))
    if schema.get("type") == "array" and "items" in schema:
        yield from list_places(schema["items"], (*path, 0))
    elif schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        others = schema.get("additionalProperties") or {}
        yield from list_places(others, (*path, "k"))


def put(path: tuple[str | int, ...], value: Any) -> Any:
    """Values in which only this place is given, with names that its list's items must have."""
    for at, key in reversed(list(enumerate(path))):
        if isinstance(key, int):
            schema: dict[str, Any] = SCHEMA
            for step in path[: at + 1]:
                schema = resolve(schema.get("items", {}) if isinstance(step, int) else schema["properties"].get(step) or schema.get("additionalProperties") or {})
            needed = {"name": "more", "mountPath": "/more"}
            value = [{**{name: needed[name] for name in schema.get("required", ())}, **value} if isinstance(value, dict) else value]
        else:
            value = {key: value}
    return value
