"""Pods that differ as real ones do: containers, ports, probes, volumes, users and annotations, reproducibly at random."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["varied_pods"]

_ANNOTATIONS = {
    "sidecar.istio.io/proxyCPU": "200m",
    "sidecar.istio.io/logLevel": "debug",
    "traffic.sidecar.istio.io/excludeOutboundPorts": "3306,6379",
    "traffic.sidecar.istio.io/includeInboundPorts": "*",
    "proxy.istio.io/config": "concurrency: 4",
    "prometheus.io/scrape": "true",
    "prometheus.io/port": "9102",
    "sidecar.istio.io/interceptionMode": "TPROXY",
}
_VOLUMES = ({"emptyDir": {}}, {"configMap": {"name": "settings"}})


def varied_pods(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """So many pods, the same ones for the same seed."""
    draw = random.Random(seed)
    return [_pod(draw, number) for number in range(count)]


def _pod(draw: random.Random, number: int) -> dict[str, Any]:
    volumes = [f"v{place}" for place in range(draw.randint(0, 4))]
    annotations = {key: value for key, value in _ANNOTATIONS.items() if draw.random() < 0.2}
    spec: dict[str, Any] = {
        "serviceAccountName": draw.choice(("default", "app", "builder")),
        "containers": [_container(draw, number, place, volumes) for place in range(draw.randint(1, 4))],
        "volumes": [{"name": name, **draw.choice(_VOLUMES)} for name in volumes],
    }
    if draw.random() < 0.3:
        spec["initContainers"] = [{"name": "setup", "image": f"setup:{number}", "command": ["sh", "-c", "true"]}]
    if draw.random() < 0.3:
        spec["securityContext"] = {"runAsUser": 1000 + number, "fsGroup": 2000}
    labels = {"app": f"app-{number % 41}", "version": f"v{draw.randint(1, 3)}", "tier": draw.choice("abc")}
    metadata = {"name": f"pod-{number}", "namespace": "bench", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(draw: random.Random, number: int, place: int, volumes: list[str]) -> dict[str, Any]:
    port = 8000 + draw.randint(0, 999)
    found: dict[str, Any] = {
        "name": f"c{place}",
        "image": f"registry.example.com/team/{number}:{place}",
        "ports": [{"name": f"p{place}", "containerPort": port}],
        "env": [{"name": f"VARIABLE_{item}", "value": f"{number} {item}"} for item in range(draw.randint(0, 12))],
        "resources": {"requests": {"cpu": f"{draw.randint(1, 9)}00m"}},
        "volumeMounts": [{"name": name, "mountPath": f"/mnt/{name}"} for name in volumes],
    }
    if draw.random() < 0.5:
        found["readinessProbe"] = {"httpGet": {"path": "/ready", "port": port}}
    if draw.random() < 0.3:
        found["livenessProbe"] = {"tcpSocket": {"port": port}}
    return found
