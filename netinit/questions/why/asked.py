"""What is asked: about a connection to or from the pod, its probes, a name, or its start."""

from __future__ import annotations

import re

from netinit.base.errors import OptionError
from netinit.base.net import join_host, parse_address
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.options.kinds import PORT
from netinit.questions.connections import refuse_url, unbracket

MAX_NAME = 253  # characters of a DNS name, RFC 1035
_LABEL = re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?")
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")  # an IANA service name, as Kubernetes takes them
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
CLUSTER_DOMAIN = "cluster.local"


class Endpoint(Record):
    """Where a connection goes: a host (a name, or an address) and a port, by number or name."""

    host: str
    port: str
    address: str = ""  # if the host is one

    @property
    def title(self) -> str:
        """As it was asked."""
        return join_host(self.host, self.port)

    @property
    def number(self) -> int:
        """The port; 0 for a name."""
        return int(self.port) if self.port.isdigit() else 0


class WhyQuestion(Record):
    """One question: `to`, `client` (with `port`), `probe` or `name`; the pod's start if none is given.

    `interface`: where a connection comes in. `uid`: who connects.
    """

    to: Endpoint | None = None
    client: str = ""
    port: str = ""
    probe: bool = False
    name: str = ""
    udp: bool = False
    interface: str = ""
    uid: str = ""

    @property
    def words(self) -> str:
        """The question in a few words."""
        over = " over UDP" if self.udp else ""
        if self.to:
            return f"to {quote(self.to.title)}{over}"
        if self.client:
            at = f" on {self.interface}" if self.interface else ""
            return f"from {quote(self.client)}{f' to port {self.port}' if self.port else ''}{over}{at}"
        return "probes" if self.probe else f"the name {quote(self.name)}" if self.name else "its start"

    @property
    def is_start(self) -> bool:
        """Whether nothing particular is asked."""
        return not (self.to or self.client or self.probe or self.name)


def read_asked(
    *, to: str = "", client: str = "", port: str = "", probe: bool = False, name: str = "", udp: bool = False, interface: str = "",
    uid: str = "",
) -> WhyQuestion:  # fmt: skip
    """Validate a question. Raises OptionError."""
    given = [label for label, value in (("--to", to), ("--from", client), ("--probe", probe), ("--dns", name)) if value]
    if len(given) > 1:
        raise OptionError(f"{given[1]}: {given[0]} asks something else; ask one at a time")
    for label, value, needs, there in (
        ("--port", port, "--from", client), ("--interface", interface, "--from", client), ("--uid", uid, "--to", to),
        ("--udp", udp, "--to or --from", to or client),
    ):  # fmt: skip
        if value and not there:
            raise OptionError(f"{label}: is about a connection; give it with {needs}")
    if port:
        _check_port(port, "--port")
    if client:
        _check_client(client)
    return WhyQuestion(
        to=_read_endpoint(to) if to else None, client=client, port=port, probe=probe,
        name=_read_name(name, "--dns") if name else "", udp=udp, interface=interface, uid=uid,
    )  # fmt: skip


def _read_endpoint(text: str) -> Endpoint:
    refuse_url(text, "--to")
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port or (":" in host and not host.startswith("[")):
        raise OptionError(f"--to: {quote(text)} has no port; give db.shop:5432, 10.1.2.3:443 or [fd00::1]:443")
    _check_port(port, "--to")
    host = unbracket(host, "--to")
    try:
        address = parse_address(host)
    except ValueError:
        return Endpoint(host=_read_name(host, "--to"), port=port)
    return Endpoint(host=address, port=port, address=address)


def _check_port(port: str, label: str) -> None:
    try:
        PORT.read(port)
    except ValueError:
        if port.isdigit() or not _PORT_NAME.fullmatch(port):
            raise OptionError(f"{label}: {quote(port)} is not a port; give a number from 1 to 65535, or a port's name") from None


def _read_name(text: str, label: str) -> str:
    if len(text) > MAX_NAME or not all(map(_LABEL.fullmatch, text.removesuffix(".").split("."))):
        raise OptionError(f"{label}: {quote(text)} is not a name of DNS; give db, db.shop or api.example.com")
    return text.lower()


def _check_client(text: str) -> None:
    try:
        parse_address(text)
    except ValueError:
        _, _, name = text.rpartition("/")
        if not _OBJECT_NAME.fullmatch(name) or text.count("/") > 1:
            raise OptionError(f"--from: {quote(text)} is neither an address nor a pod; give web, NAMESPACE/web or 10.1.2.3") from None


class ServiceName(Record):
    """A name as one of a Service: `name` and `namespace`; `pod`: the host before it, of a headless Service."""

    name: str
    namespace: str
    pod: str = ""


def read_service_name(host: str, namespace: str) -> ServiceName | None:
    """Read NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc…, as seen from a namespace; None for another name."""
    parts = host.removesuffix(".").split(".")
    if "svc" in parts[2:]:
        end = parts.index("svc", 2)
        if parts[end + 1 :] not in ([], CLUSTER_DOMAIN.split(".")):
            return None
        parts = parts[:end]
        return ServiceName(name=parts[-2], namespace=parts[-1], pod=".".join(parts[:-2]))
    if len(parts) == 1:
        return ServiceName(name=parts[0], namespace=namespace)
    return ServiceName(name=parts[0], namespace=parts[1]) if len(parts) == 2 else None  # noqa: PLR2004 - name, namespace
