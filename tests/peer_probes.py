"""Connections that show what the rules of a mesh do: of the application, of the proxy and of other users, outwards and inbound."""

from __future__ import annotations

from dataclasses import dataclass

from lab_probes import Probe
from laboratory import Listener
from netinit.lab import APP_ID

POD = {4: "10.77.0.2", 6: "fd77::2"}
OUTSIDE = {4: ("203.0.113.7", "203.0.113.8"), 6: ("2001:db8::7",)}
LOOPBACK = {4: ("127.0.0.1", "127.0.0.2"), 6: ("::1",)}
EXCLUDED = {4: ("1.1.1.1", "10.0.0.1"), 6: ("fd00::5",)}  # networks that some of the cases exclude
ALL_OUTSIDE = tuple(host for hosts in (OUTSIDE, EXCLUDED) for version in (4, 6) for host in hosts[version])
PORTS = (80, 443, 8080, 4190, 4444, 22000, 15008)
TUNNEL, DNS = 15008, 53
PATIENCE = 20.0  # seconds: every probe is answered, on a busy machine later


@dataclass(frozen=True)
class Asked:
    """A probe and how the data names it."""

    name: str
    probe: Probe
    inbound: bool = False


def asked(options, versions):
    """Connections of the application, of the proxy and of other users, outwards and within the pod; and inbound ones."""
    (proxy, *_), group = options.proxy_uids, options.proxy_gids[0]
    senders = {
        "app": (APP_ID, APP_ID), "proxy": (proxy, 60000), "group": (60001, group), "user 107": (107, 107), "user 456": (456, 456),
    }  # fmt: skip
    found = []
    for version in versions:
        for host in (*OUTSIDE[version], *EXCLUDED[version], POD[version], *LOOPBACK[version]):
            for port in (*PORTS, DNS):
                for who, (uid, gid) in senders.items():
                    found.append(Asked(f"{who} to {host} {port}", Probe(host, port, uid=uid, gid=gid, timeout=PATIENCE)))
            found += [
                Asked(f"{who} to {host} {DNS} over UDP", Probe(host, DNS, udp=True, uid=uid, gid=gid, timeout=PATIENCE))
                for who, (uid, gid) in senders.items()
            ]
        found += [Asked(f"client to {POD[version]} {port}", Probe(POD[version], port, timeout=PATIENCE), inbound=True) for port in PORTS]
    return found


def start(pod, options, versions):
    """The application, the proxy's listeners, and servers outside, on every port that is asked for."""
    def listen(ports, udp=()):
        kinds = [(port, "tcp") for port in ports] + [(port, "udp") for port in udp]
        return [Listener(port, version, kind=kind) for port, kind in kinds for version in versions]

    proxy = {options.outbound_port, options.inbound_port, 15053}
    servers = [
        pod.start("app", listen((*PORTS, DNS), [DNS]), uid=APP_ID, gid=APP_ID),
        pod.start("proxy", listen(sorted(proxy), [15053]), uid=options.proxy_uids[0], gid=options.proxy_gids[0]),
        pod.client.start("outside", listen((*PORTS, DNS), [DNS])),
    ]
    for server in servers:
        server.wait()


def fates(pod, wanted):
    """Where each probe arrived."""
    def ask(place, some):
        return zip([one.name for one in some], place.probe([one.probe for one in some]), strict=True)

    found = {}
    for place, some in ((pod, [one for one in wanted if not one.inbound]), (pod.client, [one for one in wanted if one.inbound])):
        for name, arrival in ask(place, some):
            found[name] = f"{arrival.server} {arrival.port}" if arrival.outcome == "answered" else arrival.outcome
    return found
