"""The server's current values and problems, which the controller writes and the application reads, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from netinit.base.sanitize import escape
from netinit.inject.adding.settings import Namespace
from netinit.serving.process_metrics import make_registry
from netinit.serving.readiness import Unreadiness
from netinit.webhook.configuration import Served
from netinit.webhook.pod_events import PodEvents

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
AWAITED_CONFIGS, AWAITED_NODES = "ProxyConfig resources", "nodes"


class Problems(dict[str, str]):
    """Current problems by subject."""

    def note(self, subject: str, problem: str) -> None:
        """Set a subject's problem; an empty one clears it."""
        if problem:
            self[subject] = problem
        else:
            self.pop(subject, None)


@dataclass(slots=True)
class ServingState:
    """The values in use.

    `certificate_begins`, `certificate_expires`: seconds since the epoch, or 0. `awaited`: kinds of objects not listed yet.
    `cluster_problems`: what the webhook cannot read or write in the cluster. `notices`: resources that are left out and events that
    cannot be written, which keep nothing from working; those who own the resources cause them.
    """

    served: Served | None = None
    certificate_begins: float = 0.0
    certificate_expires: float = 0.0
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    namespaces_source: str = "the review alone"
    awaited: set[str] = field(default_factory=set)
    draining: bool = False
    configuration_problem: str = ""
    problems: Problems = field(default_factory=Problems)
    cluster_problems: Problems = field(default_factory=Problems)
    notices: Problems = field(default_factory=Problems)
    pod_events: PodEvents = field(default_factory=PodEvents)

    def namespace(self, name: str) -> Namespace:
        """Return the namespace, with its annotations if they are known."""
        return self.namespaces.get(name) or Namespace(name=name)

    def find_obstacle(self) -> str:
        """Return why reviews cannot be answered yet; empty if they can."""
        if self.served is None:
            return "there is no configuration yet"
        return f"the cluster's {' and '.join(sorted(self.awaited))} have not been read yet" if self.awaited else ""

    def report(self, verbose: bool) -> tuple[bool, str]:
        """Return whether it is ready, and the text of /readyz: `ok`, or details if not ready or `verbose`."""
        checks = self._checks()
        is_ready = all(passed for _, passed, _ in checks)
        if is_ready and not verbose:
            return True, "ok\n"
        lines = [] if is_ready else [f"not ready: {self.find_reason()}"]
        lines += [f"[{'+' if passed else '-'}]{name}: {detail}" for name, passed, detail in checks]
        if self.configuration_problem:
            lines.append(f"[!]configuration: {self.configuration_problem}")
        known = {**self.problems, **self.cluster_problems, **self.notices}
        lines += [f"[!]{subject}: {problem}" for subject, problem in sorted(known.items())]
        lines.append(f"[ ]namespaces: known from {self.namespaces_source}")
        return is_ready, "\n".join([*lines, "ready" if is_ready else "not ready", ""])

    def find_reason(self) -> Unreadiness:
        """Return why it is not ready: each check that fails, and the problems behind it."""
        failed = [f"{name}: {detail}" for name, passed, detail in self._checks() if not passed]
        if not failed:
            return Unreadiness("")
        known = {"configuration": self.configuration_problem, **self.problems, **self.cluster_problems}
        causes = [f"{subject}: {problem}" for subject, problem in sorted(known.items()) if problem]
        return Unreadiness(escape("; ".join(failed)), escape("; ".join(causes)))

    def _checks(self) -> list[tuple[str, bool, str]]:
        """Return name, result and detail of each check."""
        served, expires = self.served, self.certificate_expires
        configuration = f"generation {served.generation}, version {served.version}, of {served.texts.origin}" if served else "none yet"
        return [
            ("serving", not self.draining, "draining: it is stopping" if self.draining else "ok"),
            ("configuration", served is not None, configuration),
            *([("cluster", False, f"waiting for {', '.join(sorted(self.awaited))}")] if self.awaited else ()),
            ("certificate", expires > time.time(), f"valid until {format_date(expires)}" if expires else "none yet"),
        ]


def format_date(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Metrics:
    """Counters, and gauges that read the server's state when scraped. Istio's names, for its dashboards, and netinit's own."""

    def __init__(self, state: ServingState, connections: Callable[[], int]) -> None:
        self._registry = make_registry("webhook")
        own: Any = {"registry": self._registry}
        self.requests = Counter("sidecar_injection_requests_total", "Reviews received.", **own)
        self.success = Counter("sidecar_injection_success_total", "Reviews that injected a pod.", **own)
        self.failure = Counter("sidecar_injection_failure_total", "Reviews of pods that cannot be injected.", **own)
        self.skip = Counter("sidecar_injection_skip_total", "Reviews of pods that are not to be injected.", **own)
        self.seconds = Histogram("sidecar_injection_time_seconds", "From the request's head to the answer.", buckets=_BUCKETS, **own)
        self.reviews = Counter("netinit_webhook_reviews_total", "Reviews by outcome.", ["outcome", "reason"], **own)
        self.heavy = Counter("netinit_webhook_heavy_reviews_total", "Reviews computed outside the event loop.", **own)
        self.in_flight = Gauge("netinit_webhook_reviews_in_flight", "Reviews being answered.", **own)
        dropped = "Connections that made room for others, by their stage; or refused."
        self.dropped = Counter("netinit_webhook_connections_dropped_total", dropped, ["stage"], **own)

        def gauge(name: str, text: str, read: Callable[[], float]) -> None:
            Gauge(name, text, **own).set_function(read)

        gauge("netinit_webhook_ready", "1 while the replica is ready.", lambda: not state.find_reason().checks)
        gauge("netinit_webhook_connections", "Open connections, counted from accept.", connections)
        counted = "The configuration in use, counted from 1."
        gauge("netinit_webhook_configuration_generation", counted, lambda: state.served.generation if state.served else 0)
        newest = "1 while the newest configuration is invalid and an older one is in use."
        gauge("netinit_webhook_configuration_error", newest, lambda: bool(state.configuration_problem))
        restored = "1 while a configuration from before a restart is in use, since the newest one is invalid."
        gauge("netinit_webhook_configuration_restored", restored, lambda: bool(state.served and state.served.is_restored))
        broken = "Templates of the configuration in use that cannot be parsed; pods that ask for one are refused."
        gauge("netinit_webhook_broken_templates", broken, lambda: len(state.served.config.broken) if state.served else 0)
        refused = "Canary pods that the configuration in use cannot inject; pods like them are refused."
        gauge("netinit_webhook_refused_canaries", refused, lambda: state.served.refused_canaries if state.served else 0)
        begins = "From when on the serving certificate is valid."
        gauge("netinit_webhook_certificate_start_timestamp_seconds", begins, lambda: state.certificate_begins)
        ends = "When the serving certificate expires."
        gauge("netinit_webhook_certificate_expiry_timestamp_seconds", ends, lambda: state.certificate_expires)
        asked = "1 while the webhook cannot read or write its objects: the API is unreachable, refuses, or lacks one."
        gauge("netinit_webhook_cluster_error", asked, lambda: bool(state.cluster_problems or "cluster" in state.problems))

    def count(self, outcome: str, reason: str, seconds: float) -> None:
        """Count an answered review; `seconds` from its headers to the answer."""
        self.requests.inc()
        known = {"injected": self.success, "unchanged": self.success, "skipped": self.skip}
        known.get(outcome, self.failure).inc()
        self.reviews.labels(outcome, reason).inc()
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
