"""Send real connections through the rules before the proxy occupies its ports.

As in Istio the proxy's user connects to the passthrough address, which is redirected to the inbound port; netinit also
connects as the application to the outbound port. A connection counts if a random token arrives there with the original
destination.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from dataclasses import dataclass

from netinit.backends.machine import HERE
from netinit.base.errors import ValidationFailedError, ValidationImpossibleError, ValidationLateError
from netinit.base.logs import Log
from netinit.base.net import IPV4, IPV6, Family, lists_port
from netinit.base.system import posix
from netinit.kernel import children, detect, netlink
from netinit.kernel.sockets import become, listen, original_destination
from netinit.options import Options, RunOptions
from netinit.options.kinds import ALL

OUTSIDE = {IPV4: "192.0.2.1", IPV6: "2001:db8::1"}  # documentation addresses (RFC 5737, RFC 3849) without a server
APPLICATION_UID = 65534  # any user but the proxy's
TOKEN_BYTES = 16
UNREACHABLE = "no route"
LATE = "it did not arrive within --probe-timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One connection: user ID, destination, and the port at which it must arrive."""

    family: Family
    uid: int
    destination: tuple[str, int]
    port: int

    @property
    def what(self) -> str:
        """Who connects to where, for messages."""
        return f"uid {self.uid} to {self.destination[0]} port {self.destination[1]}"


def validate(options: Options, log: Log) -> None:
    """Prove that connections are captured in every enabled family.

    Raises ValidationFailedError (exit code 126), which names what was not captured, as ValidationLateError where none arrived
    elsewhere; ValidationImpossibleError.
    """
    settled = HERE.settle(options)
    families = [IPV4, IPV6] if settled.captures_ipv6 else [IPV4]
    deadline = time.monotonic() + options.probe_timeout / 10**9
    failures: list[str] = []
    obstacles: list[str] = []
    total = 0
    for family in families:
        probes = plan_probes(settled, family)
        for probe in probes:
            try:
                failure = _prove(probe, deadline)
            except ValidationImpossibleError as error:
                obstacles.append(f"{family.name}: {probe.what}: {error}")
                continue
            if failure == UNREACHABLE and probe.destination[0] != family.passthrough_address:
                log.info(f"{family.name}: {probe.what}: not proven, there is no route to {probe.destination[0]}")
            elif failure:
                failures.append(f"{family.name}: {probe.what}: {failure}")
            else:
                total += 1
                log.info(f"{family.name}: {probe.what}: captured on port {probe.port}, original destination kept")
        if not probes:
            obstacles.append(
                f"{family.name}: no connection can be made as the proxy: run as uid {settled.proxy_uids[0]}, or as root with SETUID"
            )
    if not total and not failures and not obstacles:
        obstacles.append("no connection could be made: the pod has neither addresses nor routes")
    if failures:
        kind = ValidationLateError if all(one.endswith(LATE) for one in failures) else ValidationFailedError
        raise kind("\n".join(["the rules do not capture what they must:", *_indent(failures + obstacles)]))
    if obstacles:
        raise ValidationImpossibleError("\n".join(["the rules could not be validated:", *_indent(obstacles)]))


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def plan_probes(options: RunOptions, family: Family) -> tuple[Proof, ...]:
    """Return the connections that must be captured and that this process can make."""
    proxy, port = options.proxy_uids[0], options.probe_port
    inbound = options.outbound_port if options.traits.has_one_port else options.inbound_port
    passthrough = family.passthrough_address if options.traits.has_passthrough or family is IPV4 else _own_address(family)
    found = []
    if passthrough and may_become(proxy) and (options.traits.has_passthrough or not options.keep_local_loopback):
        found.append(Proof(family=family, uid=proxy, destination=(passthrough, port), port=inbound))
    application = next((uid for uid in (APPLICATION_UID, posix.geteuid()) if may_become(uid) and uid not in options.proxy_uids), None)
    excluded = lists_port(options.exclude_outbound_ports, port) or options.owner_groups != ALL
    if application is not None and options.outbound_cidrs == ALL and not excluded and not options.exclude_outbound_cidrs:
        found.append(Proof(family=family, uid=application, destination=(OUTSIDE[family], port), port=options.outbound_port))
    return tuple(found)


def _own_address(family: Family) -> str:
    """Return an address of this pod: layouts without rules for a passthrough address need one for IPv6."""
    addresses = [address.address for address in netlink.list_addresses() if address.family == family.number]
    return next((address for address in addresses if address not in ("::1", "::6") and not address.startswith("fe80:")), "")


def may_become(uid: int) -> bool:
    """Whether this process may connect as that user."""
    return uid == posix.geteuid() or detect.has_capability(detect.CAP_SETUID)


def _prove(probe: Proof, deadline: float) -> str:
    """Make the connection; return "" if it arrived as required, else what happened."""
    token = os.urandom(TOKEN_BYTES)
    try:
        listener = listen(probe.family, probe.port)
    except OSError as error:
        raise ValidationImpossibleError(
            f"port {probe.port} cannot be listened on ({error.strerror}): validate before the proxy runs"
        ) from None
    with listener:
        left = max(0.01, deadline - time.monotonic())
        with children.start(lambda _: _connect(probe, token, deadline), seconds=left, what=probe.what, kept=None) as child:
            return _wait_for(listener, probe, token, deadline, child)


def _wait_for(listener: socket.socket, probe: Proof, token: bytes, deadline: float, child: children.Child) -> str:
    waited: list[socket.socket | children.Child] = [listener, child]
    while (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select(waited, [], [], left)
        if listener in readable:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                if _read_token(connection) == token:  # a connection of another process proves nothing
                    found = _compare_destination(connection, probe)
                    connection.sendall(token)
                    return found
        elif child in readable:
            status = child.receive()
            if status == errno.ETIMEDOUT:
                return LATE
            if status:
                return UNREACHABLE if status == errno.ENETUNREACH else f"the connection failed: {os.strerror(status)}"
            waited.remove(child)
    return LATE


def _read_token(connection: socket.socket) -> bytes:
    try:
        return connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
    except OSError:
        return b""


def _compare_destination(connection: socket.socket, probe: Proof) -> str:
    try:
        address, port = original_destination(connection, probe.family)
    except OSError as error:
        return f"arrived without an original destination ({error.strerror}): it was not redirected by these rules"
    if (address, port) == probe.destination:
        return ""
    return f"arrived on port {probe.port} with the original destination {address} port {port}"


def _connect(probe: Proof, token: bytes, deadline: float) -> int:
    """In the child: switch to the user and send the token; return 0 or the errno."""
    try:
        if probe.uid != posix.geteuid():
            become(probe.uid)
        with socket.socket(probe.family.number, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            if probe.destination[0] == IPV6.passthrough_address:  # otherwise the kernel picks ::6, which is excluded, as source
                connection.bind(("::1", 0))
            connection.connect(probe.destination)
            connection.sendall(token)
            answer = connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
    except TimeoutError:
        return errno.ETIMEDOUT
    except OSError as error:
        return error.errno or errno.EIO
    return 0 if answer == token else errno.EPROTO
