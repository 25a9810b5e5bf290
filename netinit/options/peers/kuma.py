"""Kuma: the flags of `kumactl install transparent-proxy` (app/kumactl/cmd/install, 2.0 to 2.14.3) and the keys of its file.

The file is that of --config (pkg/transparentproxy/config/config.go, since 2.9); each key has a variable as well.
"""

from __future__ import annotations

from typing import Any, ClassVar

from netinit.base.net import Network, Ports, lists_port
from netinit.options import kinds, user_ports
from netinit.options.interception import DNS_LISTENER, DNS_PORT, OFF
from netinit.options.kinds import COUNT, DURATION, PORT, PORTS, SWITCH, Kind, choice
from netinit.options.peers.declare import (
    NETWORKS,
    PATH,
    TEXT,
    Conversion,
    PeerOptions,
    Remark,
    lacking,
    needless,
    read,
    same,
)
from netinit.options.user_ports import PortsOfUsers

DEFAULT_UID = 5678
RESOLV_CONF = "/etc/resolv.conf"
ALL_USERS = (0, kinds.MAX_ID)
NO_EBPF = "netinit has no eBPF programs; its rules capture the same"
ALWAYS_SPLIT = "netinit always gives the queries of the application and of the proxy zones of their own"
FIREWALLD = "netinit does not write to firewalld; program the rules at every start"
OWN_PLACE = "netinit's rules come where Istio's do, after foreign ones; `netinit verify` names those that come before"


def read_exceptions(text: str) -> tuple[Any, ...]:
    """Read ports of users in Kuma's format: several protocols, separated by commas."""
    protocols, colon, rest = text.partition(":")
    if rest.count(":") != 1 or "," not in protocols:
        return user_ports.read(text, kinds.read_uid)
    return user_ports.read(";".join([f"{one}{colon}{rest}" for one in kinds.split_list(protocols)]), kinds.read_uid)


def exceptions_of(protocol: str) -> Kind:
    """Return the kind of `PORTS:UIDS` (22,80:1000-2000; UIDS alone: all ports) of a protocol. It raises ValueError."""

    def read(text: str) -> tuple[Any, ...]:
        if text.count(":") > 1:
            raise ValueError("has more than two parts: write ports:users, such as 22,80:1000-2000")
        return user_ports.read(f"{protocol}:{text if ':' in text else f'*:{text}'}", kinds.read_uid)

    return Kind(metavar="PORTS:UIDS", read=read, write=kinds.write_joined)


def read_virtual_network(text: str) -> tuple[str, Network]:
    """Read an interface, or a prefix of names with + at the end, and its network."""
    name, colon, network = text.partition(":")
    if not colon or not name:
        raise ValueError("is not interface:CIDR, such as docker0:172.17.0.0/16")
    return kinds.read_interface_or_prefix(name), Network.parse(network)


