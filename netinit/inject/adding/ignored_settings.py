"""Settings of a pod that its injection ignores, or that break the proxy."""

from __future__ import annotations

from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.adding.status_port import scrape_target_warnings


def injection_warnings(pod: Tree) -> tuple[str, ...]:
    """Return warnings about settings of a pod that its injection ignores, or that break the proxy."""
    policy = string(mapping(pod.get("spec")).get("dnsPolicy"))
    found = list(scrape_target_warnings(strings(mapping(pod.get("metadata")).get("annotations"))))
    if policy not in {"", "ClusterFirst"}:
        found.append(f"dnsPolicy {quote(policy)} is not ClusterFirst: the proxy may not find its control plane by name")
    return tuple(found)
