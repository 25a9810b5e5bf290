"""Findings with their stable codes; docs/findings.md is generated from the table."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.base.errors import OptionError
from netinit.options.kinds import quote_value

PAGE = "docs/findings.md"
ERROR, WARNING, NOTE = "error", "warning", "note"

OF_OPTIONS = {  # kind: code, what it means and what to do
    "contradiction": ("NI001", "Two options exclude each other. Keep one of them."),
    "no-effect": ("NI002", "No packet is treated differently because of this option. Remove it, or add the option that it needs."),
    "shadowed": ("NI003", "Another option decides before this one does. Remove one of the two."),
    "redundant": ("NI004", "The value is contained in another one. Remove it."),
    "unreachable": ("NI005", "No longer reported: NI002, NI003 and NI004 name the option or the value whose rule no packet reaches."),
    "own-port": ("NI006", "A port of the proxy itself is named among those of the application."),
    "health-ports": ("NI007", "The proxy's own ports for health and metrics are captured, so that probes of it fail."),
    "loop": ("NI008", "The proxy's own traffic is captured again, in a loop."),
    "dns-loop": ("NI009", "The proxy's own DNS queries are captured again: no name is ever resolved."),
    "dns-loopback": ("NI010", "A resolver in the pod itself asks servers outside, which this option does not capture."),
    "dns-incomplete": ("NI011", "Not all name servers of the pod are known, so queries to the others are not captured."),
    "quic-passes": ("NI012", "HTTP/3 bypasses the proxy, over UDP. --reject-quic makes clients fall back to TCP."),
    "idle-family": ("NI013", "Rules of an address family that this pod does not use."),
    "open-tunnel": ("NI014", "Port 15008 is left to the proxy's tunnel, and nothing in the pod enables the tunnel."),
    "docker": ("NI015", "No longer reported: tables of nft answer queries to Docker's resolver too."),
    "backend": ("NI016", "The chosen backend cannot do what the options need."),
    "proxy-owner": ("NI017", "An application runs as the proxy's user or group: its traffic is not captured."),
}
OF_PODS = {
    "host-network": ("NI101", "The pod uses its node's network: nothing is intercepted, or the whole node is."),
    "no-init-container": ("NI102", "Nothing in the pod programs rules, unless an injector or a CNI plugin does."),
    "arguments": ("NI103", "The init container's arguments cannot be read: the pod does not start."),
    "missing-capability": ("NI104", "The init container lacks NET_ADMIN, or NET_RAW where legacy iptables is asked for."),
    "no-network": ("NI105", "An init container runs when the rules are there and the proxy is not."),
    "unknown-annotation": ("NI106", "An annotation of the mesh that nothing reads; it is probably misspelt."),
    "misplaced-annotation": ("NI107", "An annotation, or the label of injection, on a workload instead of its pod template."),
}
OF_TRAFFIC = {
    "foreign": ("NI201", "Foreign rules decide about traffic before netinit's do."),
    "unknown": ("NI202", "A rule matches or does something that netinit does not know, so the verdict is unknown."),
    "ipv6": ("NI203", "IPv6 is not captured: it bypasses the proxy and mTLS."),
    "untranslated": ("NI204", "Connections that begin on another connection's conntrack entry: nat is not evaluated for them."),
    "uncaptured": ("NI205", "No rule captures this traffic."),
    "group": ("NI206", "Traffic of these groups is excluded."),
    "user": ("NI207", "Traffic of these users is excluded."),
    "interface": ("NI208", "Traffic of these interfaces is excluded."),
    "network": ("NI209", "Traffic to these networks is excluded."),
    "metadata": ("NI210", "Traffic to the cloud's metadata service is excluded."),
    "source": ("NI211", "Inbound connections from these networks are excluded."),
    "port": ("NI212", "Outbound traffic to these ports is excluded."),
    "inbound-port": ("NI213", "Inbound traffic to these ports is excluded."),
    "tunnel-port": ("NI214", "The port of a tunnel (HBONE) that the proxy is not known to serve."),
    "mark": ("NI215", "Packets with the proxy's mark pass: give no container NET_ADMIN or NET_RAW."),
    "shared-owner": ("NI216", "Traffic of containers that run as the proxy's user or group."),
    "assertion": ("NI299", "An assertion of --assert is refuted, or cannot be proved."),
}
GROUPS = {"Options": OF_OPTIONS, "Pods": OF_PODS, "Traffic": OF_TRAFFIC}
CODES = {kind: code for group in GROUPS.values() for kind, (code, _) in group.items()}
MEANINGS = {code: meaning for group in GROUPS.values() for code, meaning in group.values()}


def read_code(text: str, label: str) -> str:
    """Validate a code. Raises OptionError naming `label`."""
    code = text.strip().upper()
    if code not in MEANINGS:
        raise OptionError(f"{label}: {quote_value(text)} is no code of a finding, such as NI012; {PAGE} lists them")
    return code


def link(code: str) -> str:
    """The URL that explains a code."""
    return f"{PAGE}#{code.lower()}"


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding about `subject` (an option or a container), with `severity` ERROR, WARNING or NOTE.

    `pod` and `file` are empty if only options were checked. `accepted` is the reason for ignoring it, or empty.
    """

    kind: str
    severity: str
    subject: str
    message: str
    pod: str = ""
    file: str = ""
    accepted: str = ""

    @property
    def code(self) -> str:
        """The stable code."""
        return CODES[self.kind]

    @property
    def text(self) -> str:
        """The subject and the message."""
        return ": ".join([part for part in (self.subject, self.message) if part])