SECONDS = Kind(  # as nanoseconds
    metavar="SECONDS", read=lambda text: kinds.read_number(text, 0, 3600, "a number of seconds") * 10**9,
    write=lambda value: str(value // 10**9),
)  # fmt: skip
EXCEPTIONS = Kind(metavar="PROTOCOL:PORTS:UIDS", read=read_exceptions, write=kinds.write_joined, empty=kinds.NONE)
VIRTUAL_NETWORK = Kind(metavar="INTERFACE:CIDR", read=read_virtual_network, write=lambda pair: f"{pair[0]}:{pair[1]}")
USER = Kind(metavar="USER", read=kinds.read_uid)


class Kuma(PeerOptions):
    """The options of Kuma's transparent proxy."""

    peer: ClassVar = "Kuma"
    programs: ClassVar = ("kumactl install transparent-proxy",)
    prefix: ClassVar = "KUMA_TRANSPARENT_PROXY_"
    exclusive: ClassVar = (("dns", "all_dns"),)
    variables_of_file: ClassVar = True  # pkg/config/loader.go: read after each file
    other_keys: ClassVar = ("ebpf",)

    user: int = read("--kuma-dp-user", USER, "`-u`; without it 5678", key="kumaDPUser")
    uid: int = read("--kuma-dp-uid", USER, "`-u`")
    inbound: bool = read("--redirect-inbound", SWITCH, "`-b '*'`, or no `-b`", default=True, key="redirect.inbound.enabled")
    inbound_port: int = same("--redirect-inbound-port", PORT, to="inbound_port", default=15006, key="redirect.inbound.port")
    outbound: bool = read("", SWITCH, "`-i '*'`, or no `-i`", default=True, key="redirect.outbound.enabled")
    outbound_port: int = same("--redirect-outbound-port", PORT, to="outbound_port", default=15001, key="redirect.outbound.port")
    inbound_ports: Ports = read("", PORTS, "`-b`", default=(), key="redirect.inbound.includePorts")
    outbound_ports: Ports = read("", PORTS, "`-q` without `-i`", default=(), key="redirect.outbound.includePorts")
    inbound_excluded: Ports = read(
        "--exclude-inbound-ports", PORTS, "`-d`; nothing with redirect.inbound.includePorts",
        default=(), key="redirect.inbound.excludePorts")
    outbound_excluded: Ports = read(
        "--exclude-outbound-ports", PORTS, "`-o`; nothing with redirect.outbound.includePorts",
        default=(), key="redirect.outbound.excludePorts")
    inbound_ips: tuple[tuple[Network, ...], ...] = same(
        "--exclude-inbound-ips", NETWORKS, to="exclude_inbound_cidrs", default=(), repeated=True,
        key="redirect.inbound.excludePortsForIPs")
    outbound_ips: tuple[tuple[Network, ...], ...] = same(
        "--exclude-outbound-ips", NETWORKS, to="exclude_outbound_cidrs", default=(), repeated=True,
        key="redirect.outbound.excludePortsForIPs")
    exceptions: tuple[tuple[PortsOfUsers, ...], ...] = read(
        "--exclude-outbound-ports-for-uids", EXCEPTIONS, "`--exclude-outbound-for-uids`",
        default=(), repeated=True, key="redirect.outbound.excludePortsForUIDs")
    tcp_exceptions: tuple[tuple[PortsOfUsers, ...], ...] = read(
        "--exclude-outbound-tcp-ports-for-uids", exceptions_of("tcp"), "`--exclude-outbound-for-uids tcp:` (2.0 to 2.8)",
        default=(), repeated=True)
    udp_exceptions: tuple[tuple[PortsOfUsers, ...], ...] = read(
        "--exclude-outbound-udp-ports-for-uids", exceptions_of("udp"), "`--exclude-outbound-for-uids udp:` (2.0 to 2.8)",
        default=(), repeated=True)
    inbound_uids: object = lacking(
        "", TEXT, "the sender of inbound traffic is not known; Kuma has no rule for it either", default=(), repeated=True,
        key="redirect.inbound.excludePortsForUIDs")
    dns: bool = read("--redirect-dns", SWITCH, "`--redirect-dns`, without DNS over TCP", default=False, key="redirect.dns.enabled")
    all_dns: bool = read(
        "--redirect-all-dns-traffic", SWITCH, "`--redirect-dns --capture-all-dns`, without DNS over TCP",
        default=False, key="redirect.dns.captureAll")
    dns_port: int = read(
        "--redirect-dns-port", PORT, "nothing for 15053; no equivalent for others", default=DNS_LISTENER, key="redirect.dns.port")
    no_zones: bool = lacking(
        "--skip-dns-conntrack-zone-split", SWITCH, ALWAYS_SPLIT, default=False, key="redirect.dns.skipConntrackZoneSplit")
    resolv_conf: str = read(
        "", PATH, "no equivalent for others than /etc/resolv.conf", default=RESOLV_CONF, key="redirect.dns.resolvConfigPath")
    docker_chain: str = needless(
        "--redirect-dns-upstream-target-chain", TEXT, "Docker's resolver is found by its address (2.0 to 2.8)", default="")
    networks: tuple[tuple[str, Network], ...] = read(
        "--vnet", VIRTUAL_NETWORK, "`-k`, in part", default=(), repeated=True, key="redirect.vnet.networks")
    inbound_first: bool = lacking(
        "--redirect-inbound-insert-instead-of-append", SWITCH, OWN_PLACE, default=False,
        key="redirect.inbound.insertRedirectInsteadOfAppend")
    outbound_first: bool = lacking(
        "--redirect-outbound-insert-instead-of-append", SWITCH, OWN_PLACE, default=False,
        key="redirect.outbound.insertRedirectInsteadOfAppend")
    drop_invalid: bool = same("--drop-invalid-packets", SWITCH, to="drop_invalid", default=False, key="dropInvalidPackets")
    families: str = read(
        "--ip-family-mode", choice("dualstack", "ipv4", ""), "`--dual-stack`, or `--ipv6 off`",
        default="dualstack", key="ipFamilyMode")
    logs: bool = same("--iptables-logs", SWITCH, to="log_rules", default=False, key="log.enabled")
    log_level: int = needless("", COUNT, "--log-rules has a level of its own", default=7, key="log.level")
    wait: int = read("--wait", SECONDS, "`--lock-timeout`; no equivalent for 0", key="wait")
    wait_interval: int = needless("--wait-interval", COUNT, "netinit waits in steps of its own", default=0, key="waitInterval")
    retries: int = same("--max-retries", COUNT, to="retries", key="retry.maxRetries")
    retry_delay: int = same("--sleep-between-retries", DURATION, to="retry_delay", key="retry.sleepBetweenRetries")
    dry_run: bool = same("--dry-run", SWITCH, to="dry_run", default=False, key="dryRun")
    verbose: bool = needless("--verbose", SWITCH, "rules have one form here", default=False, key="verbose")
    no_comments: bool = needless(
        "--disable-comments", SWITCH, "rules only have comments with --rule-comments", default=False, key="comments.disabled")
    executables: str = lacking(
        "--iptables-executables", TEXT, "programs are found in PATH; choose with --backend or --force-iptables-binary", default="",
        key="iptablesExecutables")
    firewalld: bool = lacking("--store-firewalld", SWITCH, FIREWALLD, default=False, key="storeFirewalld")
    cni: bool = same("", SWITCH, to="cni_mode", default=False, key="cniMode")
    config: tuple[str, ...] = read("--config", PATH, "the file is read", default=(), repeated=True)
    resolv_conf_kept: bool = needless("--skip-resolv-conf", SWITCH, "netinit never changes /etc/resolv.conf (2.0)", default=False)
    control_plane: str = needless("--kuma-cp-ip", TEXT, "netinit never changes /etc/resolv.conf (2.0)", default="")
    engine: bool = needless("--experimental-transparent-proxy-engine", SWITCH, "an engine of Kuma 2.0", default=False)
    ebpf: bool = lacking("--ebpf-enabled", SWITCH, NO_EBPF, default=False, key="ebpf.enabled")
    ebpf_programs: str = needless("--ebpf-programs-source-path", TEXT, NO_EBPF, default="")
    ebpf_address: str = needless("--ebpf-instance-ip", TEXT, NO_EBPF, default="")
    ebpf_mount: str = needless("--ebpf-bpffs-path", TEXT, NO_EBPF, default="")
    ebpf_cgroup: str = needless("--ebpf-cgroup-path", TEXT, NO_EBPF, default="")
    ebpf_interface: str = needless("--ebpf-tc-attach-iface", TEXT, NO_EBPF, default="")

    def complete(self, made: Conversion) -> None:
        """Convert ports and users in both directions, DNS, address families and virtual networks."""
        user = self.user if self.is_given("user") else self.uid if self.is_given("uid") else DEFAULT_UID
        made.fields["proxy_uids"] = (user,)
        self._complete_inbound(made)
        self._complete_outbound(made)
        self._complete_dns(made)
        made.fields |= {"ipv6": OFF} if self.families == "ipv4" else {"dual_stack": True}
        if self.wait:
            made.fields["lock_timeout"] = self.wait
        elif self.is_given("wait"):
            made.lacking.append(Remark(flag="--wait", value="0", text="netinit never waits without an end; set --lock-timeout"))
        for name, network in self.networks:
            self._complete_network(made, name, network)
        if self.outbound_ips:
            made.differing.append(
                "queries to excluded networks, and what the proxy sends to its own pod there, are captured by netinit, not by Kuma"
            )
        made.note_tunnel_port()
        made.note_group(user)

    def _complete_inbound(self, made: Conversion) -> None:
        if not self.inbound:
            return
        made.fields["inbound_ports"] = self.inbound_ports or kinds.ALL
        if not self.inbound_ports:
            made.fields["exclude_inbound_ports"] = self.inbound_excluded
        elif self.inbound_excluded:
            self._note_unused(made, "inbound")

    def _complete_outbound(self, made: Conversion) -> None:
        listed = (*self.exceptions, *self.tcp_exceptions, *self.udp_exceptions)
        made.fields["exclude_outbound_for_uids"] = tuple([one for items in listed for one in items])
        if not self.outbound:
            made.differing.append("what the proxy sends to its own pod is inbound again for netinit, and left alone by Kuma")
        elif self.outbound_ports:
            made.fields["outbound_ports"] = self.outbound_ports
            if self.outbound_excluded:
                self._note_unused(made, "outbound")
        else:
            made.fields |= {"outbound_cidrs": kinds.ALL, "exclude_outbound_ports": self.outbound_excluded}

    def _note_unused(self, made: Conversion, direction: str) -> None:
        text = f"Kuma ignores it with redirect.{direction}.includePorts, so it is left out"
        made.needless.append(Remark(flag=f"--exclude-{direction}-ports", value="", text=text))

    def _complete_dns(self, made: Conversion) -> None:
        if not (self.dns or self.all_dns):
            return
        made.fields |= {"redirect_dns": True, "capture_all_dns": self.all_dns}
        over_tcp = PortsOfUsers(protocol="tcp", ports=(DNS_PORT,), first=ALL_USERS[0], last=ALL_USERS[1])
        made.fields["exclude_outbound_for_uids"] += (over_tcp,)
        made.differing.append(
            "Kuma 2.14 leaves DNS over TCP alone, hence tcp:53 of all users; 2.13 sends it to the outbound port, 2.12 to the resolver"
        )
        if self.dns and self.families != "ipv4":
            made.differing.append(
                "where /etc/resolv.conf has no name server of IPv6, Kuma leaves DNS alone there and captures TCP to port 53 over IPv6;"
                " here tcp:53 is left alone over IPv6 too, and bypasses the proxy: remove it from --exclude-outbound-for-uids to"
                " capture it over both"
            )
        if self.dns_port != DNS_LISTENER:
            text = f"the proxy's resolver must listen on {DNS_LISTENER}, as Istio's does"
            made.lacking.append(Remark(flag="--redirect-dns-port", value=str(self.dns_port), text=text))
        if self.resolv_conf != RESOLV_CONF and not self.all_dns:
            text = f"name servers are read from {RESOLV_CONF}; name them with --dns-servers"
            made.lacking.append(Remark(flag="redirect.dns.resolvConfigPath", value=self.resolv_conf, text=text))
        if lists_port(made.fields.get("exclude_outbound_ports", ()), DNS_PORT):
            text = "port 53 is not captured at all here; Kuma captures queries over UDP all the same"
            made.lacking.append(Remark(flag="--exclude-outbound-ports", value="53", text=text))

    def _complete_network(self, made: Conversion, name: str, network: Network) -> None:
        value = f"{name}:{network}"
        made.fields["virtual_interfaces"] = (*made.fields.get("virtual_interfaces", ()), name)
        text = f"inbound traffic of {name} is outbound here, to {network} too, and its DNS is not captured"
        made.lacking.append(Remark(flag="--vnet", value=value, text=text))
