"""Ports that are used again while connection tracking still remembers the connection before: refused where that would pass the proxy."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct

from calls import open_connection, request
from pods import EXCLUDED_IN, HTTP, OUTSIDE, OUTSIDE_DIRECT

DIRECT, CAPTURED, REFUSED = "direct", "captured", "refused"
TIMES = 4
_PORT = 9443  # no Service has it: a sidecar passes its connections on
_SECONDS = 3.0
_LINGER_RESET = struct.pack("ii", 1, 0)
_ports = itertools.count(7000)  # below those that kernels choose by themselves


def call_from_one_port(member, host, port):
    """Returns who answers each of a few requests that follow each other from one source port."""
    source_port = next(_ports)
    return [request(member, host, port, source_port=source_port).outcome for _ in range(TIMES)]


def call_again_after_reset(app, host):
    """A server resets a connection, and the application connects again from the port that the server saw: how that ends."""
    with socket.create_server((host, _PORT)) as server:
        server.settimeout(_SECONDS)
        with open_connection(app) as first:
            first.connect((host, _PORT))
            seen, (_, port) = server.accept()
            seen.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            seen.close()
            with contextlib.suppress(ConnectionError):
                assert not first.recv(1)
        with open_connection(app, port) as second:
            second.settimeout(_SECONDS)
            with contextlib.suppress(ConnectionError, TimeoutError):
                second.connect((host, _PORT))
                with contextlib.closing(server.accept()[0]) as seen:
                    return DIRECT if seen.getpeername()[1] == port else CAPTURED
    return REFUSED


def try_all(pair):
    """What happens to each way: who answers, or how the connection went out."""
    return {
        "plain to b": call_from_one_port(pair.plain.app, pair.b.address, HTTP),
        "a to an unknown network": call_again_after_reset(pair.a.app, OUTSIDE),
        "plain to b, excluded port": call_from_one_port(pair.plain.app, pair.b.address, EXCLUDED_IN),
        "a to b's service": call_from_one_port(pair.a.app, pair.service, 80),
        "a to an excluded network": call_again_after_reset(pair.a.app, OUTSIDE_DIRECT),
    }
