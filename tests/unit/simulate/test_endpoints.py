"""Packets in words, as answers and examples name them."""

from __future__ import annotations

import pytest

from core import IPV4, Packet, number_of
from netinit.simulate.endpoints import format_packet

OPENING = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("1.2.3.4"), destination_port=443, has_socket=True, uid=7, gid=8,
)  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), [
    ({}, ""),
    ({"state": "ESTABLISHED", "flags": ("ACK",)}, ", in the state ESTABLISHED"),
    ({"state": "INVALID", "flags": ("RST", "ACK")}, ", in the state INVALID, with FIN or RST"),
    ({"state": "INVALID", "flags": ("FIN",)}, ", in the state INVALID, with FIN or RST"),
    ({"state": "ESTABLISHED", "flags": ("ACK",), "is_answer": True, "destination_translated": True}, ", in the state ESTABLISHED, an answer, of a translated connection"),
])  # fmt: skip
def test_a_packet_that_opens_no_connection_says_in_which_state_it_is(changes, words):
    assert format_packet(OPENING.replace(**changes)) == f"TCP from 10.0.0.2 to 1.2.3.4:443, sent by uid 7, gid 8{words}"
