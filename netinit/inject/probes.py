"""Probe rewriting: the kubelet probes the sidecar's agent, which probes the application.

The kubelet has no mesh certificate, so mutual TLS would reject it. Each http, tcp and grpc action of a probe or
lifecycle handler becomes an HTTP request to the agent; the original is saved in ISTIO_KUBE_APP_PROBERS, JSON by the
agent's path.
"""

from __future__ import annotations

import json
from typing import Any

from netinit.base.tree import Tree, clone, mapping, sequence
from netinit.inject.annotations import REWRITE_PROBES, STATUS_PORT, read_switch
from netinit.inject.containers import PROXY, all_containers, find, find_proxy, named
from netinit.inject.kubernetes_types import encode_json, ordered

ENVIRONMENT = "ISTIO_KUBE_APP_PROBERS"
_PROBES = (("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz"))
_HANDLERS = (("preStop", "prestopz"), ("postStart", "poststartz"))
_ACTIONS = ("httpGet", "tcpSocket", "grpc")


def wants_rewrite(annotations: dict[str, str], *, default: bool) -> bool:
    """Whether to rewrite the pod's probes: by its annotation, else the default."""
    return read_switch(annotations, REWRITE_PROBES, default=default)


def rewrite(spec: Tree, annotations: dict[str, str], status_port: int, *, injected_before: bool) -> None:
    """Rewrite the probes of the spec's containers in place, if it has a proxy.

    `status_port`: the proxy's; an annotation may set another one. `injected_before`: keep existing entries, since the
    probes are already rewritten. A probe of a port name that the container does not declare is left unchanged.
    """
    proxy = find_proxy(spec)
    if proxy is None:
        return
    annotated = annotations.get(STATUS_PORT, "").strip()
    port = int(annotated) if annotated.isascii() and annotated.isdigit() else status_port
    saved: Tree = {}
    for container in all_containers(spec):
        if container.get("name") != PROXY:
            _rewrite_container(container, status_port, port, saved)
    if saved:
        _save(proxy, saved, injected_before=injected_before)


def _rewrite_container(container: Tree, status_port: int, port: int, saved: Tree) -> None:
    name = container.get("name")
    places = [(container, key, f"/app-health/{name}/{word}") for key, word in _PROBES]
    lifecycle = container.get("lifecycle")
    if isinstance(lifecycle, dict):
        lifecycle = container["lifecycle"] = dict(lifecycle)
        places += [(lifecycle, key, f"/app-lifecycle/{name}/{word}") for key, word in _HANDLERS]
    for holder, key, path in places:
        probe = holder.get(key)
        kind = next((action for action in _ACTIONS if isinstance(mapping(probe).get(action), dict)), None)
        if kind is None or not isinstance(probe, dict):
            continue
        action = _resolved(kind, probe[kind], container)
        if action is None:
            continue
        if kind == "grpc" or action.get("port") != status_port:
            saved[path] = _entry(kind, action, probe)
        holder[key] = _redirected(kind, probe, path, port)


def _resolved(kind: str, action: Tree, container: Tree) -> Tree | None:
    """Return the action with a numeric port; None if the container does not declare the port's name."""
    port = action.get("port")
    if kind == "grpc" or not isinstance(port, str):
        return clone(action)  # type: ignore[no-any-return]
    declared = [item for item in named(container.get("ports")) if item.get("name") == port]
    if declared:
        return {**clone(action), "port": declared[-1].get("containerPort")}  # the last one if a name is declared twice
    return {**clone(action), "port": int(port)} if port.isascii() and port.isdigit() else None


def _entry(kind: str, action: Tree, probe: Tree) -> Tree:
    if kind == "grpc":
        entry: Tree = {"grpc": {"port": action.get("port") or 0, "service": action.get("service")}}
    else:
        entry = ordered("v1.ProbeHandler", {kind: action})
    if probe.get("timeoutSeconds"):
        entry["timeoutSeconds"] = probe["timeoutSeconds"]
    return entry


def _redirected(kind: str, probe: Tree, path: str, port: int) -> Tree:
    result = {key: value for key, value in probe.items() if key not in _ACTIONS}
    request: Tree = dict(probe[kind]) if kind == "httpGet" else {}
    request |= {"path": path, "port": port}
    if request.get("scheme") == "HTTPS":
        request["scheme"] = "HTTP"
    return {"httpGet": request, **result}


def _save(proxy: Tree, saved: Tree, *, injected_before: bool) -> None:
    variables = [clone(item) for item in sequence(proxy.get("env"))]
    before: Any = find(variables, ENVIRONMENT)
    if before is not None and injected_before:
        try:
            saved = saved | mapping(json.loads(before.get("value") or "{}"))
        except (ValueError, RecursionError, TypeError):
            before["value"] = ""
        before["value"] = encode_json(dict(sorted(saved.items())))
    else:
        variables.append({"name": ENVIRONMENT, "value": encode_json(dict(sorted(saved.items())))})
    proxy["env"] = variables
