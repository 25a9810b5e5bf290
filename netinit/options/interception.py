"""The options that determine a plan, under istio-iptables' names so that its templates work. Pure."""

from __future__ import annotations

from netinit.base.net import MAX_PORT, Network, Ports, lists_port
from netinit.base.records import Record
from netinit.options import kinds
from netinit.options.declare import DERIVED, DeclaredOptions, istio, ours, variable
from netinit.options.kinds import ALL, IN_PAIRS, NEVER, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from netinit.options.udp_redirects import UdpRedirect
    from netinit.options.user_ports import PortsOfUsers

CURRENT, CLASSIC, AMBIENT = "current", "classic", "ambient"
REDIRECT, TPROXY, NONE = "REDIRECT", "TPROXY", "NONE"
AUTO, ON, OFF = kinds.AUTO, "on", "off"
INET, REJECT = "inet", "reject"  # values for IPv6
OF_IPV6 = kinds.choice(AUTO, ON, OFF, INET, REJECT)
DUAL_STACK, IPV6_OF_PODS, DNS_CAPTURE = "ISTIO_DUAL_STACK", "NETINIT_IPV6", "ISTIO_META_DNS_CAPTURE"  # variables of pods
DEFAULT_OUTBOUND_PORT, DEFAULT_INBOUND_PORT = 15001, 15006
DEFAULT_PROXY_UID = 1337
HOST_PROBES = ("169.254.7.127", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff")  # source addresses of the kubelet's probes in ambient mode
EXEMPT, BROKEN, UNKNOWN = "exempt", "broken", "unknown"  # states of such a probe: left alone, captured, not known
DOCKER_RESOLVER = "127.0.0.11"  # in every container on a user-defined Docker network
DNS_PORT, DNS_LISTENER = 53, 15053  # port of queries, and the proxy's port for captured ones
AMBIENT_MARK, AMBIENT_MASK = 0x111, 0xFFF  # mark of connections from the node's proxy; not an option in Istio
NODE_PROXY_MARK = 0x539  # mark of the node proxy's packets, under the same mask
AMBIENT_TABLE = 100  # routing table for the mark
LOOP_MARK = 1338  # mark of the proxy's connections to itself in TPROXY mode; not an option in Istio
TRAFFIC = "traffic.sidecar.istio.io/"  # prefix of Istio's annotations about interception
PROXY_PORTS = (15020, 15021, 15090)  # statistics, readiness, metrics: served by the proxy itself
NOT_EMPTY = Kind(metavar="TEXT", read=bool, write=lambda on: "1" if on else "", empty="off")
PORT_OR_NONE = Kind(
    metavar="PORT|0", read=lambda text: kinds.read_number(text, 0, MAX_PORT, "a port", "; 0 is none"), is_own_port=True)


class LayoutTraits(Record):
    """A line of the table of layouts: what others must know of one, beside its rules and `layouts` of each option."""

    name: str
    title: str = ""  # in errors, if it says more than the name
    proxy_mark: int = 0  # of the packets of a proxy on the node, whose agent programs pods; 0: it is in the pod, known by its user
    mark: int = 0  # of its policy rule, if no option sets it
    mask: int = 0  # of this mark and the proxy's
    table: int = 0  # of its policy rule
    proxy_ports: tuple[int, ...] = ()  # served by the proxy itself, in the pod
    has_passthrough: bool = False  # has rules for the proxy's passthrough addresses, from which it calls the application
    nft_captures_ipv6: bool = False  # Istio's nft rules for it capture IPv6 even where it is off (--ipv6 inet)
    refuses_ipv6: bool = False  # refuses inbound IPv6 where it is off
    has_one_port: bool = False  # TPROXY, and what the pod sends to itself, arrive at the outbound port
    tproxy_by_socket: bool = False  # TPROXY is of IPv4 alone, and identifies later packets by `-m socket`
    interim_bits: tuple[int, ...] = ()  # one of these is flipped in its TPROXY mark while another backend's rules capture too
    uncaptured_ports: tuple[int, ...] = ()  # inbound ports that are never captured
    excluded_uids: tuple[int, ...] = ()  # users whose traffic is excluded beside the proxy's, unless an option names them


INTERIM_BITS = (0x100800, 0x100400, 0x100200)  # each has one within AMBIENT_MASK, so that those rules do not know the mark
LAYOUTS = {line.name: line for line in (
    LayoutTraits(name=CURRENT, has_passthrough=True, nft_captures_ipv6=True, proxy_ports=PROXY_PORTS, interim_bits=INTERIM_BITS),
    LayoutTraits(
        name=CLASSIC, title="classic (Istio 1.0 and 1.1)", has_one_port=True, refuses_ipv6=True, tproxy_by_socket=True,
        interim_bits=INTERIM_BITS, uncaptured_ports=(22,), excluded_uids=(0,),  # ssh; root, for the CA agent
    ),
    LayoutTraits(name=AMBIENT, proxy_mark=NODE_PROXY_MARK, mark=AMBIENT_MARK, mask=AMBIENT_MASK, table=AMBIENT_TABLE),
)}  # fmt: skip
SIDECAR = tuple([line.name for line in LAYOUTS.values() if not line.proxy_mark])


def _ports_of(users: str, read_user: Callable[[str], int]) -> Kind:
    """Return the kind of ports of users, see netinit.options.user_ports."""

    def read(text: str) -> tuple[PortsOfUsers, ...]:
        from netinit.options import user_ports  # rarely needed

        return user_ports.read(text, read_user)

    return Kind(metavar=f"PROTOCOL:PORTS:{users}", read=read, write=kinds.write_joined, empty=kinds.NONE)


def _read_redirects(text: str) -> tuple[UdpRedirect, ...]:
    from netinit.options import udp_redirects  # rarely needed

    return udp_redirects.read(text)


UDP_REDIRECTS = Kind(metavar="PORTS:PORT", read=_read_redirects, write=kinds.write_list, empty=kinds.NONE)
PORTS_OF_UIDS, PORTS_OF_GIDS = _ports_of("UIDS", kinds.read_uid), _ports_of("GIDS", kinds.read_gid)


class Interception(DeclaredOptions):
    """Which traffic to capture. Equal options give equal plans. Raises OptionError with every invalid value."""

    # No variable: a Service named `envoy` makes the kubelet set ENVOY_PORT=tcp://… in every pod of its namespace.
    outbound_port: int = istio(
        "-p --envoy-port", kinds.PORT, default=DEFAULT_OUTBOUND_PORT, has_variable=False, contradicts=NEVER,
        help_text="Outbound TCP is redirected to this port.")
    inbound_port: int = istio(
        "-z --inbound-capture-port", kinds.PORT, default=DERIVED, contradicts=NEVER,
        help_text="Inbound TCP is redirected to this port (default: 15006; classic layout: the value of -p).")
    tunnel_port: int = istio(
        "-e --inbound-tunnel-port", PORT_OR_NONE, default=15008, layouts=(CURRENT, AMBIENT), annotated=True,
        contradicts=NEVER, bypass="tunnel-port", offers=("0",),
        help_text="The inbound tunnel (HBONE) port, never redirected; 0 is none, so that every port is captured.")
    proxy_uids: tuple[int, ...] = istio(
        "-u --proxy-uid", kinds.UIDS, default=DERIVED, contradicts=NEVER,
        help_text="Users whose traffic is excluded: the proxy's (default: the uid of $ENVOY_USER, else 1337).")
    proxy_gids: tuple[int, ...] = istio(
        "-g --proxy-gid", kinds.GIDS, default=DERIVED, contradicts=NEVER,
        help_text="Groups whose traffic is excluded: the proxy's (default: the value of -u).")
    inbound_mode: str = istio(
        "-m --istio-inbound-interception-mode", kinds.choice(REDIRECT, TPROXY, NONE, ""), default=REDIRECT, layouts=SIDECAR,
        contradicts=IN_PAIRS, istio_annotations=("sidecar.istio.io/interceptionMode",), offers=(REDIRECT, NONE),
        help_text="How inbound traffic is captured; NONE programs nothing inbound.")
    inbound_ports: Ports | str = istio(
        "-b --istio-inbound-ports", kinds.PORTS_OR_ALL, default=(), layouts=SIDECAR,
        istio_annotations=(f"{TRAFFIC}includeInboundPorts",), without_annotation=ALL, bypass="uncaptured",
        help_text="Inbound ports and ranges (8000-8100) to capture; * is all, empty is none.")
    exclude_inbound_ports: Ports = istio(
        "-d --istio-local-exclude-ports", kinds.PORTS, default=(), layouts=SIDECAR, contradicts=NEVER,
        istio_annotations=(f"{TRAFFIC}excludeInboundPorts",), without_annotation="15020", always_on_node=PROXY_PORTS,
        bypass="inbound-port", help_text="Inbound ports to exclude; only with -b '*'.")
    exclude_interfaces: tuple[str, ...] = istio(
        "-c --istio-exclude-interfaces", kinds.INTERFACES, default=(), layouts=(CURRENT,),
        istio_annotations=(f"{TRAFFIC}excludeInterfaces",), bypass="interface",
        help_text="Interfaces to exclude, inbound and outbound; br-+ is every name that begins with br-.")
    outbound_cidrs: tuple[Network, ...] | str = istio(
        "-i --istio-service-cidr", kinds.NETWORKS_OR_ALL, default=(), layouts=SIDECAR,
        istio_annotations=(f"{TRAFFIC}includeOutboundIPRanges",), without_annotation=ALL, bypass="uncaptured",
        help_text="Outbound networks to capture; * is all, empty is none.")
    exclude_outbound_cidrs: tuple[Network, ...] = istio(
        "-x --istio-service-exclude-cidr", kinds.NETWORKS, default=(), layouts=SIDECAR, contradicts=NEVER,
        istio_annotations=(f"{TRAFFIC}excludeOutboundIPRanges",), bypass="network", help_text="Outbound networks to exclude.")
    outbound_ports: Ports = istio(
        "-q --istio-outbound-ports", kinds.PORTS, default=(), layouts=(CURRENT,),
        istio_annotations=(f"{TRAFFIC}includeOutboundPorts",), help_text="Outbound ports to capture, to any address.")
    exclude_outbound_ports: Ports = istio(
        "-o --istio-local-outbound-ports-exclude", kinds.PORTS, default=(), layouts=(CURRENT,),
        istio_annotations=(f"{TRAFFIC}excludeOutboundPorts",), without_annotation="15020", bypass="port",
        help_text="Outbound ports to exclude (TCP and UDP).")
    virtual_interfaces: tuple[str, ...] = istio(
        "-k --kube-virt-interfaces", kinds.INTERFACES, default=(),
        istio_annotations=("istio.io/reroute-virtual-interfaces", f"{TRAFFIC}kubevirtInterfaces"), bypass="interface",
        help_text="Inbound traffic of these interfaces (a VM behind the pod) is treated as outbound; br-+ is every name that begins "
        "with br-.")
    tproxy_mark: int = istio(
        "-t --istio-inbound-tproxy-mark", kinds.MARK, default=1337, layouts=SIDECAR, help_text="The firewall mark for TPROXY.")
    tproxy_table: int = istio(
        "-r --istio-inbound-tproxy-route-table", kinds.TABLE, default=133, layouts=SIDECAR,
        help_text="The routing table for TPROXY.")
    redirect_dns: bool = istio(
        "--redirect-dns", kinds.SWITCH, default=False, also=(DNS_CAPTURE,), layouts=(CURRENT, AMBIENT),
        pod_variable=DNS_CAPTURE, closes=("not-tcp", "DNS: {option}"), help_text="Capture DNS to port 15053.")
    capture_all_dns: bool = istio(
        "--capture-all-dns", kinds.SWITCH, default=False, layouts=(CURRENT,), pod_variable=DNS_CAPTURE, needs="redirect_dns",
        help_text="With --redirect-dns: all traffic to port 53, not only that to the servers of /etc/resolv.conf.")
    redirect_forwarded_dns: bool = ours(
        "--redirect-forwarded-dns", kinds.SWITCH, default=False, layouts=(CURRENT, AMBIENT), annotated=True, needs="redirect_dns",
        help_text="With --redirect-dns and -k: DNS of what is behind these interfaces goes to port 15053 too; only where the"
        " proxy's resolver listens on more than localhost.")
    drop_invalid: bool = istio(
        "--drop-invalid", kinds.SWITCH, default=False, also=("INVALID_DROP",), layouts=(CURRENT,),
        contradicts=NEVER, pod_variable="INVALID_DROP", closes=("no-connection", "{option} drops the inbound ones"),
        help_text="Drop packets in conntrack state INVALID.")
    dual_stack: bool = istio(
        "--dual-stack", kinds.SWITCH, default=False, also=(DUAL_STACK,), contradicts=NEVER, pod_variable=DUAL_STACK,
        is_shown=False, help_text="Any IPv6 address of the pod turns IPv6 on, not only the first address.")
    layout: str = ours(
        "--layout", kinds.choice(*LAYOUTS), default=CURRENT, offers=(),
        help_text="The set of rules: Istio's current one for a sidecar, that of 1.0 and 1.1, or that of a pod in an ambient mesh.")
    ipv6: str = ours(
        "--ipv6", OF_IPV6, default=AUTO, annotated=True, contradicts=NEVER, pod_variable=IPV6_OF_PODS, offers=(ON, REJECT, OFF),
        closes=("ipv6", "{option} on captures it, {option} reject refuses it"),
        help_text="IPv6 rules: auto decides by the pod's addresses, as Istio does on each backend; reject refuses the TCP that on"
        " would capture; inet is on without the rules that name an IPv6 address; off is none.")
    istio_exact: bool = ours(
        "--istio-exact", kinds.SWITCH, default=False, annotated=True,
        contradicts=NEVER, closes=("untranslated", "netinit apply --reconcile, without {option}, adds the rules that refuse them"),
        help_text="Program exactly Istio's rules, without the rules that stop connections on old conntrack entries.")
    dns_servers: tuple[str, ...] = ours(
        "--dns-servers", kinds.ADDRESSES, default=(), layouts=SIDECAR, needs="redirect_dns", offers=(),
        help_text="Name servers for --redirect-dns (default: those of /etc/resolv.conf).")
    ingress: bool = ours(
        "--ingress", kinds.SWITCH, default=False, layouts=(AMBIENT,),
        help_text="Ambient layout: capture nothing inbound, as a gateway needs it.")
    host_probe_addresses: tuple[str, ...] = ours(
        "--host-probe-address", kinds.ADDRESSES, default=HOST_PROBES, layouts=(AMBIENT,), bypass="probes",
        help_text="Ambient layout: what comes from these addresses is not captured: the node gives them to the kubelet's probes.")
    exclude_outbound_for_uids: tuple[PortsOfUsers, ...] = ours(
        "--exclude-outbound-for-uids", PORTS_OF_UIDS, default=(), layouts=(CURRENT,), annotated=True, bypass="user",
        help_text="Outbound traffic of users to ports to exclude: tcp:22,80:1000-2000;udp:53:3000; * is any protocol or port.")
    exclude_outbound_for_gids: tuple[PortsOfUsers, ...] = ours(
        "--exclude-outbound-for-gids", PORTS_OF_GIDS, default=(), layouts=(CURRENT,), annotated=True, bypass="group",
        help_text="Outbound traffic of groups to ports to exclude, in the form of --exclude-outbound-for-uids.")
    exclude_inbound_cidrs: tuple[Network, ...] = ours(
        "--exclude-inbound-cidrs", kinds.NETWORKS, default=(), layouts=(CURRENT,), annotated=True, bypass="source",
        help_text="Inbound connections from these networks to exclude: probes, node agents, load balancers.")
    exclude_cloud_metadata: bool = ours(
        "--exclude-cloud-metadata", kinds.SWITCH, default=False, layouts=(CURRENT,), annotated=True, bypass="metadata",
        help_text="Exclude the metadata services of AWS, Google Cloud and Azure, even if -i lists them.")
    reject_quic: bool = ours(
        "--reject-quic", kinds.SWITCH, default=False, layouts=(CURRENT,), annotated=True,
        closes=("not-tcp", "HTTP/3: {option}"),
        help_text="Refuse outbound UDP to port 443 where TCP is captured, so that clients of HTTP/3 fall back to TCP.")
    redirect_outbound_udp: tuple[UdpRedirect, ...] = ours(
        "--redirect-outbound-udp", UDP_REDIRECTS, default=(), layouts=(CURRENT,), annotated=True,
        help_text="Outbound UDP to a port goes to a port of the pod, where a listener of yours takes it: 514:10514,6000-6009:16000."
        " The listener runs as the proxy's user, whose own UDP goes out.")
    log_rules: bool = ours(
        "--log-rules", kinds.SWITCH, default=False, layouts=(CURRENT,), annotated=True, is_shown=False,
        help_text="Log the fate of new connections, at most 10 a second for each fate: to the kernel's log, or to --log-group.")
    log_group: int = ours(
        "--log-group", kinds.LOG_GROUP, default=0, layouts=(CURRENT,), annotated=True, needs="log_rules", is_shown=False,
        help_text="With --log-rules: the NFLOG group that gets them instead of the kernel's log, which hears no pods by default.")
    loopback_cidr: Network = variable(
        "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", kinds.LOOPBACK, default=Network.parse("127.0.0.1/32"), layouts=(CURRENT,),
        contradicts=NEVER, help_text="Traffic to this IPv4 network stays in the pod.")
    owner_groups: tuple[int, ...] | str = variable(
        "ISTIO_OUTBOUND_OWNER_GROUPS", kinds.GROUPS_OR_ALL, default=ALL, layouts=(CURRENT,), bypass="group",
        help_text="Groups whose outbound traffic is captured; * is all.")
    exclude_owner_groups: tuple[int, ...] = variable(
        "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", kinds.GROUPS, default=(), layouts=(CURRENT,), bypass="group",
        help_text="Groups whose outbound traffic is excluded; only if ISTIO_OUTBOUND_OWNER_GROUPS is *.")
    keep_local_loopback: bool = variable(
        "DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK", NOT_EMPTY, default=False, layouts=SIDECAR,
        help_text="Classic layout: any text leaves out the rule for the application's traffic to itself.")

    @property
    def traits(self) -> LayoutTraits:
        """What is known about the layout."""
        return LAYOUTS[self.layout]

    def has(self, field: str) -> bool:
        """Whether the layout has rules for an option."""
        return self.flag(field).applies_to(self.layout)

    @property
    def sidecar_tunnel(self) -> int:
        """The HBONE port that is left to a proxy in the pod; 0 without one, and in TPROXY mode, where mangle captures it first."""
        served = self.inbound_mode == REDIRECT and not self.traits.proxy_mark and self.has("tunnel_port")
        return self.tunnel_port if served else 0

    @property
    def cuts_redirected(self) -> bool:
        """Whether the rules reset inbound connections that rules of REDIRECT mode have captured."""
        return self.istio_exact and self.inbound_mode == TPROXY and self.traits.tproxy_by_socket

    def _derive(self, given: dict[str, Any]) -> dict[str, Any]:
        every = {**given}
        traits = LAYOUTS[every.get("layout", CURRENT)]
        if every.get("inbound_mode") == "":
            every["inbound_mode"] = REDIRECT
        if "inbound_port" not in every:
            every["inbound_port"] = every.get("outbound_port", DEFAULT_OUTBOUND_PORT) if traits.has_one_port else DEFAULT_INBOUND_PORT
        if "proxy_uids" not in every:
            every["proxy_uids"] = (DEFAULT_PROXY_UID, *traits.excluded_uids)
        if "proxy_gids" not in every:
            every["proxy_gids"] = every["proxy_uids"]
        return every

    def _check(self) -> list[str]:
        traits = self.traits
        problems = [
            f"{flag.label}: --layout {traits.title or traits.name} has no such rules; remove it or use --layout {flag.layouts[0]}"
            for flag in type(self).flags
            if flag.layouts and traits.name not in flag.layouts  # as Flag.applies_to, without a call for each flag at a pod's start
            if flag.default is not DERIVED and getattr(self, flag.field) != flag.default
            and (flag.field != "tunnel_port" or self.tunnel_port)  # such a layout has no tunnel
        ]
        if traits.proxy_mark and not self.tunnel_port:
            problems.append(
                f"--inbound-tunnel-port: '0' leaves --layout {traits.name} without a tunnel, which is how its proxy gets"
                " connections of the mesh; name the port that ztunnel listens on, 15008 by default"
            )
        if self.ipv6 == INET and not traits.nft_captures_ipv6:
            problems.append(f"--ipv6: 'inet' is of Istio's nft rules for a sidecar, --layout {self.layout} has none; use auto")
        if any(lists_port((one.port,), DNS_PORT) for one in self.redirect_outbound_udp):
            problems.append(
                f"--redirect-outbound-udp: port {DNS_PORT} is DNS, whose queries the proxy repeats from the same ports:"
                " use --redirect-dns, which separates the two"
            )
        if self.inbound_mode == TPROXY and self.tproxy_mark == LOOP_MARK:
            problems.append(
                f"--istio-inbound-tproxy-mark: '{LOOP_MARK}' marks the proxy's own connections in TPROXY mode; use another"
            )
        return problems
