"""Simulates connections that begin on a conntrack entry which another connection left behind."""

from __future__ import annotations

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import Trace


def simulate_on_old_entries(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> list[Trace]:
    """Simulate a SYN on another connection's untranslated conntrack entry, for which nat is skipped.

    One trace per state (nf_conntrack_proto_tcp.c): NEW on an unanswered entry, ESTABLISHED on one that is open or
    was reset, INVALID in the reply direction.
    """
    if packet.protocol != "tcp":
        return []
    opening = packet.replace(flags=BARE_SYN.flags, destination_translated=False, is_answer=False)
    return [simulate(opening.replace(state=state), ruleset, surroundings) for state in ("NEW", "ESTABLISHED", "INVALID")]
