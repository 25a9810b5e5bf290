"""Connections of which a test holds both ends, to see whether they live on."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID

SECONDS = 1.0  # until an end that hears nothing counts as cut off


@dataclass
class Conversation:
    """One connection, by both of its ends."""

    client: socket.socket
    server: socket.socket
    listener: socket.socket

    def send(self, *, back=False):
        """`ok`, or how a byte sent from one end to the other failed."""
        sender, receiver = (self.server, self.client) if back else (self.client, self.server)
        try:
            sender.send(b"x")
            return "ok" if receiver.recv(1) else "closed"
        except OSError as error:
            return type(error).__name__

    @property
    def fate(self):
        return self.send(), self.send(back=True)


def make_socket(namespace, host, user):
    with namespace.entered(), creating_as(user, user):
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.settimeout(SECONDS)
    return made


def converse(stack, server, host, port, client, *, user=APP_ID, mapped="", mark=0):
    """A connection that has carried a byte each way. `mapped`: the client is a socket of IPv6 that names the host so."""
    listener = stack.enter_context(make_socket(server, host, APP_ID))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    calling = stack.enter_context(make_socket(client, mapped or host, user))
    if mark:
        calling.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    calling.connect((mapped or host, port))
    accepted = stack.enter_context(listener.accept()[0])
    accepted.settimeout(SECONDS)
    made = Conversation(calling, accepted, listener)
    assert made.fate == ("ok", "ok")
    return made


def track(pod):
    """Connection tracking is on already, as where any rule before has asked for it."""
    for program in ("iptables", "ip6tables"):
        pod.run([program, "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID"], check=True)
