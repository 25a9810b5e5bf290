"""Reject TCP connections that nat should have redirected but did not.

The kernel consults nat once per conntrack entry. A connection on an existing entry without a translation bypasses the
proxy: on one that the proxy's own connection left (10 seconds in CLOSE after a RST, 120 in SYN_SENT), or that a packet on
another interface created. Its SYN has the state NEW, ESTABLISHED or INVALID (nf_conntrack_proto_tcp.c). INVALID segments
without an entry could open a connection, or inject data into one of the proxy. Segments that close are not rejected.

Both ends may open a connection at once (RFC 9293, 3.5). A peer's SYN in the reply direction is ESTABLISHED only on an entry
whose own SYN nobody has answered yet, and passes. The pod's SYN and ACK that follows, in the original direction, is checked
instead: it comes from the socket that sent the SYN, or from a listener of the application on the proxy's entry.

The rules are derived from those of nat, so exactly what nat would redirect is rejected.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV6, Family
from netinit.options import Interception
from netinit.rules import model
from netinit.rules.layouts.builder import Builder, proxy_owners
from netinit.rules.layouts.inbound import PASSTHROUGH, TCP
from netinit.rules.layouts.outbound import ON_LOOPBACK
from netinit.rules.matches import Match
from netinit.rules.matches.context import BARE_SYN, AddressType, ConnectionDirection, ConnectionState, Mark, TcpFlags
from netinit.rules.matches.packet import AddressMatch, Destination, InInterface, Port, Protocol
from netinit.rules.model import (
    FILTER,
    FORWARD,
    INPUT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    NAT,
    OUTPUT,
    PREROUTING,
    SHARED,
    Rule,
)
from netinit.rules.targets import Accept, Drop, Jump, Redirect, Reject, Return

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ORIGIN = "istio_exact"
LOOK_AGAIN = "connections that nat has not redirected are checked again"
TO_DROP = Jump(chain=model.ISTIO_DROP)
REFUSE = Reject(message="tcp-reset")  # closes the caller's socket at once; after a drop a peer could still connect to it
CHAINS = frozenset((ISTIO_INBOUND, ISTIO_OUTPUT, model.ISTIO_PRERT))  # the chains of these rules, in the filter table
REDIRECTING = (model.ISTIO_REDIRECT, model.ISTIO_IN_REDIRECT)  # nat chains that only redirect
NOT_NAMING = ("", model.ISTIO_OUTPUT_DNS, *REDIRECTING)  # what a hook calls in nat beside the chain that filter repeats
NOT_LO = InInterface(names=("lo",), negated=True)
NOT_OUT_OF_LO = ON_LOOPBACK.replace(negated=True)
TO_LOOPBACK = Destination(networks=tuple([family.loopback_network for family in FAMILIES]))
NOT_TRANSLATED = ConnectionState(states=("DNAT",), negated=True)
NO_ENTRY = ConnectionState(states=("INVALID", "UNTRACKED"))  # unlike iptables' state, nft's conntrack status is not set for these
# Connections that a conntrack helper expects are translated like their parent, without consulting nat (nf_nat_follow_master).
EXPECTED_OR_UNTRACKED = ConnectionState(states=("RELATED", "UNTRACKED"))
INVALID = ConnectionState(states=("INVALID",))
# A FIN without an entry is INVALID too. Both ends of an excluded connection, and the proxy, must still see it, and no match
# distinguishes these from a captured one.
NOT_CLOSING = TcpFlags(mask=("FIN", "RST"), flags=())
SYN_AND_FIN = TcpFlags(mask=("FIN", "SYN"), flags=("FIN", "SYN"))  # closes nothing; a socket that waits for a SYN-ACK accepts it
NOT_OPENING = BARE_SYN.replace(negated=True)
NO_ANSWER = ConnectionDirection(direction="ORIGINAL")
SYN_AND_ACK = TcpFlags(mask=BARE_SYN.mask, flags=("SYN", "ACK"))
# Only a privileged process can set a mark, or a foreign rule: what a transparent proxy beside ours sends back over lo has one.
UNMARKED = Mark(value=0)
# nat's hook -> the filter hook that sees the same packets, and what is excluded there: nat is never consulted at PREROUTING
# about what the pod sends to itself.
_HOOKS: dict[str, tuple[str, tuple[Match, ...]]] = {PREROUTING: (INPUT, (NOT_LO,)), OUTPUT: (OUTPUT, ())}


def close_nat_gaps(builder: Builder, options: Interception) -> None:
    """Add the filter rules for gaps of nat and TPROXY; call it after nat's rules are complete."""
    if options.istio_exact:
        return
    if options.traits.has_passthrough:
        why = "only the proxy sends from this address, through lo"
        others = (PASSTHROUGH, NOT_LO, NOT_OPENING)
        builder.append(FILTER, INPUT, *others, to=TO_DROP, families=(IPV6,), why=why, origin=ORIGIN, promise=model.PASSTHROUGH)
    refuse(builder)
    if builder.rules_of(NAT, PREROUTING) or builder.rules_of(model.MANGLE, PREROUTING):
        _drop_other_names(builder, options)
    if options.virtual_interfaces and options.outbound_cidrs:
        coming, origin = InInterface(names=options.virtual_interfaces), "virtual_interfaces"
        why = "what a VM sends is forwarded as nat redirects it, or not at all"
        builder.append(FILTER, FORWARD, coming, TCP, NO_ENTRY, to=TO_DROP, why=why, origin=origin, promise=model.FORWARDED)
        again = Jump(chain=ISTIO_INBOUND)
        builder.append(
            FILTER, FORWARD, coming, BARE_SYN, NOT_TRANSLATED, to=again, why=LOOK_AGAIN, origin=origin, promise=model.FORWARDED
        )
    rules = [rule for hook in (INPUT, OUTPUT, FORWARD) for rule in builder.rules_of(FILTER, hook)]
    dropping = [rule for rule in rules if rule.target.calls == model.ISTIO_DROP]
    dropped = tuple([family for family in FAMILIES if any(family in rule.families for rule in dropping)])
    why = "dropped: no valid sender"
    builder.append(FILTER, model.ISTIO_DROP, to=Drop(), families=dropped, why=why, origin=ORIGIN, promise=SHARED)


