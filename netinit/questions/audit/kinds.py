"""Kinds of traffic in an audit: handled by the proxy, dropped, or bypassing it, and the intent behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netinit.base.findings import FindingKind
from netinit.questions.findings import UNCAPTURED_IPV6
from netinit.simulate import trace

FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN, COVERED = "foreign", "unknown", "configuration", "design", "covered"
WHERE_IPV4_IS_FIRST = "where the pod's first address is IPv4 (--ipv6 auto)"
INTENTS = (FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN)  # of bypasses


@dataclass(frozen=True, slots=True)
class TrafficKind:
    """A kind of traffic: machine-readable name, intent, title, and remedy, which may depend on the option that is the cause.

    `reason` is the cause if no rule is. `finding`: what audit reports; None for what is not a finding.
    """

    name: str
    intent: str
    title: str
    remedy: str | Callable[[str], str] = ""
    reason: str = ""
    finding: FindingKind | None = None

    def closes(self, option: str) -> str:
        """How to end it, where `option` is the cause; empty if there is no way."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy(option)


def _bypass(
    finding: FindingKind, title: str, remedy: str | Callable[[str], str], reason: str = "", intent: str = CONFIGURATION
) -> TrafficKind:
    """Return a kind that is a finding too, of the same name."""
    return TrafficKind(finding.name, intent, title, remedy, reason, finding)


def _without(option: str) -> str:
    return f"remove them from {option}"


