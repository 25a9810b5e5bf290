"""The step "protocol": how Istio reads a Service's port, and what the application speaks there.

As kube.ConvertProtocol and protocol.Parse of Istio read names (pkg/config/kube/conversion.go, pkg/config/protocol/instance.go):
appProtocol takes precedence, then the part of the port's name before the first hyphen; ports 25, 53, 3306 and 27017 without either
are TCP; all else is detected by the first bytes that the client sends, without a time limit unless the mesh's settings have one
(protocolDetectionTimeout). Compared with Istio 1.31.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote
from netinit.base.tree import mapping, string
from netinit.questions.why.objects import ClusterObjects, ServicePort
from netinit.questions.why.steps import Step, failed, passed, unknown

OTHER_TRANSPORT = FindingKind(
    "NI324", "other-transport",
    "The Service's port is of another protocol (TCP, UDP) than the connection. The proxy handles TCP only: UDP goes "
    "past it.",
)
WRONG_PROTOCOL = FindingKind(
    "NI325", "wrong-protocol",
    "The Service's port counts as HTTP by its name or its appProtocol, and something else is spoken there: the proxy "
    "waits for an HTTP request, and resets the connection. Set appProtocol: tcp, or name the port tcp-….",
)
BOTH_WAIT = FindingKind(
    "NI326", "server-first",
    "The Service's port says no protocol, so that the proxy waits for the client's first bytes to detect it. Where "
    "the server speaks first (MySQL, SMTP, SSH, FTP, NATS), both wait. Set appProtocol: tcp, or name the port tcp-….",
)

NAME = "protocol"
TCP, UDP, HTTP, DETECTED = "TCP", "UDP", "HTTP", "detected by the client's first bytes"
_KNOWN = {
    "tcp": TCP, "udp": UDP, "http": HTTP, "http2": HTTP, "grpc": HTTP, "grpc-web": HTTP, "http_proxy": HTTP,
    "https": "TLS", "tls": "TLS", "mongo": TCP, "redis": TCP, "mysql": TCP,
}  # fmt: skip
_OF_KUBERNETES = {"kubernetes.io/h2c": "http2", "kubernetes.io/ws": "http", "kubernetes.io/wss": "https"}
_NEVER_DETECTED = (25, 53, 3306, 27017)
_GRPC_WEB = "grpc-web"
SERVER_FIRST = {  # port -> what speaks there, whose server sends the first bytes
    21: "FTP", 22: "SSH", 25: "SMTP", 110: "POP3", 143: "IMAP", 587: "SMTP", 3306: "MySQL", 4222: "NATS", 4444: "Galera",
    4567: "Galera", 4568: "Galera", 5900: "VNC", 33060: "MySQL X", 33061: "MySQL", 33062: "MySQL",
}  # fmt: skip
CLIENT_FIRST = {  # port -> what speaks there: not HTTP, and the client sends the first bytes
    389: "LDAP", 1433: "SQL Server", 1521: "Oracle", 1883: "MQTT", 2181: "ZooKeeper", 5432: "PostgreSQL", 5672: "AMQP", 6379: "Redis",
    9042: "Cassandra", 9092: "Kafka", 27017: "MongoDB",
}  # fmt: skip
_WORDS = {  # a part of a port's name -> what it says
    "mysql": "MySQL", "mariadb": "MySQL", "smtp": "SMTP", "imap": "IMAP", "pop3": "POP3", "ftp": "FTP", "ssh": "SSH", "sftp": "SSH",
    "nats": "NATS", "galera": "Galera", "vnc": "VNC",
    "postgres": "PostgreSQL", "postgresql": "PostgreSQL", "redis": "Redis", "amqp": "AMQP", "kafka": "Kafka", "mongo": "MongoDB",
    "mongodb": "MongoDB", "ldap": "LDAP", "mqtt": "MQTT", "cassandra": "Cassandra", "zookeeper": "ZooKeeper",
}  # fmt: skip
_FIRST_SPEAKS = frozenset(SERVER_FIRST.values())


def read_protocol(port: ServicePort) -> str:
    """What Istio takes a Service's port for."""
    if port.protocol == UDP:
        return UDP
    name = _OF_KUBERNETES.get(port.app_protocol, port.app_protocol) or port.name
    word = _GRPC_WEB if name.lower().startswith(_GRPC_WEB) else name.partition("-")[0].lower()
    found = _KNOWN.get(word, "")
    return found or (TCP if port.number in _NEVER_DETECTED else DETECTED)


def find_detection_limit(objects: ClusterObjects) -> str:
    """How long a proxy waits for the client's first bytes, as the mesh's settings say it; empty for ever, Istio's default."""
    text = string(mapping(objects.mesh).get("protocolDetectionTimeout"))
    return text if any(one in "123456789" for one in text) else ""


def guess_application(port: ServicePort) -> str:
    """What speaks on a port, by its name, its number, or that of its target; empty if nothing tells."""
    for word in re.split(r"[-_./]", f"{port.name}-{port.app_protocol}".lower()):
        if word in _WORDS:
            return _WORDS[word]
    numbers = (port.number, port.target_number)
    return next((known[number] for number in numbers for known in (SERVER_FIRST, CLIENT_FIRST) if number in known), "")


def examine_protocol(port: ServicePort, about: str, show: str, *, asked_udp: bool, limit: str = "") -> Iterator[Step]:
    """Say what the proxies take the connection for.

    `show`: the command that shows the proxy's own configuration. `limit`: how long it waits for the client's first bytes; empty for
    ever.
    """
    if (port.protocol == UDP) != asked_udp and port.protocol in (TCP, UDP):
        asked = UDP if asked_udp else TCP
        text = f"port {port.number} is {port.protocol}, and {asked} was asked: nothing forwards {asked} there"
        fits = "leave out --udp" if asked_udp else "ask with --udp: the proxy handles TCP only, so UDP goes past it"
        yield failed(NAME, OTHER_TRANSPORT, text, about, remedy=f"name a port of protocol {asked}, or {fits}")
        return
    if asked_udp:
        yield passed(NAME, "UDP: no proxy handles it", about)
        return
    taken, speaks = read_protocol(port), guess_application(port)
    by_name = f"the name {quote(port.name)}" if port.name else "no name"
    how = f"appProtocol {quote(port.app_protocol)}" if port.app_protocol else by_name
    remedy = f"set appProtocol: tcp for port {port.number} of the Service, or a name that begins with tcp-"
    if speaks and taken == HTTP:
        text = f"port {port.number} counts as HTTP ({how}), and {speaks} is spoken there: the proxy wants a request, and resets it"
        yield failed(NAME, WRONG_PROTOCOL, text, about, remedy=remedy, shown_by=show)
    elif speaks in _FIRST_SPEAKS and taken == DETECTED:
        end = f"each connection loses {limit} (protocolDetectionTimeout)" if limit else "both wait until one gives up"
        text = (
            f"port {port.number} has no protocol by name ({how}), so the proxy waits for the client's first bytes; with {speaks} the"
            f" server speaks first: {end}"
        )
        yield failed(NAME, BOTH_WAIT, text, about, remedy=remedy, shown_by=show)
    elif taken == DETECTED:
        text = f"port {port.number} is {taken} ({how}): a server that speaks first would wait {limit or 'for ever'}"
        yield unknown(NAME, text, about, remedy=remedy, shown_by=show, kind=BOTH_WAIT)
    else:
        yield passed(NAME, f"port {port.number} is {taken} ({how})", about)
