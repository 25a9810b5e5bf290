"""One connection of somebody in a pod or outside, and what became of it."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
import struct
import time
from dataclasses import dataclass

RESET, SILENT = "reset", "no answer"
_LINGER_RESET = struct.pack("ii", 1, 0)  # close() sends RST, and the port is free at once
_SECONDS = 10.0


@dataclass
class Call:
    """`outcome`: the name of who answered, an HTTP status, or RESET; `source`: where it connected from, as log lines have it."""

    outcome: str
    source: str
    peer: str = ""  # whom the server saw
    identity: str = ""


def request(member, host, port, path="/", *, identity="", source_port=0):
    """One HTTP request on a connection of its own, which ends with a reset, so that its port can be used again."""
    with open_connection(member, source_port, 6 if ":" in host else 4) as made:
        try:
            made.connect((host, port))
        except OSError as error:
            return Call(_name(error), spell(made.getsockname()), identity=identity)
        source = spell(made.getsockname())
        connection = http.client.HTTPConnection(host, port)
        connection.sock = made
        try:
            connection.request("GET", path, headers={"x-request-id": identity} if identity else {})
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            return Call(_name(error), source, identity=identity)
    if answer.status == http.client.OK and body.startswith(b"{"):
        told = json.loads(body)
        return Call(told["server"], source, told["peer"], identity)
    return Call(str(answer.status), source, identity=identity)


def listen_to(member, host, port, *, source_port=0):
    """One connection to a server that greets: the name it tells."""
    with open_connection(member, source_port) as made:
        try:
            made.connect((host, port))
            source = spell(made.getsockname())
            line = made.makefile("rb").readline()
        except OSError as error:
            return Call(_name(error), spell(made.getsockname()))
    told = json.loads(line or b'{"name": "", "peer": ""}')
    return Call(told["name"] or RESET, source, told["peer"].rpartition(":")[0])


@contextlib.contextmanager
def open_connection(member, source_port=0, version=4):
    """A socket of theirs that resets its connection at the end of the block; bound to the port, where one is given."""
    made = member.open(version)
    try:
        made.settimeout(_SECONDS)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        if source_port:
            _bind_when_free(made, source_port)
        yield made
    finally:
        made.close()


def _bind_when_free(made, port):
    """Bind to a port that a proxy may hold until it has heard of the end of the connection before; pytest ends what waits for ever."""
    while True:
        try:
            made.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.01)
        else:
            return


def spell(address):
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def _name(error):
    """RESET and SILENT are outcomes; any other error is one of the test."""
    if isinstance(error, TimeoutError):
        return SILENT
    if isinstance(error, ConnectionError):
        return RESET
    raise error
