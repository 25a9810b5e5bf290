"""Kinds of traffic in an audit: handled by the proxy, dropped, or bypassing it, and the intent behind it."""

from __future__ import annotations

from dataclasses import dataclass

FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN, COVERED = "foreign", "unknown", "configuration", "design", "covered"
WHERE_IPV4_IS_FIRST = "where the pod's first address is IPv4 (--ipv6 auto)"
INTENTS = (FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN)  # of bypasses


@dataclass(frozen=True, slots=True)
class TrafficKind:
    """A kind of traffic: machine-readable name, intent, title, and remedy (`closes`, which may contain {option}).

    `reason` is the cause if no rule is.
    """

    name: str
    intent: str
    title: str
    closes: str = ""
    reason: str = ""


FOREIGN = TrafficKind(
    "foreign", FOREIGN_RULES, "foreign rules decide before netinit's do", "remove the foreign rule, or move it after netinit's"
)
UNKNOWN = TrafficKind(
    "unknown", NOT_KNOWN, "the verdict is unknown", "check the rule: it matches or does something that netinit does not know"
)
IPV6 = TrafficKind(
    "ipv6", CONFIGURATION, "IPv6 that is not captured: it bypasses the proxy and mTLS",
    "remove the pod's IPv6 addresses", "no rule captures IPv6",
)
UNTRANSLATED = TrafficKind(
    "untranslated", CONFIGURATION, "TCP connections for which nat is skipped",
    reason="they begin on a conntrack entry that another connection left behind",
)  # fmt: skip
UNCAPTURED = TrafficKind("uncaptured", CONFIGURATION, "no rule captures it", "{option}")
GROUP = TrafficKind("group", CONFIGURATION, "groups whose traffic is excluded", "change {option}")
USER = TrafficKind("user", CONFIGURATION, "users whose traffic is excluded", "remove them from {option}")
INTERFACE = TrafficKind("interface", CONFIGURATION, "interfaces whose traffic is excluded", "remove them from {option}")
NETWORK = TrafficKind("network", CONFIGURATION, "networks that are excluded", "remove them from {option}")
METADATA = TrafficKind("metadata", CONFIGURATION, "the cloud's metadata service, which is excluded", "leave {option} out")
SOURCE = TrafficKind("source", CONFIGURATION, "networks whose inbound connections are excluded", "remove them from {option}")
PORT = TrafficKind("port", CONFIGURATION, "outbound ports that are excluded", "remove them from {option}")
INBOUND_PORT = TrafficKind("inbound-port", CONFIGURATION, "inbound ports that are excluded", "remove them from {option}")
MARK = TrafficKind(
    "mark", CONFIGURATION, "packets with the proxy's mark", "give no container NET_ADMIN or NET_RAW: setting a mark takes one of them"
)
PROXY = TrafficKind(
    "proxy", DESIGN, "what the proxy itself sends", "nothing: let no other container run as its user or group (runAsUser, runAsGroup)"
)
SHARED_OWNER = TrafficKind(
    "shared-owner", CONFIGURATION, "what containers send that run as the proxy's user or group",
    "choose another {owner} for {containers}",
)  # fmt: skip
NOT_TCP = TrafficKind(
    "not-tcp", DESIGN, "UDP, ICMP and all but TCP", "nothing here, for the proxy takes TCP: a NetworkPolicy can deny it",
    "no rule captures it",
)  # fmt: skip
LOST = TrafficKind(
    "no-connection", DESIGN, "packets that belong to no connection",
    reason="NAT is skipped for packets that connection tracking does not know",
)
PROBES = TrafficKind("probes", DESIGN, "the kubelet's probes", "nothing: the node sends them, from {option}")
TUNNEL_PORT = TrafficKind(
    "tunnel-port", CONFIGURATION, "the port of a tunnel (HBONE) that the proxy is not known to serve", "{option} 0"
)
TUNNEL = TrafficKind("tunnel", DESIGN, "tunnelled connections (HBONE)", "nothing: the proxy itself listens there")
LOCAL = TrafficKind("local", DESIGN, "what stays in the pod", "nothing: it never leaves the pod")
BYPASSES = (
    FOREIGN, UNKNOWN, IPV6, UNTRANSLATED, UNCAPTURED, GROUP, USER, INTERFACE, NETWORK, METADATA, SOURCE, PORT, INBOUND_PORT,
    TUNNEL_PORT, MARK, SHARED_OWNER,
    PROXY, NOT_TCP, LOST, PROBES, TUNNEL, LOCAL,
)  # fmt: skip
"""The most dangerous first."""
BY_NAME = {kind.name: kind for kind in BYPASSES}

CAPTURED = TrafficKind("captured", COVERED, "captured by the proxy")
RESOLVED = TrafficKind("resolved", COVERED, "DNS, captured by the proxy's resolver")
FOLLOWS = TrafficKind("follows", COVERED, "of a known connection: goes where its first packet went")
DROPPED = TrafficKind("dropped", COVERED, "dropped or refused")
KINDS = (CAPTURED, RESOLVED, *BYPASSES, DROPPED, FOLLOWS)
"""All, in the order of a whole audit."""