def _drop_other_names(builder: Builder, options: Interception) -> None:
    """On lo, let the application reach only itself: other addresses would open the way for outside servers' replies."""
    others: tuple[Match, ...] = (UNMARKED,)
    if not options.traits.proxy_mark:  # an unmarked packet is not of a proxy that is known by its mark
        others += tuple([owner.replace(negated=True) for owner, _ in proxy_owners(options)])
    # After a foreign DNAT in nat's OUTPUT the packet is not routed again before filter's: it is still leaving through lo.
    for side, families, untouched in (("source", (IPV6,), ()), ("destination", FAMILIES, (NOT_TRANSLATED,))):
        foreign = AddressType(side=side, types=("LOCAL",), negated=True)
        matches = (ON_LOOPBACK, *others, BARE_SYN, foreign, *untouched)
        why = "only the proxy uses addresses other than the pod's over lo"
        builder.append(
            FILTER, OUTPUT, *matches, to=TO_DROP, families=families, why=why, origin=ORIGIN, promise=model.OWN_ADDRESSES
        )


def refuse(builder: Builder) -> None:
    """Add the filter rules that reject what the nat rules so far redirect."""
    for hook, (at, limits) in _HOOKS.items():
        decisions = [one for one in _decisions(builder, hook) if hook == OUTPUT or not _datagrams(one[0])]
        redirecting = [index for index, (_, rule) in enumerate(decisions) if not isinstance(rule.target, (Return, Accept))]
        families = tuple([one for one in FAMILIES if any(one in decisions[index][1].families for index in redirecting)])
        if not families:
            continue
        opening, invalid = limits, [(*limits, NOT_CLOSING, INVALID)]
        if hook == PREROUTING:
            invalid.append((*limits, SYN_AND_FIN, INVALID))
            ports = tuple(sorted({_port(builder, decisions[index][1]) for index in redirecting}))
            opening = (*limits, Port(protocol="tcp", ports=ports, negated=True))
        called = [rule.target.calls for rule in builder.rules_of(NAT, hook) if rule.target.calls not in NOT_NAMING]
        chain = (*called, ISTIO_INBOUND)[0]
        directed = (NO_ANSWER,) if hook == PREROUTING else ()
        checked: list[tuple[Match, ...]] = [
            (*opening, BARE_SYN, *directed, NOT_TRANSLATED), (*opening, BARE_SYN, EXPECTED_OR_UNTRACKED), *invalid,
        ]  # fmt: skip
        if hook == OUTPUT:
            checked.append((SYN_AND_ACK, NO_ANSWER, NOT_TRANSLATED))
        sent = dict.fromkeys([one for index in redirecting for one in _datagrams(decisions[index][0])])
        checked += [(one, NO_ANSWER, NOT_TRANSLATED) for one in sent]  # a server in the pod may answer a client with such a port
        for matches in checked:
            promise = model.HANDSHAKES if SYN_AND_FIN in matches else model.SEGMENTS if INVALID in matches else model.REUSE
            jump = Jump(chain=chain)
            builder.append(FILTER, at, *matches, to=jump, families=families, why=LOOK_AGAIN, origin=ORIGIN, promise=promise)
        for index, (matches, rule) in enumerate(decisions[: redirecting[-1] + 1]):
            _repeat(builder, chain, matches, rule, families, refused=index in redirecting)
        if hook == OUTPUT:
            elsewhere = (TO_LOOPBACK, NOT_OUT_OF_LO, BARE_SYN, NOT_TRANSLATED)
            why = "a socket bound to a device takes it to the loopback address of another host"
            promise = model.LOOPBACK
            builder.append(FILTER, OUTPUT, *elsewhere, to=TO_DROP, families=families, why=why, origin=ORIGIN, promise=promise)


