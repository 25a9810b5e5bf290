"""Kinds of findings that lint of options and the warnings about manifests share.

They have a file of their own so that a pod's start, which asks lint about unusual options, imports nothing that reads manifests.
"""

from __future__ import annotations

from netinit.base.findings import FindingKind

NO_EFFECT = FindingKind(
    "NI002", "no-effect",
    "No packet is treated differently because of this option. Remove it, or add the option that it needs.",
)
PROXY_OWNER = FindingKind(
    "NI017", "proxy-owner",
    "An application runs as the proxy's user or group: its traffic is not captured.",
)