CAPTURED = TrafficKind("captured", COVERED, "captured by the proxy")
RESOLVED = TrafficKind("resolved", COVERED, "DNS, captured by the proxy's resolver")
UNANSWERED = _bypass(
    FindingKind("NI220", "unanswered", "Foreign rules keep the proxy's answers to captured connections from coming back."),
    "captured by the proxy, whose answers do not come back", "change the rule, so that it lets answers pass", intent=COVERED,
)
UNANSWERED_DIRECT = _bypass(
    FindingKind(
        "NI222", "unanswered-direct", "Foreign rules keep the answers to connections that the plan does not capture from coming back."
    ),
    "direct connections whose answers do not come back", "change the rule, so that it lets answers pass", intent=COVERED,
)
FOREIGN = _bypass(
    FindingKind("NI201", "foreign", "Foreign rules decide about traffic before netinit's do."),
    "foreign rules decide before netinit's do", "remove the foreign rule, or move it after netinit's", intent=FOREIGN_RULES,
)
UNKNOWN = _bypass(
    FindingKind("NI202", "unknown", "A rule matches or does something that netinit does not know, so the verdict is unknown."),
    "the verdict is unknown", "check the rule: it matches or does something that netinit does not know", intent=NOT_KNOWN,
)
IPV6 = _bypass(
    UNCAPTURED_IPV6,
    "IPv6 that is not captured: it bypasses the proxy and mTLS", "remove the pod's IPv6 addresses", "no rule captures IPv6",
)
UNTRANSLATED = _bypass(
    FindingKind("NI204", "untranslated", "Connections that begin on another connection's conntrack entry: nat is skipped for them."),
    "TCP connections for which nat is skipped", "", "they begin on a conntrack entry that another connection left behind",
)
UNCAPTURED = _bypass(
    FindingKind("NI205", "uncaptured", "No rule captures this traffic."),
    "no rule captures it", "",
)
GROUP = _bypass(
    FindingKind("NI206", "group", "Traffic of these groups is excluded."),
    "groups whose traffic is excluded", lambda option: f"change {option}",
)
USER = _bypass(
    FindingKind("NI207", "user", "Traffic of these users is excluded."),
    "users whose traffic is excluded", _without,
)
INTERFACE = _bypass(
    FindingKind("NI208", "interface", "Traffic of these interfaces is excluded."),
    "interfaces whose traffic is excluded", _without,
)
NETWORK = _bypass(
    FindingKind("NI209", "network", "Traffic to these networks is excluded."),
    "networks that are excluded", _without,
)
METADATA = _bypass(
    FindingKind("NI210", "metadata", "Traffic to the cloud's metadata service is excluded."),
    "the cloud's metadata service, which is excluded", lambda option: f"leave {option} out",
)
SOURCE = _bypass(
    FindingKind("NI211", "source", "Inbound connections from these networks are excluded."),
    "networks whose inbound connections are excluded", _without,
)
PORT = _bypass(
    FindingKind("NI212", "port", "Outbound traffic to these ports is excluded."),
    "outbound ports that are excluded", _without,
)
INBOUND_PORT = _bypass(
    FindingKind("NI213", "inbound-port", "Inbound traffic to these ports is excluded."),
    "inbound ports that are excluded", _without,
)
TUNNEL_PORT = _bypass(
    FindingKind("NI214", "tunnel-port", "The port of a tunnel (HBONE) that the proxy is not known to serve."),
    "the port of a tunnel (HBONE) that the proxy is not known to serve", lambda option: f"{option} 0",
)
MARK = _bypass(
    FindingKind("NI215", "mark", "Packets with the proxy's mark pass: give no container NET_ADMIN or NET_RAW."),
    "packets with the proxy's mark", "give no container NET_ADMIN or NET_RAW: setting a mark takes one of them",
)
SHARED_OWNER = _bypass(
    FindingKind("NI216", "shared-owner", "Traffic of containers that run as the proxy's user or group."),
    "what containers send that run as the proxy's user or group", "",
)
PROXY = TrafficKind(
    "proxy", DESIGN, "what the proxy itself sends",
    "nothing: let no other container run as its user or group (runAsUser, runAsGroup)",
)
NOT_TCP = TrafficKind(
    "not-tcp", DESIGN, "non-TCP traffic",
    "not capturable: the proxy handles TCP only; a NetworkPolicy can deny it", "no rule captures it",
)
LOST = TrafficKind(
    "no-connection", DESIGN, "packets that belong to no connection",
    "", "NAT is skipped for packets that connection tracking does not know",
)
PERHAPS_IPV6 = TrafficKind(
    "perhaps-ipv6", DESIGN, "IPv6, where the pod's first address is IPv4: it bypasses the proxy",
    "say which addresses the cluster's pods have: ipFamilies: [ipv4] in netinit.yaml, or [ipv4, ipv6] (--settings); "
    "--ipv6 on captures it",
    "no rule captures IPv6",
)
PROXY_PORT = TrafficKind(
    "proxy-port", DESIGN, "the proxy's own ports for health and metrics",
    "nothing: the proxy itself listens there",
)
PROBES = TrafficKind("probes", DESIGN, "the kubelet's probes", lambda option: f"nothing: the node sends them, from {option}")
TUNNEL = TrafficKind("tunnel", DESIGN, "tunnelled connections (HBONE)", "nothing: the proxy itself listens there")
LOCAL = TrafficKind("local", DESIGN, "what stays in the pod", "nothing: it never leaves the pod")
DROPPED = TrafficKind("dropped", COVERED, "dropped or refused")
SAFE = TrafficKind("captured-or-dropped", COVERED, "captured or dropped, never past the proxy")
FOLLOWS = TrafficKind("follows", COVERED, "of a known connection: goes where its first packet went")

KINDS = tuple([kind for kind in [*globals().values()] if isinstance(kind, TrafficKind)])
"""All, in the order of a whole audit, which is that of their declarations: bypasses come with the most dangerous first."""
BYPASSES = tuple([kind for kind in KINDS if kind.intent != COVERED])
BY_NAME = {kind.name: kind for kind in KINDS}
UNANSWERED_BY = {trace.CAPTURED: UNANSWERED, trace.DIRECT: UNANSWERED_DIRECT}
"""The kind of connections whose answers are lost, by verdict. Direct ones are of another kind besides."""
SHOWN = (*BYPASSES, *UNANSWERED_BY.values())
"""What a report shows without being asked for all traffic."""
