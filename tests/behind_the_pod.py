"""The laboratory "behind the pod": what other software puts there, with its own rules, and the questions that are asked of it.

Each neighbour is a namespace behind a device of the pod: a container of Docker's, a VM of KubeVirt's, the far end of a VPN, a
second network. Its software's rules are added after the pod is programmed, as in a cluster: a runtime of containers, a launcher
of VMs and a VPN's daemon start after the init container. Addresses: `INNER` behind the device, `DEVICE` the pod's on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bypass_world import RULES
from lab_probes import Arrival, Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.options.interception import NODE_PROXY_MARK
from programming import apply_in
from server_processes import Listener

POD = {4: "10.77.0.2", 6: "fd77::2"}
INNER, DEVICE = {4: "10.78.0.1", 6: "fd78::1"}, {4: "10.78.0.2", 6: "fd78::2"}
SERVER = {4: "203.0.113.7", 6: "2001:db8::7"}
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
PASSTHROUGH = {4: "127.0.0.6", 6: "::6"}
BRIDGED = {4: "10.78.0.0/24", 6: "fd78::/64"}
SERVICE = {4: "10.96.0.20", 6: "fd96::20"}  # of a Service CIDR that only rules in the pod know
PUBLISHED, PUBLISHED_EXCLUDED = 8081, 15021  # lead to INNER_PORT; the second is not captured inbound
INNER_PORT, APP_PORT = 8000, 80
RESOLVER, TRANSPARENT = 5353, 9040  # of the pod's own
EXCLUDED_PORT = 8443  # outbound
DNS = 53
ANSWER_SECONDS = 0.7  # of a question that nobody answers; everything here is on one machine
SIDECAR = ("-o", str(EXCLUDED_PORT))


@dataclass(frozen=True)
class Question:
    """A connection or datagram from the pod, the neighbour (`inner`) or the client (`outside`)."""

    what: str
    where: str
    probe: Probe


def _docker(pod: Pod, variant: str, *, device: str) -> None:
    """dockerd 28's rules, with userland-proxy off, in iptables' tables."""
    for version in pod.versions:
        program = variant if version == 4 else variant.replace("iptables", "ip6tables")
        inner, network = INNER[version], BRIDGED[version]
        target = inner if version == 4 else f"[{inner}]"
        ports = [("tcp", PUBLISHED, INNER_PORT), ("tcp", PUBLISHED_EXCLUDED, INNER_PORT), ("tcp", DNS, DNS), ("udp", DNS, DNS)]
        published = "".join(f"-A DOCKER -p {kind} -m {kind} --dport {port} -j DNAT --to-destination {target}:{to}\n" for kind, port, to in ports)
        opened = "".join(
            f"-A DOCKER -d {inner} ! -i {device} -o {device} -p {kind} -m {kind} --dport {to} -j ACCEPT\n" for kind, to in sorted({(kind, to) for kind, _, to in ports})
        )
        text = f"""*raw
