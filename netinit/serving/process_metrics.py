"""The registry of a server's metrics, with what every server has: its build and its process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

from netinit.base.version import __version__


def make_registry(component: str) -> CollectorRegistry:
    """Return a registry with `netinit_build_info` and the metrics `process_…` of the process that is scraped."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # dashboards do not use `_created` series
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    told = "1; the labels say which part and version this is."
    build = Gauge("netinit_build_info", told, ["component", "version"], registry=registry)
    build.labels(component, __version__).set(1)
    return registry
