"""Linkerd: the flags of proxy-init (proxy-init/cmd/root.go of linkerd2-proxy-init, v2.4.9) and the keys of its CNI plugin."""

from __future__ import annotations

from typing import ClassVar

from netinit.base.net import PortRange, Ports, bounds_of, merge_ports
from netinit.options import kinds
from netinit.options.interception import DEFAULT_PROXY_UID, OFF, ON
from netinit.options.kinds import PORT, PORTS, SWITCH, Kind, choice
from netinit.options.peers.declare import NETWORKS, PATH, TEXT, Conversion, PeerOptions, lacking, needless, read, same

OWNER = Kind(  # of 0, -1 and other negative numbers, none
    metavar="ID",
    read=lambda text: 0 if text[:1] == "-" and text[1:].isdigit() else kinds.read_number(text, 0, kinds.MAX_ID, "a user or group id"),
)  # fmt: skip
LOG_LEVELS = {
    "panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug",
    "trace": "debug",
}  # fmt: skip
BINARIES = {"iptables-legacy": "legacy", "iptables-nft": "nft", "iptables": "plain"}
WAITS = "netinit always waits for the lock, as long as --lock-timeout"
NO_SYSCTL = "netinit sets no such sysctl; set net.netfilter.nf_conntrack_tcp_timeout_close_wait in the pod's securityContext"


def without(ports: Ports, others: Ports) -> Ports:
    """Return the ports that are not among the others."""
    left: list[tuple[int, int]] = [bounds_of(port) for port in ports]
    for low, high in map(bounds_of, others):
        parts = [part for first, last in left for part in ((first, min(last, low - 1)), (max(first, high + 1), last))]
        left = [part for part in parts if part[0] <= part[1]]
    return merge_ports(tuple([PortRange(part) if part[0] < part[1] else part[0] for part in left]))


class Linkerd(PeerOptions):
    """The options of proxy-init."""

    peer: ClassVar = "Linkerd"
    programs: ClassVar = ("proxy-init", "linkerd2-proxy-init")
    required: ClassVar = ("inbound_port", "outbound_port")
    root: ClassVar = "linkerd"
    same_keys: ClassVar = True
    other_keys: ClassVar = ("name", "type", "cniVersion", "log_level", "policy", "kubernetes", "prevResult")

    inbound_port: int = read("-p --incoming-proxy-port", PORT, "`-z`")
    outbound_port: int = same("-o --outgoing-proxy-port", PORT, to="outbound_port")
    proxy_uid: int = read("-u --proxy-uid", OWNER, "`-u`", default=0)
    proxy_gid: int = read("-g --proxy-gid", OWNER, "`-g`", default=0)
    ports: tuple[Ports, ...] = read("-r --ports-to-redirect", PORTS, "`-b`, else `-b '*'`", default=(), repeated=True)
    ignored: tuple[Ports, ...] = read(
        "--inbound-ports-to-ignore", PORTS, "`-d`; with `-r` they are removed from `-b`", default=(), repeated=True)
    outbound_ignored: tuple[Ports, ...] = same(
        "--outbound-ports-to-ignore", PORTS, to="exclude_outbound_ports", default=(), repeated=True)
    subnets: object = same("--subnets-to-ignore", NETWORKS, to="exclude_inbound_cidrs", default=(), repeated=True)
    simulate: bool = same("--simulate", SWITCH, to="dry_run", default=False)
    netns: str = same("--netns", PATH, to="netns", default="")
    waits: bool = needless("-w --use-wait-flag", SWITCH, WAITS, default=False)
    close_wait: int = lacking("--timeout-close-wait-secs", kinds.COUNT, NO_SYSCTL, default=0)
    log_format: str = read("--log-format", choice("plain", "json"), "`--log_as_json`", default="plain")
    log_level: str = read("--log-level", choice(*LOG_LEVELS), "`--log_output_level`", default="info")
    mode: str = read("--iptables-mode", choice("legacy", "nft", "plain", ""), "`--force-iptables-binary`; plain is any", default="")
    program: str = read(
        "--firewall-bin-path", choice(*BINARIES, ""), "`--force-iptables-binary`, where `--iptables-mode` is not given", default="")
    lister: str = needless("--firewall-save-bin-path", TEXT, "it follows from the variant of iptables", default="")
    ipv6: bool = read("--ipv6", SWITCH, "`--ipv6 on` or `off`", default=True)

    def complete(self, made: Conversion) -> None:
        """Capture everything outbound except traffic on lo; inbound all ports, or those listed."""
        ignored = tuple([port for ports in self.ignored for port in ports])
        listed = tuple([port for ports in self.ports for port in ports])
        fields = made.fields
        fields |= {"inbound_port": self.inbound_port, "outbound_cidrs": kinds.ALL, "exclude_interfaces": ("lo",)}
        if listed:
            fields["inbound_ports"] = without(listed, ignored)
        else:
            fields |= {"inbound_ports": kinds.ALL, "exclude_inbound_ports": ignored}
        fields["ipv6"] = ON if self.ipv6 else OFF
        fields["log_as_json"] = self.log_format == "json"
        fields["log_output_level"] = f"default:{LOG_LEVELS[self.log_level]}"
        mode = self.mode or BINARIES.get(self.program, "")
        fields["force_iptables_binary"] = "" if mode == "plain" else mode
        made.note_tunnel_port()
        self._owners(made)

    def _owners(self, made: Conversion) -> None:
        if self.proxy_uid:
            made.fields["proxy_uids"] = (self.proxy_uid,)
        else:
            text = "Linkerd leaves no user alone without --proxy-uid, netinit leaves user 1337 alone; name the proxy's with -u"
            made.differing.append(text)
        if self.proxy_gid:
            made.fields["proxy_gids"] = (self.proxy_gid,)
        else:
            made.note_group(self.proxy_uid or DEFAULT_PROXY_UID)
