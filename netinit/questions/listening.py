"""Who listens where captured connections arrive: what explain and verify say of it, with the codes of findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netinit.base.snapshot import Snapshot
from netinit.live.listeners import FULL, UNREAD
from netinit.live.recipients import APPLICATION, Recipient, examine, follow
from netinit.options import BACKENDS, TABLES_OF_OUR_OWN, SettledOptions
from netinit.questions.findings import NOTE, WARNING
from netinit.rules.model import Difference, Plan
from netinit.simulate.trace import Trace

LISTENER, REQUIRED = "listener", "--require-listener"  # kind of a difference, and the option that counts it


def follow_connection(trace: Trace, snapshot: Snapshot, backend: str, options: SettledOptions | None) -> tuple[Recipient, ...]:
    """Say who gets a connection with this path under the rules of `backend`, which `options` made (None: not known)."""
    return follow(trace, snapshot, continues=_lets_pass(backend, options), proxy_uids=_proxy_uids(options))


def examine_pod(snapshot: Snapshot | None, plan: Plan, backend: str) -> tuple[Recipient, ...]:
    """Return what is wrong with those who listen in a pod that has this plan; nothing if it was not asked who does."""
    if snapshot is None or snapshot.listeners is None:
        return ()
    options = plan.made_from if isinstance(plan.made_from, SettledOptions) else None
    return examine(snapshot, plan, continues=_lets_pass(backend, options), proxy_uids=_proxy_uids(options))


def _lets_pass(backend: str, options: SettledOptions | None) -> bool:
    """Whether TPROXY lets pass what no socket takes: in tables of nft as Istio makes them, without the rule that drops it then."""
    native = backend in BACKENDS and BACKENDS[backend].tables == TABLES_OF_OUR_OWN
    return native and (options is None or options.istio_exact)


def _proxy_uids(options: SettledOptions | None) -> tuple[int, ...]:
    """The proxy's users; none where the proxy is known by its mark."""
    return () if options is None or options.traits.proxy_mark else options.proxy_uids


def severity_of(recipient: Recipient) -> str:
    """WARNING for what keeps connections from the proxy; NOTE for what the application may want so, and what is not known."""
    problem = recipient.reception.problem
    return NOTE if problem == UNREAD or (recipient.who == APPLICATION and problem != FULL) else WARNING


def describe(recipient: Recipient) -> str:
    """What happens at one end of a connection, on a line that follows the verdict of the rules."""
    return f"then: {recipient.text} ({recipient.kind.code})" if recipient.kind else f"then: {recipient.text}"


def require(recipients: Iterable[Recipient]) -> tuple[Difference, ...]:
    """Return as differences what keeps captured connections from the proxy, or may."""
    return tuple([
        Difference(kind=LISTENER, where="sockets", rule=one.text, purpose=f"netinit help {one.kind.code}", origin=REQUIRED)
        for one in recipients
        if one.kind and (severity_of(one) == WARNING or one.reception.problem == UNREAD)
    ])  # fmt: skip


def to_object(recipient: Recipient) -> dict[str, Any]:
    """A recipient in the form of `listeners` of netinit/data/explain.schema.json."""
    found = recipient.reception
    return {
        "who": recipient.who, "address": recipient.address, "protocol": found.delivery.protocol, "outcome": recipient.outcome,
        "code": recipient.kind.code if recipient.kind else None, "severity": severity_of(recipient) if recipient.kind else None,
        "text": recipient.text, "users": sorted({one.uid for one in found.listeners}),
        "sockets": list(recipient.sockets),
    }  # fmt: skip
