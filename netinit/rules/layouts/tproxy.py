"""TPROXY mode: marks that bring the proxy's and the application's local packets back to the right socket."""

from __future__ import annotations

from netinit.base.net import FAMILIES, Network
from netinit.options import LOOP_MARK, Interception
from netinit.rules.layouts.builder import Builder
from netinit.rules.layouts.inbound import TCP, not_to_loopback
from netinit.rules.matches import InInterface, Mark, OutInterface, Owner, Source
from netinit.rules.model import ISTIO_INBOUND, MANGLE, OUTPUT, PREROUTING
from netinit.rules.targets import RestoreMark, Return, SaveMark, SetMark

ORIGIN = "inbound_mode"


def mark_connections(builder: Builder, options: Interception) -> None:
    """Istio's rules for packets that pass the loopback interface in TPROXY mode, and for answers."""
    marked = Mark(value=options.tproxy_mark)
    out, back = OutInterface(names=("lo",)), InInterface(names=("lo",))
    builder.append(
        MANGLE, PREROUTING, TCP, marked, to=SaveMark(),
        why="answers find the proxy by the connection's mark", origin=ORIGIN,
    )  # fmt: skip
    builder.append(
        MANGLE, OUTPUT, out, TCP, marked, to=Return(),
        why="the proxy passes on a captured connection", origin=ORIGIN,
    )  # fmt: skip
    owners = [(Owner(kind="uid", number=uid), "proxy_uids") for uid in options.proxy_uids]
    owners += [(Owner(kind="gid", number=gid), "proxy_gids") for gid in options.proxy_gids]
    for owner, flag in owners:
        for family in FAMILIES:
            builder.append(
                MANGLE, OUTPUT, not_to_loopback(options, family), out, TCP, owner, to=SetMark(value=LOOP_MARK),
                why="application -> own service -> proxy -> this pod: inbound again", origin=flag, families=(family,),
            )  # fmt: skip
    known = Mark(value=options.tproxy_mark, connection=True)
    builder.append(
        MANGLE, OUTPUT, TCP, known, to=RestoreMark(),
        why="the application's answers go back to the proxy", origin=ORIGIN,
    )  # fmt: skip
    builder.insert(MANGLE, ISTIO_INBOUND, TCP, marked, to=Return(), why="captured already", origin=ORIGIN)
    for family in FAMILIES:
        source = Source(networks=(Network.parse(family.passthrough),))
        builder.insert(
            MANGLE, ISTIO_INBOUND, source, back, TCP, to=Return(),
            why="the proxy passes an inbound connection on to the application", origin=ORIGIN, families=(family,),
        )  # fmt: skip
    builder.insert(
        MANGLE, ISTIO_INBOUND, back, TCP, Mark(value=LOOP_MARK, negated=True), to=Return(),
        why="the application talks to itself", origin=ORIGIN,
    )  # fmt: skip
