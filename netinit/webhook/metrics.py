"""Prometheus metrics: Istio's names, for its dashboards, and netinit's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from netinit.webhook.serving_state import ServingState

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


_GAUGES: dict[str, tuple[str, Callable[[ServingState], float]]] = {
    "netinit_webhook_configuration_generation": (
        "The configuration in use, counted from 1.", lambda state: state.served.generation if state.served else 0,
    ),
    "netinit_webhook_configuration_error": (
        "1 while the newest configuration is not taken and an older one is in use.",
        lambda state: int(bool(state.configuration_problem)),
    ),
    "netinit_webhook_configuration_restored": (
        "1 while a configuration from before a restart is in use, since the newest one is invalid.",
        lambda state: int(state.served.is_restored) if state.served else 0,
    ),
    "netinit_webhook_broken_templates": (
        "Templates of the configuration in use that cannot be parsed; pods that ask for one are refused.",
        lambda state: len(state.served.config.broken) if state.served else 0,
    ),
    "netinit_webhook_certificate_expiry_timestamp_seconds": (
        "When the serving certificate ends.", lambda state: state.certificate_expires,
    ),
    "netinit_webhook_cluster_error": (
        "1 while the cluster's API cannot be asked, or refuses.",
        lambda state: int(bool(state.cluster_problems or "cluster" in state.problems)),
    ),
}  # fmt: skip


class Metrics:
    """Counters, and gauges that read the server's state when scraped."""

    def __init__(self, state: ServingState, connections: Callable[[], int]) -> None:
        # Dashboards do not use `_created` series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        own: Any = {"registry": self._registry}
        self.requests = Counter("sidecar_injection_requests_total", "Reviews that came in.", **own)
        self.success = Counter("sidecar_injection_success_total", "Reviews that injected a pod.", **own)
        self.failure = Counter("sidecar_injection_failure_total", "Reviews of pods that cannot be injected.", **own)
        self.skip = Counter("sidecar_injection_skip_total", "Reviews of pods that are not to be injected.", **own)
        self.seconds = Histogram("sidecar_injection_time_seconds", "From the request's head to the answer.", buckets=_BUCKETS, **own)
        self.reviews = Counter("netinit_webhook_reviews_total", "Reviews by what came of them.", ["outcome", "reason"], **own)
        self.heavy = Counter("netinit_webhook_heavy_reviews_total", "Reviews computed beside the event loop.", **own)
        self.in_flight = Gauge("netinit_webhook_reviews_in_flight", "Reviews being answered.", **own)
        dropped = "Connections that made room for others, by their stage; or refused."
        self.dropped = Counter("netinit_webhook_connections_dropped_total", dropped, ["stage"], **own)
        Gauge("netinit_webhook_connections", "Open connections, counted from accept.", **own).set_function(connections)
        for name, (text, read) in _GAUGES.items():
            Gauge(name, text, **own).set_function(partial(read, state))
        self._labelled: dict[tuple[str, str], Any] = {}

    def count(self, outcome: str, reason: str, seconds: float) -> None:
        """Count an answered review; `seconds` from its headers to the answer."""
        self.requests.inc()
        known = {"injected": self.success, "unchanged": self.success, "skipped": self.skip}
        known.get(outcome, self.failure).inc()
        key = (outcome, reason)
        if key not in self._labelled:
            self._labelled[key] = self.reviews.labels(*key)
        self._labelled[key].inc()
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