-A PREROUTING -d {inner} ! -i {device} -j DROP
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -o {device} -m addrtype --src-type LOCAL -j MASQUERADE
-A POSTROUTING -s {network} ! -o {device} -j MASQUERADE
-A POSTROUTING -s {inner} -d {inner} -p tcp -m tcp --dport {INNER_PORT} -j MASQUERADE
{published}COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o {device} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o {device} -j DOCKER
-A FORWARD -i {device} ! -o {device} -j ACCEPT
-A FORWARD -i {device} -o {device} -j ACCEPT
{opened}COMMIT
"""
        pod.run([f"{program}-restore", "-w", "--noflush"], stdin=text, check=True)
    _route_localnet(pod, device)


def _docker_nft(pod: Pod, *, device: str) -> None:
    """dockerd 29's own nft tables (`firewall-backend: nftables`)."""
    text = ""
    for version in pod.versions:
        ip, inner = ("ip", INNER[4]) if version == 4 else ("ip6", INNER[6])
        target = inner if version == 4 else f"[{inner}]"
        text += f"""table {ip} docker-bridges {{
  chain nat-prerouting-and-output {{
    tcp dport {{ {PUBLISHED}, {PUBLISHED_EXCLUDED} }} counter dnat to {target}:{INNER_PORT}
    tcp dport {DNS} counter dnat to {target}:{DNS}
    udp dport {DNS} counter dnat to {target}:{DNS}
  }}
  chain nat-PREROUTING {{ type nat hook prerouting priority dstnat; fib daddr type local counter jump nat-prerouting-and-output; }}
  chain nat-OUTPUT {{ type nat hook output priority -100; fib daddr type local counter jump nat-prerouting-and-output; }}
  chain nat-POSTROUTING {{
    type nat hook postrouting priority srcnat;
    oifname "{device}" fib saddr type local counter masquerade
    oifname != "{device}" {ip} saddr {BRIDGED[version]} counter masquerade
  }}
  chain raw-PREROUTING {{ type filter hook prerouting priority raw; iifname != "{device}" {ip} daddr {inner} counter drop; }}
  chain filter-forward-in {{
    ct state established,related counter accept
    iifname "{device}" counter accept
    {ip} daddr {inner} tcp dport {{ {INNER_PORT}, {DNS} }} counter accept
    {ip} daddr {inner} udp dport {DNS} counter accept
    counter drop
  }}
  chain filter-FORWARD {{
    type filter hook forward priority filter; policy drop;
    oifname "{device}" counter jump filter-forward-in
    iifname "{device}" counter accept
  }}
}}
"""
    pod.run(["nft", "-f", "-"], stdin=text, check=True)
    _route_localnet(pod, device)


def _kubevirt(pod: Pod, *, device: str) -> None:
    """KubeVirt's masquerade binding of a VM without a list of ports, in a pod of Istio's.

    See kubevirt/kubevirt, pkg/network/setup/netpod/masquerade/masquerade.go.
    """
    reserved = "{ 15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090 }"
    text = ""
    for version in pod.versions:
        ip, inner, own = ("ip", INNER[4], "127.0.0.1") if version == 4 else ("ip6", INNER[6], "::1")
        translated = f"{{ {own}, {POD[4]} }}" if version == 4 else own
        senders = f"{{ {own}, {PASSTHROUGH[4]} }}" if version == 4 else own
        text += f"""table {ip} nat {{
  chain prerouting {{ type nat hook prerouting priority -100; }}
  chain input {{ type nat hook input priority 100; }}
  chain output {{ type nat hook output priority -100; }}
  chain postrouting {{ type nat hook postrouting priority 100; }}
  chain KUBEVIRT_PREINBOUND {{ }}
  chain KUBEVIRT_POSTINBOUND {{ }}
}}
add rule {ip} nat postrouting {ip} saddr {inner} counter masquerade
add rule {ip} nat prerouting iifname "eth0" counter jump KUBEVIRT_PREINBOUND
add rule {ip} nat postrouting oifname "{device}" counter jump KUBEVIRT_POSTINBOUND
add rule {ip} nat output tcp dport {reserved} {ip} saddr {own} counter return
add rule {ip} nat KUBEVIRT_POSTINBOUND tcp dport {reserved} {ip} saddr {own} counter return
add rule {ip} nat KUBEVIRT_PREINBOUND tcp dport {{ 22 }} counter dnat to {inner}
add rule {ip} nat KUBEVIRT_POSTINBOUND {ip} saddr {senders} counter snat to {DEVICE[version]}
add rule {ip} nat output {ip} daddr {translated} counter dnat to {inner}
"""
    pod.run(["nft", "-f", "-"], stdin=text, check=True)
    _route_localnet(pod, device)


