"""Probes and scrapes that go through the port of the sidecar's agent.

The kubelet has no mesh certificate, so mutual TLS would reject its probes. Each http, tcp and grpc action of a probe or
lifecycle handler becomes an HTTP request to the agent, which probes the application; the original is saved in
ISTIO_KUBE_APP_PROBERS, JSON by the agent's path.

Prometheus scrapes the agent, which merges the application's and the proxy's metrics. The pod's scrape annotations move to the
agent's environment. Prometheus replaces each non-alphanumeric character of a name by `_`, so all such spellings count.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.net import MAX_PORT
from netinit.base.tree import Tree, clone, mapping, sequence, shown, string
from netinit.inject.adding.kubernetes_types import encode_json, ordered
from netinit.inject.deciding.annotations import MERGE_METRICS, STATUS_PORT, go_bool, read_switch
from netinit.inject.deciding.containers import PROXY, all_containers, find, find_proxy, named

# --- probes ---

ENVIRONMENT = "ISTIO_KUBE_APP_PROBERS"
_PROBES = (("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz"))
_HANDLERS = (("preStop", "prestopz"), ("postStart", "poststartz"))
_ACTIONS = ("httpGet", "tcpSocket", "grpc")


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
    name = string(container.get("name"))
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
    before = find(variables, ENVIRONMENT) if injected_before else None
    if before is None:
        before = {"name": ENVIRONMENT}
        variables.append(before)
    with contextlib.suppress(ValueError, RecursionError, TypeError):
        saved = saved | mapping(json.loads(before.get("value") or "{}"))
    before["value"] = encode_json(dict(sorted(saved.items())))
    proxy["env"] = variables


# --- metrics ---

_SETTINGS = ("scrape", "path", "port")
_TARGETS = "targets"
_SANITIZED = {
    **{f"prometheus_io_{setting}": setting for setting in _SETTINGS},
    "prometheus_istio_io_scrape_targets": _TARGETS,
}
_RESERVED = {
    15000: "Envoy's administration",
    15001: "capture of outbound traffic",
    15004: "istiod's debugging",
    15006: "capture of inbound traffic",
    15008: "the HBONE tunnel",
    15020: "the agent's status and merged metrics",
    15021: "Envoy's health",
    15053: "the DNS proxy",
    15090: "Envoy's own metrics, which are merged already",
}
_SECURE_PORT = "prometheus.istio.io/secure-port"
_SECURE_VARIABLE = "ENVOY_SECURE_MERGED_METRICS_PORT"
_VARIABLE = "ISTIO_PROMETHEUS_ANNOTATIONS"
_OTHER = "[^a-zA-Z0-9_]"
_GO_NUMBER = r"[+-]?[0-9]{1,20}\Z"


def _sanitized(key: str) -> str:
    return re.sub(_OTHER, "_", key)


def _name_variants(annotations: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {setting: [] for setting in (*_SETTINGS, _TARGETS)}
    for key in annotations:
        setting = _SANITIZED.get(_sanitized(key))
        if setting is not None:
            found[setting].append(key)
    return found


def clear_ours(annotations: dict[str, str], status_port: int) -> None:
    """Remove scrape annotations of an earlier injection: those with the agent's port."""
    keys = _name_variants(annotations)
    if any(annotations[key] == str(status_port) for key in keys["port"]):
        for key in (key for group in keys.values() for key in group):
            del annotations[key]


def merge_metrics(spec: Tree, annotations: dict[str, str], status_port: int, *, enabled: bool) -> None:
    """Redirect scraping to the agent, in place.

    `enabled`: the mesh's setting, which an annotation overrides. Raises InjectionError if the pod's port is invalid or
    the proxy's.
    """
    keys = _name_variants(annotations)
    scraped = [go_bool(annotations[key]) for key in keys["scrape"]]
    if read_switch(annotations, MERGE_METRICS, default=enabled) and False not in scraped:
        _redirect(spec, annotations, keys, status_port)
    _announce_secure_port(spec, annotations)


def _redirect(spec: Tree, annotations: dict[str, str], keys: dict[str, list[str]], status_port: int) -> None:
    before: dict[str, Any] = {
        setting: annotations[keys[setting][0]] if keys[setting] else "" for setting in _SETTINGS
    }
    if before["port"] == str(status_port):
        return
    targets = _targets(annotations[keys[_TARGETS][0]]) if keys[_TARGETS] else None
    if targets:
        for target in targets:
            _check_port(target["port"], annotations, keys[_TARGETS][0], spec, status_port)
        # Older agents ignore the list and scrape the first target.
        before |= {"path": targets[0]["path"], "port": targets[0]["port"], _TARGETS: targets}
    elif before["port"]:
        _check_port(before["port"], annotations, keys["port"][0], spec, status_port)
    proxy = find_proxy(spec)
    if proxy is not None and any(before.values()):
        proxy["env"] = [*sequence(proxy.get("env")), {"name": _VARIABLE, "value": encode_json(before)}]
    for key in (key for group in keys.values() for key in group):
        del annotations[key]
    annotations["prometheus.io/port"] = str(status_port)
    annotations["prometheus.io/path"] = "/stats/prometheus"
    annotations["prometheus.io/scrape"] = "true"


def _targets(text: str) -> list[Tree] | None:
    """Parse `PORT:PATH,…`; the default path is `/metrics`. None for an invalid text."""
    found: list[Tree] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        port, _, path = entry.partition(":")
        if not port.strip():
            return None
        found.append({"port": port.strip(), "path": path.strip() or "/metrics"})
    return found


def scrape_target_warnings(annotations: dict[str, str]) -> tuple[str, ...]:
    """Return warnings about ignored scrape targets: as in Istio, all if one has no port."""
    return tuple(
        f"annotation {key!r}: {shown(annotations[key])} has a target without a port and is ignored; write PORT:PATH"
        for key in _name_variants(annotations)[_TARGETS]
        if _targets(annotations[key]) is None
    )


def _check_port(text: str, annotations: dict[str, str], key: str, spec: Tree, status_port: int) -> None:
    number = int(text) if re.match(_GO_NUMBER, text) else 0
    if not 1 <= number <= MAX_PORT:
        problem = f"{shown(text)} is not a port from 1 to {MAX_PORT}{_remedy(text, spec)}"
    elif number == status_port:
        problem = f"{number} is the agent's own port; give the application's metrics port"
    elif number in _RESERVED:
        problem = f"port {number} belongs to the proxy ({_RESERVED[number]}); give the application's own metrics port"
    else:
        return
    raise InjectionError(f"invalid value {shown(annotations[key])} for annotation {key!r}: {problem}")


def _remedy(name: str, spec: Tree) -> str:
    """Name the number of the port if a container declares one of this name: the agent knows numbers only."""
    ports = [port for container in all_containers(spec) for port in named(container.get("ports"))]
    declared = [port.get("containerPort") for port in ports if port.get("name") == name]
    return f"; give the number of the container's port {shown(name)}, {declared[0]}" if declared and type(declared[0]) is int else ""


def _announce_secure_port(spec: Tree, annotations: dict[str, str]) -> None:
    if any(_sanitized(key) == _sanitized(_SECURE_PORT) for key in annotations):
        return
    proxy = find_proxy(spec)
    for item in named(proxy.get("env")) if proxy else []:
        value = string(item.get("value"))
        if item.get("name") == _SECURE_VARIABLE and value not in {"", "0"}:
            annotations[_SECURE_PORT] = value
            return
