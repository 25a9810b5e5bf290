"""Prometheus metrics of a node: Istio's names, so that its dashboards work, and our own in addition."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from netinit.serving.process_metrics import make_registry

_BUCKETS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class NodeMetrics:
    """The agent's counts."""

    def __init__(self) -> None:
        self._registry = make_registry("node")
        own: Any = {"registry": self._registry}
        self.repairs = Counter("istio_cni_repair_pods_repaired_total", "Pods found uncaptured.", ["type", "result"], **own)
        self.installs = Counter("istio_cni_installs_total", "Attempts to install the plugin.", ["result"], **own)
        self.ready = Gauge("istio_cni_install_ready", "1 while the plugin is in place and the agent answers.", **own)
        self.requests = Counter("netinit_node_requests_total", "Requests of the runtime.", ["verb", "outcome"], **own)
        self.seconds = Histogram(
            "netinit_node_request_seconds", "From a request's first byte to its answer.", ["verb"], buckets=_BUCKETS, **own
        )
        self.in_flight = Gauge("netinit_node_requests_in_flight", "Requests being answered.", **own)
        self.pods = Gauge("netinit_node_pods", "Pods by what their last check found; repaired ones are captured.", ["state"], **own)
        self.probes = Gauge("netinit_node_host_probes", "Addresses of ambient pods by the state of their probes.", ["state"], **own)
        self.sweep = Gauge("netinit_node_sweep_seconds", "How long the last sweep took.", **own)
        self.sweep_age = Gauge("netinit_node_sweep_age_seconds", "Since the last complete sweep, or the agent's start.", **own)
        self.unknown = Counter("netinit_node_unknown_total", "Checks that could not say whether a pod is captured.", **own)
        self.uncaptured = Counter("netinit_node_uncaptured_total", "Pods that started without their rules.", **own)
        self.preceded = Gauge("netinit_node_list_preceded", "1 while another list of the node sorts before the agent's own.", **own)
        self.rule_changes = Counter("netinit_node_rule_changes_total", "Transactions of nf_tables in captured pods.", **own)
        self.undone = Counter("netinit_node_undone_total", "Checks of a changed pod that found the rules as planned.", **own)
        self.drift = Counter("netinit_node_drift_total", "Pods found with other rules than planned.", **own)
        self.watched = Gauge("netinit_node_watched_pods", "Pods whose changes wake the agent.", **own)
        self.looks = Counter("netinit_node_looks_total", "Checks of a pod because something in it has changed.", **own)
        self.connection_looks = Counter("netinit_node_connection_looks_total", "Checks of the open connections of a pod.", **own)
        self.bypassing = Counter("netinit_node_bypassing_total", "Checks that found open connections that bypass the proxy.", **own)
        self.dropped = Counter("netinit_node_notifications_dropped_total", "Sockets whose buffer overflowed.", **own)
        self.noticed = Histogram("netinit_node_drift_seconds", "From a change to its report and repair.", buckets=_BUCKETS, **own)
        self.api_error = Gauge("netinit_node_api_error", "1 while the API is unreachable.", **own)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