def _vpn(pod: Pod, variant: str, *, device: str) -> None:
    """`wg-quick` with AllowedIPs = 0.0.0.0/0, ::/0 (its default route, marks and rules), and tailscaled's chains for a subnet router.

    The device is a veth pair: what matters here are its routes and the rules, and not how packets are wrapped.
    """
    for version in pod.versions:
        program, ip = (variant, "-4") if version == 4 else (variant.replace("iptables", "ip6tables"), "-6")
        own = DEVICE[version]
        text = f"""*raw
-A PREROUTING ! -i {device} -d {own} -m addrtype ! --src-type LOCAL -j DROP
COMMIT
*mangle
-A POSTROUTING -p udp -m mark --mark 0xca6c -j CONNMARK --save-mark
-A PREROUTING -p udp -j CONNMARK --restore-mark
COMMIT
*nat
:ts-postrouting - [0:0]
-A POSTROUTING -j ts-postrouting
-A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
COMMIT
*filter
:ts-input - [0:0]
:ts-forward - [0:0]
-A INPUT -j ts-input
-A FORWARD -j ts-forward
-A ts-input -s {own} -i lo -j ACCEPT
-A ts-input -s {BRIDGED[version]} ! -i {device} -j DROP
-A ts-input -i {device} -j ACCEPT
-A ts-forward -i {device} -j MARK --set-xmark 0x40000/0xff0000
-A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
-A ts-forward -s {BRIDGED[version]} -o {device} -j DROP
-A ts-forward -o {device} -j ACCEPT
COMMIT
"""
        pod.run([f"{program}-restore", "-w", "--noflush"], stdin=text, check=True)
        for arguments in (
            ("route", "add", "default", "via", INNER[version], "dev", device, "table", "51820"),
            ("rule", "add", "not", "fwmark", "51820", "table", "51820"),
            ("rule", "add", "table", "main", "suppress_prefixlength", "0"),
        ):
            pod.run(["ip", ip, *arguments], check=True)


def _second_network(pod: Pod, *, device: str) -> None:
    """A second device with a default route, as Multus makes it for a network with `default-route`."""
    for version in pod.versions:
        pod.run(["ip", f"-{version}", "route", "replace", "default", "via", INNER[version], "dev", device], check=True)


def _services(pod: Pod, variant: str, *, device: str) -> None:
    """A Service CIDR that is programmed inside of the pod, as kube-proxy does it, before the mesh's own rules."""
    for version in pod.versions:
        program = variant if version == 4 else variant.replace("iptables", "ip6tables")
        own, inner = (one[version] if version == 4 else f"[{one[version]}]" for one in (POD, INNER))
        text = f"""*nat
:KUBE-SERVICES - [0:0]
-I PREROUTING -j KUBE-SERVICES
-I OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d {SERVICE[version]} -p tcp -m tcp --dport 81 -j DNAT --to-destination {inner}:{INNER_PORT}
-A KUBE-SERVICES -d {SERVICE[version]} -p tcp -m tcp --dport 82 -j DNAT --to-destination {own}:{APP_PORT}
-A KUBE-SERVICES -d {SERVICE[version]} -p tcp -m tcp --dport 83 -j DNAT --to-destination {LOOPBACK[4] if version == 4 else own}:{APP_PORT}
-A KUBE-SERVICES -d {SERVICE[version]} -p udp -m udp --dport {DNS} -j DNAT --to-destination {inner}:{DNS}
-A POSTROUTING -s {BRIDGED[version]} ! -o {device} -j MASQUERADE
COMMIT
"""
        pod.run([f"{program}-restore", "-w", "--noflush"], stdin=text, check=True)


def _own_resolver(pod: Pod, variant: str, *, device: str) -> None:
    """A resolver and a transparent proxy of the pod's own, to which rules written by hand send what comes from behind it, or is marked."""
    for version in pod.versions:
        program = variant if version == 4 else variant.replace("iptables", "ip6tables")
        text = f"""*mangle
-A PREROUTING -i lo -p tcp -m mark --mark 0x7 -j TPROXY --on-port {TRANSPARENT} --tproxy-mark 0x7
COMMIT
*nat
-A PREROUTING -i {device} -p udp -m udp --dport {DNS} -j REDIRECT --to-ports {RESOLVER}
-A POSTROUTING -s {BRIDGED[version]} ! -o {device} -j MASQUERADE
COMMIT
"""
        pod.run([f"{program}-restore", "-w", "--noflush"], stdin=text, check=True)
        everything = "0.0.0.0/0" if version == 4 else "::/0"
        for arguments in (("rule", "add", "fwmark", "7", "table", "7"), ("route", "add", "local", everything, "dev", "lo", "table", "7")):
            pod.run(["ip", f"-{version}", *arguments], check=True)