def _repeat(
    builder: Builder, chain: str, matches: tuple[Match, ...], rule: Rule, families: tuple[Family, ...], *, refused: bool
) -> None:
    """Repeat a decision of nat in a filter chain: reject what nat redirects, accept what it accepts."""
    why = "not redirected by nat, so rejected" if refused else rule.comment
    origin = rule.origin.option if rule.origin else ""
    applying = tuple([one for one in rule.families if one in families])
    if refused and _datagrams(matches):
        for family in applying:  # reject messages differ by family
            builder.append(FILTER, chain, *matches, to=Reject(), why=why, origin=origin, families=(family,), promise=model.REUSE)
        return
    tcp = (TCP,) if refused and not any(isinstance(match, Port) for match in matches) else ()  # nat redirects only TCP
    if refused:  # an outsider may forge a segment that only claims to belong to a connection: a reset would end it
        at = next((number for number, one in enumerate(matches, 1) if isinstance(one, Port)), len(matches))  # one `-m tcp` for both
        later = (*matches[:at], NOT_OPENING, *matches[at:])
        builder.append(FILTER, chain, *later, to=Drop(), why=why, origin=origin, families=applying, promise=model.SEGMENTS)
    to, promise = (REFUSE, model.REUSE) if refused else (Return(), SHARED)
    builder.append(FILTER, chain, *matches, *tcp, to=to, why=why, origin=origin, families=applying, promise=promise)


def _datagrams(matches: tuple[Match, ...]) -> list[Port]:
    """Return the match for UDP to some ports, if nat's decision is about such."""
    return [match for match in matches if isinstance(match, Port) and match.protocol == "udp"]


def _decisions(
    builder: Builder, hook: str, chain: str = "", above: tuple[Match, ...] = ()
) -> Iterator[tuple[tuple[Match, ...], Rule]]:
    """Yield nat's decisions at a hook, in order: all matches that lead to a decision, and its rule.

    At OUTPUT only the proxy's own connections go to its inbound port; the rules after them accept these.
    """
    rules = builder.rules_of(NAT, chain or hook)
    for number, rule in enumerate(rules):
        matches = tuple([match for match in rule.matches if not isinstance(match, Protocol)])
        if above and matches and isinstance(matches[0], AddressMatch):  # in iptables' order: addresses before interfaces
            matches = (matches[0], *above, *matches[1:])
        else:
            matches = above + matches
        if not isinstance(rule.target, Jump):
            if isinstance(rule.target, (Redirect, Return, Accept)):
                yield matches, rule
        elif rule.target.chain in REDIRECTING:
            if hook != OUTPUT or rule.target.chain == model.ISTIO_REDIRECT:
                yield matches, rule
        elif rule.target not in [later.target for later in rules[number + 1 :]]:  # the later rule has fewer matches
            yield from _decisions(builder, hook, rule.target.chain, matches)


def _port(builder: Builder, rule: Rule) -> int:
    """Return the proxy's port that a rule redirects to: nat sets no status for connections to that port."""
    return rule.target.captures_at or next(one.target.captures_at for one in builder.rules_of(NAT, rule.target.calls))
