"""Resolves the names that `--to` accepts in a cluster; a Service yields its own addresses and its endpoints'."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.errors import ClusterError, OptionError
from netinit.base.net import join_host, parse_address, read_addresses
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.kubectl.program import Kubectl
from netinit.questions.connections import refuse_url, unbracket

MAX_ENDPOINTS = 3  # endpoints of a service to ask about; each takes a run of netinit
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EXTERNAL = "ExternalName"
_SLICES = "endpointslices.v1.discovery.k8s.io"  # with its version, because kubectl may have cached an older one


@dataclass(frozen=True, slots=True)
class NamedDestination:
    """A resolved destination; `title` has the name, and which of its addresses this is."""

    title: str
    address: str
    port: int

    @property
    def endpoint(self) -> str:
        """The destination in the syntax of --to."""
        return join_host(self.address, self.port)


def find_destinations(kubectl: Kubectl, text: str, namespace: str) -> list[NamedDestination]:
    """Resolve `HOST:PORT`; HOST is an address, a Service, `pod/NAME` or a host name. Raises OptionError, ClusterError."""
    refuse_url(text, "--to")
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port:
        raise OptionError(f"--to: {quote(text)} has no port; give service.namespace:port or host:port")
    host = unbracket(host, "--to")
    try:
        return [NamedDestination("", parse_address(host), read_port_number(port))]
    except ValueError:
        pass
    named = _split_name(host.removeprefix("pod/"), namespace)
    refusal = ""
    service: Tree = {}
    try:
        if named and not host.startswith("pod/"):
            service = kubectl.get("service", named[0], "-n", named[1])
            if service and mapping(service.get("spec")).get("type") == _EXTERNAL:
                host = string(mapping(service.get("spec")).get("externalName"))
            elif service:
                return list(_of_service(kubectl, service, named, port))
        if named:
            pod = kubectl.get("pod", named[0], "-n", named[1])
            listed = [string(mapping(item).get("ip")) for item in sequence(mapping(pod.get("status")).get("podIPs"))]
            if found := list(read_addresses(listed)):
                return [NamedDestination(f"pod {named[1]}/{named[0]}", address, read_port_number(port)) for address in found]
    except ClusterError as error:
        if service:  # its endpoints are not readable
            raise
        refusal = f" ({error})"
    if host.startswith("pod/"):
        raise OptionError(f"--to: there is no pod {quote(host.removeprefix('pod/'))} with an address{refusal}")
    return _resolve(host, port, refusal)


def read_port_number(text: str) -> int:
    """Parse a port number. Raises OptionError."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) < 1 << 16:
        raise OptionError(f"--to: {quote(text)} is not a port; give a number from 1 to 65535")
    return int(text)


def _split_name(host: str, namespace: str) -> tuple[str, str] | None:
    """Name and namespace from `NAME`, `NAME.NAMESPACE` or `NAME.NAMESPACE.svc…`; None for anything else."""
    parts = host.split(".")
    if not all(_LABEL.fullmatch(part) for part in parts):
        return None
    if len(parts) <= 2 or parts[2] == "svc":  # noqa: PLR2004 - name, namespace
        return parts[0], parts[1] if len(parts) > 1 else namespace
    return None


def _of_service(kubectl: Kubectl, service: Tree, named: tuple[str, str], port: str) -> Iterator[NamedDestination]:
    spec = mapping(service.get("spec"))
    title = f"service {named[0]}.{named[1]}"
    ports = [mapping(item) for item in sequence(spec.get("ports"))]
    chosen = next((item for item in ports if port in (string(item.get("port")), string(item.get("name")))), None)
    if chosen is None:
        known = ", ".join(filter(None, (string(item.get("port")) for item in ports))) or "none"
        raise OptionError(f"--to: {title} has no port {quote(port)}; it has {known}")
    own = [spec.get("clusterIP"), *sequence(spec.get("clusterIPs"))]
    for address in dict.fromkeys(read_addresses(map(string, own))):
        yield NamedDestination(f"{title}, its ClusterIP", address, read_port_number(string(chosen.get("port"))))
    slices = kubectl.get(_SLICES, "-n", named[1], "-l", f"kubernetes.io/service-name={named[0]}")
    found = dict.fromkeys(_endpoints(slices, string(chosen.get("name"))))
    for number, (address, at) in enumerate(found):
        if number == MAX_ENDPOINTS:
            break
        yield NamedDestination(f"{title}, endpoint {number + 1} of {len(found)}", address, at)


def _endpoints(slices: Tree, port: str) -> Iterator[tuple[str, int]]:
    for one in map(mapping, sequence(slices.get("items"))):
        ports = [item for item in map(mapping, sequence(one.get("ports"))) if string(item.get("name")) == port]
        for endpoint in map(mapping, sequence(one.get("endpoints"))):
            if mapping(endpoint.get("conditions")).get("ready") is False:
                continue
            for address in read_addresses(map(string, sequence(endpoint.get("addresses")))):
                yield from ((address, read_port_number(string(item.get("port")))) for item in ports)


def _resolve(host: str, port: str, refusal: str) -> list[NamedDestination]:
    number = read_port_number(port)
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise OptionError(f"--to: {quote(host)} is no Service, no pod, and no host that this machine knows{refusal}") from None
    addresses = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
    return [NamedDestination(f"host {host}, as this machine's resolver has it", address, number) for address in addresses]