def _route_localnet(pod: Pod, device: str) -> None:
    if 4 in pod.versions:
        pod.set_sysctl(f"net/ipv4/conf/{device}/route_localnet", 1)


@dataclass(frozen=True)
class Neighbour:
    """Software behind the pod: its device, and what it programs once the pod is programmed."""

    name: str
    device: str
    program: Callable[..., None]
    arguments: tuple[str, ...] = ()
    is_way_out: bool = False  # the default route leads through it, so the servers outside are behind it

    def add(self, pod: Pod) -> None:
        self.program(pod, *self.arguments, device=self.device)


NEIGHBOURS = (
    Neighbour("Docker, iptables-nft", "docker0", _docker, ("iptables-nft",)),
    Neighbour("Docker, iptables-legacy", "docker0", _docker, ("iptables-legacy",)),
    Neighbour("Docker, nftables", "docker0", _docker_nft),
    Neighbour("KubeVirt", "k6t-eth0", _kubevirt),
    Neighbour("VPN", "wg0", _vpn, ("iptables-nft",), is_way_out=True),
    Neighbour("second network", "net1", _second_network, is_way_out=True),
    Neighbour("own resolver", "br0", _own_resolver, ("iptables-nft",)),
    Neighbour("Services", "cni0", _services, ("iptables-nft",)),
)
BY_NAME = {one.name: one for one in NEIGHBOURS}


def questions(version: int, *, layout: str) -> list[Question]:
    """What is asked of every neighbour."""
    app: dict[str, Any] = {"uid": APP_ID, "gid": APP_ID}
    proxy: dict[str, Any] = {"mark": NODE_PROXY_MARK} if layout == "ambient" else {"uid": PROXY_ID, "gid": PROXY_ID}
    ask = partial(Probe, timeout=ANSWER_SECONDS)
    own, inner, outside, loopback = POD[version], INNER[version], SERVER[version], LOOPBACK[version]
    made = [
        ("the application calls itself", "pod", ask(own, APP_PORT, **app)),
        ("the application calls itself by loopback", "pod", ask(loopback, APP_PORT, **app)),
        ("the application calls a published port", "pod", ask(own, PUBLISHED, **app)),
        ("the application calls a published port by loopback", "pod", ask(loopback, PUBLISHED, **app)),
        ("the application calls the device's address", "pod", ask(DEVICE[version], PUBLISHED, **app)),
        ("the application calls the neighbour", "pod", ask(inner, INNER_PORT, **app)),
        ("the application calls a server", "pod", ask(outside, 443, **app)),
        ("the application calls an excluded port", "pod", ask(outside, EXCLUDED_PORT, **app)),
        ("the application calls a Service of the neighbour", "pod", ask(SERVICE[version], 81, **app)),
        ("the application calls a Service of its own", "pod", ask(SERVICE[version], 82, **app)),
        ("the application calls a Service on loopback", "pod", ask(SERVICE[version], 83, **app)),
        ("the application resolves a name", "pod", ask(outside, DNS, udp=True, **app)),
        ("the application resolves a name over TCP", "pod", ask(outside, DNS, **app)),
        ("a marked connection goes to a transparent proxy of the pod's own", "pod", ask(outside, 443, mark=7, **app)),
        ("root calls a published port by loopback", "pod", ask(loopback, PUBLISHED)),
        ("the proxy passes a connection on", "pod", ask(own, APP_PORT, source=PASSTHROUGH[version], **proxy)),
        ("the proxy passes a published connection on", "pod", ask(own, PUBLISHED, source=PASSTHROUGH[version], **proxy)),
        ("the proxy calls a server", "pod", ask(outside, 443, **proxy)),
        ("the proxy calls the neighbour", "pod", ask(inner, INNER_PORT, **proxy)),
        ("the proxy resolves a name", "pod", ask(outside, DNS, udp=True, **proxy)),
        ("the neighbour calls a server", "inner", ask(outside, 443)),
        ("the neighbour calls an excluded port", "inner", ask(outside, EXCLUDED_PORT)),
        ("the neighbour calls the application", "inner", ask(own, APP_PORT)),
        ("the neighbour calls itself by its published port", "inner", ask(own, PUBLISHED)),
        ("the neighbour calls an uncaptured port of its own", "inner", ask(own, PUBLISHED_EXCLUDED)),
        ("the neighbour resolves a name", "inner", ask(outside, DNS, udp=True)),
        ("the neighbour resolves a name over TCP", "inner", ask(outside, DNS)),
        ("the neighbour resolves a name by a Service", "inner", ask(SERVICE[version], DNS, udp=True)),
        ("a client calls the application", "outside", ask(own, APP_PORT)),
        ("a client calls a published port", "outside", ask(own, PUBLISHED)),
        ("a client calls a published port that is not captured", "outside", ask(own, PUBLISHED_EXCLUDED)),
        ("a client calls a VM's SSH", "outside", ask(own, 22)),
        ("a client asks a published name server", "outside", ask(own, DNS, udp=True)),
        ("a client asks a published name server over TCP", "outside", ask(own, DNS)),
    ]
    return [Question(f"{what} (IPv{version})", where, probe) for what, where, probe in made]


