"""TPROXY mode: marks route packets to the proxy's socket."""

from __future__ import annotations

from netinit.options import LOOP_MARK, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, proxy_owners
from netinit.rules.layouts.inbound import PASSTHROUGH, TCP, chosen, enter, finish, not_to_loopback
from netinit.rules.marking_targets import RestoreMark, SaveMark, SetMark
from netinit.rules.matches import Match
from netinit.rules.matches.context import BARE_SYN, ConnectionDirection, ConnectionState, Mark
from netinit.rules.matches.packet import InInterface, OutInterface
from netinit.rules.model import ANSWERS as ANSWERED
from netinit.rules.model import ISTIO_DIVERT, ISTIO_INBOUND, ISTIO_TPROXY, MANGLE, OUTPUT, PREROUTING
from netinit.rules.targets import Accept, Jump, Return, Tproxy

ORIGIN = "inbound_mode"
TRANSLATED = ConnectionState(states=("DNAT",))  # by nat, for a VM or by rules of REDIRECT mode: the translated destination counts
ANSWERS = ConnectionDirection(direction="REPLY")
BACK = InInterface(names=("lo",))
NOT_OPENING = BARE_SYN.replace(negated=True)


def divert(builder: Builder, options: Interception, captured: Match, known: Match, *, paired: bool) -> None:
    """Let packets of connections that the proxy has accepted skip TPROXY.

    Only replies to what the pod sends, with a SYN too if both ends open the connection at once, and what nat has redirected:
    otherwise TPROXY finds the proxy's socket in the original direction. A packet could reach a socket of the application: a
    SYN on an old conntrack entry or for a socket bound to the pod's address, or an ACK with a SYN cookie.
    """
    to_proxy, why = Jump(chain=ISTIO_DIVERT), "the proxy has this connection already"
    allowed: dict[tuple[Match, ...], str] = {(captured, known): why}
    if not options.istio_exact:
        first = (NOT_OPENING,) if captured == TCP else (captured, NOT_OPENING)
        translated = (known, TRANSLATED) if isinstance(known, ConnectionState) else (TRANSLATED,)  # whose socket has another address
        allowed = {(captured, known, ANSWERS): why, (*first, *translated): why}
        if options.traits.tproxy_by_socket:  # whose plan has no other rule for the loopback interface
            allowed[BACK, *first, known] = "the application talks to itself"
    promise = "" if options.istio_exact else ANSWERED
    for matches, why in allowed.items():
        builder.append(MANGLE, ISTIO_INBOUND, *matches, to=to_proxy, why=why, origin=ORIGIN, paired=paired, promise=promise)


def define_chains(builder: Builder, options: Interception, port: int, origin: str) -> None:
    """Add the chains that deliver connections to a transparent socket."""
    why = "the policy route delivers marked packets here"
    builder.append(MANGLE, ISTIO_DIVERT, to=SetMark(value=options.tproxy_mark), why=why, origin="tproxy_mark")
    builder.append(MANGLE, ISTIO_DIVERT, to=Accept(), why="no further rule applies to them", origin=ORIGIN)
    proxy = Tproxy(port=port, mark=options.tproxy_mark, closes=not options.istio_exact)
    why = "new connections go to the proxy, both addresses kept"
    builder.append(MANGLE, ISTIO_TPROXY, not_to_loopback(options), TCP, to=proxy, why=why, origin=origin)


def capture(builder: Builder, options: Interception) -> None:
    """Deliver connections to the chosen inbound ports to the proxy, with both addresses unchanged."""
    define_chains(builder, options, options.inbound_port, "inbound_port")
    enter(builder, options, MANGLE)
    established = ConnectionState(states=("RELATED", "ESTABLISHED"))
    divert(builder, options, chosen(options), established, paired=options.inbound_ports != ALL)
    finish(builder, options, MANGLE, ISTIO_TPROXY)


def mark_connections(builder: Builder, options: Interception) -> None:
    """Add Istio's rules for packets on the loopback interface, and for replies."""
    marked = Mark(value=options.tproxy_mark)
    out = OutInterface(names=("lo",))
    why = "answers find the proxy by the connection's mark"
    builder.append(MANGLE, PREROUTING, TCP, marked, to=SaveMark(), why=why, origin=ORIGIN)
    why = "the proxy passes on a captured connection"
    builder.append(MANGLE, OUTPUT, out, TCP, marked, to=Return(), why=why, origin=ORIGIN)
    loops, why = SetMark(value=LOOP_MARK), "application -> own service -> proxy -> this pod: inbound again"
    for owner, flag in proxy_owners(options):
        builder.append(MANGLE, OUTPUT, not_to_loopback(options), out, TCP, owner, to=loops, why=why, origin=flag)
    known = Mark(value=options.tproxy_mark, connection=True)
    why = "the application's answers go back to the proxy"
    builder.append(MANGLE, OUTPUT, TCP, known, to=RestoreMark(), why=why, origin=ORIGIN)
    builder.append(MANGLE, ISTIO_INBOUND, TCP, marked, inserted=True, to=Return(), why="captured already", origin=ORIGIN)
    why = "the proxy passes an inbound connection on to the application"
    builder.append(MANGLE, ISTIO_INBOUND, PASSTHROUGH, BACK, TCP, to=Return(), inserted=True, why=why, origin=ORIGIN)
    others, why = Mark(value=LOOP_MARK, negated=True), "the application talks to itself"
    builder.append(MANGLE, ISTIO_INBOUND, BACK, TCP, others, to=Return(), inserted=True, why=why, origin=ORIGIN)
