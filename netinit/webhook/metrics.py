"""What Prometheus is told: Istio's names, so that its dashboards go on, and our own beside them.

Each process writes into files of its own slot (prometheus_client's multi-process mode), and any of them can answer for
all. A slot and not a process id, so that a worker that takes another's place counts on where that one stopped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["CONTENT_TYPE", "KeeperMetrics", "Metrics", "prepare", "take_slot"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_slot = ["0"]


def prepare(folder: Path) -> None:
    """Lets this process and its children share the folder; before anything else of this module, once."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ[_FOLDER] = str(folder)
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(lambda: _slot[0])  # type: ignore[no-untyped-call]


def take_slot(name: str) -> None:
    """From now on this process counts as the one of this name."""
    _slot[0] = name


class Metrics:
    """What a worker counts; made after `prepare`."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        own: Any = {"registry": CollectorRegistry()}
        self.requests = Counter("sidecar_injection_requests_total", "Reviews that came in.", **own)
        self.success = Counter("sidecar_injection_success_total", "Reviews that injected a pod.", **own)
        self.failure = Counter("sidecar_injection_failure_total", "Reviews of pods that cannot be injected.", **own)
        self.skip = Counter("sidecar_injection_skip_total", "Reviews of pods that are not to be injected.", **own)
        self.seconds = Histogram(
            "sidecar_injection_time_seconds", "From the request's head to the answer.", buckets=_BUCKETS, **own
        )
        self.reviews = Counter(
            "netinit_webhook_reviews_total", "Reviews by what came of them.", ["outcome", "reason"], **own
        )
        self.in_flight = Gauge(
            "netinit_webhook_reviews_in_flight", "Reviews being answered.", multiprocess_mode="sum", **own
        )
        self.connections = Gauge("netinit_webhook_connections", "Open connections.", multiprocess_mode="sum", **own)
        self.generation = Gauge(
            "netinit_webhook_configuration_generation",
            "The configuration in use, counted from 1; the least of all processes.",
            multiprocess_mode="min",
            **own,
        )
        self.expiry = Gauge(
            "netinit_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends.",
            multiprocess_mode="max",
            **own,
        )
        self.in_flight.set(0)  # what a killed worker of this slot was doing, nobody does any more
        self.connections.set(0)
        self._labelled: dict[tuple[str, str], Any] = {}

    def count(self, outcome: str, reason: str, seconds: float) -> None:
        """One review is done."""
        self.requests.inc()
        known = {"injected": self.success, "unchanged": self.success, "skipped": self.skip}
        known.get(outcome, self.failure).inc()
        key = (outcome, reason)
        if key not in self._labelled:
            self._labelled[key] = self.reviews.labels(*key)
        self._labelled[key].inc()
        self.seconds.observe(seconds)


class KeeperMetrics:
    """The metrics of which the keeper knows."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Gauge

        own: Any = {"registry": CollectorRegistry(), "multiprocess_mode": "max"}
        self.bad_configuration = Gauge(
            "netinit_webhook_configuration_error",
            "1 while the newest configuration is not taken and an older one is in use.",
            **own,
        )
        self.workers = Gauge("netinit_webhook_workers", "Processes that serve.", **own)
        self.restarts = Gauge(
            "netinit_webhook_worker_restarts", "How often a process was made again since the start.", **own
        )
        self.cluster_error = Gauge(
            "netinit_webhook_cluster_error", "1 while the cluster's API cannot be asked, or refuses.", **own
        )

    @staticmethod
    def text() -> bytes:
        """What all processes have counted, in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