@dataclass
class Lab:
    """One pod with its servers, rules and neighbour."""

    pod: Pod
    options: Options
    neighbour: Neighbour
    found: dict[str, Arrival] = field(default_factory=dict)

    @property
    def inner(self) -> Any:
        return self.pod.neighbours[self.neighbour.device]

    def ask(self, asked: Sequence[Question]) -> dict[str, Arrival]:
        """The answers, by question; all questions of one place are asked at once."""
        places = {"pod": self.pod, "inner": self.inner, "outside": self.pod.client}
        for where, namespace in places.items():
            here = [one for one in asked if one.where == where]
            self.found |= dict(zip([one.what for one in here], namespace.probe([one.probe for one in here]), strict=True))
        return self.found


@contextlib.contextmanager
def open_lab(neighbour: Neighbour, mode: str, backend: str, *arguments: str) -> Iterator[Lab]:
    """A pod that is programmed, then gets its neighbour."""
    layout_options = SIDECAR if "ambient" not in mode and "classic" not in mode else ()
    options = Options.from_argv([*RULES[mode], "--ipv6", "on", "--backend", backend, *layout_options, *arguments])
    with Pod(interfaces=(neighbour.device,)) as pod:
        transparent = {"TPROXY": (15006,), "classic TPROXY": (15001,)}.get(mode, ())
        start_servers(pod, app=(APP_PORT, 8080), outside=(443, EXCLUDED_PORT), transparent=transparent)
        behind = pod.neighbours[neighbour.device]
        listening = [*[("tcp", port) for port in (INNER_PORT, PUBLISHED, 22, DNS)], ("udp", DNS)]
        if neighbour.is_way_out:
            listening += [("tcp", 443), ("tcp", EXCLUDED_PORT)]
            for version in pod.versions:
                behind.run(["ip", "addr", "add", SERVER[version], "dev", "lo"], check=True)
        behind.serve("inner", [Listener(port, version, kind=kind) for version in pod.versions for kind, port in listening])
        own = [Listener(TRANSPARENT, version, transparent=True) for version in pod.versions]
        pod.serve("own", [*own, *[Listener(RESOLVER, version, kind="udp") for version in pod.versions]], uid=APP_ID, gid=APP_ID)
        apply_in(pod, options)
        neighbour.add(pod)
        yield Lab(pod, options, neighbour)
