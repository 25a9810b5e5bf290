"""Metrics merge: Prometheus scrapes the agent, which adds the application's metrics to the proxy's.

The pod's own scrape annotations go into the agent's environment and make room for those of the agent. Prometheus
replaces every character of an annotation's name that is not alphanumeric by `_`, so `prometheus.io/port` has many
spellings and all of them count.
"""

from __future__ import annotations

import re

from netinit.base.errors import InjectionError
from netinit.golang.tree import Tree, sequence, shown, string
from netinit.inject import field_order
from netinit.inject.annotations import MERGE_METRICS, go_bool
from netinit.inject.containers import find_proxy, named

__all__ = ["clear_ours", "merge_metrics"]

_SETTINGS = ("scrape", "path", "port")
_RESERVED = frozenset(("15000", "15001", "15004", "15006", "15008", "15020", "15021", "15053", "15090"))
_SECURE_PORT = "prometheus.istio.io/secure-port"
_SECURE_VARIABLE = "ENVOY_SECURE_MERGED_METRICS_PORT"
_VARIABLE = "ISTIO_PROMETHEUS_ANNOTATIONS"
_OTHER = re.compile("[^a-zA-Z0-9_]")


def _spellings(annotations: dict[str, str]) -> dict[str, list[str]]:
    """The annotations' keys by the setting that Prometheus takes them for."""
    found: dict[str, list[str]] = {setting: [] for setting in _SETTINGS}
    for key in annotations:
        setting = _OTHER.sub("_", key).removeprefix("prometheus_io_")
        if setting in found and _OTHER.sub("_", key) == f"prometheus_io_{setting}":
            found[setting].append(key)
    return found


def clear_ours(annotations: dict[str, str], status_port: int) -> None:
    """Remove scrape settings that an earlier injection wrote: those with the agent's port."""
    keys = _spellings(annotations)
    if any(annotations[key] == str(status_port) for key in keys["port"]):
        for key in (key for group in keys.values() for key in group):
            del annotations[key]


def merge_metrics(spec: Tree, annotations: dict[str, str], status_port: int, *, enabled: bool) -> None:
    """Redirect scraping to the agent, in place, unless the pod or the mesh says no.

    `enabled` is the mesh's setting, which the pod's annotation overrides. Raises InjectionError when the pod asks for
    a port of the proxy to be scraped.
    """
    asked = go_bool(annotations[MERGE_METRICS]) if MERGE_METRICS in annotations else None
    keys = _spellings(annotations)
    scraped = [go_bool(annotations[key]) for key in keys["scrape"]]
    if (enabled if asked is None else asked) and False not in scraped:
        _redirect(spec, annotations, keys, status_port)
    _announce_secure_port(spec, annotations)


def _redirect(spec: Tree, annotations: dict[str, str], keys: dict[str, list[str]], status_port: int) -> None:
    before = {setting: annotations[keys[setting][0]] if keys[setting] else "" for setting in _SETTINGS}
    if before["port"] == str(status_port):
        return
    if before["port"].strip() in _RESERVED:
        raise InjectionError(
            f"invalid value {shown(before['port'])} for annotation {keys['port'][0]!r}: "
            "the port belongs to the proxy; give the application's own metrics port"
        )
    proxy = find_proxy(spec)
    if proxy is not None and any(before.values()):
        proxy["env"] = [*sequence(proxy.get("env")), {"name": _VARIABLE, "value": field_order.encode(before)}]
    for key in (key for group in keys.values() for key in group):
        del annotations[key]
    annotations["prometheus.io/port"] = str(status_port)
    annotations["prometheus.io/path"] = "/stats/prometheus"
    annotations["prometheus.io/scrape"] = "true"


def _announce_secure_port(spec: Tree, annotations: dict[str, str]) -> None:
    proxy = find_proxy(spec)
    variables = named(proxy.get("env")) if proxy else []
    port = next((string(item.get("value")) for item in variables if item.get("name") == _SECURE_VARIABLE), "")
    if port:
        annotations.setdefault(_SECURE_PORT, port)
