"""Log rules for --log-rules: report the verdict on new connections, with a prefix and a rate limit for each verdict."""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family
from netinit.options import REDIRECT, TPROXY, Interception
from netinit.rules import model
from netinit.rules.layouts.builder import Builder
from netinit.rules.layouts.dns import queries
from netinit.rules.layouts.inbound import TCP
from netinit.rules.layouts.outbound import QUIC
from netinit.rules.marking_targets import LogTarget
from netinit.rules.matches import Match
from netinit.rules.matches.context import ConnectionState, Limit
from netinit.rules.matches.packet import Protocol
from netinit.rules.model import FILTER, ISTIO_LOG, MANGLE, NAT, OUTPUT, PREROUTING
from netinit.rules.targets import Jump

LOG_LIMIT = Limit(rate=10, burst=20)
NEW = ConnectionState(states=("NEW",))  # for chains that see every packet; nat sees only the first of a connection
ORIGIN = "log_rules"


def report(builder: Builder, options: Interception, capture_dns: bool, refusing: tuple[Family, ...]) -> None:
    """Add a log rule before each rule that decides, and for the rest; QUIC is rejected in the families `refusing`."""
    add_report(builder, options, NAT, model.ISTIO_REDIRECT, TCP, fate="outbound")
    add_report(builder, options, NAT, model.ISTIO_IN_REDIRECT, TCP, fate="inbound")
    for families, matches in queries(options) if capture_dns else ():
        add_report(builder, options, NAT, model.ISTIO_OUTPUT_DNS, *matches, fate="dns", families=families)
    if options.inbound_mode == TPROXY and options.inbound_ports:
        add_report(builder, options, MANGLE, model.ISTIO_TPROXY, TCP, NEW, fate="inbound")
    if options.drop_invalid:
        add_report(builder, options, MANGLE, model.ISTIO_DROP, fate="dropped")
    if options.inbound_mode == REDIRECT and options.inbound_ports:  # in TPROXY mode nat sees what mangle has captured already
        _enter(builder, NAT, PREROUTING)
    _enter(builder, NAT, OUTPUT, families=tuple([family for family in FAMILIES if family not in refusing]))
    add_report(builder, options, NAT, ISTIO_LOG, fate="direct")
    if refusing:  # after nat, because QUIC that nat accepts may still be rejected
        _enter(builder, NAT, OUTPUT, Protocol(name="udp", negated=True), families=refusing)
        _enter(builder, NAT, OUTPUT, QUIC.replace(negated=True), families=refusing)
        _enter(builder, FILTER, OUTPUT, QUIC, NEW, families=refusing)
        add_report(builder, options, FILTER, ISTIO_LOG, fate="direct", families=refusing)


def _enter(builder: Builder, table: str, chain: str, *matches: Match, families: tuple[Family, ...] = FAMILIES) -> None:
    why = "what comes back from the rules is not captured"
    builder.append(table, chain, *matches, to=Jump(chain=ISTIO_LOG), why=why, origin=ORIGIN, families=families)


def add_report(
    builder: Builder, options: Interception, table: str, chain: str, *matches: Match, fate: str,
    families: tuple[Family, ...] = FAMILIES, inserted: bool = True,
) -> None:  # fmt: skip
    """Add a log rule with the prefix "netinit FATE: "."""
    builder.append(
        table, chain, *matches, LOG_LIMIT, to=LogTarget(prefix=f"netinit {fate}: ", group=options.log_group),
        why="new connections are reported", origin=ORIGIN, families=families, inserted=inserted,
    )  # fmt: skip
