"""Name servers and those who ask them: real DNS messages over UDP and TCP, each answered with a text (TXT).

A text is enough to see who answered, and a text that passed through somebody else's hands can say so.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections.abc import Callable, Sequence

__all__ = ["ask", "serve_names"]

_HEADER = struct.Struct("!6H")  # id, flags, questions, answers, two more counts
_TXT, _IN = 16, 1
_ANSWER = 0x8400  # a response, authoritative
_POINTER = 0xC00C  # the name at offset 12, where the question has it
_SECONDS = 10.0


def ask(asking: socket.socket, server: tuple[str, int], name: str) -> str:
    """The text that the server knows for the name; the socket (UDP or TCP) is connected and closed here.

    Raises OSError when nobody answers, ValueError when the answer is not one to this question.
    """
    question = (
        b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        + b"\0"
        + struct.pack("!2H", _TXT, _IN)
    )
    with asking:
        asking.settimeout(_SECONDS)
        asking.connect(server)
        identity = asking.getsockname()[1]  # as good as random: the port is
        query = _HEADER.pack(identity, 0x0100, 1, 0, 0, 0) + question
        _send(asking, query)
        answer = _receive(asking)
    text_at = len(query) + 12  # pointer, type, class, time to live, length
    if answer[:2] != query[:2] or answer[12 : len(query)] != question:
        raise ValueError(f"the answer is not one to {name}: {answer!r}")
    return answer[text_at + 1 : text_at + 1 + answer[text_at]].decode()


def serve_names(answer: Callable[[str, socket.socket], str], sockets: Sequence[socket.socket]) -> None:
    """Answers what comes in with the text that `answer` makes of the name and the socket it was asked at; never returns."""
    selector = selectors.DefaultSelector()
    for made in sockets:
        selector.register(made, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            asked = key.fileobj
            assert isinstance(asked, socket.socket)
            # A peer that is gone, or an upstream that does not answer, is the asker's to notice.
            with contextlib.suppress(OSError, ValueError):
                _answer_one(asked, answer)


def _answer_one(listening: socket.socket, answer: Callable[[str, socket.socket], str]) -> None:
    if listening.type == socket.SOCK_DGRAM:
        query, peer = listening.recvfrom(4096)
        listening.sendto(_reply(query, answer, listening), peer)
        return
    connection, _ = listening.accept()
    with connection:
        connection.settimeout(_SECONDS)
        _send(connection, _reply(_receive(connection), answer, connection))


def _reply(query: bytes, answer: Callable[[str, socket.socket], str], made: socket.socket) -> bytes:
    labels, at = [], _HEADER.size
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    text = answer(".".join(labels), made).encode()
    record = struct.pack("!3HIH", _POINTER, _TXT, _IN, 0, len(text) + 1) + bytes([len(text)]) + text
    return query[:2] + struct.pack("!5H", _ANSWER, 1, 1, 0, 0) + query[_HEADER.size : at + 5] + record


def _send(made: socket.socket, message: bytes) -> None:
    made.sendall(message if made.type == socket.SOCK_DGRAM else len(message).to_bytes(2) + message)


def _receive(made: socket.socket) -> bytes:
    if made.type == socket.SOCK_DGRAM:
        return made.recv(4096)
    length = int.from_bytes(_read(made, 2))
    return _read(made, length)


def _read(made: socket.socket, wanted: int) -> bytes:
    data = b""
    while len(data) < wanted:
        piece = made.recv(wanted - len(data))
        if not piece:
            raise ConnectionResetError("closed in the middle of a message")
        data += piece
    return data
