"""Consul: the flags of `consul connect redirect-traffic` (command/connect/redirecttraffic, 1.10 and later) and the keys of its Config.

consul-k8s gives the Config (sdk/iptables) to its CNI plugin in the annotation consul.hashicorp.com/redirect-traffic-config.
"""

from __future__ import annotations

from typing import ClassVar

from netinit.base.errors import OptionError
from netinit.base.net import MAX_PORT, Network, Ports
from netinit.options import kinds
from netinit.options.interception import OFF
from netinit.options.kinds import PORT, Kind
from netinit.options.peers.declare import NETWORKS, PATH, TEXT, Conversion, PeerOptions, lacking, needless, read, same
from netinit.options.user_ports import PortsOfUsers


def read_port_with_colons(text: str) -> Ports:
    """Read a port, or a range in iptables syntax (`8080:9000`, `:1023`, `1024:`)."""
    low, colon, high = text.partition(":")
    if colon:
        return kinds.read_ports(f"{low or 0}-{high or MAX_PORT}")
    if not text.isdigit():
        raise ValueError("is not a number: service names are not looked up; write the port")
    return kinds.read_ports(text)


COLON_PORTS = Kind(metavar="PORT|FIRST:LAST", read=read_port_with_colons, write=kinds.write_list)
UID = Kind(metavar="UID", read=kinds.read_uid)
REGISTERED = "Consul's registration has the ports there; give -proxy-inbound-port, -proxy-outbound-port and -exclude-inbound-port"
TO_CONSUL = "queries go to Consul there; netinit sends them to the proxy's own resolver with --redirect-dns"
ITS_API = "nothing here asks Consul"


class Consul(PeerOptions):
    """The options of redirect-traffic."""

    peer: ClassVar = "Consul"
    programs: ClassVar = ("consul connect redirect-traffic",)
    required: ClassVar = ("proxy_uid",)
    exclusive: ClassVar = (("proxy_id", "inbound_port"),)
    single_dash: ClassVar = True
    other_keys: ClassVar = ("IptablesProvider", "NftablesProvider")

    proxy_uid: int = read("--proxy-uid", UID, "`-u`", key="ProxyUserID")
    proxy_id: str = lacking("--proxy-id", TEXT, REGISTERED, default="")
    node_name: str = needless("--node-name", TEXT, ITS_API, default="")
    inbound_port: int = same("--proxy-inbound-port", PORT, to="inbound_port", key="ProxyInboundPort")
    outbound_port: int = same("--proxy-outbound-port", PORT, to="outbound_port", key="ProxyOutboundPort", default=15001)
    ignored: tuple[Ports, ...] = same(
        "--exclude-inbound-port", COLON_PORTS, to="exclude_inbound_ports", key="ExcludeInboundPorts", default=(), repeated=True)
    outbound_ignored: tuple[Ports, ...] = same(
        "--exclude-outbound-port", COLON_PORTS, to="exclude_outbound_ports", key="ExcludeOutboundPorts", default=(), repeated=True)
    cidrs: tuple[tuple[Network, ...], ...] = same(
        "--exclude-outbound-cidr", NETWORKS, to="exclude_outbound_cidrs", key="ExcludeOutboundCIDRs", default=(), repeated=True)
    uids: tuple[int, ...] = read(
        "--exclude-uid", UID, "`--exclude-outbound-for-uids tcp:*:UID`", key="ExcludeUIDs", default=(), repeated=True)
    dns_address: str = lacking("--consul-dns-ip", TEXT, TO_CONSUL, key="ConsulDNSIP", default="")
    dns_port: int = lacking("--consul-dns-port", kinds.COUNT, TO_CONSUL, key="ConsulDNSPort", default=0)
    netns: str = same("--netns", PATH, to="netns", key="NetNS", default="")
    http_addr: str = needless("--http-addr", TEXT, ITS_API, default="")
    token: str = needless("--token", TEXT, ITS_API, default="")
    token_file: str = needless("--token-file", TEXT, ITS_API, default="")
    ca_file: str = needless("--ca-file", TEXT, ITS_API, default="")
    ca_path: str = needless("--ca-path", TEXT, ITS_API, default="")
    client_cert: str = needless("--client-cert", TEXT, ITS_API, default="")
    client_key: str = needless("--client-key", TEXT, ITS_API, default="")
    tls_server_name: str = needless("--tls-server-name", TEXT, ITS_API, default="")
    namespace: str = needless("--namespace", TEXT, ITS_API, default="")
    partition: str = needless("--partition", TEXT, ITS_API, default="")

    def complete(self, made: Conversion) -> None:
        """Capture everything in both directions except traffic of the named users."""
        if not (self.proxy_id or self.inbound_port):
            raise OptionError("-proxy-inbound-port: is missing, as is -proxy-id, and Consul does not start without one; add it")
        made.fields |= {
            "proxy_uids": (self.proxy_uid,), "outbound_cidrs": kinds.ALL, "inbound_ports": kinds.ALL,
            "exclude_outbound_for_uids": tuple([
                PortsOfUsers(protocol="tcp", ports=(), first=uid, last=uid) for uid in self.uids
            ]), "ipv6": OFF,
        }  # fmt: skip
        made.note_tunnel_port()
        made.note_group(self.proxy_uid)
        made.differing += [
            "connections of the application to its own pod, except to 127.0.0.1, are captured by Consul and left alone by netinit",
            "connections of the proxy to its own pod, except to 127.0.0.1, are left alone by Consul and inbound again for netinit",
            "Consul captures IPv6 where its agent has both families; there use --ipv6 on",
        ]
